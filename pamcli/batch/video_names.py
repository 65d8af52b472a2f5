"""Plan the results that become videos, whose frames are stored beside them until all exist."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pamcli.errors import UsageError, import_extra
from pamcli.files.outputs import OutputKind, OutputPlan, check_extra_output, is_folder_name
from pamcli.files.pairing import Pairing, PairPaths
from pamcli.files.paths import quote
from pamcli.files.suffixes import (
    BAG_OUTPUT_SUFFIXES,
    IMAGE_OUTPUT_SUFFIXES,
    RERUN_SUFFIX,
    VIDEO_OUTPUT_SUFFIXES,
    VIDEO_SUFFIXES,
)
from pamcli.recordings.rrd import import_rerun
from pamcli.settings.options import Place

STORED = ".png"  # format of stored frames: lossless, with 8 or 16 bits
FRAME_SUFFIXES = {RERUN_SUFFIX: ".npz", **dict.fromkeys(BAG_OUTPUT_SUFFIXES, ".npy")}
"""Formats of the stored frames of other recordings than videos."""


def plan_videos(
    texts: dict[OutputKind, str | None], pairing: Pairing | None, format_name: str | None
) -> dict[str, Path]:
    """Return the results that become videos, by the names of their kinds; `texts` get those of their frames.

    A result of several pairs becomes a video if its name is that of one and its frames can be images.
    Raises UsageError for a video that cannot be written, for a list of pairs, and without PyAV.
    """
    places: dict[str, Path] = {}
    main = next(iter(texts))
    for kind, text in texts.items():
        if text is None or "{}" in text or is_folder_name(text, True):
            continue
        path, name = Path(text), f"{kind.option} {quote(text)}"
        suffix, is_rerun = path.suffix.lower(), kind.name == "rerun"
        is_bag, is_video = suffix in BAG_OUTPUT_SUFFIXES, suffix in VIDEO_SUFFIXES and STORED in kind.suffixes
        if not (is_bag or is_rerun or is_video):
            continue
        first = next(iter(pairing.pairs), None) if pairing else None
        if pairing is None or (not is_rerun and first and first.line is not None):
            message = f"cannot use both `pairs` and the video {name}"
            raise UsageError(message, "write images, or process two videos")
        if not (is_rerun or pairing.batch):
            continue
        if is_bag and kind.name != "disparity":
            hint = "name a folder" if kind.option == "`output`" else "use the bag for `output`"
            raise UsageError(f"{name}: a ROS bag can only hold disparity maps", hint)
        if is_video and suffix not in VIDEO_OUTPUT_SUFFIXES:
            message = f"{name} must end with {' or '.join(VIDEO_OUTPUT_SUFFIXES)}"
            raise UsageError(message, ".mkv is lossless, .mp4 plays everywhere")
        if is_video and kind.suffixes != IMAGE_OUTPUT_SUFFIXES and suffix != ".mkv":
            raise UsageError(f"{name} must be lossless", "use .mkv")
        if is_video and format_name is not None and kind.suffixes == main.suffixes:
            raise UsageError(f"cannot use both `format` and the video {quote(text)}", "drop `format`")
        if is_rerun:
            import_rerun()
        else:
            import_extra("rosbags.highlevel" if is_bag else "av")
        places[kind.name] = path
        texts[kind] = f"{frames_folder(path)}/{{}}{FRAME_SUFFIXES.get(suffix, STORED)}"
    return places


def frames_folder(video: Path) -> Path:
    """Return the folder of the stored frames of a video."""
    return video.with_name(f"{video.name}.frames")


def check_videos(
    videos: Mapping[str, Path],
    names: OutputPlan,
    pairs: Collection[PairPaths],
    read: Sequence[Place],
    skip_existing: bool,
) -> frozenset[str]:
    """Return the existing videos that are kept, because no stored frames will replace them.

    Raises UsageError if a video would overwrite an input.
    """
    first = next(iter(pairs))
    for video in videos.values():
        check_extra_output(video, [first.left, first.right or first.left, *read])
    existing = {name for name, video in videos.items() if skip_existing and video.exists()}
    unfinished = {name for name in existing if frames_folder(videos[name]).exists()}
    if unfinished:  # the folder may hold only frames of other pairs
        places = [names.paths(pair) for pair in pairs]
        unfinished = {name for name in unfinished if any(each[name].exists() for each in places)}
    return frozenset(existing - unfinished)
