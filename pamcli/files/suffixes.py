"""The file name suffixes that pam reads and writes, in lower case with their dot.

Kept apart from the readers and writers so that command lines can be checked without importing numpy.
"""

from __future__ import annotations

PICTURE_SUFFIXES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".tif",
    ".tiff",
    ".webp",
    ".bmp",
    ".ppm",
    ".pgm",
    ".pbm",
    ".pnm",
)
"""Pictures that are picked up in a folder. A file named explicitly is recognised by its content."""

PICTURE_OUTPUT_SUFFIXES = (".png", ".tif", ".tiff", ".jpg", ".jpeg", ".webp")

DISPARITY_SUFFIXES = (".pfm", ".png", ".npy", ".tif", ".tiff")

CONFIDENCE_SUFFIXES = (".tif", ".tiff", ".npy", ".pfm", ".png")
