"""Start a training run from its recipe, or resume it from its folder."""

import os
import platform
import shutil
import subprocess
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import pamcli
from pamcli.data.open import open_data, parse_data
from pamcli.data.source import DataSpec, Source
from pamcli.errors import InputError, ModelError, UsageError
from pamcli.files.atomic import lock_folder, write_atomically
from pamcli.files.paths import quote
from pamcli.inference.device import (
    Compute,
    choose_training_compute,
    deterministic_algorithms,
    processor_has_bf16,
)
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.memory import keep_freed_memory, without_denormals
from pamcli.inference.model import TorchModel
from pamcli.registry.architectures import Task
from pamcli.registry.catalog import locate, sha256
from pamcli.registry.load import Network
from pamcli.registry.spec import read_header
from pamcli.training.checkpoints import Checkpoint, list_checkpoints, newest_checkpoint
from pamcli.training.compiled import compile_blocks
from pamcli.training.crops import Crops
from pamcli.training.distributed import Processes, wrap
from pamcli.training.examples import Examples, loader
from pamcli.training.initialisation import check_start, initial_network
from pamcli.training.journal import Journal, NoObserver, Observer, RunFolder
from pamcli.training.labels import find_labels
from pamcli.training.loop import RunEnd, Stop, Trainer, reason_of
from pamcli.training.recipe import Recipe
from pamcli.training.recipes import read_made_with, read_recipe, recipe_json
from pamcli.training.tasks import loss_function, model_spec
from pamcli.training.unlabelled_pairs import (
    CLEARLY,
    REMARK,
    UnlabelledPairs,
    any_label,
    apart,
    said_of,
    sure_disparity,
    write_labels,
)
from pamcli.training.validation import Validator, gain


@dataclass(frozen=True)
class Machine:
    """The machine-dependent settings of a run, which affect only rounding."""

    device: str = "auto"
    workers: int | None = None
    """Worker processes per training process; 0 prepares examples between the steps. None = one, or as many as
    there are cores beside a GPU."""
    compile: bool = False
    """Compile the network's blocks first (`compiled`)."""

    def workers_beside(self, device: torch.device, processes: int) -> int:
        if self.workers is not None:
            return self.workers
        if device.type == "cpu":
            return 1
        return max(1, (os.cpu_count() or 1) // processes - 1)


def start(recipe: Recipe, folder: RunFolder, machine: Machine, stop: Stop, observer: Observer) -> RunEnd:
    """Train by a recipe into a new folder.

    Raises UsageError: the folder has contents, or the data do not suit the recipe; and PamError as the parts
    of a run raise it.
    """
    processes = Processes.from_environment()
    with lock_folder(folder.path) if processes.is_main else nullcontext():
        if processes.is_main:
            folder.require_new()
        return _run(recipe, folder, machine, processes, stop, observer, resumed=False)


def resume(
    folder: RunFolder,
    machine: Machine,
    stop: Stop,
    observer: Observer,
    steps: int | None = None,
    *,
    task: Task | None = None,
) -> RunEnd:
    """Resume a run from its newest intact checkpoint, or from its start if there is none.

    `steps`: total number of steps, replacing the recipe's, also in the learning-rate schedule. `task`: the
    expected task. Raises InputError: not a run folder, or no intact checkpoint; UsageError: more steps were
    taken already, or another task; and as `start`.
    """
    recipe, processes = recipe_of(folder), Processes.from_environment()
    if task not in (None, recipe.task):
        raise UsageError(f"{quote(folder.path)} is a run of pam train {recipe.task}")
    with lock_folder(folder.path) if processes.is_main else nullcontext():
        if steps is not None:
            taken = max((step for step, _ in list_checkpoints(folder.checkpoints)), default=0)
            if steps < taken:
                raise UsageError(f"{quote(folder.path)} has taken {taken} steps already, more than {steps}")
            recipe = replace(recipe, steps=steps, epochs=None)
            if processes.is_main:
                record = recipe_json(recipe, read_made_with(folder.recipe))
                write_atomically(folder.recipe, record.encode())
        return _run(recipe, folder, machine, processes, stop, observer, resumed=True)


def recipe_of(folder: RunFolder) -> Recipe:
    """Read the recipe of a run folder; raise InputError if it is missing or unreadable."""
    folder.require_run()
    try:
        return read_recipe(folder.recipe)
    except InputError as error:
        hint = f"mend it, or begin a new run from {quote(folder.last)}"
        raise InputError(error.message, hint) from error


def _run(
    recipe: Recipe,
    folder: RunFolder,
    machine: Machine,
    processes: Processes,
    stop: Stop,
    observer: Observer,
    *,
    resumed: bool,
) -> RunEnd:
    if not processes.is_main:
        observer = NoObserver()
    if recipe.batch % processes.world:
        raise UsageError(
            f"a batch of {recipe.batch} pairs cannot be shared by {processes.world} processes",
            f"a batch counts the pairs of all processes: a multiple of {processes.world}",
        )
    if not resumed:
        _check_beginning(recipe)
    examples, about, own = _examples(recipe, folder)
    aside = [(spec, kept) for spec, _, kept in own if kept is not None]
    validator = None
    if processes.is_main and recipe.validation:
        validator = Validator.open(recipe.validation, recipe.scale)
    elif processes.is_main and aside:
        validator = Validator(aside, None, remark=REMARK, clearly=CLEARLY)
    endless = any(source.endless for source in examples.sources)
    steps = recipe.steps_of(None if endless else examples.pass_length)
    before = read_made_with(folder.recipe) if resumed else {}
    if before.get("data", _fingerprints(examples)) != _fingerprints(examples):
        raise UsageError(
            f"the data is not what the run {quote(folder.path)} began with: pairs or textures came or went",
            f"put it back, or begin a new run from {quote(folder.last)}",
        )
    checkpoint = _newest(folder, observer) if resumed else None
    compute = choose_training_compute(processes.device(machine.device), recipe.precision)
    keep_freed_memory()

    def set_up_and_run() -> RunEnd:
        with ExitStack() as stack:
            processes.require_same(f"{recipe_json(recipe)} {checkpoint.step if checkpoint else 0}")
            # A checkpoint replaces the initial weights, which may no longer exist.
            begins = recipe if checkpoint is None else replace(recipe, start=None)
            network = initial_network(begins).to(compute.device)
            if machine.compile:
                compile_blocks(network, compute.device)
            loss = wrap(network, loss_function(recipe, compute, processes), processes, compute.device)
            trainer = Trainer(recipe, steps, network, loss, compute, processes, about, measures=bool(aside))
            if checkpoint is not None:
                trainer.restore(checkpoint)
            journal = None
            if processes.is_main:
                if not resumed:
                    record = recipe_json(recipe, made_with(recipe, examples, compute, processes))
                    write_atomically(folder.recipe, record.encode())
                journal = stack.enter_context(Journal(folder, trainer.step))
            batch, place = recipe.batch // processes.world, (processes.rank, processes.world)
            workers = machine.workers_beside(compute.device, processes.world)
            batches = loader(examples, trainer.step, steps, batch, workers, *place, Crops.of(recipe, steps))
            stack.enter_context(closing(batches))  # ends the workers with the run
            millions = sum(parameter.numel() for parameter in network.parameters()) / 1e6
            form = f", variant {recipe.form}" if recipe.form is not None and recipe.form.changes else ""
            observer.informed(f"{recipe.architecture}{form}: {millions:.2f}M parameters")
            observer.informed(f"{about}; on {compute.device} in {compute.precision}")
            if compute.device.type == "cpu" and compute.precision == "bf16" and not processor_has_bf16():
                observer.informed("this CPU emulates bf16, many times slower than fp32")
            if before.get("precision", compute.precision) != compute.precision:
                began = quote(before["precision"])
                observer.informed(f"the run began in {began}: from here on its figures differ")
            for _, learned, kept in own:
                for line in said_of(learned, kept) if not recipe.validation else ():
                    observer.informed(line)
            if recipe.losses.need_truth:
                for each in examples.sources:
                    for line in (line for line in each.absent if line.startswith("no truth")):
                        observer.informed(f"{each.label}: {line}")
            if not (recipe.validation or aside):
                observer.informed("no data to validate on, so no best: the last weights are the result")
            if trainer.step == steps:
                observer.informed(f"all {steps} steps have been taken; more steps would extend it")
            elif trainer.step:
                observer.informed(f"goes on after step {trainer.step}")
            if checkpoint is None and not _labelled(own, network, recipe, compute, processes, stop, observer):
                return RunEnd(0, reason_of(stop, processes))
            measuring = validator
            known = [(spec, kept) for spec, kept in aside if any_label(kept)]
            for spec, _ in (each for each in aside if each not in known):
                observer.informed(f"{spec.label}: block matching is sure of nothing in what is kept aside")
            if aside and not known:
                observer.informed("so nothing tells whether the new weights are better")
                trainer.measures, measuring = False, None
            elif measuring is not None and aside:
                measuring = Validator(known, None, remark=REMARK, clearly=CLEARLY)
            stack.enter_context(deterministic_algorithms(compute.device))
            stack.enter_context(without_denormals())
            end = trainer.run(batches, folder, journal, measuring, stop, observer)
            gained = journal and measuring and end.stopped is None and gain(journal.entries, measuring)
            if gained:
                observer.informed(gained.said(folder.best, folder.last))
        if processes.is_main and end.stopped is None:
            shutil.rmtree(folder.scenes, ignore_errors=True)
        return replace(end, gained=gained or None)

    with processes.connected(compute.device):
        return set_up_and_run()  # network and gradient exchange must be freed before disconnecting


def _check_beginning(recipe: Recipe) -> None:
    """Raise UsageError or ModelError unless the recipe suits its initial weights."""
    if recipe.start is not None:
        check_start(recipe.start, read_header(locate(recipe.start)).spec, recipe)
        if recipe.losses.estimate and recipe.reinitialise != "refine":
            raise UsageError(
                "the term estimate is for a refinement that begins anew: in weights it may be dead, and then "
                "its gradient drowns all others",
                "a weight of 0 for estimate, or the recipe refine",
            )
    elif recipe.freeze_batch_norm:
        raise UsageError(
            f"the recipe {recipe.name} keeps the batch norm that weights came with, and begins with none",
            f"it needs weights to begin with, as {recipe.architecture}",
        )
    elif recipe.after is not None:
        raise UsageError(
            f"the recipe {recipe.name} goes on from weights of the recipe {recipe.after}",
            f"begin with those of such a run, or with {recipe.architecture}",
        )


_Own = list[tuple[DataSpec, UnlabelledPairs, UnlabelledPairs | None]]
"""Per data set: the pairs to train on by pseudo-labels, and the held-out ones."""


def _check_patches(recipe: Recipe, spec: DataSpec, source: Source) -> None:
    """Raise UsageError if patches would have to be enlarged, because they would be blurred."""
    sample = source.load(0)
    if sample.low_left is None or len(sample.low_left) * (recipe.scale or 0) != len(sample.left):
        return  # another check rejects patches of another scale
    sizes = [(recipe.crop, 1.0), *((size.crop, max(size.shares)) for size in recipe.sizes)]
    wanted = [max(side) for side in zip(*(crop for crop, share in sizes if share), strict=True)]
    patch = sample.low_left.shape[:2]
    if any(side < most for side, most in zip(patch, wanted, strict=True)):
        said = f"the patches of {quote(spec.text)} have {patch[1]} x {patch[0]} px, fewer than the crop of"
        raise UsageError(f"{said} {wanted[1]} x {wanted[0]}", f"`crop` {patch[1]}x{patch[0]}")


def _examples(recipe: Recipe, folder: RunFolder) -> tuple[Examples, str, _Own]:
    """Return the examples of a recipe, a description of the data, and the pairs that need labels.

    Raises UsageError: no data, or pairs without ground truth for losses that need it.
    """
    if not recipe.data:
        raise UsageError("no data is given", "`data` NAME:PATH; pam dataset list shows the names")
    specs = [parse_data(text) for text in recipe.data]
    sources = [(spec, open_data(spec).with_hard_cases(recipe.scenes.hard)) for spec in specs]
    own: _Own = []
    if recipe.pseudo_labels:
        for number, (spec, source) in enumerate(sources):
            if source.endless:
                raise UsageError(
                    f"the recipe {recipe.name} is for pairs of a camera, and {spec.label} is none",
                    "leave it out, or give another recipe",
                )
            share = 0.0 if recipe.validation else recipe.held_out
            own.append((spec, *apart(source, share, folder.labels / str(number))))
        sources = [(spec, learned) for spec, learned, _ in own]
    elif not recipe.losses.need_truth:
        sources = [(spec, source.without_truth()) for spec, source in sources]
    elif recipe.losses.mask_by_truth_below is not None or not recipe.learns_without_truth:
        for spec, source in sources:
            if not source.has_truth():
                raise UsageError(
                    f"{quote(spec.text)} has no true disparity, and the recipe {recipe.name} learns from it",
                    "`unsupervised` learns from pairs alone"
                    if recipe.task == "disparity"
                    else "charbonnier, or another term that needs none, learns from pairs alone",
                )
    for spec, source in sources:
        if source.of_patches:
            _check_patches(recipe, spec, source)
    examples = Examples(
        [(source, spec.weight) for spec, source in sources],
        recipe.task,
        recipe.crop,
        recipe.seed,
        recipe.augmentation,
        scale=recipe.scale,
        drawing=recipe.scenes,
        folder=folder.scenes,
        pace=recipe.batch / Crops.of(recipe, 1).most(recipe.batch),
    )
    named = ", ".join(
        spec.label if source.endless else f"{spec.label} ({len(source)} pairs)" for spec, source in sources
    )
    height, width = recipe.crop
    start = "" if recipe.start is None else f" from {Path(recipe.start).name}"
    about = f"recipe {recipe.name}{start}, batches of {recipe.batch} at {width}x{height}, data {named}"
    return examples, about, own


def _labelled(
    own: _Own,
    network: Network,
    recipe: Recipe,
    compute: Compute,
    processes: Processes,
    stop: Stop,
    observer: Observer,
) -> bool:
    """Compute the labels before the first step, each process its share; return False if the run must stop."""
    if not own:
        return True
    if missing := sum(each.unlabelled() for _, *both in own for each in both if each is not None):
        observer.informed(f"finding labels first, of {missing} pairs, by the network and block matching")
    spec = model_spec(recipe, "")
    matcher = StereoMatcher(TorchModel(network, spec, compute), spec.max_disparity)
    going = True

    def go_on() -> bool:
        return stop.reason is None

    for _, learned, kept in own:
        for labelled, by in ((learned, partial(find_labels, matcher)), (kept, sure_disparity)):
            if going and labelled is not None:
                share = range(processes.rank, len(labelled), processes.world)
                going = write_labels(labelled, by, share, go_on)
    return not processes.any_of(not going)


def _newest(folder: RunFolder, observer: Observer) -> Checkpoint | None:
    checkpoint, damaged = newest_checkpoint(folder.checkpoints)
    for path in damaged:
        observer.informed(f"{quote(path)} is damaged and left out")
    if damaged and checkpoint is None:
        raise ModelError(f"no checkpoint in {quote(folder.checkpoints)} is whole", "start a new run")
    return checkpoint


def made_with(recipe: Recipe, examples: Examples, compute: Compute, processes: Processes) -> dict[str, Any]:
    """Return versions and other facts that may affect the results of a run."""
    found: dict[str, Any] = {
        "pam": pamcli.__version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        **compute.describe(),
        "threads": torch.get_num_threads(),
        "processes": processes.world,
        "data": _fingerprints(examples),
    }
    if recipe.start is not None:
        found["start_sha256"] = sha256(locate(recipe.start))
    return found


def _fingerprints(examples: Examples) -> list[str]:
    return [source.fingerprint() for source in examples.sources]


def _commit() -> str | None:
    """Return the git commit of pam, with "-dirty" if files differ; None outside of a checkout."""
    root = Path(pamcli.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        said = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() or None
