"""Cache rendered scenes on disk for several crops each, because rendering costs more than learning."""

import io
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import default_rng

from pamcli.data.source import Sample, Source
from pamcli.errors import OutputError
from pamcli.files.atomic import write_atomically
from pamcli.training.recipe import SceneSettings

_SCENES = 5  # random stream of a seed, among those in `examples`
LATE = 64  # further scenes to keep, for processes that lag behind
PASSED_OVER = 8  # older ones to remove too, because random choice may have skipped their removal


@dataclass(frozen=True)
class SceneCache:
    """The scene cache of one source; several processes may share the folder."""

    source: Source
    drawing: SceneSettings
    seed: int
    pace: float  # new scenes per position of the run
    folder: Path | None  # cache folder; None renders a scene for each request
    prefix: str = ""  # file name prefix, unique per source in the folder

    def number(self, position: int) -> int:
        oldest = int(position * self.pace)
        return oldest + int(default_rng((self.seed, position, _SCENES)).integers(self.drawing.pool))

    def scene(self, position: int) -> Sample:
        """Load or render the scene for a position; raise InputError for a damaged texture."""
        number = self.number(position)
        height, width = self.drawing.sizes[number % len(self.drawing.sizes)]
        if self.folder is None:
            return self.source.render(self.seed, number, height, width)
        if (kept := _read(self._path(self.folder, number))) is not None:
            return kept
        made = self.source.render(self.seed, number, height, width)
        with suppress(OutputError):  # a full disk only costs time
            write_atomically(self._path(self.folder, number), _encode_scene(made))
        last = number - self.drawing.pool - LATE
        for old in range(last - PASSED_OVER, last + 1):
            with suppress(OSError):
                self._path(self.folder, old).unlink(missing_ok=True)
        return made

    def _path(self, folder: Path, number: int) -> Path:
        return folder / f"{self.prefix}{number:08d}.npz"


def _encode_scene(sample: Sample) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{key: value for key, value in vars(sample).items() if value is not None})
    return buffer.getvalue()


def _read(path: Path) -> Sample | None:
    """Load a scene; return None if the file is missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file) as stored:
            return Sample(str(stored["name"]), **{key: stored[key] for key in stored.files if key != "name"})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
