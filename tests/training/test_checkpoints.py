"""Checkpoints: whole or not there, the last few kept, damage noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from pamcli.training import checkpoints
from pamcli.training.checkpoints import (
    Checkpoint,
    list_checkpoints,
    newest_checkpoint,
    random_states,
    read_checkpoint,
    save_checkpoint,
)


def checkpoint(step: int) -> Checkpoint:
    """A small network after a step of AdamW."""
    torch.manual_seed(step)
    net = nn.Conv2d(3, 8, 3)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    net(torch.randn(1, 3, 8, 8)).square().mean().backward()
    optimizer.step()
    average = {key: 2 * value for key, value in net.state_dict().items()}
    return Checkpoint(step, net.state_dict(), average, optimizer.state_dict(), {}, random_states())


def steps(folder: Path) -> list[int]:
    return [step for step, _ in list_checkpoints(folder)]


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    saved = checkpoint(7)
    path = save_checkpoint(tmp_path / "checkpoints", saved, keep=3)
    assert path.name == "step-00000007.pt"
    found = read_checkpoint(path)
    assert found.step == 7
    for one, other in ((found.network, saved.network), (found.average, saved.average)):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in other)
    assert found.optimizer["param_groups"] == saved.optimizer["param_groups"]
    for number, state in saved.optimizer["state"].items():
        assert all(torch.equal(found.optimizer["state"][number][key], value) for key, value in state.items())


def test_older_ones_are_removed_after_the_new_one_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path, checkpoint(1), keep=1)
    flushed = []

    def fsync(descriptor: int) -> None:
        flushed.append((os.fstat(descriptor).st_ino, steps(tmp_path)))

    monkeypatch.setattr(checkpoints.os, "fsync", fsync)
    path = save_checkpoint(tmp_path, checkpoint(2), keep=1)
    assert [(path.stat().st_ino, [1, 2]), (tmp_path.stat().st_ino, [1, 2])] == flushed[-2:]
    assert steps(tmp_path) == [2]


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    for step in (2, 4, 6, 10, 100):
        save_checkpoint(tmp_path, checkpoint(step), keep=3)
    assert steps(tmp_path) == [6, 10, 100]
    save_checkpoint(tmp_path, checkpoint(102), keep=1)
    assert steps(tmp_path) == [102]


def test_a_flipped_bit_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    saved = checkpoint(4)
    path = save_checkpoint(tmp_path, saved, keep=1)
    content = path.read_bytes()
    noticed = 0
    for position in range(0, len(content), 41):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
        found = read_checkpoint(path)
        if found is None:
            noticed += 1
        else:
            assert all(torch.equal(found.network[key], value) for key, value in saved.network.items())
            assert torch.equal(found.random["cpu"], saved.random["cpu"])
    assert noticed > 100


def test_damage_to_the_newest_leads_to_the_one_before(tmp_path: Path) -> None:
    for step in (2, 4):
        save_checkpoint(tmp_path, checkpoint(step), keep=3)
    newest = tmp_path / "step-00000004.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    whole, damaged = newest_checkpoint(tmp_path)
    assert (whole.step, damaged) == (2, [newest])


@pytest.mark.parametrize("size", [0, 10, 2000])
def test_a_file_that_was_cut_off_is_noticed(tmp_path: Path, size: int) -> None:
    path = save_checkpoint(tmp_path, checkpoint(2), keep=3)
    path.write_bytes(path.read_bytes()[:size])
    assert newest_checkpoint(tmp_path) == (None, [path])


def test_a_file_of_something_else_is_none(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, tmp_path / "step-00000001.pt")
    torch.save([1, 2], tmp_path / "step-00000002.pt")
    whole, damaged = newest_checkpoint(tmp_path)
    assert whole is None
    assert len(damaged) == 2


def test_an_empty_folder_and_none_have_no_checkpoint(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) == (None, [])
    assert newest_checkpoint(tmp_path / "none") == (None, [])
