"""pam train: the networks learn, from known disparities or from pairs alone; what is said meanwhile."""

from __future__ import annotations

import datetime
import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import typer

from pamcli.cli import parsing
from pamcli.cli.console import Console, on_signals
from pamcli.cli.groups import OptionGroup, flag, option, set_options
from pamcli.cli.network import WEIGHTS
from pamcli.cli.options import DATA, FORM, Device, Messages, at_most_one
from pamcli.cli.progress import Progress
from pamcli.errors import UsageError
from pamcli.registry.architectures import names_of

if TYPE_CHECKING:
    from pamcli.registry.architectures import Task
    from pamcli.training.journal import Entry
    from pamcli.training.loop import Stop
    from pamcli.training.recipe import Recipe
    from pamcli.training.validation import Validated


ON_RESUMING = {
    "resume",
    "device",
    "workers",
    "compile",
    "max_minutes",
    "as_json",
    "quiet",
    "verbose",
    "steps",
}
"""Options that go with --resume; all others are the run's already."""


class Run(OptionGroup, panel="Output"):
    """The run's folder, and how it is reported."""

    output: Path | None = option("The new run's folder.", "-o", metavar="RUN")
    resume: Path | None = option("Go on with a run that was stopped.", metavar="RUN")
    max_minutes: float | None = option("Stop cleanly after so many minutes; --resume goes on.", metavar="X")
    as_json: bool = flag("Print every line of the log on stdout, one JSON object a line.", "--jsonl")


class Source(OptionGroup, panel="Input"):
    """What is learned from, and measured on."""

    data: list[str] | None = option(
        "Learn from this data set of `pam dataset list`; given several times, ?weight= mixes them.",
        **(DATA | {"metavar": FORM}),
    )
    crop: tuple[int, int] | None = option(
        "Train on crops of this size, pixels.", metavar="WxH", parse=parsing.crop
    )
    validation: list[str] | None = option(
        "Measure the weights on this data set; the best are kept as best.", "--val", **DATA
    )


class Learning(OptionGroup, panel="Learning"):
    """The recipe, and what is changed in it."""

    recipe: str | None = option(
        "Train by one of pam's recipes (pam guide training), or a run's recipe.json; options change it.",
        metavar="NAME|FILE.json",
        parse=parsing.name,
    )
    steps: int | None = option("Learn from so many batches in all; with --resume: go on to so many.", min=1)
    epochs: float | None = option("Learn from so many passes over the data, instead of --steps.")
    batch: int | None = option("Take so many pairs in a step, over all processes of torchrun.", min=1)
    learning_rate: float | None = option("Set the highest learning rate of the schedule.", metavar="X")
    settings: list[tuple[str, str]] | None = option(
        "Set any value of the recipe, as in losses.pam=0, ema=0.99 or schedule.kind=cosine (pam guide "
        "training); may be given several times.",
        "--set",
        metavar="KEY=VALUE",
        parse=parsing.setting,
    )
    seed: int | None = option("Draw fresh weights and examples from this seed.", min=0)


class Start(OptionGroup, panel="Network"):
    """The weights to begin with, and which of them learn."""

    start: str | None = option(
        "Begin with these weights: a name of `pam weights list`, or a file.",
        "--from",
        parse=parsing.name,
        **(WEIGHTS | {"metavar": "WEIGHTS"}),
    )
    variant: str | None = option(
        "Train a network of other parts, as in blocks=2,refinement=none.",
        metavar="KEY=VALUE,...",
    )


class Machine(Device):
    """Where and how to compute."""

    precision: Literal["auto", "fp32", "bf16", "fp16"] | None = option(
        "Compute in this precision; auto: the fastest that the processor has."
    )
    workers: int | None = option("Prepare examples in N processes (0: none of their own).", min=0, max=256)


class Training(Messages, Machine, Start, Learning, Source, Run, panel="Network"):
    """What the command line says; None = nothing."""


def _network(task: Task) -> Any:
    help_text = "Train this network; by default that of the recipe, or of --from."
    return option(help_text, metavar="|".join(names_of(task)))


class MatcherTraining(Training):
    """Options of pam train disparity."""

    unsupervised: bool = flag(
        "Learn from pairs alone, from the default weights unless others are named; no truth is opened.",
        rich_help_panel="Learning",
    )
    network: str | None = _network("disparity")
    max_disparity: int | Literal["stored"] | None = option(
        "Train with this largest disparity as a prior, which is stored with the weights.",
        default="stored",
        metavar="N|none",
        parse=parsing.prior,
        show_default=False,
    )


class UpscalerTraining(Training):
    """Options of pam train superres."""

    network: str | None = _network("superres")
    scale: int | None = option("Learn to enlarge 2, 3, 4 or 8 times on each side.", metavar="2|3|4|8")
    compile: bool = flag(
        "Compile PASSRnet 2 first, for a GPU: it then learns half as fast again or more.",
        rich_help_panel="Performance",
    )


AnyTraining = MatcherTraining | UpscalerTraining


def disparity(given: MatcherTraining) -> None:
    """Train a matcher.

    Recipes: scratch, scenes, refine, pasmnet2, unsupervised, adapt, paper-sceneflow, paper-kitti.

    The weights, checkpoints, log and pictures go to the folder of -o; stdout names the weights.

    $ pam train disparity --data procedural:photos/ --steps 20000 -o runs/pasmnet
    $ pam train disparity --data pairs:mine/ --unsupervised -o runs/mine
    """
    _train("disparity", given)


def superres(given: UpscalerTraining) -> None:
    """Train PASSRnet, or PASSRnet 2.

    Recipes: superres (the default), passrnet2, passrnet2-psnr, passrnet2-camera, paper-superres.

    The weights, checkpoints, log and pictures go to the folder of -o; stdout names the weights.

    $ pam train superres --scale 4 --data pairs:mine/ --data 'procedural:photos/?weight=2' -o runs/sr4
    $ pam train superres --resume runs/sr4
    """
    _train("superres", given)


def _train(task: Task, given: AnyTraining) -> None:
    console = given.console(jsonl=given.as_json)
    _check(given)
    from pamcli.training.journal import RunFolder

    folder = RunFolder(given.output or given.resume or Path())
    recipe = None
    if given.resume is None:
        folder.require_new()
        recipe = make_recipe(task, given)
    # From here on torch is needed: what is wrong with the options has been said.
    with console.starting("PyTorch"):
        from pamcli.training import run
        from pamcli.training.distributed import Processes
        from pamcli.training.loop import Stop

    compiles = isinstance(given, UpscalerTraining) and given.compile
    machine = run.Machine(given.device, given.workers, compiles)
    stop = Stop(given.max_minutes)
    is_main = Processes.from_environment().is_main
    with _signals(stop), console.progress("steps", None) if is_main else nullcontext(Progress()) as bar:
        watcher = _Watcher(console, bar)
        if recipe is not None:
            outcome = run.start(recipe, folder, machine, stop, watcher)
        else:
            outcome = run.resume(folder, machine, stop, watcher, given.steps, task=task)
    if is_main:
        if outcome.stopped is not None:
            go_on = f"pam train {task} --resume {folder.path}"
            console.inform(f"stopped after step {outcome.step}; to go on: {go_on}")
        weights = folder.best if folder.best.is_file() else folder.last
        if console.jsonl or (outcome.stopped in (None, "time") and weights.is_file()):
            values: dict[str, Any] = {"step": outcome.step, "stopped": outcome.stopped, "weights": weights}
            if outcome.gained is not None:
                values["gained"] = asdict(outcome.gained)
            console.answer(values, str(weights))
    if code := {"interrupted": 130, "terminated": 143}.get(outcome.stopped or "", 0):
        raise typer.Exit(code)


def _check(given: AnyTraining) -> None:
    """Raise UsageError for what is wrong by itself, before torch is imported."""
    if given.resume is not None:
        if begins := set_options(given, without=ON_RESUMING):
            raise UsageError(
                f"{begins[0]} and --resume contradict each other: a run goes on as it began",
                "a new run may begin with its weights: --from RUN/last.safetensors",
            )
    elif given.output is None:
        raise UsageError("no folder is given for the run", "-o RUN, or --resume RUN")
    at_most_one({"--steps": given.steps, "--epochs": given.epochs})
    from pamcli.data.open import parse_data

    for text in [*(given.data or ()), *(given.validation or ())]:
        parse_data(text)


def make_recipe(task: Task, given: AnyTraining) -> Recipe:
    """Find the recipe that is asked for, changed by the options that are given. Raises as `asked_recipe`."""
    from pamcli.training.recipe import Recipe
    from pamcli.training.recipes import asked_recipe

    said = {each.name: getattr(given, each.name, None) for each in fields(Recipe)}
    values = {name: value for name, value in said.items() if value not in (None, [], "stored")}
    if isinstance(given, MatcherTraining) and given.max_disparity != "stored":
        values["max_disparity"] = given.max_disparity
    return asked_recipe(
        task,
        given.recipe,
        values,
        dict(given.settings or ()),
        unsupervised=isinstance(given, MatcherTraining) and given.unsupervised,
    )


def _signals(stop: Stop) -> AbstractContextManager[None]:
    """The first Ctrl-C or SIGTERM asks the run to stop after its step, the second ends it at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.reason in ("interrupted", "terminated"):
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            sys.exit(128 + number)
        stop.ask("interrupted" if number == signal.SIGINT else "terminated")
        if number == signal.SIGINT:  # not through a stream, which may be in the middle of a line
            os.write(2, b"\npam: stops after this step and a checkpoint; Ctrl-C again ends at once\n")

    return on_signals(on_signal)


class _Watcher:
    """Shows how a run goes: on a bar where one is drawn, else in lines."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self.console, self.bar, self.steps = console, bar, 0

    def started(self, step: int, steps: int) -> None:
        self.steps = steps
        self.bar.show(completed=step, total=steps)

    def stepped(self, step: int) -> None:
        self.bar.show(completed=step)

    def logged(self, entry: Entry) -> None:
        if self.console.jsonl:
            self.console.record(dict(entry))
        loss = f"loss {entry['loss']:.4g}"
        figures = f", rate {entry['learning_rate']:.2e}, {entry['pairs']:,} pairs"
        figures += f", {entry['pairs_per_second']:.2f} a second"
        figures += f", waiting {entry['waiting']:.0%}, preparing {entry['preparing']:.0%}"
        if left := datetime.timedelta(seconds=round(3600 * entry["hours_left"])):
            figures += f", {left} left"
        self.bar.show(rate=f"{loss}{figures}")
        if not self.console.draws:
            terms = ", ".join(f"{name} {value:.4g}" for name, value in entry["losses"].items())
            self.console.inform(f"step {entry['step']} of {self.steps}: {loss} ({terms}){figures}")

    def validated(self, step: int, validated: Validated, best: bool) -> None:
        if self.console.jsonl:
            figures = {"figure": validated.figure, "validation": validated.figures, "best": best}
            self.console.record({"step": step, **figures})
        for line in validated.lines():
            self.console.inform(f"validation at step {step}: {line}{' (best)' if best else ''}")

    def informed(self, message: str) -> None:
        self.console.inform(message)
