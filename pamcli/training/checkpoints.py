"""Checkpoints: all that a run needs to go on as if it had never stopped.

A file per checkpoint, `step-00001000.pt` in the folder `checkpoints`, of tensors and plain values alone
(torch loads it with `weights_only=True`). The position in the data and the learning rate are functions of the
step, and not stored.
"""

import contextlib
import io
import os
import pickle
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import torch
from pydantic import ConfigDict

from pamcli.errors import ModelError, OutputError
from pamcli.files.atomic import write_atomically

FORMAT = 1
_NAME = re.compile(r"step-(\d{8,})\.pt")


@dataclass(frozen=True)
class Checkpoint:
    """A run after `step` steps."""

    step: int
    network: dict[str, torch.Tensor]
    average: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    scaler: dict[str, Any]
    """State of the gradients' scale; empty unless fp16 is computed."""
    random: dict[str, torch.Tensor]
    """States of torch's generators, by kind of device."""
    pairs: int = 0
    """Pairs that the run has seen."""


@pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
class _Checked(Checkpoint):
    """A checkpoint that is checked: a value of another type raises ValidationError, a ValueError."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Write a checkpoint, and remove all older ones but `keep` - 1 once it is safe on the disk.

    A kill at any moment leaves every earlier checkpoint, or the new one, intact. Raises OutputError.
    """
    path = folder / _name(checkpoint.step)
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **vars(checkpoint)}, buffer)
    write_atomically(path, buffer.getvalue())
    try:
        _flush_to_disk(path)
    except OSError as error:
        raise _not_kept(folder, error) from error
    remove_older(folder, checkpoint.step, keep=keep)
    return path


def _name(step: int) -> str:
    return f"step-{step:08d}.pt"


def remove_older(folder: Path, step: int, *, keep: int) -> None:
    """Leave `keep` checkpoints: the one of a step, and the newest before it. Raises OutputError."""
    older = [file for other, file in list_checkpoints(folder) if other < step]
    try:
        for file in older[: max(len(older) - (keep - 1), 0)]:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise _not_kept(folder, error) from error


def _not_kept(folder: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot keep the checkpoints in {folder}: {error.strerror or error}")


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Steps and files, oldest first; none where there is no such folder."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), file) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
    return sorted(found)


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[Path]]:
    """The newest checkpoint that is whole, on the CPU, and the damaged files that are newer."""
    damaged: list[Path] = []
    for step, path in reversed(list_checkpoints(folder)):
        checkpoint = read_checkpoint(path)
        if checkpoint is not None and checkpoint.step == step:
            return checkpoint, damaged
        damaged.append(path)
    return None, damaged


def read_checkpoint(path: Path) -> Checkpoint | None:
    """A checkpoint on the CPU; None where the file is damaged."""
    try:
        # The archive carries a checksum of each of its parts, which torch does not look at.
        with zipfile.ZipFile(path) as archive:
            # What is marked as a folder, which takes one bit, torch reads as whatever lies in memory.
            if archive.testzip() is not None or any(part.external_attr for part in archive.infolist()):
                return None
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content.pop("format") != FORMAT:
            return None
        _Checked(**content)
        return Checkpoint(**content)
    except (zipfile.BadZipFile, pickle.UnpicklingError, OSError, EOFError, *_DAMAGE):
        return None


_DAMAGE = (RuntimeError, ValueError, LookupError, AttributeError, TypeError, NotImplementedError)


@contextlib.contextmanager
def fitting(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn an error of whoever is given a checkpoint's parts into a ModelError that names it."""
    try:
        yield
    except _DAMAGE as error:
        raise ModelError(
            f"the checkpoint {_name(checkpoint.step)} is not of this run's network and recipe, or is damaged",
            "put the recipe back as it was, or remove the checkpoint: then the one before it is taken",
        ) from error


def random_states() -> dict[str, torch.Tensor]:
    """States of torch's generators on the CPU and, where there is one, the current GPU."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random_states(states: dict[str, torch.Tensor]) -> None:
    """Set the generators that exist here."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _flush_to_disk(path: Path) -> None:
    """Wait until a file and its name would outlive a loss of power."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    with contextlib.suppress(OSError):  # not every system opens folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
