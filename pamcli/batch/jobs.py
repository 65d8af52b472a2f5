"""What is there to do? `find_pairs` finds the pairs that settings name; each `Job` becomes a `Result`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pamcli.errors import InputError, PamError, UsageError
from pamcli.files.packed import are_packed
from pamcli.files.pairing import (
    STDIN,
    Pairing,
    PairPaths,
    read_pair_list,
    resolve_packed,
    resolve_pairs,
)
from pamcli.files.paths import STDIN_NAME, join_names, pluralize, quote
from pamcli.files.suffixes import VIDEO_SUFFIXES, PackedLayout, is_recording


@dataclass(frozen=True, slots=True)
class Job:
    """What to read of a pair, and where to write; or what is wrong with a line of a list."""

    pair: PairPaths | None
    files: Mapping[str, Path] = field(default_factory=dict)
    """Where each result goes, by its kind: "disparity", "right_disparity" ..."""
    returned: Mapping[str, Path] = field(default_factory=dict)
    """The result that is handed back instead of written, and a name with the suffix of its format."""
    done: bool = False
    """All results exist and are complete, as each is written whole, and are to stay."""
    error: PamError | None = None
    line: int | None = None
    """Line of the list that the pair comes from."""
    videos: Mapping[str, Path] = field(default_factory=dict)
    """The videos that results become frames of, by their kinds."""

    @property
    def names(self) -> list[str]:
        """The images, as messages name them."""
        pictures = (self.pair.left, self.pair.right) if self.pair else ()
        if self.pair and self.pair.frames:
            both = zip(pictures, self.pair.frames, strict=True)
            return [f"{path}, frame {number}" for path, number in both if path is not None]
        return [STDIN_NAME if path == STDIN else str(path) for path in pictures if path is not None]

    @property
    def places(self) -> dict[str, Path]:
        """All results, and where they go."""
        return {**self.files, **self.returned}


@dataclass(frozen=True)
class Result:
    """What became of a pair of a batch."""

    job: Job
    error: PamError | None = None
    """Why there are no results; None: all went well."""
    warnings: Sequence[str] = ()
    """What looks wrong with the pair or its results."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """width, height (pixels), seconds (of computing), device, precision, and what else is known of a pair."""
    remark: str | None = None
    """How the pair was processed, where that is not as usual."""
    data: bytes | None = None
    """Bytes of the result whose place is `-`."""

    @property
    def left(self) -> Path | None:
        """Left image, or the one that holds both views; None: a line of a list that names no pair."""
        return self.job.pair.left if self.job.pair else None

    @property
    def right(self) -> Path | None:
        """Right image; None: the left one holds both views."""
        return self.job.pair.right if self.job.pair else None

    @property
    def frame(self) -> int | None:
        """Number of the frame in the left video, from 0; None: images."""
        return self.job.pair.frames[0] if self.job.pair and self.job.pair.frames else None

    @property
    def status(self) -> Literal["ok", "skipped", "failed"]:
        """Whether its results are there, were there, or are missing."""
        return "failed" if self.error else "skipped" if self.job.done else "ok"

    @property
    def outputs(self) -> dict[str, Path]:
        """Files of the results by their kinds, as "disparity"; none of a pair that failed.

        Of a frame of a video it is the video, which is there once the whole batch is done.
        """
        return {} if self.error else {**self.job.files, **self.job.videos}

    def record(self, say: Callable[[str], str] = str) -> dict[str, Any]:
        """Return all of it in paths and values of JSON. say: changes the texts."""
        return {
            **{"left": self.left, "right": self.right, "line": self.job.line},
            **({} if self.frame is None else {"frame": self.frame}),
            **{"outputs": self.outputs, "width": None, "height": None, "seconds": None, **self.facts},
            **{"status": self.status, "code": self.error.exit_code if self.error else 0},
            **{"error": self.error and say(str(self.error)), "warnings": [*map(say, self.warnings)]},
        }


def are_videos(inputs: Sequence[str]) -> bool:
    """Return whether all inputs are called like videos.

    Raises UsageError where some are, and some are not, InputError where one is no file.
    """
    videos = 0
    for text in inputs:
        videos += os.path.splitext(text)[1].lower() in VIDEO_SUFFIXES
    if videos and videos < len(inputs):
        raise UsageError(f"of {join_names(inputs)} one is a video, the other one is none")
    for text in inputs if videos else ():
        if not os.path.exists(text):
            raise InputError(f"no such file: {quote(text)}")
    return bool(videos)


def find_pairs(settings: Any) -> tuple[Pairing | None, PackedLayout | None]:
    """Find the pairs that settings name (None: a list that is read as it is processed), and their packing.

    Raises UsageError, InputError.
    """
    inputs, root = [*map(str, settings.inputs or ())], settings.root and Path(settings.root)
    if root is not None and not root.is_dir():
        raise UsageError(f"`root` {quote(root)} is no folder")
    packed = settings.packed
    if packed is None and settings.pairs is None and are_packed(inputs):
        packed = "auto"
    if "" in inputs or settings.pairs == "":
        raise UsageError("the name of a picture or list is empty", "an unset variable of the shell, perhaps?")
    if any(map(is_recording, inputs)):
        return _find_recorded(settings, inputs), None
    if are_videos(inputs):
        return _find_frames(settings, inputs, packed), packed
    if (settings.start, settings.every, settings.count, settings.offset) != (0, 1, None, 0):
        alone = [name for name in settings.set_options() if name in _OF_VIDEOS]
        raise UsageError(f"{alone[0]} is about videos, and none is given")
    if settings.pairs is not None:
        if inputs or packed:
            given = f"the argument {inputs[0]}" if inputs else "`packed`"
            raise UsageError(f"cannot use both `pairs` and {given}", "give one of them")
        # Who spreads a list over machines does not wait until it is read, either.
        stream = settings.engine == "ray" or str(settings.pairs) == str(STDIN)
        return None if stream else Pairing(read_pair_list(Path(settings.pairs), settings.null, root)), None
    if packed is not None:
        if "-" in inputs:
            if len(inputs) > 1:
                raise UsageError("- stands for one picture on stdin", "give it alone")
            return Pairing((PairPaths(STDIN, None, "stdin"),), batch=False), packed
        return resolve_packed(inputs, by_suffix=packed == "auto", root=root), packed
    if root is not None:
        raise UsageError(
            "`root` is about the list of `pairs` and pictures that hold both views", "leave it out"
        )
    if "-" in inputs:
        raise UsageError("stdin gives one picture that holds both views", "add `packed` lr, rl, tb or bt")
    if len(inputs) != 2:
        raise UsageError(
            f"a left and a right picture are needed, {len(inputs) or 'none'} given",
            "two folders or two quoted templates make a batch; `packed` takes pictures that hold both views",
        )
    return resolve_pairs(*inputs), None


_OF_VIDEOS = ("`start`", "`every`", "`count`", "`offset`")


def _find_recorded(settings: Any, inputs: list[str]) -> Pairing:
    """Pair the images of a ROS bag. Raises UsageError, InputError."""
    for name in ("pairs", "root", "packed", "offset"):
        if getattr(settings, name):
            raise UsageError(f"cannot use both `{name}` and the ROS bag {inputs[0]}", f"drop `{name}`")
    if len(inputs) > 1:
        raise UsageError(
            f"a ROS bag must be the only input, got {join_names(inputs)}",
            "name both topics of one bag: 'bag:FILE?left=/TOPIC&right=/TOPIC'",
        )
    from pamcli.batch.frames import pair_messages

    return pair_messages(inputs[0], start=settings.start, every=settings.every, count=settings.count)


def _find_frames(settings: Any, inputs: list[str], packed: str | None) -> Pairing:
    """Pair the frames of one or two videos. Raises UsageError, InputError."""
    for name in ("pairs", "root"):
        if getattr(settings, name) is not None:
            raise UsageError(f"`{name}` is about pictures, and {quote(inputs[0])} is a video", "leave it out")
    if packed == "auto":
        raise UsageError("a video does not say how it holds both views", "`packed` lr, rl, tb or bt")
    if len(inputs) != (1 if packed else 2):
        raise UsageError(
            f"{pluralize(len(inputs), 'video')} given: {join_names(inputs)}",
            "a left and a right one, or one that holds both views and `packed` lr, rl, tb or bt",
        )
    if packed and settings.offset:
        raise UsageError("`offset` is about two videos, and one holds both views", "leave it out")
    from pamcli.batch.frames import pair_frames

    return pair_frames(
        inputs, start=settings.start, every=settings.every, count=settings.count, offset=settings.offset
    )
