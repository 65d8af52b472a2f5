"""The folder of a run: its log and its checkpoints, and how damage to them is noticed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboardX.proto.event_pb2 import Event
from torch import nn

from pamcli.errors import OutputError, UsageError
from pamcli.training import journal as module
from pamcli.training import trainer as checkpoints
from pamcli.training.journal import Journal, RunFolder
from pamcli.training.trainer import (
    Checkpoint,
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    save_checkpoint,
)


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def events(folder: Path) -> list[Event]:
    """TFRecord: length (8 bytes), its checksum (4), the record, its checksum (4)."""
    found = []
    for file in sorted(folder.glob("events.out.tfevents.*")):
        content = file.read_bytes()
        while content:
            length = int.from_bytes(content[:8], "little")
            found.append(Event.FromString(content[12 : 12 + length]))
            content = content[16 + length :]
    return found


def scalars(folder: Path) -> dict[tuple[int, str], float]:
    return {
        (event.step, value.tag): value.simple_value
        for event in events(folder)
        for value in event.summary.value
        if value.HasField("simple_value")
    }


def entry(step: int) -> dict[str, Any]:
    return {"step": step, "loss": step / 2, "losses": {"refined": 1.5, "likelihood": 0.5}}


def test_a_run_may_begin_in_a_folder_that_a_killed_one_left(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / ".pam-00ff.tmp").touch()  # it had not written its recipe yet
    folder.require_new()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"is not empty \(use another\)"):
        folder.require_new()


def test_each_entry_is_a_line_and_a_point_of_each_curve(tmp_path: Path) -> None:
    with Journal(RunFolder(tmp_path), 0) as journal:
        for step in (20, 40):
            journal.write(entry(step))
        assert lines(tmp_path) == [entry(20), entry(40)]  # at once, not only at the end
    assert scalars(tmp_path) == {
        (20, "loss"): 10,
        (20, "losses/refined"): 1.5,
        (20, "losses/likelihood"): 0.5,
        (40, "loss"): 20,
        (40, "losses/refined"): 1.5,
        (40, "losses/likelihood"): 0.5,
    }


def test_resuming_drops_log_lines_after_the_checkpoint(tmp_path: Path) -> None:
    with Journal(RunFolder(tmp_path), 0) as journal:
        for step in (20, 40, 60):
            journal.write(entry(step))
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"step": 80, "los')  # killed in the middle of a line
    with Journal(RunFolder(tmp_path), 40) as journal:
        assert [one["step"] for one in journal.entries] == [20, 40]
        journal.write(entry(60))
    assert [line["step"] for line in lines(tmp_path)] == [20, 40, 60]
    restarts = [event.step for event in events(tmp_path) if event.HasField("session_log")]
    assert sorted(restarts) == [1, 41]


def test_a_number_that_json_does_not_have_becomes_null(tmp_path: Path) -> None:
    with Journal(RunFolder(tmp_path), 0) as journal:
        journal.write({"step": 1, "gradient_norm": float("inf"), "validation": {"a": {"D1": float("nan")}}})
    assert lines(tmp_path) == [{"step": 1, "gradient_norm": None, "validation": {"a": {"D1": None}}}]


def test_images_stand_among_the_events(tmp_path: Path) -> None:
    with Journal(RunFolder(tmp_path), 0) as journal:
        journal.add_image(5, "1-kitti2015-1", np.full((4, 6, 3), 200, np.uint8))
    (picture,) = [value for event in events(tmp_path) for value in event.summary.value]
    assert (picture.tag, picture.image.height, picture.image.width) == ("1-kitti2015-1", 4, 6)


def test_a_full_disk_is_one_line_that_names_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(entry: object) -> str:
        raise OSError(28, "No space left on device")

    with Journal(RunFolder(tmp_path), 0) as journal:
        monkeypatch.setattr(module, "_line", full)
        with pytest.raises(OutputError, match=r"log\.jsonl: No space left on device .*`resume`"):
            journal.write(entry(20))


def checkpoint(step: int) -> Checkpoint:
    """A small network after a step of AdamW."""
    torch.manual_seed(step)
    net = nn.Conv2d(3, 8, 3)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    net(torch.randn(1, 3, 8, 8)).square().mean().backward()
    optimizer.step()
    average = {key: 2 * value for key, value in net.state_dict().items()}
    return Checkpoint(
        step, net.state_dict(), average, optimizer.state_dict(), {}, {"cpu": torch.get_rng_state()}
    )


def steps(folder: Path) -> list[int]:
    return [step for step, _ in list_checkpoints(folder)]


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


def test_a_file_of_something_else_is_none(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, tmp_path / "step-00000001.pt")
    torch.save([1, 2], tmp_path / "step-00000002.pt")
    whole, damaged = newest_checkpoint(tmp_path)
    assert whole is None
    assert len(damaged) == 2
