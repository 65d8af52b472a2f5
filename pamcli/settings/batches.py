"""Hold the options of `pam disparity`, `pam superres`, `pam rectify`, `pam depth` and `pam view`."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pamcli.errors import UsageError
from pamcli.files.suffixes import Packing
from pamcli.registry.catalog import default_upscaling
from pamcli.settings.options import Place, argument, flag, forbid, option, require, result
from pamcli.settings.parsing import ColorRange, ImageSize, Name
from pamcli.settings.shared import (
    CalibrationFiles,
    Cluster,
    Compute,
    DisparityFiles,
    Engine,
    LensesAndPose,
    Limit,
    Matching,
    MetricResults,
    Pairs,
    RectifiedCalibration,
    RectifiedPairs,
    Results,
    Upscaling,
)


class MatchSettings(RectifiedPairs, Results, MetricResults, Matching, Engine, panel="Output"):
    """Options of `pam disparity` and `match_files`. Raises UsageError for contradictory options."""

    output: Place | None = result(
        "Write the disparity map of the left image, px: .pfm, .npy, .tif (float), .png (16 bits, 256 units "
        "per px); of videos .mkv.",
        "-o",
        metavar="FILE|FOLDER|TEMPLATE|-",
    )
    output_right: Place | None = result("Write the disparity map of the right image, px.")
    color_map: Place | None = result(
        "Write the disparity map as a colour image, unknown pixels black; of videos .mkv, .mp4."
    )
    visible: Place | None = result("Write a mask (.png): 255 where a pixel is visible in both images.")
    confidence: Place | None = result("Write the confidence map, from 0 to 1.")
    page: Place | None = result(
        "Write an interactive page (.html) with image, disparity map, values and point cloud; for a batch "
        "also an index."
    )
    format: Literal["pfm", "png", "npy", "tif"] | None = option(
        "Format of disparity maps in a folder or on stdout [default: pfm]."
    )
    range: ColorRange | None = option(
        "Range of the colours, px; shared: one range for the whole batch, with colour maps written at the "
        "end [default: one range per pair or video]."
    )
    grey: bool = flag("Write the colour map in greyscale: near is white, far and unknown are black.")
    unknown: Literal["occluded", "none"] = option(
        "Mark these pixels of the left image as unknown in disparity map, colour map, depth map and point "
        "cloud.",
        default="none",
    )
    steady: bool = flag(
        "Reduce flicker in videos: fuse each disparity map with the previous one, warped along the motion "
        "(pam guide videos)."
    )
    min_confidence: float | None = option(
        "Mark pixels with a confidence below T as unknown.", metavar="T", min=0, max=1
    )

    rules = forbid("steady", "shard", "engine", "vertical") + require("range grey", "color_map")

    def check(self) -> None:
        for name, place in (("output", self.output), ("output_right", self.output_right)):
            suffix = f".{self.format}" if self.format else Path(place or "").suffix
            if place and self.min_disparity < 0 and suffix.lower() == ".png":
                raise UsageError(
                    f"`{name}` {place}: a PNG cannot hold the negative disparities that `min_disparity` "
                    f"{self.min_disparity} allows",
                    "use .pfm, .npy or .tif",
                )
        if self.steady and self.skip_existing and self.output is None:
            raise UsageError(
                "`steady` with `skip_existing` requires `output`",
                "the disparity map of the previous frame must be stored",
            )


class ImageResults(Results, panel="Output"):
    """Results that are a left and a right image."""

    output: Place | None = result(
        "Write the left image (.png, .tif, .jpg, .webp; of videos .mkv, .mp4), or both images into a folder.",
        "-o",
        metavar="FILE|FOLDER|TEMPLATE|-",
    )
    output_right: Place | None = result("Write the right image.")
    format: Literal["png", "tif", "jpg", "webp"] | None = option(
        "Image format in a folder or on stdout [default: png]."
    )


class UpscaleSettings(RectifiedPairs, ImageResults, Upscaling, Engine, panel="Output"):
    """Options of `pam superres` and `upscale_files`. Raises UsageError for contradictory options."""

    output_packed: Place | None = result("Write one image that holds both upscaled images.")
    packing: Packing = option(
        "Layout of --output-packed, as of --packed; red-cyan: an anaglyph, red from the left image.",
        default="lr",
    )
    quality: int | None = option(
        "Quality of JPEG and WebP [default: 95 for JPEG, lossless for WebP].", min=1, max=100
    )
    input: Literal["clean", "camera", "auto"] | None = option(
        "Choose weights for clean images or for camera images with noise or JPEG artefacts; auto: detect "
        "them [default: auto].",
        panel="Network",
    )

    rules = forbid("input", "weights") + require("packing", "output_packed")

    @property
    def name(self) -> Place:
        """Name of the weights: given, or the default for the scale and the images."""
        return self.weights or default_upscaling(self.scale, camera=self.input == "camera")


class RectifySettings(Pairs, ImageResults, CalibrationFiles, LensesAndPose, Cluster, panel="Calibration"):
    """Options of `pam rectify` and `rectify_files`. Raises UsageError for contradictory options."""

    output_calibration: Path | None = option(
        "Write the calibration of the rectified images, for `pam disparity` [default: calibration.yaml "
        "next to the images].",
        metavar="FILE",
        panel="Output",
    )
    alpha: float | None = option(
        "Crop to valid pixels (0), keep all pixels with black borders (1), or anything between [default: R "
        "and P of the calibration, else 0].",
        min=0,
        max=1,
    )
    size: ImageSize | None = option(
        "Size of the rectified images, px [default: that of the input, or of the crop with --uncalibrated]."
    )
    fov: float | None = option(
        "Horizontal field of view of the rectified images, degrees, instead of --alpha.",
        min=1,
        max=170,
        metavar="DEGREES",
    )
    uncalibrated: bool = flag(
        "Rectify by matching features, without a calibration; distances remain unknown."
    )

    rules = (
        forbid("fov", "alpha")
        + forbid("uncalibrated", "calibration", "output_calibration", "cameras", "baseline", "unit")
        + forbid("uncalibrated", "alpha", "fov", "fisheye", "extrinsics")
        + require("", "calibration", "uncalibrated")
    )


class ExportSettings(RectifiedPairs, Results, RectifiedCalibration, Matching, Compute, panel="Output"):
    """Options of `pam export`. Raises UsageError for contradictory options."""

    output: Path = option("Folder to write.", "-o", default=..., metavar="FOLDER")

    rules = require("output", "calibration", "focal")


class DepthSettings(DisparityFiles, Limit, Results, MetricResults, panel="Output"):
    """Options of `pam depth` and `depth_files`. Raises UsageError for contradictory options."""

    format: ClassVar[None] = None
    inputs: Sequence[Place] = argument(
        "Disparity files (.pfm, .npy, .tif, .png; also .pgm, .npz, .exr, .csv, .txt), folders, a template "
        "with {}, or a video (.mkv) that pam disparity wrote.",
        default=...,
        metavar="DISPARITY",
        show_default=False,
        panel="Input",
    )
    image: Place | None = option(
        "Left images with the names of the disparity maps, to colour point clouds and meshes.",
        metavar="FILE|FOLDER|TEMPLATE",
        panel="Input",
    )
    depth: Place | None = result(
        "Write the depth map: .tif or .npy (m), .png (16 bits, mm).", "-o", metavar="FILE|FOLDER|TEMPLATE|-"
    )
    align_to: Name | None = option(
        "Compute all results for another camera, such as colour beside infrared: N for camera N of "
        "--calibration, FILE:N for that of another file, or a FILE with its K, R, T and size.",
        metavar="CAMERA",
        panel="Calibration",
    )
    invert: bool = flag(
        "Convert depth maps to disparity maps: the inputs hold metres (integers: mm; --scale: units per m), "
        "and -o writes .pfm, .npy, .tif or .png."
    )

    rules = (
        forbid("invert", "depth_error", "invalid")
        + forbid("align_to", "invert", "rerun")
        + require("align_to", "depth", "depth_error", "depth_color_map", "point_cloud", "mesh", "at", "boxes")
        + require("invert", "depth", "point_cloud", "mesh", "rerun", "at", "boxes")
    )


BatchSettings = MatchSettings | UpscaleSettings | RectifySettings | DepthSettings
"""Options of a batch of image pairs or disparity maps."""


class ViewSettings(DisparityFiles, RectifiedCalibration, panel="Input"):
    """Options of `pam view`. Raises UsageError for contradictory options."""

    result: Path = argument(
        "Page (.html) or folder of pages from --page, or a disparity map (.pfm, .npy, .tif, .png).",
        default=...,
        metavar="RESULT",
    )
    image: Path | None = argument("Left image of the disparity map.", metavar="IMAGE")
    confidence: Path | None = option("Confidence map of the disparity map, from 0 to 1.", metavar="FILE")
    port: int = option(
        "Serve on this port of this computer [default: a free one].",
        default=0,
        min=0,
        max=65535,
        panel="Output",
    )
    no_browser: bool = flag("Print the address without opening a browser.", panel="Output")

    rules = require("confidence scale invalid calibration focal", "image")
