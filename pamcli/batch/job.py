"""A pair on its way through a batch: a `Job` before the work, an `Outcome` after it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pamcli.errors import PamError
from pamcli.files.finding import STDIN_NAME
from pamcli.files.pairing import STDIN, PairName


@dataclass(frozen=True, slots=True)
class Job:
    """A pair with the places of its results; or what is wrong with a line of a list."""

    pair: PairName | None
    places: Mapping[str, Path] = field(default_factory=dict)
    """Where each result goes: "disparity", "right_disparity" ..."""
    returned: str | None = None
    """The result that is handed back instead of written; its place says its format."""
    skip: bool = False
    """Every result exists, and is to stay."""
    error: PamError | None = None
    line: int | None = None
    """Line of the list that the pair comes from."""
    videos: Mapping[str, Path] = field(default_factory=dict)
    """The videos that results become frames of, by their kinds."""

    @property
    def names(self) -> list[str]:
        """The pictures, as messages name them."""
        pictures = (self.pair.left, self.pair.right) if self.pair else ()
        if self.pair and self.pair.frames:
            both = zip(pictures, self.pair.frames, strict=True)
            return [f"{path}, frame {number}" for path, number in both if path is not None]
        return [STDIN_NAME if path == STDIN else str(path) for path in pictures if path is not None]

    @property
    def files(self) -> dict[str, Path]:
        """The results that are written."""
        return {name: path for name, path in self.places.items() if name != self.returned}


@dataclass(frozen=True)
class Outcome:
    """What became of a pair of a batch."""

    job: Job
    error: PamError | None = None
    """Why there are no results; None: all went well."""
    warnings: Sequence[str] = ()
    """What looks wrong with the pair or its results."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """width, height (pixels), seconds (of computing), device, precision, and what else is known of a pair."""
    remark: str | None = None
    """How the pair was worked on, where that is not as usual."""
    data: bytes | None = None
    """Bytes of the result whose place is `-`."""

    @property
    def left(self) -> Path | None:
        """Left picture, or the one that holds both views; None: a line of a list that names no pair."""
        return self.job.pair.left if self.job.pair else None

    @property
    def right(self) -> Path | None:
        """Right picture; None: the left one holds both views."""
        return self.job.pair.right if self.job.pair else None

    @property
    def frame(self) -> int | None:
        """Number of the frame in the left video, from 0; None: pictures."""
        return self.job.pair.frames[0] if self.job.pair and self.job.pair.frames else None

    def record(self, said: Callable[[str], str] = str) -> dict[str, Any]:
        """Say all of it in paths and values of JSON. said: what becomes of the texts."""
        return {
            **{"left": self.left, "right": self.right, "line": self.job.line},
            **({} if self.frame is None else {"frame": self.frame}),
            **{"outputs": self.outputs, "width": None, "height": None, "seconds": None, **self.facts},
            **{"status": self.status, "code": self.error.exit_code if self.error else 0},
            **{"error": self.error and said(str(self.error)), "warnings": [*map(said, self.warnings)]},
        }

    @property
    def status(self) -> Literal["ok", "skipped", "failed"]:
        """Whether its results are there, were there, or are missing."""
        return "failed" if self.error else "skipped" if self.job.skip else "ok"

    @property
    def outputs(self) -> dict[str, Path]:
        """Files of the results by their kinds, as "disparity"; none of a pair that failed.

        Of a frame of a video it is the video, which is there once the whole batch is done.
        """
        return {} if self.error else {**self.job.files, **self.job.videos}
