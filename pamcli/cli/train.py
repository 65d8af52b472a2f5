"""pam train: the networks learn, from known disparities or from pairs alone; what is said meanwhile."""

from __future__ import annotations

import datetime
import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

from pamcli.cli.console import Console, Messages, on_signals
from pamcli.reporting import SILENT
from pamcli.settings.options import flag
from pamcli.settings.training import TrainDisparitySettings, TrainSettings, TrainSuperresSettings

if TYPE_CHECKING:
    from pamcli.training.journal import Entry
    from pamcli.training.loop import Stop
    from pamcli.training.validation import Validated

AS_JSON = flag(
    "Print every line of the log on stdout, one JSON object a line.", "--jsonl", rich_help_panel="Output"
)


def disparity(settings: TrainDisparitySettings, messages: Messages, as_json: bool = AS_JSON) -> None:
    """Train a matcher.

    Recipes: scratch, scenes, refine, pasmnet2, unsupervised, adapt, paper-sceneflow, paper-kitti.

    The weights, checkpoints, log and pictures go to the folder of -o; stdout names the weights.

    $ pam train disparity --data procedural:photos/ --steps 20000 -o runs/pasmnet
    $ pam train disparity --data pairs:mine/ --unsupervised -o runs/mine
    """
    _train(settings, messages.console(jsonl=as_json))


def superres(settings: TrainSuperresSettings, messages: Messages, as_json: bool = AS_JSON) -> None:
    """Train PASSRnet, or PASSRnet 2.

    Recipes: superres (the default), passrnet2, passrnet2-psnr, passrnet2-camera, paper-superres.

    The weights, checkpoints, log and pictures go to the folder of -o; stdout names the weights.

    $ pam train superres --scale 4 --data pairs:mine/ --data 'procedural:photos/?weight=2' -o runs/sr4
    $ pam train superres --resume runs/sr4
    """
    _train(settings, messages.console(jsonl=as_json))


def _train(settings: TrainSettings, console: Console) -> None:
    from pamcli.training.train import planned

    folder, recipe = planned(settings)
    # From here on torch is needed: what is wrong with the options has been said.
    with console.starting("PyTorch"):
        from pamcli.training.distributed import Processes
        from pamcli.training.loop import Stop
        from pamcli.training.train import run

    stop, is_main = Stop(settings.max_minutes), Processes.from_environment().is_main
    with _signals(stop), console.progress("steps", None) if is_main else nullcontext(SILENT) as bar:
        outcome = run(settings, folder, recipe, stop, _Watcher(console, bar))
    if is_main:
        if outcome.stopped is not None:
            go_on = f"pam train {settings.task} --resume {folder.path}"
            console.inform(f"stopped after step {outcome.step}; to go on: {go_on}")
        weights = folder.weights
        if console.jsonl or (outcome.stopped in (None, "time") and weights.is_file()):
            values: dict[str, Any] = {"step": outcome.step, "stopped": outcome.stopped, "weights": weights}
            if outcome.gained is not None:
                values["gained"] = asdict(outcome.gained)
            console.answer(values, str(weights))
    if code := {"interrupted": 130, "terminated": 143}.get(outcome.stopped or "", 0):
        raise typer.Exit(code)


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

    def __init__(self, console: Console, bar: Any) -> None:
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
