"""What can be asked of a batch: of `pam disparity`, `pam superres`, `pam rectify` and `pam depth`?"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pamcli.errors import UsageError
from pamcli.files.suffixes import Packing
from pamcli.registry.catalog import default_upscaling
from pamcli.settings import parsing
from pamcli.settings.options import Place, argument, flag, option, result
from pamcli.settings.shared import (
    EXTRINSICS,
    FISHEYE,
    SCALE,
    CalibrationFiles,
    Cluster,
    Engine,
    Extrinsics,
    InMetres,
    Limit,
    Matching,
    Pairs,
    Pictures,
    RectifiedPairs,
    Results,
    Upscaling,
)


class Maps(Results):
    """The results of a matched pair, and where they go."""

    output: Place | None = result(
        "Disparity of the left view: .pfm, .npy, .tif (float) or .png (16 bits, 256 a pixel); frames: .mkv.",
        "-o",
        metavar="FILE|FOLDER|TEMPLATE|-",
    )
    output_right: Place | None = result("Disparity of the right view.")
    color_map: Place | None = result(
        "Picture of the disparity in colours, unknown black; frames: .mkv, .mp4."
    )
    visible: Place | None = result("Mask (.png): 255 where both views see a pixel.")
    confidence: Place | None = result("Confidence of the disparity, pixel by pixel, in [0, 1].")
    page: Place | None = result(
        "Page (.html) to look at in a browser: picture, disparity, the pixel under the pointer, a point "
        "cloud; a batch gets an index, too."
    )
    format: Literal["pfm", "png", "npy", "tif"] | None = option(
        "Write disparities in this format, in a folder or on stdout; by default pfm."
    )
    range: tuple[float, float] | Literal["shared"] | None = option(
        "Range of the colours, px; by default that of each pair, in a video that of all frames. shared: one "
        "range for the whole batch, whose colour maps are written at its end.",
        metavar="MIN:MAX|shared",
        parse=parsing.color_range,
    )
    unknown: Literal["occluded", "none"] = option(
        "Mark these pixels of the left view as unknown in -o, --color-map, depth and points.", default="none"
    )
    steady: bool = flag(
        "Let disparities flicker less from frame to frame: fuse each frame's with those before, moved along, "
        "where the pictures agree (pam guide videos)."
    )
    min_confidence: float | None = option(
        "Mark pixels less confident than T (0 to 1) as unknown too.", metavar="T", min=0, max=1
    )


class MatchSettings(RectifiedPairs, Maps, InMetres, Matching, Engine):
    """Options of `pam disparity` and `match_files`. Raises UsageError for those that do not go together."""

    requires: ClassVar = {"range": ("color_map",)}
    conflicts: ClassVar = [("steady", "shard"), ("steady", "engine"), ("steady", "vertical")]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_disparity < 0:
            for name in ("output", "output_right"):
                place = getattr(self, name)
                ends = f".{self.format}" if self.format else Path(place or "").suffix
                if place and ends.lower() == ".png":
                    raise UsageError(
                        f"`{name}` {place}: a PNG cannot hold negative disparities, which `min_disparity` "
                        f"{self.min_disparity} allows",
                        "take .pfm, .npy or .tif",
                    )
        if self.steady and self.skip_existing and self.output is None:
            raise UsageError(
                "`steady` goes on from the disparities of the frame before", "write them: `output`"
            )


class UpscaleSettings(RectifiedPairs, Pictures, Upscaling, Engine):
    """Options of `pam superres` and `upscale_files`. Raises UsageError for those that do not go together."""

    conflicts: ClassVar = [("input", "weights")]
    requires: ClassVar = {"packing": ("output_packed",)}
    output_packed: Place | None = result("Picture that holds both larger ones.", rich_help_panel="Output")
    packing: Packing = option(
        "Lay the pictures of --output-packed out as --packed has them; red-cyan: an anaglyph for glasses, "
        "red from the left view.",
        default="lr",
        rich_help_panel="Output",
    )
    quality: int | None = option(
        "Compress JPEG and WebP at this quality, 1 to 100; by default JPEG at 95 and lossless WebP.",
        metavar="N",
        min=1,
        max=100,
        rich_help_panel="Output",
    )
    input: Literal["clean", "camera", "auto"] | None = option(
        "Say what the pictures are, where no --weights are given: clean, or as a camera gives them, with "
        "noise or traces of JPEG. auto, the default, tells by such traces and by the noise of the pixels.",
        rich_help_panel="Network",
    )

    @property
    def name(self) -> Place:
        """Name of the weights: those that are given, else the default of the scale and the pictures."""
        return self.weights or default_upscaling(self.scale, camera=self.input == "camera")


class RectifySettings(Pairs, Pictures, CalibrationFiles, Cluster):
    """Options of `pam rectify` and `rectify_files`. Raises UsageError for those that do not go together."""

    workers: ClassVar[int] = 1
    conflicts: ClassVar = [
        ("uncalibrated", other)
        for other in (
            *("calibration", "output_calibration", "cameras", "baseline", "unit"),
            *("alpha", "fov", "fisheye", "extrinsics"),
        )
    ]
    requires: ClassVar = {"one": ("calibration", "uncalibrated")}
    output_calibration: Path | None = option(
        "Calibration of the results, for `pam disparity`; by default calibration.yaml beside them.",
        metavar="FILE",
        rich_help_panel="Output",
    )
    alpha: float | None = option(
        "0: only pixels that the cameras saw; 1: all that they saw, with black around it. By default as "
        "the calibration's own R and P have it (ROS, KITTI, OpenCV), where it has them, else 0.",
        min=0,
        max=1,
        metavar="0...1",
        rich_help_panel="Calibration",
    )
    size: tuple[int, int] | None = option(
        "Size of the rectified pictures; by default that of the given ones.",
        metavar="WIDTHxHEIGHT",
        parse=parsing.picture_size,
        rich_help_panel="Calibration",
    )
    fov: float | None = option(
        "Field of view of the rectified pictures, from left to right, instead of --alpha's.",
        min=1,
        max=170,
        metavar="DEGREES",
        rich_help_panel="Calibration",
    )
    fisheye: bool = FISHEYE
    extrinsics: Extrinsics = EXTRINSICS
    uncalibrated: bool = flag(
        "Rectify by what both pictures show, without a calibration: no distances.",
        rich_help_panel="Calibration",
    )


class DepthSettings(Limit, Results, InMetres, panel="Output"):
    """Options of `pam depth` and `depth_files`. Raises UsageError for those that do not go together."""

    pairs: ClassVar[None] = None
    packed: ClassVar[None] = None
    shard: ClassVar[None] = None
    root: ClassVar[None] = None
    null: ClassVar[bool] = False
    skip_unpaired: ClassVar[bool] = False
    engine: ClassVar[str] = "local"
    workers: ClassVar[int] = 1
    ray_cores: ClassVar[None] = None
    inputs: Sequence[Place] = argument(
        "Files (.pfm, .npy, .tif, .png), folders, a template with {}, or a video (.mkv) that pam disparity "
        "wrote.",
        default=...,
        metavar="DISPARITY",
        show_default=False,
        rich_help_panel="Input",
    )
    scale: float | None = SCALE
    picture: Place | None = option(
        "The left pictures, of the same names, for the colours of the points.",
        metavar="FILE|FOLDER|TEMPLATE",
        rich_help_panel="Input",
    )
    depth: Place | None = result(
        "Depth: .tif or .npy (metres), .png (16 bits, millimetres).", "-o", metavar="FILE|FOLDER|TEMPLATE|-"
    )
