"""The loop, with a network of a few weights: what it logs, keeps, and refuses to keep."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from pamcli.errors import DeviceError, OutputError, PamError
from pamcli.inference.device import Compute, prepare_arithmetic
from pamcli.registry.catalog import read_header
from pamcli.reporting import SILENT, SilentReporter
from pamcli.training import trainer as checkpoints
from pamcli.training.distributed import Processes
from pamcli.training.examples import StepBatch
from pamcli.training.journal import Journal, RunFolder
from pamcli.training.loop import Loop, RunEnd, Stop, agree_on_reason
from pamcli.training.recipe import Recipe, learning_rate
from pamcli.training.recipes import RECIPES
from pamcli.training.trainer import Trainer, list_checkpoints, newest_checkpoint, read_checkpoint
from pamcli.training.validation import ValidationResult, Validator

STEPS = 8
RECIPE = replace(RECIPES["scenes"], steps=STEPS, batch=2, log_every=2, checkpoint_every=3, ema=0.9)
Values = dict[str, Tensor]


def plain_loss(network: nn.Module, batch: StepBatch) -> tuple[Tensor, Values]:
    picture = network(batch.left)
    terms = {"refined": picture.square().mean(), "likelihood": (picture - batch.right).abs().mean()}
    return torch.stack(list(terms.values())).sum(), {name: value.detach() for name, value in terms.items()}


Loss = Callable[[nn.Module, StepBatch], tuple[Tensor, Values]]


class Run:
    """A run in a folder, in as many parts as a test likes."""

    def __init__(self, path: Path, recipe: Recipe = RECIPE, loss: Loss = plain_loss) -> None:
        self.folder, self.recipe, self.loss = RunFolder(path), recipe, loss
        path.mkdir(exist_ok=True)

    def trainer(self) -> Trainer:
        torch.manual_seed(5)
        network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 1))
        compute = Compute(torch.device("cpu"), "fp32")
        loss = lambda batch: self.loss(network, batch)  # noqa: E731
        trainer = Trainer(self.recipe, STEPS, network, loss, compute, Processes())
        found, _ = newest_checkpoint(self.folder.checkpoints)
        if found is not None:
            trainer.restore(found)
        return trainer

    def go(
        self,
        *,
        stop: Stop | None = None,
        before: Callable[[int], None] = lambda step: None,
        validator: Validator | None = None,
        observer: Any = None,
        trainer: Trainer | None = None,
    ) -> RunEnd:
        """before: called with the number of the step (from 1) that is about to be taken."""
        trainer = trainer or self.trainer()

        def batches() -> Iterator[StepBatch]:
            for step in range(trainer.step, STEPS):
                generator = torch.Generator().manual_seed(step)
                left, right = torch.rand(2, 2, 3, 4, 4, generator=generator).unbind()
                before(step + 1)
                yield StepBatch(left, right)

        with Journal(self.folder, trainer.step) as journal, prepare_arithmetic(torch.device("cpu")):
            measures, ends = bool(self.recipe.validation), (stop or Stop(), observer or SILENT)
            return Loop(trainer, self.folder, "about", journal, validator, measures, *ends).run(batches())

    @property
    def log(self) -> list[Any]:
        return [json.loads(line) for line in self.folder.log.read_text().splitlines()]

    @property
    def kept(self) -> list[int]:
        return [step for step, _ in list_checkpoints(self.folder.checkpoints)]


def raises_at(step: int, error: BaseException) -> Callable[[int], None]:
    def before(number: int) -> None:
        if number == step:
            raise error

    return before


def test_a_run_saves_checkpoints_and_the_average_in_fp16(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replace(RECIPE, keep=2))
    assert run.go() == RunEnd(STEPS, None)
    assert run.kept == [6, 8]
    found, _ = newest_checkpoint(run.folder.checkpoints)
    stored = safetensors.torch.load_file(run.folder.last)
    assert stored["0.weight"].dtype == torch.float16
    assert torch.equal(stored["0.weight"], found.average["0.weight"].half())
    assert not torch.equal(found.average["0.weight"], found.network["0.weight"])
    assert torch.equal(stored["1.running_mean"], found.average["1.running_mean"].half())
    assert not run.folder.best.exists(), "without validation"
    before = run.folder.last.read_bytes()
    assert run.go() == RunEnd(STEPS, None), "nothing is left to do"
    assert run.folder.last.read_bytes() == before


def test_the_log_has_the_means_of_its_steps_and_the_rate(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    each: list[Values] = []

    def loss(network: nn.Module, batch: StepBatch) -> tuple[Tensor, Values]:
        share, values = plain_loss(network, batch)
        each.append(values)
        return share, values

    run.loss = loss
    run.go()
    assert [entry["step"] for entry in run.log] == [2, 3, 4, 6, 8]  # every 2, and at checkpoints
    entry = run.log[3]  # of steps 5 and 6
    for name in ("refined", "likelihood"):
        expected = torch.stack([values[name] for values in each[4:6]]).mean().item()
        assert entry["losses"][name] == pytest.approx(expected, rel=1e-6)
    assert entry["loss"] == pytest.approx(sum(entry["losses"].values()))
    assert entry["learning_rate"] == learning_rate(RECIPE.schedule, RECIPE.learning_rate, 5, STEPS)
    assert entry["gradient_norm"] > 0
    assert entry["pairs_per_second"] > 0
    assert [entry["pairs"] for entry in run.log] == [4, 6, 8, 12, 16]
    assert entry["hours_left"] > 0
    assert run.log[-1]["hours_left"] == 0
    assert entry["preparing"] == 0, "of batches that were there already"


@pytest.mark.parametrize("killed", [1, 4, 8])
def test_a_killed_run_resumes_bit_for_bit(tmp_path: Path, killed: int) -> None:
    """A network or a loss may draw of torch's generator while it learns."""

    def drawing(network: nn.Module, batch: StepBatch) -> tuple[Tensor, Values]:
        return plain_loss(network, batch._replace(left=batch.left + torch.rand(batch.left.shape)))

    whole, parted = Run(tmp_path / "whole", loss=drawing), Run(tmp_path / "parted", loss=drawing)
    whole.go()
    with pytest.raises(KeyboardInterrupt):  # nothing of the loop runs after it, as after a kill
        parted.go(before=raises_at(killed, KeyboardInterrupt()))
    assert parted.go() == RunEnd(STEPS, None)
    assert parted.folder.last.read_bytes() == whole.folder.last.read_bytes()
    (one, _), (other, _) = (newest_checkpoint(run.folder.checkpoints) for run in (whole, parted))
    assert all(torch.equal(other.network[key], value) for key, value in one.network.items())
    assert [e["step"] for e in parted.log][-1] == STEPS


def test_asked_to_stop_a_run_finishes_its_step_and_can_go_on(tmp_path: Path) -> None:
    whole, run = Run(tmp_path / "whole"), Run(tmp_path / "run")
    whole.go()
    stop = Stop()
    outcome = run.go(stop=stop, before=lambda step: stop.ask("terminated") if step == 5 else None)
    assert outcome == RunEnd(5, "terminated")
    assert run.kept == [3, 5]
    assert run.go() == RunEnd(STEPS, None)
    assert run.folder.last.read_bytes() == whole.folder.last.read_bytes()


def test_a_loss_that_is_not_finite_is_named_and_never_kept(tmp_path: Path) -> None:
    factors = iter([1.0] * 4 + [float("inf")])

    def diverging(network: nn.Module, batch: StepBatch) -> tuple[Tensor, Values]:
        share, values = plain_loss(network, batch)
        factor = next(factors, 1.0)
        return share * factor, values | {"likelihood": values["likelihood"] * factor}

    run = Run(tmp_path / "run", loss=diverging)
    with pytest.raises(PamError, match=r"not finite since step 5 \(first: likelihood\)"):
        run.go()
    assert run.kept == [3]
    assert all(value.isfinite().all() for value in safetensors.torch.load_file(run.folder.last).values())
    assert [entry["step"] for entry in run.log] == [2, 3, 4]


def test_a_gradient_that_is_not_finite_is_named(tmp_path: Path) -> None:
    def rooted(network: nn.Module, batch: StepBatch) -> tuple[Tensor, Values]:
        share, values = plain_loss(network, batch)
        # The square root of zero has a value, and no derivative.
        return share + (0 * network(batch.left)).sum().sqrt(), values

    run = Run(tmp_path / "run", loss=rooted)
    with pytest.raises(PamError, match=r"since step 1 \(first: gradient\)"):
        run.go()
    assert run.kept == []
    assert not run.folder.last.exists()


def test_weights_that_are_not_finite_are_never_kept(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    trainer = run.trainer()

    class Poisoning(SilentReporter):
        def on_step(self, step: int) -> None:
            if step == 3:
                trainer.network.get_parameter("2.bias").data.fill_(torch.nan)

    with pytest.raises(PamError, match=r"weights are not finite at step 3 \(first: 2\.bias\)"):
        run.go(trainer=trainer, observer=Poisoning())
    assert run.kept == []


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:116] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_a_batch_that_does_not_fit_is_one_line(tmp_path: Path, error: Exception) -> None:
    errors = iter([None] * 4 + [error])

    def huge(network: nn.Module, batch: StepBatch) -> tuple[Tensor, Values]:
        if failure := next(errors):
            raise failure
        return plain_loss(network, batch)

    run = Run(tmp_path / "run", loss=huge)
    with pytest.raises(DeviceError, match=r"2 pairs of 4x4 does not fit .*`batch` or `crop`"):
        run.go()
    assert run.kept == [3]


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path / "run")
    write = checkpoints.write_atomically

    def full(path: Path, data: bytes) -> None:
        if "00000006" in path.name:
            raise OutputError(f"cannot write {path}: no space left on device")
        write(path, data)

    monkeypatch.setattr(checkpoints, "write_atomically", full)
    with pytest.raises(OutputError, match="no space left"):
        run.go()
    assert run.kept == [3]
    monkeypatch.undo()
    assert run.go() == RunEnd(STEPS, None)


class Measured(Validator):
    """A validator that reads the figures from a list."""

    def __init__(self, *figures: float) -> None:
        super().__init__([], None)
        self.figures = iter(figures)

    def measure(self, weights: Any, spec: Any, compute: Any, advance: Callable[[], None]) -> ValidationResult:
        figure = next(self.figures)
        return ValidationResult(figure, {"kitti2015/training": {"D1": figure, "EPE": 1.0}})


VALIDATING = replace(RECIPE, validation=("kitti2015:somewhere",), validate_every=2)


def test_the_best_weights_are_those_of_the_lowest_d1(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", VALIDATING)
    best: list[bytes] = []

    class Watching(SilentReporter):
        def on_validation(self, step: int, validated: ValidationResult, best_yet: bool) -> None:
            best.append(run.folder.best.read_bytes())

    run.go(validator=Measured(30.0, 20.0, 25.0, 22.0), observer=Watching())
    assert best[0] != best[1] == best[2] == best[3]
    figures = [(entry["step"], entry["figure"]) for entry in run.log if "figure" in entry]
    assert figures == [(2, 30), (4, 20), (6, 25), (8, 22)]
    stated = [read_header(path).spec.training for path in (run.folder.best, run.folder.last)]
    assert stated == [
        "about; 4 of 8 steps; kitti2015/training: D1 20.00 %, EPE 1.00 px",
        "about; 8 of 8 steps; kitti2015/training: D1 22.00 %, EPE 1.00 px",
    ]


def test_statistics_stand_from_the_same_step_on_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "STEPS", 100)
    part = 0.07  # times 100 that is more than 7, for a computer
    recipe = replace(RECIPE, freeze_from=part, batch_norm_momentum=0.5, checkpoint_every=1, keep=100)
    kept = []
    for name, stops in (("whole", [10]), ("stopped", [8, 10])):
        run = Run(tmp_path / name, recipe)
        for step in stops:
            with pytest.raises(KeyboardInterrupt):
                run.go(before=raises_at(step, KeyboardInterrupt()))
        found = [read_checkpoint(file) for _, file in list_checkpoints(run.folder.checkpoints)]
        kept.append([each.network["1.running_mean"] for each in found if each is not None])
    for means in kept:
        moved = [not torch.equal(*pair) for pair in itertools.pairwise(means)]
        assert moved == [True] * 6 + [False] * 2


@pytest.mark.parametrize(("others", "said"), [(False, "time"), (True, "terminated")])
def test_processes_whose_clocks_differ_by_a_moment_end_alike(others: bool, said: str) -> None:
    class Two(Processes):
        def any_true(self, condition: bool) -> bool:
            return condition or others

    assert agree_on_reason(Stop(), Two()) == said
    asked = Stop()
    asked.ask("interrupted")
    assert agree_on_reason(asked, Two()) == "interrupted"
