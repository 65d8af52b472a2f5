"""Start a training run from its recipe, or resume it from its folder."""

import os
import platform
import shutil
import subprocess
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
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
from pamcli.registry.catalog import locate, sha256
from pamcli.settings.training import TrainSettings
from pamcli.training import unlabelled_pairs as own
from pamcli.training.checkpoints import list_checkpoints, newest_checkpoint
from pamcli.training.distributed import Processes, wrap
from pamcli.training.examples import Examples, load_batches
from pamcli.training.initialisation import check_start, compile_blocks, initial_network
from pamcli.training.journal import Journal, Observer, RunFolder
from pamcli.training.labels import find_labels
from pamcli.training.loop import RunEnd, Stop, Trainer, agree_on_reason
from pamcli.training.recipe import Recipe
from pamcli.training.recipes import read_made_with, read_recipe, recipe_json
from pamcli.training.tasks import loss_function, model_spec
from pamcli.training.unlabelled_pairs import UnlabelledPairs
from pamcli.training.validation import Validator, measure_gain

_Unlabelled = list[tuple[DataSpec, UnlabelledPairs, UnlabelledPairs | None]]  # to learn; held out


def run(
    settings: TrainSettings, folder: RunFolder, recipe: Recipe | None, stop: Stop, observer: Observer
) -> RunEnd:
    """Start a run in a new folder, or resume it from its newest intact checkpoint if `recipe` is None.

    A resumed run takes `settings.steps` steps in total if given, also in the learning-rate schedule.
    """
    processes, resumed = Processes.from_environment(), recipe is None
    if recipe is None:
        folder.require_run()
        try:
            recipe = read_recipe(folder.recipe)
        except InputError as error:
            hint = f"correct it, or start a new run with `from` {quote(folder.last)}"
            raise InputError(error.message, hint) from error
        if recipe.task != settings.task:
            raise UsageError(f"{quote(folder.path)} is a run of pam train {recipe.task}")
    with lock_folder(folder.path) if processes.is_main else nullcontext():
        if not resumed and processes.is_main:
            folder.require_new()
        if resumed and settings.steps is not None:
            taken = max((step for step, _ in list_checkpoints(folder.checkpoints)), default=0)
            if settings.steps < taken:
                done = f"{quote(folder.path)} has {taken} steps"
                raise UsageError(f"{done}, so `steps` must be at least {taken}, got {settings.steps}")
            recipe = replace(recipe, steps=settings.steps, epochs=None)
            if processes.is_main:
                record = recipe_json(recipe, read_made_with(folder.recipe))
                write_atomically(folder.recipe, record.encode())
        return _run(settings, recipe, folder, stop, observer, resumed)


def _run(
    settings: TrainSettings, recipe: Recipe, folder: RunFolder, stop: Stop, observer: Observer, resumed: bool
) -> RunEnd:
    processes = Processes.from_environment()
    observer = observer if processes.is_main else Observer()
    if recipe.batch % processes.world:
        problem = f"`batch` must be a multiple of the {processes.world} processes, got {recipe.batch}"
        raise UsageError(problem, "`batch` counts the pairs of all processes")
    if not resumed:
        check_start(recipe)
    examples, about, unlabelled = _open_examples(recipe, folder)
    held_out = [(spec, pairs) for spec, _, pairs in unlabelled if pairs is not None]
    validator = None
    if processes.is_main and recipe.validation:
        validator = Validator.open(recipe.validation, recipe.scale)
    endless = any(source.endless for source in examples.sources)
    steps = recipe.count_steps(None if endless else sum(map(len, examples.sources)))
    before = read_made_with(folder.recipe) if resumed else {}
    if before.get("data", _list_fingerprints(examples)) != _list_fingerprints(examples):
        hint = f"restore it, or start a new run with `from` {quote(folder.last)}"
        change = "has changed: pairs or textures were added or removed"
        raise UsageError(f"the data of the run {quote(folder.path)} {change}", hint)
    checkpoint, damaged = newest_checkpoint(folder.checkpoints) if resumed else (None, [])
    for path in damaged:
        observer.inform(f"{quote(path)} is damaged and skipped")
    if damaged and checkpoint is None:
        raise ModelError(f"every checkpoint in {quote(folder.checkpoints)} is damaged", "start a new run")
    if checkpoint is not None and recipe.variant == PAPER:  # older recipes do not name every variant
        shapes = {key: value.shape for key, value in checkpoint.network.items()}
        recipe = replace(recipe, variant=recipe.row.find_variant(shapes))
    if not resumed and processes.is_main:
        tested = examples.sources if recipe.losses.needs_truth and not recipe.pseudo_labels else []
        texts = [source.spec.text for source in tested if source.spec]
        if validator is not None and recipe.task == "disparity":
            tested = tested + [source for spec, source in validator.sets if spec.text not in texts]
        for source in tested:
            if not source.endless and (warning := check_before_training(source)):
                observer.inform(warning)
    compute = devices.choose_training_compute(processes.device(settings.device), recipe.precision)
    devices.keep_freed_memory()

    def set_up_and_run() -> RunEnd:
        nonlocal validator
        with ExitStack() as stack:
            processes.require_same(f"{recipe_json(recipe)} {checkpoint.step if checkpoint else 0}")
            # A checkpoint replaces the initial weights, which may no longer exist.
            begins = recipe if checkpoint is None else replace(recipe, start=None)
            network = initial_network(begins).to(compute.device)
            if getattr(settings, "compile", False):
                compile_blocks(network, compute.device)
            loss = wrap(network, loss_function(recipe, compute, processes), processes, compute.device)
            measured = bool(held_out)
            trainer = Trainer(recipe, steps, network, loss, compute, processes, about, measures=measured)
            if checkpoint is not None:
                trainer.restore(checkpoint)
            journal = None
            if processes.is_main:
                if not resumed:
                    record = recipe_json(recipe, made_with(recipe, examples, compute, processes))
                    write_atomically(folder.recipe, record.encode())
                journal = stack.enter_context(Journal(folder, trainer.step))
            batch, rank = recipe.batch // processes.world, (processes.rank, processes.world)
            workers = settings.workers
            if workers is None:  # on a GPU, as many as there are cores beside it
                cores = 2 if compute.device.type == "cpu" else (os.cpu_count() or 1) // processes.world
                workers = max(1, cores - 1)
            batches = load_batches(examples, trainer.step, steps, batch, workers, *rank)
            stack.enter_context(closing(batches))  # ends the workers with the run
            for message in _describe(trainer, examples, unlabelled, before.get("precision")):
                observer.inform(message)
            if checkpoint is None and not _write_labels(unlabelled, trainer, stop, observer):
                return RunEnd(0, agree_on_reason(stop, processes))
            measurable = [(spec, pairs) for spec, pairs in held_out if own.has_labels(pairs)]
            for spec, pairs in held_out:
                if (spec, pairs) not in measurable:
                    observer.inform(f"{spec.label}: block matching finds nothing reliable in held-out pairs")
            if held_out and not measurable:
                observer.inform("the new weights cannot be compared with the initial ones")
                trainer.measures = False
            elif held_out and processes.is_main:
                validator = Validator(measurable, None, remark=own.REMARK, clearly=own.CLEARLY)
            stack.enter_context(devices.deterministic_algorithms(compute.device))
            stack.enter_context(devices.flush_denormals())
            end = trainer.run(batches, folder, journal, validator, stop, observer)
            gained = None
            if journal and validator and end.stopped is None:
                gained = measure_gain(journal.entries, validator)
            if gained:
                observer.inform(gained.describe(folder.best, folder.last))
        if processes.is_main and end.stopped is None:
            shutil.rmtree(folder.scenes, ignore_errors=True)
        return replace(end, gained=gained)

    with processes.connect(compute.device):
        return set_up_and_run()  # network and gradient exchange must be freed before disconnecting


def _describe(
    trainer: Trainer, examples: Examples, unlabelled: _Unlabelled, precision: str | None
) -> list[str]:
    recipe, compute = trainer.recipe, trainer.compute
    millions = sum(parameter.numel() for parameter in trainer.network.parameters()) / 1e6
    form = f", variant {recipe.form}" if recipe.form.changes else ""
    lines = [f"{recipe.architecture}{form}: {millions:.2f}M parameters"]
    lines.append(f"{trainer.about}; on {compute.device} in {compute.precision}")
    if (compute.device.type, compute.precision) == ("cpu", "bf16") and not devices.cpu_has_bf16():
        lines.append("this CPU emulates bf16, which is many times slower than fp32")
    if precision not in (None, compute.precision):
        lines.append(f"the run started in {quote(str(precision))}: its results differ from here on")
    if not recipe.validation:
        for _, pairs, held_out in unlabelled:
            lines += own.describe_split(pairs, held_out)
    if recipe.task == "disparity" and recipe.losses.needs_truth:
        for source in examples.sources:
            absent = [line for line in source.absent if line.startswith("no ground truth")]
            lines += [f"{source.label}: {line}" for line in absent]
    if not trainer.measures:
        lines.append("there is no validation data: the last weights are the result")
    if trainer.step == trainer.steps:
        lines.append(f"all {trainer.steps} steps are done; increase `steps` to extend the run")
    elif trainer.step:
        lines.append(f"continues after step {trainer.step}")
    return lines


def _check_patches(recipe: Recipe, spec: DataSpec, source: Source) -> None:
    """Raise UsageError if patches would have to be upscaled, because they would be blurred."""
    sample = source.load(0)
    if sample.low_left is None or len(sample.low_left) * (recipe.scale or 0) != len(sample.left):
        return  # another check rejects patches of another scale
    crops = [recipe.crop, *(size.crop for size in recipe.sizes if max(size.shares))]
    needed = max(crop[0] for crop in crops), max(crop[1] for crop in crops)
    patch = sample.low_left.shape[0], sample.low_left.shape[1]
    if patch[0] < needed[0] or patch[1] < needed[1]:
        problem = f"the patches of {quote(spec.text)} have {format_size(patch)} px, less than the crop"
        raise UsageError(f"{problem} of {format_size(needed)} px", f"set `crop` {format_size(patch)}")


def _open_examples(recipe: Recipe, folder: RunFolder) -> tuple[Examples, str, _Unlabelled]:
    """Return the examples of a recipe, a description of the data, and the pairs that need labels."""
    if not recipe.data:
        raise UsageError("no training data", "set `data` NAME:PATH; pam dataset list shows the names")
    specs = [parse_data(text) for text in recipe.data]
    sources = [(spec, open_data(spec).with_hard_cases(recipe.scenes.hard)) for spec in specs]
    unlabelled: _Unlabelled = []
    if recipe.pseudo_labels:
        for number, (spec, source) in enumerate(sources):
            if source.endless:
                problem = f"the recipe {recipe.name} computes pseudo-labels, which {spec.label} does not need"
                raise UsageError(problem, "use image pairs, or another recipe")
            share = 0.0 if recipe.validation else recipe.held_out
            unlabelled.append((spec, *own.split_pairs(source, share, folder.labels / str(number))))
        sources = [(spec, pairs) for spec, pairs, _ in unlabelled]
    elif not recipe.losses.needs_truth:
        sources = [(spec, source.without_truth()) for spec, source in sources]
    elif recipe.losses.mask_by_truth_below is not None or not recipe.has_unsupervised_terms:
        for spec, source in sources:
            if not source.has_truth():
                superres = "use a loss term without ground truth, such as losses.charbonnier"
                problem = f"{quote(spec.text)} has no ground truth, which the recipe {recipe.name} needs"
                layout = f"store it as `pam dataset list {spec.info.name}` shows"
                matching = f"{layout}, or use `unsupervised` to train on pairs alone"
                raise UsageError(problem, superres if recipe.task == "superres" else matching)
    for spec, source in sources:
        if source.has_patches:
            _check_patches(recipe, spec, source)
    examples = Examples(recipe, [(source, spec.weight) for spec, source in sources], folder.scenes)
    counts = ["" if source.endless else f" ({len(source)} pairs)" for _, source in sources]
    names = ", ".join(spec.label + count for (spec, _), count in zip(sources, counts, strict=True))
    start = "" if recipe.start is None else f" from {Path(recipe.start).name}"
    batch = f"batches of {recipe.batch} at {format_size(recipe.crop)}"
    about = f"recipe {recipe.name}{start}, {batch}, data {names}"
    return examples, about, unlabelled


def _write_labels(unlabelled: _Unlabelled, trainer: Trainer, stop: Stop, observer: Observer) -> bool:
    """Compute the labels before the first step, each process its share; return False if the run must stop."""
    processes = trainer.processes
    if not unlabelled:
        return True
    both = [pairs for _, *each in unlabelled for pairs in each if pairs is not None]
    if missing := sum(pairs.count_unlabelled() for pairs in both):
        observer.inform(f"computing pseudo-labels of {missing} pairs by the network and block matching")
    spec = model_spec(trainer.recipe, "")
    matcher = StereoMatcher(TorchModel(trainer.network, spec, trainer.compute), spec.max_disparity)
    complete = True
    for _, learned, held_out in unlabelled:
        for pairs, find in ((learned, partial(find_labels, matcher)), (held_out, own.match_blocks)):
            if complete and pairs is not None:
                share = range(processes.rank, len(pairs), processes.world)
                complete = own.write_labels(pairs, find, share, lambda: stop.reason is None)
    return not processes.any_true(not complete)


def made_with(recipe: Recipe, examples: Examples, compute: Compute, processes: Processes) -> dict[str, Any]:
    """Return versions and other facts that may affect the results of a run."""
    facts: dict[str, Any] = {
        "pam": pamcli.__version__,
        "commit": _find_commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        **compute.describe(),
        "threads": torch.get_num_threads(),
        "processes": processes.world,
        "data": _list_fingerprints(examples),
    }
    if recipe.start is not None:
        facts["start_sha256"] = sha256(locate(recipe.start))
    return facts


def _list_fingerprints(examples: Examples) -> list[str]:
    return [source.fingerprint() for source in examples.sources]


def _find_commit() -> str | None:
    """Return the git commit of pam, with "-dirty" if files differ; None outside of a checkout."""
    root = Path(pamcli.__file__).parents[1]
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    if (root / ".git").exists():
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=20, check=True)
            return done.stdout.strip()
    return None
