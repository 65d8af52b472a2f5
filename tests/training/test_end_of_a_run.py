"""The end of a run: statistics of batch norm that stand, and weights that are the mean of many steps."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import test_loop
import torch
from test_loop import RECIPE, STEPS, Run, raises_at

from pamcli.training.checkpoints import list_checkpoints, newest_checkpoint, read_checkpoint
from pamcli.training.distributed import Processes
from pamcli.training.loop import RunEnd, Stop, agree_on_reason


def test_the_statistics_of_batch_norm_stand_from_a_part_of_the_run_on_also_after_a_stop(
    tmp_path: Path,
) -> None:
    recipe = replace(RECIPE, freeze_from=0.6, batch_norm_momentum=0.5, checkpoint_every=1, keep=STEPS)
    run = Run(tmp_path / "run", recipe)
    with pytest.raises(KeyboardInterrupt):
        run.go(before=raises_at(7, KeyboardInterrupt()))
    assert run.go() == RunEnd(STEPS, None)
    found = [read_checkpoint(file) for _, file in list_checkpoints(run.folder.checkpoints)]
    means = [each.network["1.running_mean"] for each in found if each is not None]
    moved = [not torch.equal(*pair) for pair in itertools.pairwise(means)]
    assert moved == [True] * 4 + [False] * 3  # 0.6 of 8 steps are 4.8: from the sixth on
    assert found[-1].pairs == 2 * STEPS


def test_the_statistics_stand_from_the_same_step_on_after_a_stop_as_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_loop, "STEPS", 100)
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


def test_the_kept_weights_are_the_mean_of_the_end_where_it_is_asked_for(tmp_path: Path) -> None:
    kept = []
    for name, recipe in (("plain", RECIPE), ("mean", replace(RECIPE, average_from=0.5))):
        run = Run(tmp_path / name, recipe)
        run.go()
        found, _ = newest_checkpoint(run.folder.checkpoints)
        kept.append(found.average["0.weight"])
    assert not torch.equal(*kept)


@pytest.mark.parametrize(("others", "said"), [(False, "time"), (True, "terminated")])
def test_processes_whose_clocks_differ_by_a_moment_end_alike(others: bool, said: str) -> None:
    class Two(Processes):
        def any_true(self, condition: bool) -> bool:
            return condition or others

    assert agree_on_reason(Stop(), Two()) == said
    asked = Stop()
    asked.ask("interrupted")
    assert agree_on_reason(asked, Two()) == "interrupted"
