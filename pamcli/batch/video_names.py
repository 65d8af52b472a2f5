"""Name the videos of a batch and the files of their frames, before any work."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

from pamcli.errors import UsageError, import_extra
from pamcli.files.outputs import OutputKind, OutputPlan, is_folder_name
from pamcli.files.pairing import Pairing, PairPaths
from pamcli.files.paths import quote
from pamcli.files.suffixes import (
    BAG_OUTPUT_SUFFIXES,
    IMAGE_OUTPUT_SUFFIXES,
    RERUN_SUFFIX,
    VIDEO_OUTPUT_SUFFIXES,
    VIDEO_SUFFIXES,
)

STORED = ".png"
"""Format of stored frames: lossless, with 8 or 16 bits."""


def plan_videos(
    options: Mapping[OutputKind, str | None], pairing: Pairing | None, format_name: str | None
) -> dict[str, Path]:
    """Return the results that become videos, by the names of their kinds.

    A result of several pairs becomes a video if its name is that of one and its frames can be images.
    Raises UsageError for a video that cannot be written, for a list of pairs, and without PyAV.
    """
    places = {}
    main = next(iter(options))
    for kind, text in options.items():
        path = Path(text or "")
        is_bag, is_rerun = path.suffix.lower() in BAG_OUTPUT_SUFFIXES, kind.name == "rerun"
        is_video = path.suffix.lower() in VIDEO_SUFFIXES and STORED in kind.suffixes
        if text is None or not (is_bag or is_rerun or is_video) or "{}" in text or is_folder_name(text, True):
            continue
        if is_rerun and pairing is not None:
            from pamcli.recordings.rrd import import_rerun

            import_rerun()
            places[kind.name] = path
            continue
        if pairing is None or any(pair.line is not None for pair in itertools.islice(pairing.pairs, 1)):
            message = f"cannot use both `pairs` and the video {kind.option} {quote(text)}"
            raise UsageError(message, "write images, or process two videos")
        if not pairing.batch:
            continue
        if is_bag:
            if kind.name != "disparity":
                message = f"{kind.option} {quote(text)}: a ROS bag can only hold disparity maps"
                hint = "name a folder" if kind.option == "`output`" else "use the bag for `output`"
                raise UsageError(message, hint)
            import_extra("rosbags.highlevel")
            places[kind.name] = path
            continue
        if path.suffix.lower() not in VIDEO_OUTPUT_SUFFIXES:
            raise UsageError(
                f"{kind.option} {quote(text)} must end with {' or '.join(VIDEO_OUTPUT_SUFFIXES)}",
                ".mkv is lossless, .mp4 plays everywhere",
            )
        if kind.suffixes != IMAGE_OUTPUT_SUFFIXES and path.suffix.lower() != ".mkv":
            raise UsageError(f"{kind.option} {quote(text)} must be lossless", "use .mkv")
        if format_name is not None and kind.suffixes == main.suffixes:
            raise UsageError(f"cannot use both `format` and the video {quote(text)}", "drop `format`")
        import_extra("av")
        places[kind.name] = path
    return places


def frame_template(video: Path) -> str:
    """Return the template of the stored frames of a video."""
    suffix = video.suffix.lower()
    stored = {RERUN_SUFFIX: ".npz", **dict.fromkeys(BAG_OUTPUT_SUFFIXES, ".npy")}.get(suffix, STORED)
    return f"{frames_folder(video)}/{{}}{stored}"


def frames_folder(video: Path) -> Path:
    """Return the folder of the stored frames of a video."""
    return video.with_name(f"{video.name}.frames")


def find_complete_videos(
    videos: Mapping[str, Path], names: OutputPlan, pairs: Iterable[PairPaths]
) -> frozenset[str]:
    """Return the existing videos that no stored frames will replace."""
    existing = {name for name, video in videos.items() if video.exists()}
    unfinished = {name for name in existing if frames_folder(videos[name]).exists()}
    if unfinished:  # the folder may hold only frames of other pairs
        places = [names.paths(pair) for pair in pairs]
        unfinished = {name for name in unfinished if any(each[name].exists() for each in places)}
    return frozenset(existing - unfinished)
