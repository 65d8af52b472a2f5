"""Drawn scenes, kept on disk while crops are taken of them: drawing one costs more than to learn from it.

Which scene an example takes is a function of its position alone. So nothing is lost with a file: a scene that
is not there is drawn again.
"""

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
from pamcli.training.recipe import Drawing

_SCENES = 5  # the random stream of a seed, of those in `examples`

LATE = 64  # scenes that stay a while longer: other processes may be behind
PASSED_OVER = 8  # and by chance no example takes some, whose turn it would be to remove others


@dataclass(frozen=True)
class KeptScenes:
    """Scenes of one source. Several processes may share the folder."""

    source: Source
    drawing: Drawing
    seed: int
    pace: float
    """New scenes for each position of the run."""
    folder: Path | None
    """None: each is drawn whenever it is asked for."""
    prefix: str = ""
    """Beginning of the files' names: sources that share a folder have one each."""

    def number(self, position: int) -> int:
        """Which scene the example at a position takes: one of the newest `kept`, by chance."""
        oldest = int(position * self.pace)
        return oldest + int(default_rng((self.seed, position, _SCENES)).integers(self.drawing.kept))

    def scene(self, position: int) -> Sample:
        """The scene for a position, as it was drawn once. Raises InputError: a damaged texture."""
        number = self.number(position)
        height, width = self.drawing.sizes[number % len(self.drawing.sizes)]
        if self.folder is None:
            return self.source.draw(self.seed, number, height, width)
        if (kept := _read(self._path(self.folder, number))) is not None:
            return kept
        made = self.source.draw(self.seed, number, height, width)
        with suppress(OutputError):  # a disk that is full costs time and no more
            write_atomically(self._path(self.folder, number), _stored(made))
        last = number - self.drawing.kept - LATE
        for old in range(last - PASSED_OVER, last + 1):
            with suppress(OSError):
                self._path(self.folder, old).unlink(missing_ok=True)
        return made

    def _path(self, folder: Path, number: int) -> Path:
        return folder / f"{self.prefix}{number:08d}.npz"


def _stored(sample: Sample) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{key: value for key, value in vars(sample).items() if value is not None})
    return buffer.getvalue()


def _read(path: Path) -> Sample | None:
    """None: it is not there, or damaged."""
    try:
        with path.open("rb") as file, np.load(file) as stored:
            return Sample(str(stored["name"]), **{key: stored[key] for key in stored.files if key != "name"})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
