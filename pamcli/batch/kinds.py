"""The kinds of results of all commands."""

from pamcli.files.outputs import OutputKind
from pamcli.files.suffixes import (
    CONFIDENCE_SUFFIXES,
    DEPTH_SUFFIXES,
    DISPARITY_SUFFIXES,
    IMAGE_OUTPUT_SUFFIXES,
    POINT_CLOUD_SUFFIXES,
)

DISPARITY = OutputKind("disparity", "`output`", DISPARITY_SUFFIXES)
RIGHT_DISPARITY = OutputKind("right_disparity", "`output_right`", DISPARITY_SUFFIXES, "_right")
COLOR_MAP = OutputKind("color_map", "`color_map`", IMAGE_OUTPUT_SUFFIXES, "_color")
VISIBLE = OutputKind("visible", "`visible`", (".png",), "_visible")
CONFIDENCE = OutputKind("confidence", "`confidence`", CONFIDENCE_SUFFIXES, "_confidence")
PAGE = OutputKind("page", "`page`", (".html",))
DEPTH = OutputKind("depth", "`depth`", DEPTH_SUFFIXES, "_depth")
INVERTED_DEPTH = OutputKind("disparity", "`depth`", DISPARITY_SUFFIXES)  # of `pam depth --invert`
DEPTH_ERROR = OutputKind("depth_error", "`depth_error`", DEPTH_SUFFIXES, "_depth_error")
DEPTH_COLOR_MAP = OutputKind("depth_color_map", "`depth_color_map`", IMAGE_OUTPUT_SUFFIXES, "_depth_color")
POINT_CLOUD = OutputKind("point_cloud", "`point_cloud`", POINT_CLOUD_SUFFIXES, "_cloud")
MESH = OutputKind("mesh", "`mesh`", (".glb",), "_mesh")
RERUN = OutputKind("rerun", "`rerun`", (".npz",))  # of its stored frames
LEFT = OutputKind("left", "`output`", IMAGE_OUTPUT_SUFFIXES, "_left")
RIGHT = OutputKind("right", "`output_right`", IMAGE_OUTPUT_SUFFIXES, "_right", joins_main_folder=True)
PACKED = OutputKind("packed", "`output_packed`", IMAGE_OUTPUT_SUFFIXES, "_packed")

OF_DISPARITY = (DEPTH_ERROR, DEPTH_COLOR_MAP, POINT_CLOUD, MESH, RERUN)
"""Results of `pam disparity` and `pam depth` other than depth."""
OF_MATCHING = (DISPARITY, RIGHT_DISPARITY, COLOR_MAP, VISIBLE, CONFIDENCE, PAGE, DEPTH, *OF_DISPARITY)
DISTANCES = "distances"
METRIC = {DISTANCES, *(kind.name for kind in (DEPTH, DEPTH_ERROR, DEPTH_COLOR_MAP, POINT_CLOUD, MESH))}
"""Kinds of results that need a calibration."""
STORED_AS_DISPARITY = {kind.name for kind in (DISPARITY, RIGHT_DISPARITY, COLOR_MAP, DEPTH_COLOR_MAP)}
"""Kinds of videos whose frames are stored as disparity maps."""
