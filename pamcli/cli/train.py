"""Run `pam train` and show the progress of a run."""

import datetime
import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

from pamcli.cli.console import Console, handle_signals
from pamcli.reporting import SILENT
from pamcli.settings.training import TrainDisparitySettings, TrainSettings, TrainSuperresSettings

if TYPE_CHECKING:
    from pamcli.training.journal import Entry
    from pamcli.training.loop import Stop
    from pamcli.training.validation import ValidationResult


def disparity(settings: TrainDisparitySettings, console: Console) -> None:
    """Train a matcher.

    Recipes: scratch, scenes, refine, pasmnet2, unsupervised, adapt, paper-sceneflow, paper-kitti.

    Weights, checkpoints, log and images are written to the folder of -o. The path of the weights is printed.

    $ pam train disparity --data procedural:photos/ --steps 20000 -o runs/pasmnet
    $ pam train disparity --data pairs:mine/ --unsupervised -o runs/mine
    """
    _train(settings, console)


def superres(settings: TrainSuperresSettings, console: Console) -> None:
    """Train PASSRnet, or PASSRnet 2.

    Recipes: superres (the default), passrnet2, passrnet2-psnr, passrnet2-camera, paper-superres.

    Weights, checkpoints, log and images are written to the folder of -o. The path of the weights is printed.

    $ pam train superres --scale 4 --data pairs:mine/ --data 'procedural:photos/?weight=2' -o runs/sr4
    $ pam train superres --resume runs/sr4
    """
    _train(settings, console)


def _train(settings: TrainSettings, console: Console) -> None:
    from pamcli.training.recipes import plan_run

    folder, recipe = plan_run(settings)
    # Only from here on is torch needed: wrong options are reported before it loads.
    with console.starting("PyTorch"):
        from pamcli.training.distributed import Processes
        from pamcli.training.loop import Stop
        from pamcli.training.run import run

    stop, is_main = Stop(settings.max_minutes), Processes.from_environment().is_main
    with _stop_on_signals(stop), console.progress("steps", None) if is_main else nullcontext(SILENT) as bar:
        end = run(settings, folder, recipe, stop, _Watcher(console, bar))
    if is_main:
        if end.stopped is not None:
            command = f"pam train {settings.task} --resume {folder.path}"
            console.inform(f"stopped after step {end.step}; continue with: {command}")
        weights = folder.weights
        if console.jsonl or (end.stopped in (None, "time") and weights.is_file()):
            values: dict[str, Any] = {"step": end.step, "stopped": end.stopped, "weights": weights}
            if end.gained is not None:
                values["gained"] = asdict(end.gained)
            console.answer(values, str(weights))
    if code := {"interrupted": 130, "terminated": 143}.get(end.stopped or "", 0):
        raise typer.Exit(code)


def _stop_on_signals(stop: "Stop") -> AbstractContextManager[None]:
    """Stop the run after its step at the first Ctrl-C, SIGTERM or SIGHUP, and at once at the second."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.reason in ("interrupted", "terminated"):
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            sys.exit(128 + number)
        stop.ask("interrupted" if number == signal.SIGINT else "terminated")
        if number == signal.SIGINT:  # not through a stream, which may be in the middle of a line
            os.write(2, b"\npam: stopping after this step and a checkpoint; press Ctrl-C again to stop now\n")

    return handle_signals(on_signal)


@dataclass
class _Watcher:
    """An observer that shows the progress of a run on a bar, or in lines."""

    console: Console
    bar: Any
    steps: int = 0

    def on_start(self, step: int, steps: int) -> None:
        self.steps = steps
        self.bar.show(completed=step, total=steps)

    def on_step(self, step: int) -> None:
        self.bar.show(completed=step)

    def on_log(self, entry: "Entry") -> None:
        if self.console.jsonl:
            self.console.record(dict(entry))
        loss = f"loss {entry['loss']:.4g}"
        figures = f", rate {entry['learning_rate']:.2e}, {entry['pairs']:,} pairs"
        figures += f", {entry['pairs_per_second']:.2f} pairs/s"
        figures += f", waiting {entry['waiting']:.0%}, preparing {entry['preparing']:.0%}"
        if left := datetime.timedelta(seconds=round(3600 * entry["hours_left"])):
            figures += f", {left} remaining"
        self.bar.show(rate=f"{loss}{figures}")
        if not self.console.has_bar:
            terms = ", ".join(f"{name} {value:.4g}" for name, value in entry["losses"].items())
            self.console.inform(f"step {entry['step']} of {self.steps}: {loss} ({terms}){figures}")

    def on_validation(self, step: int, result: "ValidationResult", best: bool) -> None:
        if self.console.jsonl:
            figures = {"figure": result.figure, "validation": result.figures, "best": best}
            self.console.record({"step": step, **figures})
        for line in result.lines():
            self.console.inform(f"validation at step {step}: {line}{' (best)' if best else ''}")

    def inform(self, message: str) -> None:
        self.console.inform(message)
