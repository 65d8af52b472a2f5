"""Run the training loop, shared by both tasks.

A step depends only on the state, which a checkpoint holds, and its number: runs resume bit for bit.
"""

import datetime
import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pamcli.errors import PamError, UsageError
from pamcli.files.atomic import require_folder
from pamcli.inference.device import Compute, catch_memory_errors
from pamcli.registry.load import save_network
from pamcli.registry.spec import read_header
from pamcli.training import checkpoints, validation
from pamcli.training.checkpoints import Checkpoint
from pamcli.training.convolutions import make_faster
from pamcli.training.distributed import Loss, Processes
from pamcli.training.examples import StepBatch
from pamcli.training.journal import Journal, Observer, RunFolder
from pamcli.training.recipe import Recipe, learning_rate
from pamcli.training.tasks import make_average, make_optimizer, model_spec, resume_average, set_training_mode
from pamcli.training.validation import Gain, ValidationResult, Validator, round_weights

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


class Trainer:
    """A network in training."""

    def __init__(
        self,
        recipe: Recipe,
        steps: int,
        network: nn.Module,
        loss: Loss,
        compute: Compute,
        processes: Processes,
        about: str,
        *,
        measures: bool = False,
    ) -> None:
        """Prepare training on the device of `network`; `about`: data and recipe, for the weights file."""
        self.measures = measures or bool(recipe.validation)
        self.recipe, self.steps, self.network, self.loss = recipe, steps, network, loss
        self.compute, self.processes, self.about = compute, processes, about
        if compute.device.type == "cpu":
            make_faster(network)
        self.step, self.pairs, self.rate = 0, 0, 0.0
        self.optimizer = make_optimizer(recipe, network)
        mean_from = math.inf if recipe.average_from is None else recipe.average_from * steps
        self.average = make_average(network, recipe.ema, mean_from)
        self.scaler = torch.amp.GradScaler(compute.device.type, enabled=compute.precision == "fp16")

    @property
    def result_weights(self) -> dict[str, Tensor]:
        return (self.network if self.average is None else self.average.module).state_dict()

    def make_checkpoint(self) -> Checkpoint:
        """Return the complete state for `restore`."""
        weights = dict(self.network.state_dict()), dict(self.result_weights)
        others = self.optimizer.state_dict(), self.scaler.state_dict(), checkpoints.random_states()
        return Checkpoint(self.step, *weights, *others, self.pairs)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint of the same recipe; raise ModelError if it is damaged or does not fit."""
        with checkpoints.check_fit(checkpoint):
            self.network.load_state_dict(checkpoint.network)
            if self.average is not None:
                self.average.module.load_state_dict(checkpoint.average)
                resume_average(self.average, checkpoint.step)
            self.optimizer.load_state_dict(checkpoint.optimizer)
            for parameter, moments in self.optimizer.state.items():
                for moment in moments.values():
                    moment.expand_as(parameter)  # raises for wrong shapes; step counts pass
            if any(
                group["muon"] != (self.recipe.optimizer == "muon") for group in self.optimizer.param_groups
            ):
                raise KeyError("the moments belong to another optimizer")
            if checkpoint.scaler and self.scaler.is_enabled():
                self.scaler.load_state_dict(checkpoint.scaler)
            checkpoints.restore_random_states(checkpoint.random)
        self.step, self.pairs = checkpoint.step, checkpoint.pairs

    def take_step(self, batch: StepBatch) -> tuple[dict[str, Tensor], Tensor]:
        """Take one step; return this process's shares of the terms and the gradient norm, on the device."""
        self.rate = learning_rate(self.recipe.schedule, self.recipe.learning_rate, self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * group["factor"]
        # Use full float32 also in the backward pass, which runs outside of `autocast`.
        exact = self.compute.full_precision() if self.compute.precision == "fp32" else nullcontext()
        figures: dict[str, Tensor] = {}
        height, width = batch.left.shape[-2:]
        problem = f"a batch of {len(batch.left)} pairs of {width}x{height} does not fit into memory"
        with catch_memory_errors(problem, "use a smaller `batch` or `crop`"), exact:
            self.optimizer.zero_grad(set_to_none=True)
            for part in batch.parts(self.recipe.accumulate):
                share, values = self.loss(part.to(self.compute.device))
                if not share.requires_grad:
                    raise UsageError(f"no loss term depends on {self.recipe.only}, the only trained part")
                counts = len(part.left) / len(batch.left)
                self.scaler.scale(share * counts).backward()  # type: ignore[no-untyped-call]
                for name, value in values.items():
                    figures[name] = figures.get(name, 0) + value * counts
            self.scaler.unscale_(self.optimizer)
            largest = math.inf if self.recipe.clip is None else self.recipe.clip
            norm = nn.utils.clip_grad_norm_(self.network.parameters(), largest)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.step += 1
        self.pairs += len(batch.left) * self.processes.world
        if self.average is not None:
            self.average.update_parameters(self.network)
        return figures, norm

    def run(
        self,
        batches: Iterator[StepBatch],
        folder: RunFolder,
        journal: Journal | None,
        validator: Validator | None,
        stop: Stop,
        observer: Observer,
    ) -> RunEnd:
        """Take the remaining steps, one per batch. `journal`: only in the main process, which writes."""
        writer = _Writer(self, folder, journal, validator, stop, observer)
        writer.repair()
        if (self.step or self.recipe.start is not None) and self._must_validate():
            entries = [] if journal is None else journal.entries
            missing = not any(entry["step"] == self.step and "figure" in entry for entry in entries)
            if self.processes.any_true(journal is not None and missing):
                writer.validate()
                if self.processes.any_true(stop.reason is not None):
                    return RunEnd(self.step, agree_on_reason(stop, self.processes))
        sums = _Sums()
        observer.on_start(self.step, self.steps)
        while (batch := sums.wait_for(batches)) is not None:
            set_training_mode(self.recipe, self.network, self.step / self.steps)
            sums.add(self.step + 1, batch, *self.take_step(batch))
            observer.on_step(self.step)
            end = self.step == self.steps
            asked = self.processes.any_true(stop.reason is not None)
            keep = end or asked or self.step % self.recipe.checkpoint_every == 0
            measure = self._must_validate()
            if not (keep or measure or self.step % self.recipe.log_every == 0):
                continue
            writer.log(sums)
            if keep:
                writer.checkpoint()
            if measure:  # stops on request, and restarts when the run resumes
                writer.validate()
                asked = self.processes.any_true(stop.reason is not None)
                if asked and not keep:
                    writer.checkpoint()
            if asked and (measure or not end):
                return RunEnd(self.step, agree_on_reason(stop, self.processes))
            sums = _Sums()
        return RunEnd(self.step, None)

    def _must_validate(self) -> bool:
        due = self.step == self.steps or self.step % self.recipe.validate_every == 0
        return self.measures and due


@dataclass(frozen=True)
class _Writer:
    """A writer of the files of a run; only the main process writes."""

    trainer: Trainer
    folder: RunFolder
    journal: Journal | None
    validator: Validator | None
    stop: Stop
    observer: Observer

    def log(self, sums: "_Sums") -> None:
        """Log the steps; raise PamError and save nothing if a loss or gradient is not finite."""
        trainer, recipe = self.trainer, self.trainer.recipe
        broken = sums.find_broken(count_gradient=not trainer.scaler.is_enabled())
        if trainer.processes.any_true(broken is not None):
            where = f"since step {broken[0]} (first: {broken[1]})" if broken else "on another process"
            raise _diverged_error(f"the loss is not finite {where}")
        means = sums.average(trainer.processes)
        if self.journal is None:
            return
        norm, seconds = means.pop("gradient"), sums.seconds
        entry = {
            "step": trainer.step,
            "loss": sum(means.values()),
            "losses": means,
            "terms": {name: mean / recipe.losses.weight_of(name) for name, mean in means.items()},
            "learning_rate": trainer.rate,
            "gradient_norm": norm,
            "pairs": trainer.pairs,
            "pairs_per_second": sums.pairs * trainer.processes.world / seconds,
            "waiting": sums.waited / seconds,
            "preparing": sums.prepared / seconds,
            "hours_left": (trainer.steps - trainer.step) / len(sums.figures) * seconds / 3600,
            "memory_mb": trainer.compute.peak_memory() / 1e6,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        self.journal.write(entry)
        self.observer.on_log(entry)

    def checkpoint(self) -> None:
        """Save state and weights; raise PamError for weights that are not finite, or OutputError."""
        if self.journal is None:
            return
        state = self.trainer.make_checkpoint()
        for key, value in state.network.items():
            if not bool(value.isfinite().all()):
                raise _diverged_error(f"the weights are not finite at step {state.step} (first: {key})")
        require_folder(self.folder.path, self.folder.log.name)
        checkpoints.save_checkpoint(self.folder.checkpoints, state, keep=self.trainer.recipe.keep)
        self.export(None, last=True)

    def repair(self) -> None:
        """Complete what a killed run left after its last checkpoint: remove the oldest, write weights."""
        trainer = self.trainer
        if self.journal is None or not trainer.step:
            return
        checkpoints.remove_older(self.folder.checkpoints, trainer.step, keep=trainer.recipe.keep)
        try:
            stored = read_header(self.folder.last).spec.training
        except PamError:
            stored = ""
        if f"; {trainer.step} of {trainer.steps} steps" not in stored:
            self.export(None, last=True)

    def export(self, result: ValidationResult | None, *, last: bool) -> None:
        """Write the averaged weights as last or best."""
        trainer = self.trainer
        text = f"{trainer.about}; {trainer.step} of {trainer.steps} steps"
        spec = model_spec(trainer.recipe, "; ".join([text, *(result.lines() if result else ())]))
        path = self.folder.last if last else self.folder.best
        save_network(round_weights(trainer.result_weights), spec, path)

    def validate(self) -> None:
        """Validate the averaged weights, unless a stop is requested meanwhile."""
        if self.journal is None or self.validator is None:
            return
        trainer, step = self.trainer, self.trainer.step
        weights, spec = round_weights(trainer.result_weights), model_spec(trainer.recipe, "")
        try:
            result = self.validator.measure(weights, spec, trainer.compute, self._check_stop)
        except _StoppedError:
            return
        best = self.validator.is_better(result.figure, validation.read_figures(self.journal.entries))
        if best:
            self.export(result, last=False)
        if step == trainer.steps:
            self.export(result, last=True)
        validation.save_images(self.folder.samples(step), result)
        for name, pixels in result.images.items():
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


class _Sums:
    """Sums of terms, gradient norm and time over several steps, on the device."""

    def __init__(self) -> None:
        self.pairs, self.waited, self.prepared, self._since = 0, 0.0, 0.0, time.monotonic()
        self.figures: dict[int, Tensor] = {}  # terms and gradient norm, by step
        self._names: list[str] = []

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self._since, 1e-9)

    def wait_for(self, batches: Iterator[StepBatch]) -> StepBatch | None:
        """Return the next batch, if any, and add up the waiting time."""
        asked = time.monotonic()
        batch = next(batches, None)
        self.waited += time.monotonic() - asked
        return batch

    def add(self, step: int, batch: StepBatch, values: dict[str, Tensor], norm: Tensor) -> None:
        self._names = [*values, "gradient"]
        self.figures[step] = torch.stack([*values.values(), norm.detach()]).float()
        self.pairs += len(batch.left)
        self.prepared += batch.prepared

    def find_broken(self, *, count_gradient: bool) -> tuple[int, str] | None:
        """Return the first step with a value that is not finite, and its name; None if all are finite."""
        names = self._names if count_gradient else self._names[:-1]
        steps = list(self.figures)
        broken = ~torch.stack(list(self.figures.values()))[:, : len(names)].isfinite()
        return next(((steps[row], names[column]) for row, column in broken.nonzero().tolist()), None)

    def average(self, processes: Processes) -> dict[str, float]:
        """Return the means over the steps; terms are summed over the processes."""
        *terms, norm = torch.stack(list(self.figures.values())).sum(0).tolist()
        sums = zip(self._names, [*processes.sum_values(terms), norm], strict=True)
        return {name: sum_ / len(self.figures) for name, sum_ in sums}
