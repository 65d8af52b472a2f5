"""The file name suffixes that pam reads and writes, in lower case with their dot.

Kept apart from the readers and writers so that command lines can be checked without importing numpy.
"""

from typing import Literal

JPS_SUFFIX = ".jps"
PACKED_SUFFIXES = (".mpo", JPS_SUFFIX)  # files that hold both views and say how
HEIF_SUFFIXES = (".heic", ".heif", ".hif")

PackedLayout = Literal[
    "auto",
    "lr",
    "rl",
    "tb",
    "bt",
    "lr-half",
    "rl-half",
    "tb-half",
    "bt-half",
    "rows-lr",
    "rows-rl",
    "red-cyan",
]
"""How a file holds both views. lr: the left view on the left; rl: exchanged (cross-eyed); tb: the left view
on top; bt: exchanged; -half: squeezed to half the width or height, so that both fit the frame of one;
rows-lr: the left view in the first, third ... row; rows-rl: exchanged; red-cyan: an anaglyph, whose red is
the left view. auto: the layout that the file states (MPO, JPS, spatial photos, VR180 photos)."""

Packing = Literal["lr", "rl", "tb", "bt", "red-cyan"]
"""How both views are written as one picture; red-cyan: for glasses."""

IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp", ".ppm", ".pgm", ".pbm", ".pnm"),
    *PACKED_SUFFIXES,
    *HEIF_SUFFIXES,
)
"""Pictures that are picked up in a folder. A file named explicitly is recognised by its content."""

VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".mts", ".m2ts", ".wmv")

BAG_PREFIX = "bag:"
BAG_SUFFIXES = (".bag", ".mcap", ".db3")
BAG_OUTPUT_SUFFIXES = (".bag", ".mcap")  # of ROS 1 and of ROS 2

VIDEO_OUTPUT_SUFFIXES = (".mkv", ".mp4")  # videos that are written: lossless, and for people to watch

IMAGE_OUTPUT_SUFFIXES = (".png", ".tif", ".tiff", ".jpg", ".jpeg", ".webp")

DISPARITY_SUFFIXES = (".pfm", ".png", ".npy", ".tif", ".tiff")

CONFIDENCE_SUFFIXES = (".tif", ".tiff", ".npy", ".pfm", ".png")

DEPTH_SUFFIXES = (".tif", ".tiff", ".npy", ".png")


def is_recording(text: str) -> bool:
    """Return whether an input names a ROS bag: `bag:FILE?left=...`, or a file by its suffix."""
    return text.startswith(BAG_PREFIX) or text.lower().endswith(BAG_SUFFIXES)
