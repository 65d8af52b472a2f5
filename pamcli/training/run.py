"""Start a training run from its recipe, or resume it from its folder."""

import os
import platform
import shutil
import subprocess
import time
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

import pamcli
from pamcli.data.open import open_data, parse_data
from pamcli.data.source import DataSpec, Source, format_size
from pamcli.data.verify import check_before_training
from pamcli.errors import InputError, ModelError, UsageError
from pamcli.files.atomic import lock_folder, write_atomically
from pamcli.files.paths import quote
from pamcli.inference import device as devices
from pamcli.inference.device import Compute
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.model import TorchModel
from pamcli.registry.architectures import PAPER
from pamcli.registry.catalog import find_variant, locate, sha256
from pamcli.reporting import SILENT
from pamcli.settings.training import TrainSettings
from pamcli.training.distributed import Processes, wrap
from pamcli.training.examples import Examples, load_batches
from pamcli.training.initialisation import check_start, compile_blocks, initial_network
from pamcli.training.journal import Journal, Observer, RunFolder
from pamcli.training.labels import (
    CLEARLY,
    REMARK,
    UnlabelledPairs,
    describe_split,
    find_labels,
    has_labels,
    match_blocks,
    split_pairs,
)
from pamcli.training.loop import Loop, RunEnd, Stop, agree_on_reason
from pamcli.training.recipe import Recipe
from pamcli.training.recipes import read_made_with, read_recipe, recipe_json
from pamcli.training.trainer import (
    Checkpoint,
    Trainer,
    check_batch_norm,
    compute_loss,
    list_checkpoints,
    newest_checkpoint,
)
from pamcli.training.validation import Validator, measure_gain

LABEL_NEWS = 30.0  # time between two lines on the progress of pseudo-labels, s
Unlabelled = list[tuple[DataSpec, UnlabelledPairs, UnlabelledPairs | None]]  # pairs to learn, and held out


@dataclass(frozen=True)
class Run:
    """A run that is ready to train: everything that is known without its network."""

    settings: TrainSettings
    folder: RunFolder
    recipe: Recipe
    steps: int
    processes: Processes
    compute: Compute
    examples: Examples
    about: str  # data and recipe, for people
    unlabelled: Unlabelled
    validator: Validator | None
    checkpoint: Checkpoint | None  # the state to resume from
    made_with: dict[str, Any] | None  # the circumstances of the first start; None for a new run


def run(
    settings: TrainSettings, folder: RunFolder, recipe: Recipe | None, stop: Stop, observer: Observer
) -> RunEnd:
    """Start a run in a new folder, or resume it from its newest intact checkpoint if `recipe` is None.

    A resumed run takes `settings.steps` steps in total if given, also in the learning-rate schedule.
    """
    processes = Processes.from_environment()
    observer = observer if processes.is_main else SILENT
    if recipe is None and not folder.recipe.is_file():
        raise InputError(f"{quote(folder.path)} has no recipe.json", "use the folder of a training run")
    with lock_folder(folder.path) if processes.is_main else nullcontext():
        ready = prepare_run(settings, folder, recipe, processes, observer)
        with processes.connect(ready.compute.device):
            return _train(ready, stop, observer)  # frees network and gradient exchange before disconnecting


def prepare_run(
    settings: TrainSettings,
    folder: RunFolder,
    recipe: Recipe | None,
    processes: Processes,
    observer: Observer,
) -> Run:
    """Open the data and the newest checkpoint of a run, and check that it can train.

    `recipe`: None to resume. Writes nothing, except the new number of steps of a resumed run.
    """
    is_new, made_with = recipe is not None, None
    if recipe is None:
        recipe, made_with = _read_stored_recipe(settings, folder, processes)
    elif processes.is_main:
        folder.require_new()
    if recipe.batch % processes.world:
        problem = f"`batch` must be a multiple of the {processes.world} processes, got {recipe.batch}"
        raise UsageError(problem, "`batch` counts the pairs of all processes")
    if is_new:
        check_start(recipe)
    examples, about, unlabelled = _open_examples(recipe, folder)
    validator = None
    if processes.is_main and recipe.validation:
        validator = Validator.open(recipe.validation, recipe.scale)
    endless = any(map(attrgetter("endless"), examples.sources))
    steps = recipe.count_steps(None if endless else sum(map(len, examples.sources)))
    checkpoint = None
    if made_with is not None:
        if made_with.get("data", examples.fingerprints) != examples.fingerprints:
            hint = f"restore it, or start a new run with `from` {quote(folder.last)}"
            change = "has changed: pairs or textures were added or removed"
            raise UsageError(f"the data of the run {quote(folder.path)} {change}", hint)
        checkpoint = _read_checkpoint(folder, observer)
    elif processes.is_main:
        _check_truth(recipe, examples, validator, observer)
    if checkpoint is not None and recipe.variant == PAPER:  # older recipes do not name every variant
        shapes = {key: value.shape for key, value in checkpoint.network.items()}
        recipe = replace(recipe, variant=find_variant(recipe.row, shapes))
    compute = devices.Compute.choose(processes.device(settings.device), recipe.precision, reduce=True)
    devices.keep_freed_memory()
    data = examples, about, unlabelled, validator
    return Run(settings, folder, recipe, steps, processes, compute, *data, checkpoint, made_with)


def _read_stored_recipe(
    settings: TrainSettings, folder: RunFolder, processes: Processes
) -> tuple[Recipe, dict[str, Any]]:
    """Return the recipe of a run to resume, with the steps that the settings ask for, and its record."""
    try:
        recipe = read_recipe(folder.recipe)
    except InputError as error:
        hint = f"correct it, or start a new run with `from` {quote(folder.last)}"
        raise InputError(error.message, hint) from error
    if recipe.task != settings.task:
        raise UsageError(f"{quote(folder.path)} is a run of pam train {recipe.task}")
    made_with = read_made_with(folder.recipe)
    if settings.steps is not None:
        taken = max((step for step, _ in list_checkpoints(folder.checkpoints)), default=0)
        if settings.steps < taken:
            done = f"{quote(folder.path)} has {taken} steps"
            raise UsageError(f"{done}, so `steps` must be at least {taken}, got {settings.steps}")
        recipe = replace(recipe, steps=settings.steps, epochs=None)
        if processes.is_main:
            write_atomically(folder.recipe, recipe_json(recipe, made_with).encode())
    return recipe, made_with


def _read_checkpoint(folder: RunFolder, observer: Observer) -> Checkpoint | None:
    """Load the newest intact checkpoint, None if there is none yet; raise ModelError if all are damaged."""
    checkpoint, damaged = newest_checkpoint(folder.checkpoints)
    for path in damaged:
        observer.inform(f"{quote(path)} is damaged and skipped")
    if damaged and checkpoint is None:
        raise ModelError(f"every checkpoint in {quote(folder.checkpoints)} is damaged", "start a new run")
    return checkpoint


def _check_truth(recipe: Recipe, examples: Examples, validator: Validator | None, observer: Observer) -> None:
    """Test the ground truth of the data sets, once each; raise InputError if most of it does not fit."""
    tested = [*examples.sources] if recipe.losses.needs_truth and not recipe.pseudo_labels else []
    if validator is not None and recipe.task == "disparity":
        texts = [source.spec.text for source in tested if source.spec]
        tested += [source for spec, source in validator.sets if spec.text not in texts]
    for source in tested:
        if not source.endless and (warning := check_before_training(source)):
            observer.inform(warning)


def _open_examples(recipe: Recipe, folder: RunFolder) -> tuple[Examples, str, Unlabelled]:
    """Return the examples of a recipe, a description of the data, and the pairs that need labels."""
    if not recipe.data:
        raise UsageError("no training data", "set `data` NAME:PATH; pam dataset list shows the names")
    sources = []
    for spec in list(map(parse_data, recipe.data)):
        source = open_data(spec)
        sources.append((spec, source.with_hard_cases(recipe.scenes.hard) if source.endless else source))
    unlabelled: Unlabelled = []
    if recipe.pseudo_labels:
        for number, (spec, source) in enumerate(sources):
            if source.endless:
                problem = f"the recipe {recipe.name} computes pseudo-labels, which {spec.label} does not need"
                raise UsageError(problem, "use image pairs, or another recipe")
            share = 0.0 if recipe.validation else recipe.held_out
            unlabelled.append((spec, *split_pairs(source, share, folder.labels / str(number))))
        sources = [(spec, pairs) for spec, pairs, _ in unlabelled]
    elif not recipe.losses.needs_truth:
        sources = [(spec, source.without_truth()) for spec, source in sources]
    elif recipe.losses.mask_by_truth_below is not None or not recipe.losses.is_unsupervised:
        for spec, source in sources:
            if not source.has_truth():
                problem = f"{quote(spec.text)} has no ground truth, which the recipe {recipe.name} needs"
                layout = f"store it as `pam dataset list {spec.info.name}` shows"
                hint = f"{layout}, or use `unsupervised` to train on pairs alone"
                if recipe.task == "superres":
                    hint = "use a loss term without ground truth, such as losses.charbonnier"
                raise UsageError(problem, hint)
    weighted, names = [], []
    for spec, source in sources:
        if source.has_patches:
            _check_patches(recipe, spec, source)
        weighted.append((source, spec.weight))
        names.append(spec.label + ("" if source.endless else f" ({len(source)} pairs)"))
    examples = Examples(recipe, weighted, folder.scenes)
    start = "" if recipe.start is None else f" from {Path(recipe.start).name}"
    batch = f"batches of {recipe.batch} at {format_size(recipe.crop)}"
    return examples, f"recipe {recipe.name}{start}, {batch}, data {', '.join(names)}", unlabelled


def _check_patches(recipe: Recipe, spec: DataSpec, source: Source) -> None:
    """Raise UsageError if patches would have to be upscaled, because they would be blurred."""
    sample = source.load(0)
    if sample.low_left is None or len(sample.low_left) * (recipe.scale or 0) != len(sample.left):
        return  # another check rejects patches of another scale
    crops = [recipe.crop, *(size.crop for size in recipe.sizes if max(size.shares))]
    needed = tuple(map(max, zip(*crops, strict=True)))
    patch = sample.low_left.shape[:2]
    if patch[0] < needed[0] or patch[1] < needed[1]:
        problem = f"the patches of {quote(spec.text)} have {format_size(patch)} px, less than the crop"
        raise UsageError(f"{problem} of {format_size(needed)} px", f"set `crop` {format_size(patch)}")


def _train(run: Run, stop: Stop, observer: Observer) -> RunEnd:
    """Train a run in all processes; only the main one writes."""
    recipe, compute, processes, folder = run.recipe, run.compute, run.processes, run.folder
    if processes.world > 1:
        processes.require_same(f"{recipe_json(recipe)} {run.checkpoint.step if run.checkpoint else 0}")
    # A checkpoint replaces the initial weights, which may no longer exist.
    network = initial_network(recipe if run.checkpoint is None else replace(recipe, start=None))
    network = network.to(compute.device)
    check_batch_norm(recipe, network, processes, compute.device)
    if getattr(run.settings, "compile", False):
        compile_blocks(network, compute.device)
    loss = partial(compute_loss, recipe, compute, processes)
    joint = wrap(network, loss, processes, compute.device) if processes.world > 1 else partial(loss, network)
    trainer = Trainer(recipe, run.steps, network, joint, compute, processes)
    if run.checkpoint is not None:
        trainer.restore(run.checkpoint)
    with ExitStack() as stack:
        journal = None
        if processes.is_main:
            if run.made_with is None:
                record = recipe_json(recipe, _describe_circumstances(run))
                write_atomically(folder.recipe, record.encode())
            journal = stack.enter_context(Journal(folder, trainer.step))
        workers = run.settings.workers
        if workers is None:  # on a GPU, all cores but one
            cores = (os.cpu_count() or 1) // processes.world
            workers = 1 if compute.device.type == "cpu" else max(1, cores - 1)
        share = recipe.batch // processes.world, workers, processes.rank, processes.world
        batches = load_batches(run.examples, trainer.step, run.steps, *share)
        stack.enter_context(closing(batches))  # ends the workers with the run
        for message in _describe(run, trainer):
            observer.inform(message)
        validator, measures = run.validator, bool(recipe.validation)
        if run.unlabelled:
            if run.checkpoint is None and not _write_labels(run, trainer, stop, observer):
                return RunEnd(0, agree_on_reason(stop, processes))
            held_out = [(spec, pairs) for spec, _, pairs in run.unlabelled if pairs is not None]
            if held_out:
                validator = _validate_held_out(held_out, observer)
                measures = bool(recipe.validation or validator)
        stack.enter_context(devices.prepare_arithmetic(compute.device))
        loop = Loop(trainer, folder, run.about, journal, validator, measures, stop, observer)
        end = loop.run(batches)
        gain = measure_gain(journal.entries, validator) if journal and validator else None
        if gain is not None and end.stopped is None:
            observer.inform(gain.describe(folder.best, folder.last))
            end = replace(end, gained=gain)
    if processes.is_main and end.stopped is None:
        shutil.rmtree(folder.scenes, ignore_errors=True)
    return end


def _describe(run: Run, trainer: Trainer) -> list[str]:
    """Return what a person should know at the start of a run."""
    recipe, compute = run.recipe, run.compute
    millions = sum(map(torch.numel, trainer.network.parameters())) / 1e6
    form = f", variant {recipe.form.text}" if recipe.form.changes else ""
    lines = [f"{recipe.row.name}{form}: {millions:.2f}M parameters"]
    lines.append(f"{run.about}; on {compute.device} in {compute.precision}")
    if (compute.device.type, compute.precision) == ("cpu", "bf16") and not devices.cpu_has_bf16():
        lines.append("this CPU emulates bf16, which is many times slower than fp32")
    precision = (run.made_with or {}).get("precision")
    if precision not in (None, compute.precision):
        lines.append(f"the run started in {quote(str(precision))}: its results differ from here on")
    is_validated = bool(recipe.validation)
    for _, pairs, held_out in run.unlabelled:
        is_validated |= held_out is not None
        if not recipe.validation:
            lines += describe_split(pairs, held_out)
    if recipe.task == "disparity" and recipe.losses.needs_truth:
        for source in run.examples.sources:
            label = source.spec.label if source.spec else ""
            for line in source.absent:
                if line.startswith("no ground truth"):
                    lines.append(f"{label}: {line}")
    if not is_validated:
        lines.append("there is no validation data: the last weights are the result")
    if trainer.step == run.steps:
        return [*lines, f"all {run.steps} steps are done; increase `steps` to extend the run"]
    if trainer.step:
        lines.append(f"continues after step {trainer.step}")
    often = f"every {recipe.checkpoint_every} steps and " if recipe.checkpoint_every < run.steps else ""
    return [*lines, f"writes a checkpoint {often}at the end of the run, also when it is stopped"]


def _write_labels(run: Run, trainer: Trainer, stop: Stop, observer: Observer) -> bool:
    """Compute the labels before the first step, each process its share; return False if the run must stop."""
    spec, rank, world = run.recipe.model_spec(), run.processes.rank, run.processes.world
    matcher = StereoMatcher(TorchModel(trainer.network, spec, run.compute), spec.max_disparity)
    missing = [
        (pairs, index, find)
        for _, learned, held_out in run.unlabelled
        for pairs, find in ((learned, partial(find_labels, matcher)), (held_out, match_blocks))
        if pairs is not None
        for index in pairs.list_unlabelled()
    ]
    if missing:
        observer.inform(f"computing pseudo-labels of {len(missing)} pairs by the network and block matching")
    share = [each for each in missing if each[1] % world == rank]
    shown = time.monotonic()
    for done, (pairs, index, find) in enumerate(share):
        if stop.reason is not None or time.monotonic() - shown > LABEL_NEWS:
            observer.inform(f"{done} of {len(share)} pseudo-labels are written")
            shown = time.monotonic()
        if stop.reason is not None:
            break
        pairs.write_label(index, find)
    return not run.processes.any_true(stop.reason is not None)


def _validate_held_out(
    held_out: list[tuple[DataSpec, UnlabelledPairs]], observer: Observer
) -> Validator | None:
    """Return a validator on the held-out pairs that have labels, None if there are none."""
    measurable = [(spec, pairs) for spec, pairs in held_out if has_labels(pairs)]
    for spec, pairs in held_out:
        if (spec, pairs) not in measurable:
            observer.inform(f"{spec.label}: block matching finds nothing reliable in held-out pairs")
    if not measurable:
        observer.inform("the new weights cannot be compared with the initial ones")
        return None
    return Validator(measurable, None, remark=REMARK, clearly=CLEARLY)


def _describe_circumstances(run: Run) -> dict[str, Any]:
    """Return versions and other facts that may affect the results of a run."""
    facts: dict[str, Any] = {
        "pam": pamcli.__version__,
        "commit": _find_commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": str(run.compute.device),
        "precision": run.compute.precision,
        "threads": torch.get_num_threads(),
        "processes": run.processes.world,
        "data": run.examples.fingerprints,
    }
    if run.recipe.start is not None:
        facts["start_sha256"] = sha256(locate(run.recipe.start))
    return facts


def _find_commit() -> str | None:
    """Return the git commit of pam, with "-dirty" if files differ; None outside of a checkout."""
    root = Path(pamcli.__file__).parents[1]
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    if (root / ".git").exists():
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=20, check=True)
            return done.stdout.strip()
    return None
