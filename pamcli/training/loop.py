"""Run the training loop, shared by both tasks, and write the files of a run.

A step depends only on the state, which a checkpoint holds, and its number: runs resume bit for bit.
"""

import datetime
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from pamcli.errors import PamError
from pamcli.files.atomic import require_folder
from pamcli.imaging.images import write_image
from pamcli.inference.device import peak_memory
from pamcli.registry.catalog import read_header
from pamcli.registry.load import save_network
from pamcli.training.distributed import Processes
from pamcli.training.examples import StepBatch
from pamcli.training.journal import Journal, Observer, RunFolder
from pamcli.training.trainer import Trainer, remove_older, save_checkpoint
from pamcli.training.validation import Gain, ValidationResult, Validator, read_figures, round_weights

Reason = Literal["interrupted", "terminated", "time"]


class Stop:
    """A request to stop, by signal or time limit, checked between steps."""

    def __init__(self, max_minutes: float | None = None) -> None:
        self._deadline = math.inf if max_minutes is None else time.monotonic() + 60 * max_minutes
        self._reason: Reason | None = None

    def ask(self, reason: Reason) -> None:
        """Request a stop; safe in signal handlers."""
        self._reason = self._reason or reason

    @property
    def reason(self) -> Reason | None:
        if self._reason is None and time.monotonic() >= self._deadline:
            self._reason = "time"
        return self._reason


def agree_on_reason(stop: Stop, processes: Processes) -> Reason:
    """Return the common reason for stopping, as the clocks of the processes differ slightly."""
    signalled = processes.any_true(stop.reason in ("interrupted", "terminated"))
    return stop.reason or ("terminated" if signalled else "time")


@dataclass(frozen=True)
class RunEnd:
    """The end of a run."""

    step: int
    stopped: Reason | None  # reason for stopping; None = finished
    gained: Gain | None = None  # improvement; None unless finished and also measured before the first step


@dataclass(frozen=True)
class Loop:
    """The remaining steps of a run. Only the main process has a journal, and writes."""

    trainer: Trainer
    folder: RunFolder
    about: str  # data and recipe, for the weights files
    journal: Journal | None
    validator: Validator | None  # only in the main process
    measures: bool  # True in all processes if the main one validates
    stop: Stop
    observer: Observer

    def run(self, batches: Iterator[StepBatch]) -> RunEnd:
        """Take the remaining steps, one per batch; log, save and validate at the intervals of the recipe."""
        trainer, recipe = self.trainer, self.trainer.recipe
        if trainer.step:
            self._repair()
        if (trainer.step or recipe.start is not None) and self._must_validate() and self._lacks_validation():
            self._validate()
            if self._is_stopped():
                return RunEnd(trainer.step, agree_on_reason(self.stop, trainer.processes))
        sums = _Sums()
        self.observer.on_start(trainer.step, trainer.steps)
        while (batch := sums.wait_for(batches)) is not None:
            figures, norm = trainer.take_step(batch)
            sums.add(trainer.step, batch, figures, norm)
            self.observer.on_step(trainer.step)
            is_last, is_stopped = trainer.step == trainer.steps, self._is_stopped()
            measure = self._must_validate()
            keep = is_last or is_stopped or trainer.step % recipe.checkpoint_every == 0
            if not (keep or measure or trainer.step % recipe.log_every == 0):
                continue
            self._log(sums)
            if keep:
                self._save_checkpoint()
            if measure:  # stops on request, and restarts when the run resumes
                self._validate()
                is_stopped = self._is_stopped()
                if is_stopped and not keep:
                    self._save_checkpoint()
            if is_stopped and (measure or not is_last):
                return RunEnd(trainer.step, agree_on_reason(self.stop, trainer.processes))
            sums = _Sums()
        return RunEnd(trainer.step, None)

    def _is_stopped(self) -> bool:
        return self.trainer.processes.any_true(self.stop.reason is not None)

    def _must_validate(self) -> bool:
        step, every = self.trainer.step, self.trainer.recipe.validate_every
        return self.measures and (step == self.trainer.steps or step % every == 0)

    def _lacks_validation(self) -> bool:
        entries = [] if self.journal is None else self.journal.entries
        there = any(entry["step"] == self.trainer.step and "figure" in entry for entry in entries)
        return self.trainer.processes.any_true(self.journal is not None and not there)

    def _log(self, sums: "_Sums") -> None:
        """Log the steps; raise PamError and save nothing if a loss or gradient is not finite."""
        trainer, recipe = self.trainer, self.trainer.recipe
        means = sums.average(trainer.processes, count_gradient=not trainer.scaler.is_enabled())
        if self.journal is None:
            return
        norm, seconds = means.pop("gradient"), max(time.monotonic() - sums.since, 1e-9)
        terms = {}
        for name, mean in means.items():
            terms[name] = mean / recipe.losses.weight_of(name)
        entry = {
            "step": trainer.step,
            "loss": sum(means.values()),
            "losses": means,
            "terms": terms,
            "learning_rate": trainer.rate,
            "gradient_norm": norm,
            "pairs": trainer.pairs,
            "pairs_per_second": sums.pairs * trainer.processes.world / seconds,
            "waiting": sums.waited / seconds,
            "preparing": sums.prepared / seconds,
            "hours_left": (trainer.steps - trainer.step) / len(sums.figures) * seconds / 3600,
            "memory_mb": peak_memory(trainer.compute.device) / 1e6,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        self.journal.write(entry)
        self.observer.on_log(entry)

    def _save_checkpoint(self) -> None:
        """Save state and weights; raise PamError for weights that are not finite, or OutputError."""
        if self.journal is None:
            return
        state = self.trainer.make_checkpoint()
        for key, value in state.network.items():
            if not bool(value.isfinite().all()):
                raise _diverged_error(f"the weights are not finite at step {state.step} (first: {key})")
        require_folder(self.folder.path, self.folder.log.name)
        save_checkpoint(self.folder.checkpoints, state, keep=self.trainer.recipe.keep)
        self._export(None, last=True)

    def _repair(self) -> None:
        """Complete what a killed run left after its last checkpoint: remove the oldest, write weights."""
        trainer = self.trainer
        if self.journal is None:
            return
        remove_older(self.folder.checkpoints, trainer.step, keep=trainer.recipe.keep)
        try:
            stored = read_header(self.folder.last).spec.training
        except PamError:
            stored = ""
        if f"; {trainer.step} of {trainer.steps} steps" not in stored:
            self._export(None, last=True)

    def _export(self, result: ValidationResult | None, *, last: bool) -> None:
        """Write the averaged weights as last or best."""
        trainer = self.trainer
        text = f"{self.about}; {trainer.step} of {trainer.steps} steps"
        spec = trainer.recipe.model_spec("; ".join([text, *(result.lines() if result else ())]))
        path = self.folder.last if last else self.folder.best
        save_network(trainer.result_weights, spec, path, half=True)

    def _validate(self) -> None:
        """Validate the averaged weights, unless a stop is requested meanwhile."""
        if self.journal is None or self.validator is None:
            return
        trainer, step = self.trainer, self.trainer.step
        weights, spec = round_weights(trainer.result_weights), trainer.recipe.model_spec()
        try:
            result = self.validator.measure(weights, spec, trainer.compute, self._check_stop)
        except _StoppedError:
            return
        best = self.validator.is_better(result.figure, read_figures(self.journal.entries))
        if best:
            self._export(result, last=False)
        if step == trainer.steps:
            self._export(result, last=True)
        for name, pixels in result.images.items():
            write_image(self.folder.samples(step) / f"{name}.png", pixels)
            self.journal.add_image(step, name, pixels)
        # Write this last: a log line means that the validation is complete.
        self.journal.write({"step": step, "figure": result.figure, "validation": result.figures})
        self.observer.on_validation(step, result, best)

    def _check_stop(self) -> None:
        if self.stop.reason is not None:
            raise _StoppedError


def _diverged_error(what: str) -> PamError:
    hint = "start again with a lower `learning_rate`, `from` last.safetensors if it exists"
    return PamError(f"{what}; the last checkpoint is from before", hint)


class _StoppedError(Exception):
    pass


@dataclass
class _Sums:
    """Sums of terms, gradient norm and time over several steps, on the device."""

    pairs: int = 0
    waited: float = 0.0  # s, like the next two
    prepared: float = 0.0
    since: float = field(default_factory=time.monotonic)
    figures: dict[int, Tensor] = field(default_factory=dict)  # terms and gradient norm, by step
    names: Sequence[str] = ()  # of the terms and the norm

    def wait_for(self, batches: Iterator[StepBatch]) -> StepBatch | None:
        """Return the next batch, if any, and add up the waiting time."""
        asked = time.monotonic()
        batch = next(batches, None)
        self.waited += time.monotonic() - asked
        return batch

    def add(self, step: int, batch: StepBatch, values: dict[str, Tensor], norm: Tensor) -> None:
        self.names = [*values, "gradient"]
        self.figures[step] = torch.stack([*values.values(), norm.detach()]).float()
        self.pairs += len(batch.left)
        self.prepared += batch.prepared

    def average(self, processes: Processes, *, count_gradient: bool) -> dict[str, float]:
        """Return the means over the steps; terms are summed over the processes.

        Raises PamError if a term or, with `count_gradient`, the norm is not finite in any process.
        """
        table = torch.stack(list(self.figures.values()))
        counted = table if count_gradient else table[:, :-1]
        broken = (~counted.isfinite()).nonzero().tolist()
        if processes.any_true(bool(broken)):
            where = "on another process"
            if broken:
                where = f"since step {list(self.figures)[broken[0][0]]} (first: {self.names[broken[0][1]]})"
            raise _diverged_error(f"the loss is not finite {where}")
        *terms, norm = table.sum(0).tolist()
        means = {}
        for name, total in zip(self.names, [*processes.sum_values(terms), norm], strict=True):
            means[name] = total / len(self.figures)
        return means
