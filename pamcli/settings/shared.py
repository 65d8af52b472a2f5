"""Which options do several commands share?"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pamcli.errors import UsageError
from pamcli.files.suffixes import PackedLayout
from pamcli.registry.catalog import DEFAULT_MATCHING, default_upscaling
from pamcli.settings import parsing
from pamcli.settings.options import Place, Settings, argument, flag, option, result

MAX_PIXELS = 400_000_000
Precision = Literal["auto", "fp32", "bf16", "fp16"]
PRECISION = "Compute in this precision. auto: 16 bits where the device is faster in them, else fp32."
FORM = "NAME[/SPLIT]:PATH[?key=value&...]"
DATA = {"metavar": "DATA", "complete": "data"}
"""What an option or an argument for data sets has besides its help."""
WEIGHTS = {"metavar": "NAME|PATH|hf:...", "complete": "weights"}
"""What an option or an argument for weights has besides its help."""
WORKERS = option(
    "Work in so many processes.", min=1, show_default="processors, at most 8", rich_help_panel="Performance"
)
FISHEYE = flag(
    "Take the coefficients in an OpenCV file as those of its fisheye model.", rich_help_panel="Calibration"
)
Extrinsics = Literal["transform", "pose", "rows", "position"]
EXTRINSICS = option(
    "How R and T lead to the right camera: transform (x2 = R x1 + T), pose (x1 = R x2 + T), rows "
    "(x2 = x1 R + T), position (x2 = R (x1 - T)).",
    default="transform",
    rich_help_panel="Calibration",
)
UNIT = option(
    "Unit of the file's lengths where it states none: mm, cm, m, or 25mm for board squares.",
    metavar="LENGTH",
    parse=parsing.length,
    check=parsing.length,
)
CAMERAS = option(
    "Take these cameras of a file that has several as left and right; 1:0 exchanges two.",
    metavar="L:R",
    parse=parsing.cameras,
)


def check_shard(share: tuple[int, int], option: str) -> None:
    """Raise UsageError where a share of a batch is none."""
    if not 1 <= share[0] <= share[1]:
        raise UsageError(f"{option} must be (I, N) with I from 1 to N, got {share}")


def check_device(device: str, option: str) -> None:
    """Raise UsageError for what names no device, without asking PyTorch which there are."""
    if not re.fullmatch(r"auto|cpu|(cuda|tensorrt)(:[0-9]+)?|mps|openvino|coreml", device):
        raise UsageError(f"{option} {device!r} is no device", "one of auto, cpu, cuda, cuda:N, mps")


class Limit(Settings, panel="Input"):
    """What is not even decoded."""

    max_pixels: int | None = option(
        "Refuse files with more pixels, before decoding them.",
        default=MAX_PIXELS,
        metavar="N|none",
        parse=parsing.number_or_none,
    )


class Pairs(Limit):
    """Which pictures belong together."""

    requires: ClassVar = {"null": ("pairs",)}
    inputs: Sequence[Place] | None = argument(
        "Two pictures, two folders (paired by equal names), two templates in which {} stands for "
        "the same text, or two videos. With --packed: pictures, folders or a video that hold both views, or "
        "- for stdin.",
        metavar="LEFT RIGHT",
        show_default=False,
    )
    pairs: Place | None = option(
        "Read a list of pairs: left<TAB>right[<TAB>output] a line; - reads stdin as it arrives.",
        metavar="FILE",
    )
    null: bool = flag("Read the list as NUL-separated: left NUL right NUL.", "-0", "--null")
    packed: PackedLayout | None = option(
        "One picture holds both views. lr: the left view on the left; rl: on the right "
        "(cross-eyed); tb: the left view on top; bt: below; -half: squeezed into the frame of one view; "
        "auto: as the file says, which .mpo and .jps do without being asked."
    )
    root: Place | None = option(
        "Results of a list, and of several --packed pictures, mirror the paths of the left pictures below "
        "this folder, by default the current one.",
        metavar="DIR",
        parse=parsing.path,
    )
    start: int = option("Begin a video with this frame, counted from 0.", default=0, min=0)
    every: int = option("Take every N-th frame of a video.", default=1, min=1)
    count: int | None = option("Take so many frames of a video at most.", min=1)
    offset: int | Literal["auto"] = option(
        "Take the right video's frames N later than the left one's (earlier, where N is negative). auto: as "
        "many as let the motions in both agree.",
        default=0,
        metavar="N|auto",
        parse=parsing.offset,
    )
    shard: tuple[int, int] | None = option(
        "Process every N-th pair alone, from the I-th on: 1/4 to 4/4 together are the whole batch.",
        metavar="I/N",
        parse=parsing.shard,
        check=check_shard,
    )
    skip_unpaired: bool = flag("Go on without pictures that have no partner.")


class RectifiedPairs(Pairs):
    """Which images belong together, for a network that looks along their rows."""

    vertical: bool = flag("Match cameras one above the other; LEFT is the image of the upper one.")


SCALE = option(
    "Units per pixel of disparity in the files [default: 256 in 16-bit PNG, 16 in signed integers, else 1].",
    metavar="N",
    parse=parsing.number,
    rich_help_panel="Input",
)


class Results(Settings, panel="Output"):
    """What happens to results that exist."""

    conflicts: ClassVar = [("overwrite", "skip_existing")]
    skip_existing: bool = flag("Leave out pairs whose results all exist.")
    overwrite: bool = flag("Replace results that exist.")


class Pictures(Results):
    """Results that are both pictures of a pair."""

    output: Place | None = result(
        "Left picture of the result (.png, .tif, .jpg, .webp; frames: .mkv, .mp4); a folder receives both.",
        "-o",
        metavar="FILE|FOLDER|TEMPLATE|-",
    )
    output_right: Place | None = result("Right picture of the result.")
    format: Literal["png", "tif", "jpg", "webp"] | None = option(
        "Write pictures in this format, in a folder or on stdout; by default png."
    )


class NewFile(Settings, panel="Output"):
    """Files that are written, and over others only where that is asked for."""

    overwrite: bool = flag("Replace results that exist.")


class Device(Settings, panel="Performance"):
    """Where to compute."""

    device: str = option(
        "Compute on auto, cpu, cuda, cuda:N or mps; .onnx files also on tensorrt, openvino or coreml.",
        default="auto",
        metavar="DEVICE",
        check=check_device,
    )


class Compute(Device):
    """Where and how to compute, in how much memory."""

    precision: Precision = option(PRECISION, default="auto")
    max_memory: int | None = option(
        "Take at most this much memory in all, as in 4GB, 1.5GiB or 800MB; by default what is free.",
        metavar="SIZE",
        parse=parsing.memory_size,
    )
    """Bytes."""


class Cluster(Settings, panel="Performance"):
    """Other machines that may process a batch."""

    requires: ClassVar = {"ray_address": ("engine ray",), "ray_cores": ("engine ray",)}
    engine: Literal["local", "ray"] = option(
        "ray: spread the batch over a cluster (pam guide clusters).", default="local"
    )
    ray_address: str = option(
        "Address of the cluster; auto: the one that this machine belongs to; local: this machine alone.",
        default="auto",
        metavar="auto|local|HOST",
        parse=parsing.name,
    )
    ray_cores: int | None = option(
        "Cores for each of Ray's workers without a GPU; by default 4, to rectify 1.", min=1
    )


class Engine(Compute, Cluster):
    """Where to compute a batch with a network."""

    conflicts: ClassVar = [("workers", "engine")]
    workers: int | Literal["auto"] = option(
        "Match in so many processes of one thread each. auto: on a CPU one per core where a batch has enough "
        "pairs and memory allows, else one process of all cores.",
        default="auto",
        metavar="N|auto",
        parse=parsing.workers,
    )


class Network(Settings, panel="Network"):
    """Whose weights."""

    weights: Place | None = option(
        "Use these weights: a name of `pam weights list`, a file (.safetensors, .onnx, or a .toml of `pam "
        "weights describe`), or hf:owner/repo/file.safetensors[@revision].",
        parse=parsing.name,
        **WEIGHTS,
    )
    network_from: str | None = option(
        "Run the PyTorch network that this function makes, described by the .toml of --weights; the "
        "module's code runs.",
        metavar="MODULE:FUNCTION",
        parse=parsing.name,
    )


class Matcher(Network):
    """A network for disparity, as it is."""

    @property
    def name(self) -> Place:
        """Name of the weights: those that are given, else what finds disparity by default."""
        return self.weights or DEFAULT_MATCHING


class Matching(Matcher):
    """A network for disparity, and where it searches."""

    max_disparity: int | Literal["stored"] | None = option(
        "Search only disparities below N px (rounded up to a multiple of 16); by default what is "
        "stored with the weights.",
        default="stored",
        metavar="N|none",
        parse=parsing.prior,
        show_default=False,
    )
    min_disparity: int = option(
        "Search from N px, below 0 for pictures that were shifted onto each other or converge.",
        default=0,
        min=-100_000,
        max=100_000,
        metavar="N",
    )
    match_size: float | Literal["auto"] | None = option(
        "Match pictures N times as large on each side as they are (1/16 to 4), or N px wide (from 64 on); "
        "the result has their own size all the same. auto: small ones enlarged, large ones reduced; 1: as "
        "they are. By default auto, and 1 for the paper's network. --enlarge is its old name.",
        "--match-size",
        "--enlarge",
        metavar="auto|N",
        parse=parsing.match_size,
    )


class Upscaling(Network):
    """A network for super-resolution."""

    scale: float | None = option(
        "Enlarge N times on each side, by default 4; 2 and 4 are what networks do, and what they make is "
        "reduced to any other above 1.",
        metavar="N",
        parse=parsing.scale,
    )
    ensemble: bool = flag("Average over the flips of the pair: finer, in four times the time.")

    @property
    def name(self) -> Place:
        """Name of the weights: those that are given, else the default of the scale."""
        return self.weights or default_upscaling(self.scale)


class CalibrationFiles(Settings, panel="Calibration"):
    """A calibration in files."""

    calibration: Any = option(
        "Read the calibration from a file of OpenCV, ROS, Kalibr, ZED, RealSense, MATLAB, COLMAP, "
        "KITTI ... (pam guide calibration-files). Once for each file: left and right camera, or intrinsics "
        "and extrinsics.",
        metavar="FILE",
        type=list[str] | None,
    )
    """Python functions also take one file, or a `Calibration`."""
    cameras: tuple[int, int] | None = CAMERAS
    baseline: float | str | None = option(
        "Take this distance of the cameras instead of the file's, as in 120mm; a bare number means metres.",
        metavar="LENGTH",
        parse=parsing.length,
        check=parsing.length,
    )
    unit: float | str | None = UNIT

    @property
    def calibration_files(self) -> list[Place]:
        """The files of the calibration, if it is in files."""
        given = self.calibration
        return (
            [given] if isinstance(given, str | Path) else list(given) if isinstance(given, Sequence) else []
        )


class RectifiedCalibration(CalibrationFiles):
    """The calibration of rectified pictures, in files or by hand."""

    requires: ClassVar = {
        "cameras": ("calibration",),
        "focal": ("baseline", "calibration"),
        "baseline": ("focal", "calibration"),
        "doffs": ("focal", "calibration"),
        "principal_point": ("focal", "calibration"),
        "unit": ("calibration",),
    }
    focal: float | None = option("Focal length of the rectified pictures.", metavar="PX")
    doffs: float | None = option(
        "x of the right principal point minus that of the left one.", metavar="PX", parse=parsing.number
    )
    principal_point: tuple[float, float] | None = option(
        "Principal point of the left image [default: the file's, else the image centre].",
        metavar="X,Y",
        parse=parsing.point,
    )


class InMetres(RectifiedCalibration):
    """The results in metres."""

    requires: ClassVar = {
        **dict.fromkeys(("depth", "depth_error", "point_cloud"), ("calibration", "focal")),
        "max_depth": ("depth", "depth_error", "point_cloud"),
        "stride": ("point_cloud",),
        "disparity_error": ("depth_error",),
    }
    depth: Place | None = result("Depth: .tif or .npy (metres), .png (16 bits, millimetres).")
    depth_error: Place | None = result("One standard deviation of depth, as --depth.")
    point_cloud: Place | None = result("Coloured points (.ply), in metres.")
    disparity_error: float = option(
        "Take disparities to be off by this much (standard deviation), for --depth-error.",
        default=0.5,
        metavar="PX",
    )
    max_depth: float | str | None = option(
        "Leave out what is farther, as unknown; a bare number means metres.",
        metavar="LENGTH",
        parse=parsing.length,
        check=parsing.length,
    )
    stride: int = option(
        "Write a point for every N-th column and row alone.", default=1, min=1, max=100_000, metavar="N"
    )
