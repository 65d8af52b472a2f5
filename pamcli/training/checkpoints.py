"""Save and load checkpoints, from which a run resumes as if it had never stopped."""

import contextlib
import io
import os
import pickle
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import torch
from pydantic import ConfigDict

from pamcli.errors import ModelError, OutputError
from pamcli.files.atomic import report_write_errors, write_atomically

FORMAT = 1
_NAME = re.compile(r"step-(\d{8,})\.pt")
_DAMAGE = (RuntimeError, ValueError, LookupError, AttributeError, TypeError, NotImplementedError)


@pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
class Checkpoint:
    """The state of a run after `step` steps; values of other types raise ValidationError, a ValueError."""

    step: int
    network: dict[str, torch.Tensor]
    average: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    scaler: dict[str, Any]  # state of the gradient scaler; empty unless in fp16
    random: dict[str, torch.Tensor]  # states of torch's random generators, by kind of device
    pairs: int = 0  # number of pairs processed so far


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`; a kill at any time leaves an intact one."""
    path, buffer = folder / f"step-{checkpoint.step:08d}.pt", io.BytesIO()
    torch.save({"format": FORMAT, **vars(checkpoint)}, buffer)
    write_atomically(path, buffer.getvalue())
    with report_write_errors(path):  # wait until the file and its name are safe from a power failure
        with path.open("rb") as file:
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):  # some systems cannot open folders
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    remove_older(folder, checkpoint.step, keep=keep)
    return path


def remove_older(folder: Path, step: int, *, keep: int) -> None:
    """Remove all checkpoints before `step` except the newest `keep` - 1; raise OutputError on failure."""
    older = [file for other, file in list_checkpoints(folder) if other < step]
    for file in older[: max(len(older) - (keep - 1), 0)]:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"cannot remove {file}: {error.strerror or error}") from error


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return steps and files, oldest first; empty if the folder does not exist."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), file) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
    return sorted(found)


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[Path]]:
    """Load the newest intact checkpoint on the CPU; also return the newer, damaged files."""
    damaged: list[Path] = []
    for step, path in reversed(list_checkpoints(folder)):
        checkpoint = read_checkpoint(path)
        if checkpoint is not None and checkpoint.step == step:
            return checkpoint, damaged
        damaged.append(path)
    return None, damaged


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Load a checkpoint on the CPU; return None if the file is damaged."""
    try:
        # torch ignores the checksums that the archive has for each of its parts.
        with zipfile.ZipFile(path) as archive:
            # A flipped bit can mark a part as a folder; torch then reads uninitialised memory.
            if archive.testzip() is not None or any(part.external_attr for part in archive.infolist()):
                return None
        content = torch.load(path, map_location="cpu", weights_only=True)
        return Checkpoint(**content) if content.pop("format") == FORMAT else None
    except (zipfile.BadZipFile, pickle.UnpicklingError, OSError, EOFError, *_DAMAGE):
        return None


@contextlib.contextmanager
def check_fit(checkpoint: Checkpoint) -> Iterator[None]:
    """Convert errors from restoring parts of a checkpoint into a ModelError that names it."""
    try:
        yield
    except _DAMAGE as error:
        name = f"step-{checkpoint.step:08d}.pt"
        problem = f"the checkpoint {name} is damaged, or belongs to another network or recipe"
        hint = "restore the recipe, or remove the checkpoint to continue from the one before it"
        raise ModelError(problem, hint) from error


def random_states() -> dict[str, torch.Tensor]:
    """Return the states of torch's generators on the CPU and, if there is one, the current GPU."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random_states(states: dict[str, torch.Tensor]) -> None:
    """Restore the generators that exist on this machine."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
