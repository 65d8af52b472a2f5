"""File name suffixes that pam reads and writes, in lower case with their dot; standard library only."""

from typing import Literal

MPO_SUFFIX = ".mpo"
STEREOGRAM_SUFFIXES = (".jps", ".pns")  # JPEG and PNG with both views, cross-eyed unless stated
PACKED_SUFFIXES = (MPO_SUFFIX, *STEREOGRAM_SUFFIXES)  # files that hold both views and state how
HEIF_SUFFIXES = (".heic", ".heif", ".hif")
JPEG_SUFFIXES = (".jpg", ".jpeg")
STATING_SUFFIXES = (
    *PACKED_SUFFIXES,
    *HEIF_SUFFIXES,
    *JPEG_SUFFIXES,
)  # files that may hold both views and say so

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
"""Layout of a file with both views. lr: left view on the left; rl: on the right (cross-eyed); tb: left view
on top; bt: below; -half: squeezed to half the width or height, so that both fit into the frame of one view;
rows-lr: left view in the first, third ... row; rows-rl: in the others; red-cyan: an anaglyph, whose red is
the left view. auto: as stated in the file (MPO, JPS, PNS, spatial photos, VR180 photos)."""

Packing = Literal["lr", "rl", "tb", "bt", "red-cyan"]
"""Layout of an output image with both views; red-cyan: an anaglyph."""

IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp", ".ppm", ".pgm", ".pbm", ".pnm"),
    *(".avif", ".gif"),
    *PACKED_SUFFIXES,
    *HEIF_SUFFIXES,
)
"""Images that are found in a folder. A file named explicitly is recognised by its content."""

VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".mts", ".m2ts", ".wmv")
VIDEO_OUTPUT_SUFFIXES = (".mkv", ".mp4")  # lossless; for viewing
BAG_PREFIX = "bag:"
BAG_SUFFIXES = (".bag", ".mcap", ".db3")
BAG_OUTPUT_SUFFIXES = (".bag", ".mcap")  # of ROS 1; of ROS 2
RERUN_SUFFIX = ".rrd"
IMAGE_OUTPUT_SUFFIXES = (".png", ".tif", ".tiff", ".jpg", ".jpeg", ".webp")
DISPARITY_SUFFIXES = (".pfm", ".png", ".npy", ".tif", ".tiff")
DISPARITY_INPUT_SUFFIXES = (*DISPARITY_SUFFIXES, ".pgm", ".npz", ".exr")
"""Disparity maps that are found in a folder; `TABLE_SUFFIXES` are read only if named explicitly."""

TABLE_SUFFIXES = (".csv", ".txt")
CONFIDENCE_SUFFIXES = (".tif", ".tiff", ".npy", ".pfm", ".png")
DEPTH_SUFFIXES = (".tif", ".tiff", ".npy", ".png")

POINT_CLOUD_SUFFIXES = (".ply", ".las", ".laz")
