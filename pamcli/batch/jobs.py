"""Find the pairs that settings name; each `Job` becomes a `Result`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pamcli.batch import LOG
from pamcli.errors import InputError, PamError, UsageError
from pamcli.files.pairing import STDIN, Pairing, PairPaths, read_pair_list, resolve_packed, resolve_pairs
from pamcli.files.paths import STDIN_NAME, are_packed, is_recording, join_names, pluralize, quote
from pamcli.files.suffixes import DISPARITY_INPUT_SUFFIXES, IMAGE_SUFFIXES, VIDEO_SUFFIXES, PackedLayout
from pamcli.settings.shared import Cluster, Pairs

EMPTY_NAME = "check that the shell variable is set"
PACKED_HINT = "add `packed` lr, rl, tb or bt"
_MAPS_ONLY = {*DISPARITY_INPUT_SUFFIXES} - {*IMAGE_SUFFIXES}
_MAP_NAME = re.compile(r"(?:^|[\W_])disp(?:arity)?\d?(?:$|[\W_])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Job:
    """The files to read and to write for a pair, or the error in a line of a list."""

    pair: PairPaths | None
    files: Mapping[str, Path] = field(default_factory=dict)
    """The file of each result by its kind: "disparity", "right_disparity" ..."""
    returned: Mapping[str, Path] = field(default_factory=dict)
    """The kind of the result that is returned as bytes, and a name with the suffix of its format."""
    done: bool = False  # True if all results exist and must not be replaced
    error: PamError | None = None
    line: int | None = None  # line of the list
    videos: Mapping[str, Path] = field(default_factory=dict)
    """The videos that results become frames of, by their kinds."""
    is_repeated: bool = False  # True if another process may have written a part of the results before it died

    @property
    def names(self) -> list[str]:
        """The names of the images in messages."""
        images = (self.pair.left, self.pair.right) if self.pair else ()
        if self.pair and self.pair.frames:
            both = zip(images, self.pair.frames, strict=True)
            return [f"{path}, frame {number}" for path, number in both if path is not None]
        return [STDIN_NAME if path == STDIN else str(path) for path in images if path is not None]

    @property
    def places(self) -> dict[str, Path]:
        """The paths of all results, including one that is returned as bytes."""
        return {**self.files, **self.returned}


@dataclass(frozen=True)
class Result:
    """The result of a pair of a batch."""

    job: Job
    error: PamError | None = None
    """The error of a failed pair, or None."""
    warnings: Sequence[str] = ()
    """Suspected problems of the pair or its results."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """width and height (px), seconds (of computing), device, precision, options and other facts."""
    remarks: Sequence[str] = ()
    """Notes on how the pair was processed."""
    data: bytes | None = None
    """Bytes of the result whose path is `-`."""
    video_warnings: Sequence[str] = ()
    """Problems of a frame that are reported in one warning for the whole video."""

    @property
    def left(self) -> Path | None:
        """The left image, or the image that holds both views; None for an invalid line of a list."""
        return self.job.pair.left if self.job.pair else None

    @property
    def right(self) -> Path | None:
        """The right image; None if the left image holds both views."""
        return self.job.pair.right if self.job.pair else None

    @property
    def frame(self) -> int | None:
        """Number of the frame in the left video, from 0; None for images."""
        return self.job.pair.frames[0] if self.job.pair and self.job.pair.frames else None

    @property
    def status(self) -> Literal["ok", "skipped", "failed"]:
        """Status of the results: "ok", "skipped" because they exist already, or "failed"."""
        return "failed" if self.error else "skipped" if self.job.done else "ok"

    @property
    def outputs(self) -> dict[str, Path]:
        """Files of the results by their kinds, such as "disparity"; empty if the pair failed.

        For a frame it is the video, which is complete after the whole batch.
        """
        return {} if self.error else {**self.job.files, **self.job.videos}

    def record(self, say: Callable[[str], str] = str) -> dict[str, Any]:
        """Return the result as paths and JSON values. say: a function that is applied to all texts."""
        warnings = [say(text) for text in (*self.warnings, *self.video_warnings)]
        return {
            **{"left": self.left, "right": self.right, "line": self.job.line},
            **({} if self.frame is None else {"frame": self.frame}),
            **{"outputs": self.outputs, "width": None, "height": None, "seconds": None, **self.facts},
            **{"status": self.status, "code": self.error.exit_code if self.error else 0},
            **{"error": self.error and say(str(self.error)), "warnings": warnings},
        }


def are_videos(inputs: Sequence[str]) -> bool:
    """Return whether all inputs are named like videos.

    Raises UsageError if only some are, InputError if a video does not exist.
    """
    videos = [text for text in inputs if os.path.splitext(text)[1].lower() in VIDEO_SUFFIXES]
    if videos and len(videos) < len(inputs):
        raise UsageError(f"{join_names(inputs)}: only {quote(videos[0])} is a video", "give two videos")
    for text in videos:
        if not os.path.exists(text):
            raise InputError(f"no such file: {quote(text)}")
    return bool(videos)


def find_pairs(settings: Pairs) -> tuple[Pairing | None, PackedLayout | None]:
    """Find the pairs that settings name (None: a list that is read while it is processed), and their layout.

    Raises UsageError, InputError.
    """
    inputs, root = [*map(str, settings.inputs or ())], settings.root and Path(settings.root)
    if root is not None and not root.is_dir():
        raise UsageError(f"`root` must be a folder, got {quote(root)}")
    packed = settings.packed
    if packed is None and settings.pairs is None and are_packed(inputs):
        packed = "auto"
    if "" in inputs or settings.pairs == "":
        raise UsageError("the name of an image or list is empty", EMPTY_NAME)
    if any(map(is_recording, inputs)):
        return _find_recorded(settings, inputs), None
    if are_videos(inputs):
        return _find_frames(settings, inputs, packed), packed
    for name in ("start", "every", "count", "offset"):
        if settings.is_set(name):
            raise UsageError(f"`{name}` requires a video", f"drop `{name}`")
    if settings.pairs is not None:
        # With Ray, the list is distributed while it is read.
        is_far = isinstance(settings, Cluster) and settings.engine == "ray"
        stream = is_far or str(settings.pairs) == str(STDIN)
        return None if stream else Pairing(read_pair_list(Path(settings.pairs), settings.null, root)), None
    if packed is not None and "-" in inputs:
        if len(inputs) > 1:
            raise UsageError("- reads one image from stdin, so it must be the only input")
        return Pairing((PairPaths(STDIN, None, "stdin"),), batch=False), packed
    if packed is not None:
        return resolve_packed(inputs, by_suffix=packed == "auto", root=root), packed
    if root is not None:
        raise UsageError("`root` requires `pairs` or `packed`", "drop `root`")
    if "-" in inputs:
        raise UsageError("an image from stdin must hold both views", PACKED_HINT)
    maps = [each for each in inputs if Path(each).suffix.lower() in _MAPS_ONLY]
    if maps:
        hint = "pam depth converts stored disparity maps, and measures in them, with the same options"
        raise UsageError(f"a left and a right image are required, got the disparity map {maps[0]}", hint)
    if inputs and all(_MAP_NAME.search(Path(each).stem) for each in inputs):
        LOG.warning(f"{join_names(inputs)} are named like disparity maps: pam depth converts those")
    if len(inputs) != 2:
        hint = "pass two images, folders or quoted templates; `packed` reads images that hold both views"
        if len(inputs) == 1:
            hint = f"if {quote(inputs[0])} holds both views side by side, add `packed` lr"
        raise UsageError(f"a left and a right image are required, got {len(inputs) or 'none'}", hint)
    return resolve_pairs(*inputs), None


def _forbid(settings: Pairs, source: str, *names: str) -> None:
    for name in filter(partial(getattr, settings), names):
        raise UsageError(f"cannot use both `{name}` and {source}", f"drop `{name}`")


def _find_recorded(settings: Pairs, inputs: list[str]) -> Pairing:
    """Pair the images of a ROS bag. Raises UsageError, InputError."""
    _forbid(settings, f"the ROS bag {inputs[0]}", "pairs", "root", "packed", "offset")
    if len(inputs) > 1:
        raise UsageError(
            f"a ROS bag must be the only input, got {join_names(inputs)}",
            "name both topics of one bag: 'bag:FILE?left=/TOPIC&right=/TOPIC'",
        )
    from pamcli.batch.frames import pair_messages

    return pair_messages(inputs[0], settings.start, settings.every, settings.count)


def _find_frames(settings: Pairs, inputs: list[str], packed: str | None) -> Pairing:
    """Pair the frames of one or two videos. Raises UsageError, InputError."""
    _forbid(settings, f"the video {quote(inputs[0])}", "pairs", "root")
    if packed == "auto":
        raise UsageError("the layout of a video must be stated", PACKED_HINT)
    if len(inputs) != (1 if packed else 2):
        needed = "one video is required with `packed`" if packed else "a left and a right video are required"
        hint = None if packed else f"if one video holds both views, {PACKED_HINT}"
        raise UsageError(f"{needed}, got {pluralize(len(inputs), 'video')}: {join_names(inputs)}", hint)
    if packed and settings.offset:
        raise UsageError("`offset` requires two videos", "drop `offset`")
    from pamcli.batch.frames import pair_frames

    return pair_frames(inputs, settings.start, settings.every, settings.count, settings.offset)
