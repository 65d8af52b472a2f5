"""Hold the options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pamcli.errors import UsageError
from pamcli.files.paths import are_packed, is_recording
from pamcli.files.suffixes import PackedLayout
from pamcli.registry.catalog import DEFAULT_MATCHING, default_upscaling
from pamcli.registry.resolution import EffortName, describe_efforts
from pamcli.settings.options import Place, Settings, argument, flag, forbid, option, require, result
from pamcli.settings.parsing import (
    AnyNumber,
    Cameras,
    CountOrAuto,
    CountOrNone,
    DeviceName,
    FrameOffset,
    Length,
    MatchingResolution,
    MaxDisparity,
    MemorySize,
    Name,
    Point,
    PointOrBox,
    RecordingFile,
    Scale,
    Shard,
    Weights,
)

MAX_PIXELS = 400_000_000
Precision = Literal["auto", "fp32", "bf16", "fp16"]
PRECISION = "Compute in this precision; auto: 16 bits where the device is faster with them, else fp32."
SHAPE = "; `focal` PX and `baseline` 1 give a shape without scale"
FORM = "NAME[/SPLIT]:PATH[?key=value&...]"


class Limit(Settings, panel="Input"):
    """Limit of the image size."""

    max_pixels: CountOrNone | None = option(
        "Reject files with more than N pixels, before decoding them.", default=MAX_PIXELS
    )


class Packed(Settings, panel="Input"):
    """Images and videos that hold both views."""

    packed: PackedLayout | None = option(
        "Read both views from each image or video. lr: left view on the left; rl: on the right "
        "(cross-eyed); tb: on top; bt: at the bottom; -half: views squeezed to half size; rows-lr, "
        "rows-rl: alternating rows, left or right view first; red-cyan: anaglyph; auto: as the file states "
        "(the default for .mpo, .jps, .pns, spatial photos and VR180 photos).",
        metavar="LAYOUT",
    )


class Pairs(Limit, Packed):
    """Image pairs to process."""

    inputs: Sequence[Place] | None = argument(
        "Two images; two folders with files of equal names; two templates, in which {} stands for the same "
        "text; two videos; or a ROS bag. With --packed: images, folders or a video that hold both views, "
        "or - for stdin.",
        metavar="LEFT RIGHT",
        show_default=False,
    )
    pairs: Place | None = option(
        "Read a list of pairs, one per line: left<TAB>right[<TAB>output]; - reads it from stdin as it "
        "arrives.",
        metavar="FILE",
    )
    null: bool = flag("Read the list of --pairs as left NUL right NUL.", "-0", "--null")
    vr180: float | None = option(
        "Convert VR180 images and panoramas of 360 degrees to rectilinear views with this field of view, "
        "degrees [default: 90 for photos marked as VR180].",
        metavar="DEGREES",
        min=10,
        max=150,
    )
    root: Path | None = option(
        "With --pairs or --packed: recreate the folders of the left images, relative to DIR, in the output "
        "folder [default: current folder].",
        metavar="DIR",
    )
    start: int = option("Start at frame N of a video, counted from 0.", default=0, min=0)
    every: int = option("Process every N-th frame of a video.", default=1, min=1)
    count: int | None = option("Process at most N frames of a video [default: all].", min=1)
    offset: FrameOffset = option(
        "Pair each left frame with the right frame N frames later (negative: earlier); auto: measure N "
        "from the motion in both videos.",
        default=0,
    )
    shard: Shard | None = option(
        "Process only share I of N equal shares of the batch: 1/4, 2/4, 3/4 or 4/4 for four machines."
    )
    skip_unpaired: bool = flag("Ignore images that have no partner, with a warning.")

    rules = forbid("pairs", "inputs", "packed") + require("null", "pairs")

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


class DisparityScale(Settings, panel="Input"):
    """The scale of disparity files."""

    scale: AnyNumber | None = option(
        "Units per pixel of disparity in the files [default: 256 in 16-bit PNG, 16 in signed integers, "
        "else 1]."
    )


class DisparityFiles(DisparityScale):
    """The meaning of values in disparity files."""

    invalid: AnyNumber | None = option(
        "Value that marks unknown pixels in disparity files, in their own units [default: recognised].",
        metavar="VALUE",
    )


class NewFile(Settings, panel="Output"):
    """Files that are overwritten only on request."""

    overwrite: bool = flag("Overwrite existing results.")


class Results(NewFile):
    """The choice between skipping and overwriting existing results."""

    skip_existing: bool = flag("Skip pairs whose results all exist.")

    rules = forbid("overwrite", "skip_existing")


class Workers(Settings, panel="Performance"):
    """Processes on this machine."""

    workers: int | None = option("Use N processes [default: number of processors, at most 8].", min=1)


class Device(Settings, panel="Performance"):
    """The device to compute on."""

    device: DeviceName = option(
        "Compute on auto, cpu, cuda, cuda:N or mps; .onnx files also on tensorrt, openvino or coreml.",
        default="auto",
    )


class Compute(Device):
    """Device, precision and memory."""

    precision: Precision = option(PRECISION, default="auto")
    max_memory: MemorySize | None = option(
        "Use at most this much memory, such as 4GB, 1.5GiB or 800MB [default: 70 % of the free memory]."
    )


class Cluster(Settings, panel="Performance"):
    """Machines that process a batch."""

    engine: Literal["local", "ray"] = option(
        "Process the batch on this machine, or on a Ray cluster (pam guide clusters).", default="local"
    )
    ray_address: Name = option(
        "Address of the Ray cluster; auto: the cluster of this machine; local: this machine only.",
        default="auto",
        metavar="auto|local|HOST",
    )
    ray_cores: int | None = option(
        "Cores of each Ray worker without a GPU [default: 4; 1 for pam rectify].", min=1
    )

    rules = require("ray_address ray_cores", "engine ray")


class Engine(Compute, Cluster):
    """Device and processes of a batch that needs a network."""

    workers: CountOrAuto = option(
        "Use N single-threaded processes; auto: one per core where a batch on a CPU is large enough, else "
        "one process with all cores.",
        default="auto",
    )

    rules = forbid("workers", "engine")


class Network(Settings, panel="Network"):
    """Weights of a network."""

    weights: Weights | None = option(
        "Use these weights: a name from `pam weights list`, a file (.safetensors, .onnx, or .toml from "
        "`pam weights describe`), hf:owner/repo/file.safetensors[@revision], or a URL."
    )
    network_from: Name | None = option(
        "Run the PyTorch network that this function returns, as described by the .toml file of --weights; "
        "this runs the module's code.",
        metavar="MODULE:FUNCTION",
    )


class Matcher(Network):
    """Weights of a matcher."""

    @property
    def name(self) -> Place:
        """Name of the weights."""
        return self.weights or DEFAULT_MATCHING


class Matching(Matcher):
    """A matcher and its search range."""

    max_disparity: MaxDisparity | None = option(
        "Search disparities below N px, rounded up to a multiple of 16 [default: that of the weights].",
        default="stored",
    )
    min_disparity: int = option(
        "Search from N px; below 0 for shifted images or converging cameras.",
        default=0,
        min=-100_000,
        max=100_000,
    )
    effort: EffortName | None = option(
        f"Trade accuracy for time. {describe_efforts()} [default: normal; the image size for pasmnet]."
    )
    match_size: MatchingResolution | None = option(
        "Set the matching resolution: a factor from 1/16 to 4, a width in px (64 or more), or auto, as "
        "--effort normal. The disparity map keeps the size of the input."
    )

    rules = forbid("effort", "match_size")


class MatcherSettings(Matching, Compute):
    """A matcher, its search range and its device."""


class Upscaling(Network):
    """A network for super-resolution."""

    scale: Scale | None = option("Upscale width and height N times, above 1 and at most 4 [default: 4].")
    ensemble: bool = flag("Average the results of the flipped pairs: more accurate, 4 times slower.")

    @property
    def name(self) -> Place:
        """Name of the weights: given, or the default for the scale."""
        return self.weights or default_upscaling(self.scale)


class CameraChoice(Settings, panel="Calibration"):
    """The meaning of what a calibration file leaves open."""

    cameras: Cameras | None = option(
        "Select the left and the right camera of a file with several cameras; 1:0 exchanges the first two."
    )
    unit: Length | None = option(
        "Unit of lengths in a calibration file that does not state it: mm, cm, m, or 25mm for board squares."
    )


class LensesAndPose(Settings, panel="Calibration"):
    """The meaning of distortion and pose in a calibration file."""

    fisheye: bool = flag("Read the distortion coefficients of an OpenCV file as those of its fisheye model.")
    extrinsics: Literal["transform", "pose", "rows", "position"] = option(
        "Meaning of R and T in the calibration. transform: x2 = R x1 + T; pose: x1 = R x2 + T; rows: x2 = "
        "x1 R + T; position: x2 = R (x1 - T).",
        default="transform",
    )


class CalibrationFiles(CameraChoice):
    """A calibration in files."""

    calibration: Sequence[Place] | Any = option(
        "Read the calibration from a file of OpenCV, ROS, Kalibr, ZED, RealSense, MATLAB, COLMAP, KITTI "
        "... (pam guide calibration-files). Repeat for several files: left and right camera, or intrinsics "
        "and extrinsics.",
        metavar="FILE",
    )
    """Python functions also accept one path, or a `Calibration`."""
    baseline: Length | None = option(
        "Baseline, such as 120mm (without a unit: metres); replaces the one in the file."
    )

    @property
    def calibration_files(self) -> list[Place]:
        """The calibration's files; empty for a `Calibration`."""
        return list(self.calibration) if isinstance(self.calibration, Sequence) else []


class RectifiedCalibration(CalibrationFiles):
    """The calibration of rectified images, in files or as options."""

    focal: float | None = option("Focal length of the rectified images, px.", metavar="PX")
    doffs: AnyNumber | None = option(
        "Principal point offset, px: x of the right image's principal point minus that of the left.",
        metavar="PX",
    )
    principal_point: Point | None = option(
        "Principal point of the left image, px [default: as in the calibration, else the image centre]."
    )

    rules = (
        require("cameras", "calibration")
        + require("focal", "baseline", "calibration", tip="; `baseline` 1 gives a shape without scale")
        + require("baseline doffs principal_point", "focal", "calibration")
        + require("unit", "calibration")
    )


class MetricResults(RectifiedCalibration):
    """Depth maps, point clouds and meshes, and the calibration they need."""

    depth: Place | None = result("Write the depth map: .tif or .npy (m), .png (16 bits, mm).")
    depth_error: Place | None = result(
        "Write the standard deviation of the depth, in the formats of --depth."
    )
    depth_color_map: Place | None = result(
        "Write the depth map as a colour image, near bright, unknown pixels black; of videos .mkv, .mp4. Its "
        "range is 0 to --max-depth, else that of the image or video."
    )
    point_cloud: Place | None = result("Write a coloured point cloud: .ply, .las or .laz (m).")
    mesh: Place | None = result("Write a textured mesh for viewers and web pages (.glb, m).")
    rerun: RecordingFile | None = option("Write a recording for the Rerun viewer.")
    at: Sequence[PointOrBox] | None = option(
        "Print the position of a point or box of the left image in metres, as a table or with --json. "
        "Repeat for several."
    )
    boxes: Path | None = option(
        "Print the positions of all points or boxes of a file: .csv with the columns x,y,width,height or "
        "x1,y1,x2,y2, or .json. A column image names the left image.",
        metavar="FILE",
    )
    disparity_error: float = option(
        "Standard deviation of the disparity that --depth-error, --at and --boxes assume, px.",
        default=0.5,
        metavar="PX",
    )
    max_depth: Length | None = option(
        "Mark pixels beyond this depth, such as 40m, as unknown (without a unit: metres)."
    )
    stride: int = option(
        "Keep every N-th row and column in point cloud and mesh.", default=1, min=1, max=100_000
    )

    rules = (
        require("depth depth_error depth_color_map", "calibration", "focal")
        + require("point_cloud mesh", "calibration", "focal", tip=SHAPE)
        + require("at boxes", "calibration", "focal")
        + require("max_depth", "depth", "depth_error", "depth_color_map", "point_cloud", "mesh", "rerun")
        + require("stride", "point_cloud", "mesh", "rerun")
        + require("disparity_error", "depth_error", "at", "boxes")
        + forbid("at", "boxes")
        + forbid("at boxes", "skip_existing")
    )

    def check(self) -> None:
        if self.has_distances and "-" in vars(self).values():
            message = f"cannot write both `{'at' if self.at else 'boxes'}` and a result to stdout"
            raise UsageError(message, "write the result to a file")

    @property
    def has_distances(self) -> bool:
        """True if positions of points or boxes are printed."""
        return bool(self.at or self.boxes)
