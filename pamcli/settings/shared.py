"""Hold the options that several commands share."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pamcli.errors import UsageError
from pamcli.files.paths import are_packed, is_recording
from pamcli.files.suffixes import PackedLayout
from pamcli.registry.architectures import MatchSize, check_match_size
from pamcli.registry.catalog import DEFAULT_MATCHING, default_upscaling
from pamcli.settings import parsing
from pamcli.settings.options import Place, Settings, argument, flag, option, result

MAX_PIXELS = 400_000_000
Precision = Literal["auto", "fp32", "bf16", "fp16"]
PRECISION = "Compute in this precision; auto: 16 bits where the device is faster with them, else fp32."
FORM = "NAME[/SPLIT]:PATH[?key=value&...]"
DATA = {"metavar": "DATA", "complete": "data"}
"""Metadata of options and arguments for data sets."""
WEIGHTS = {"metavar": "NAME|PATH|hf:...", "complete": "weights"}
"""Metadata of options and arguments for weights."""
WORKERS = option(
    "Use N processes.", min=1, show_default="number of processors, at most 8", rich_help_panel="Performance"
)
FISHEYE = flag(
    "Read the distortion coefficients of an OpenCV file as those of its fisheye model.",
    rich_help_panel="Calibration",
)
Extrinsics = Literal["transform", "pose", "rows", "position"]
EXTRINSICS = option(
    "Meaning of R and T in the calibration. transform: x2 = R x1 + T; pose: x1 = R x2 + T; rows: "
    "x2 = x1 R + T; position: x2 = R (x1 - T).",
    default="transform",
    rich_help_panel="Calibration",
)
UNIT = option(
    "Unit of lengths in a calibration file that does not state it: mm, cm, m, or 25mm for board squares.",
    metavar="LENGTH",
    parse=parsing.parse_length,
    check=parsing.parse_length,
)
CAMERAS = option(
    "Select the left and the right camera of a file with several cameras; 1:0 exchanges the first two.",
    metavar="L:R",
    parse=parsing.parse_cameras,
)
PACKED = option(
    "Read both views from each image or video. lr: left view on the left; rl: on the right (cross-eyed); "
    "tb: on top; bt: at the bottom; -half: views squeezed to half size; rows-lr, rows-rl: alternating rows, "
    "left or right view first; red-cyan: anaglyph; auto: as the file states (the default for .mpo, .jps, "
    ".pns, spatial photos and VR180 photos).",
    metavar="LAYOUT",
    rich_help_panel="Input",
)


def check_shard(share: tuple[int, int], option: str) -> None:
    """Raise UsageError where a shard is not one of 1/N to N/N."""
    if not 1 <= share[0] <= share[1]:
        raise UsageError(f"{option} must be (I, N) with I from 1 to N, got {share}")


def check_device(device: str, option: str) -> None:
    """Raise UsageError for an unknown device, without asking PyTorch which there are."""
    if not re.fullmatch(r"auto|cpu|(cuda|tensorrt)(:[0-9]+)?|mps|openvino|coreml", device):
        raise UsageError(f"unknown {option} {device!r}", "expected one of auto, cpu, cuda, cuda:N, mps")


class Limit(Settings, panel="Input"):
    """Limit of the image size."""

    max_pixels: int | None = option(
        "Reject files with more than N pixels, before decoding them.",
        default=MAX_PIXELS,
        metavar="N|none",
        parse=parsing.parse_number_or_none,
    )


class Pairs(Limit):
    """Image pairs to process."""

    requires: ClassVar = {"null": ("pairs",)}
    conflicts: ClassVar = [("pairs", "inputs"), ("pairs", "packed")]
    inputs: Sequence[Place] | None = argument(
        "Two images; two folders with files of equal names; two templates, in which {} stands for the same "
        "text; two videos; or a ROS bag. With --packed: images, folders or a video that hold both views, or "
        "- for stdin.",
        metavar="LEFT RIGHT",
        show_default=False,
    )
    pairs: Place | None = option(
        "Read a list of pairs, one per line: left<TAB>right[<TAB>output]; - reads it from stdin as it "
        "arrives.",
        metavar="FILE",
    )
    null: bool = flag("Read the list of --pairs as left NUL right NUL.", "-0", "--null")
    packed: PackedLayout | None = PACKED
    vr180: float | None = option(
        "Convert VR180 images to rectilinear views with this field of view, degrees.",
        metavar="DEGREES",
        show_default="90 for photos marked as VR180",
        min=10,
        max=150,
    )
    root: Place | None = option(
        "With --pairs or --packed: recreate the folders of the left images, relative to DIR, in the output "
        "folder.",
        metavar="DIR",
        parse=parsing.parse_path,
        show_default="current folder",
    )
    start: int = option("Start at frame N of a video, counted from 0.", default=0, min=0)
    every: int = option("Process every N-th frame of a video.", default=1, min=1)
    count: int | None = option("Process at most N frames of a video.", min=1, show_default="all")
    offset: int | Literal["auto"] = option(
        "Pair each left frame with the right frame N frames later (negative: earlier); auto: measure N from "
        "the motion in both videos.",
        default=0,
        metavar="N|auto",
        parse=parsing.parse_offset,
    )
    shard: tuple[int, int] | None = option(
        "Process only share I of N equal shares of the batch: 1/4, 2/4, 3/4 or 4/4 for four machines.",
        metavar="I/N",
        parse=parsing.parse_shard,
        check=check_shard,
    )
    skip_unpaired: bool = flag("Ignore images that have no partner, with a warning.")

    def is_stated(self, keyword: str) -> bool:
        recorded = any(is_recording(str(each)) for each in self.inputs or ())
        return keyword == "calibration" and recorded and not getattr(self, "uncalibrated", False)


class RectifiedPairs(Pairs):
    """Rectified image pairs to process."""

    vertical: bool = flag("Match cameras mounted one above the other; LEFT is the image of the upper camera.")

    def is_stated(self, keyword: str) -> bool:
        """Return whether a ROS bag, or a file that holds both views, may state the calibration."""
        packed = self.packed in (None, "auto") and are_packed([str(each) for each in self.inputs or ()])
        return super().is_stated(keyword) or (keyword == "calibration" and packed)


INVALID = option(
    "Value that marks unknown pixels in disparity files, in their own units.",
    metavar="VALUE",
    parse=parsing.parse_number,
    rich_help_panel="Input",
    show_default="recognised",
)
SCALE = option(
    "Units per pixel of disparity in the files.",
    metavar="N",
    parse=parsing.parse_number,
    rich_help_panel="Input",
    show_default="256 in 16-bit PNG, 16 in signed integers, else 1",
)


class Results(Settings, panel="Output"):
    """The choice between skipping and overwriting existing results."""

    conflicts: ClassVar = [("overwrite", "skip_existing")]
    skip_existing: bool = flag("Skip pairs whose results all exist.")
    overwrite: bool = flag("Overwrite existing results.")


class ImageResults(Results):
    """Results that are a left and a right image."""

    output: Place | None = result(
        "Write the left image (.png, .tif, .jpg, .webp; of videos .mkv, .mp4), or both images into a folder.",
        "-o",
        metavar="FILE|FOLDER|TEMPLATE|-",
    )
    output_right: Place | None = result("Write the right image.")
    format: Literal["png", "tif", "jpg", "webp"] | None = option(
        "Image format in a folder or on stdout.", show_default="png"
    )


class NewFile(Settings, panel="Output"):
    """Files that are overwritten only on request."""

    overwrite: bool = flag("Overwrite existing results.")


class Device(Settings, panel="Performance"):
    """The device to compute on."""

    device: str = option(
        "Compute on auto, cpu, cuda, cuda:N or mps; .onnx files also on tensorrt, openvino or coreml.",
        default="auto",
        metavar="DEVICE",
        check=check_device,
    )


class Compute(Device):
    """Device, precision and memory."""

    precision: Precision = option(PRECISION, default="auto")
    max_memory: int | None = option(
        "Use at most this much memory, such as 4GB, 1.5GiB or 800MB.",
        metavar="SIZE",
        parse=parsing.parse_memory_size,
        show_default="70 % of the free memory",
    )
    """Bytes."""


class Cluster(Settings, panel="Performance"):
    """Machines that process a batch."""

    requires: ClassVar = {"ray_address": ("engine ray",), "ray_cores": ("engine ray",)}
    engine: Literal["local", "ray"] = option(
        "Process the batch on this machine, or on a Ray cluster (pam guide clusters).", default="local"
    )
    ray_address: str = option(
        "Address of the Ray cluster; auto: the cluster of this machine; local: this machine only.",
        default="auto",
        metavar="auto|local|HOST",
        parse=parsing.parse_name,
    )
    ray_cores: int | None = option(
        "Cores of each Ray worker without a GPU.", min=1, show_default="4; 1 for pam rectify"
    )


class Engine(Compute, Cluster):
    """Device and processes of a batch that needs a network."""

    conflicts: ClassVar = [("workers", "engine")]
    workers: int | Literal["auto"] = option(
        "Use N single-threaded processes; auto: one per core where a batch on a CPU is large enough, else "
        "one process with all cores.",
        default="auto",
        metavar="N|auto",
        parse=parsing.parse_workers,
    )


class Network(Settings, panel="Network"):
    """Weights of a network."""

    weights: Place | None = option(
        "Use these weights: a name from `pam weights list`, a file (.safetensors, .onnx, or .toml from `pam "
        "weights describe`), hf:owner/repo/file.safetensors[@revision], or a URL.",
        parse=parsing.parse_name,
        **WEIGHTS,
    )
    network_from: str | None = option(
        "Run the PyTorch network that this function returns, as described by the .toml file of --weights; "
        "this runs the module's code.",
        metavar="MODULE:FUNCTION",
        parse=parsing.parse_name,
    )


class Matcher(Network):
    """Weights of a matcher."""

    @property
    def name(self) -> Place:
        """Name of the weights."""
        return self.weights or DEFAULT_MATCHING


class Matching(Matcher):
    """A matcher and its search range."""

    max_disparity: int | Literal["stored"] | None = option(
        "Search disparities below N px, rounded up to a multiple of 16.",
        default="stored",
        metavar="N|none",
        parse=parsing.parse_max_disparity,
        show_default="as stored with the weights",
    )
    min_disparity: int = option(
        "Search from N px; below 0 for shifted images or converging cameras.",
        default=0,
        min=-100_000,
        max=100_000,
        metavar="N",
    )
    match_size: MatchSize | None = option(
        "Set the matching resolution: a factor from 1/16 to 4, or a width in px (64 or more); auto: upscale "
        "small and downscale large images. The disparity map keeps the size of the input.",
        metavar="auto|N",
        parse=parsing.parse_match_size,
        check=check_match_size,
        show_default="auto; 1 for weights pasmnet",
    )


class Upscaling(Network):
    """A network for super-resolution."""

    scale: float | None = option(
        "Upscale width and height N times, above 1 and at most 4.",
        metavar="N",
        parse=parsing.parse_scale,
        show_default="4",
    )
    ensemble: bool = flag("Average the results of the flipped pairs: more accurate, 4 times slower.")

    @property
    def name(self) -> Place:
        """Name of the weights: given, or the default for the scale."""
        return self.weights or default_upscaling(self.scale)


class CalibrationFiles(Settings, panel="Calibration"):
    """A calibration in files."""

    calibration: Any = option(
        "Read the calibration from a file of OpenCV, ROS, Kalibr, ZED, RealSense, MATLAB, COLMAP, KITTI ... "
        "(pam guide calibration-files). Repeat for several files: left and right camera, or intrinsics and "
        "extrinsics.",
        metavar="FILE",
        type=list[str] | None,
    )
    """Python functions also accept one path, or a `Calibration`."""
    cameras: tuple[int, int] | None = CAMERAS
    baseline: float | str | None = option(
        "Baseline, such as 120mm (without a unit: metres); replaces the one in the file.",
        metavar="LENGTH",
        parse=parsing.parse_length,
        check=parsing.parse_length,
    )
    unit: float | str | None = UNIT

    @property
    def calibration_files(self) -> list[Place]:
        """The calibration's files; empty for a `Calibration`."""
        given = self.calibration
        if isinstance(given, str | Path):
            return [given]
        return list(given) if isinstance(given, Sequence) else []


class RectifiedCalibration(CalibrationFiles):
    """The calibration of rectified images, in files or as options."""

    requires: ClassVar = {
        "cameras": ("calibration",),
        "focal": ("baseline", "calibration"),
        "baseline": ("focal", "calibration"),
        **dict.fromkeys(("doffs", "principal_point"), ("focal", "calibration")),
        "unit": ("calibration",),
    }
    focal: float | None = option("Focal length of the rectified images, px.", metavar="PX")
    doffs: float | None = option(
        "Principal point offset, px: x of the right image's principal point minus that of the left.",
        metavar="PX",
        parse=parsing.parse_number,
    )
    principal_point: tuple[float, float] | None = option(
        "Principal point of the left image, px.",
        metavar="X,Y",
        parse=parsing.parse_point,
        show_default="as in the calibration, else the image centre",
    )


class MetricResults(RectifiedCalibration):
    """Depth maps, point clouds and meshes, and the calibration they need."""

    requires: ClassVar = {
        **dict.fromkeys(("depth", "depth_error", "point_cloud", "mesh"), ("calibration", "focal")),
        "max_depth": ("depth", "depth_error", "point_cloud", "mesh", "rerun"),
        "stride": ("point_cloud", "mesh", "rerun"),
        "disparity_error": ("depth_error",),
    }
    depth: Place | None = result("Write the depth map: .tif or .npy (m), .png (16 bits, mm).")
    depth_error: Place | None = result(
        "Write the standard deviation of the depth, in the formats of --depth."
    )
    point_cloud: Place | None = result("Write a coloured point cloud: .ply, .las or .laz (m).")
    mesh: Place | None = result("Write a textured mesh for viewers and web pages (.glb, m).")
    rerun: Place | None = result(
        "Write a recording for the Rerun viewer.", metavar="FILE.rrd", check=parsing.check_recording
    )
    disparity_error: float = option(
        "Standard deviation of the disparity that --depth-error assumes, px.", default=0.5, metavar="PX"
    )
    max_depth: float | str | None = option(
        "Mark pixels beyond this depth, such as 40m, as unknown (without a unit: metres).",
        metavar="LENGTH",
        parse=parsing.parse_length,
        check=parsing.parse_length,
    )
    stride: int = option(
        "Keep every N-th row and column in point cloud and mesh.", default=1, min=1, max=100_000, metavar="N"
    )
