"""Hold the options of `pam live`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pamcli.errors import UsageError
from pamcli.files.suffixes import VIDEO_OUTPUT_SUFFIXES, PackedLayout
from pamcli.settings.options import Place, argument, flag, forbid, option, require
from pamcli.settings.parsing import AnyNumber, BoardSize, ColorRange, ImageSize, Metres, Name, Point
from pamcli.settings.shared import Compute, LensesAndPose, Matching, NewFile, RectifiedCalibration

STREAMED = "raw", "mjpeg"
"""Formats on stdout, the default first; the others are those of files."""


class LiveSettings(RectifiedCalibration, LensesAndPose, Matching, Compute, NewFile, panel="Output"):
    """Options of `pam live` and `live`. Raises UsageError for contradictory options."""

    inputs: Sequence[Place] = argument(
        "Two cameras (/dev/video0), streams (rtsp:, http:, udp: ...) or videos; with --packed one that holds "
        "both views.",
        default=...,
        metavar="LEFT RIGHT",
        panel="Input",
    )
    packed: PackedLayout | None = option(
        "Read both views from one camera, stream or video, in a layout of pam disparity --packed.",
        metavar="LAYOUT",
        panel="Input",
    )
    realtime: bool = flag(
        "Play videos at their own speed, like a camera; by default every frame is processed.", panel="Input"
    )
    camera_size: ImageSize | None = option("Image size to request from a camera, px.", panel="Input")
    camera_fps: float | None = option(
        "Frames per second to request from a camera.", metavar="N", panel="Input"
    )
    camera_format: Name | None = option(
        "Pixel format or codec to request from a camera, such as mjpeg or yuyv422.",
        metavar="NAME",
        panel="Input",
    )
    tolerance: float | None = option(
        "Pair frames whose time stamps differ by at most this, ms [default: half a frame interval].",
        metavar="MS",
        panel="Input",
    )
    offset: AnyNumber = option(
        "Subtract N ms from the time stamps of the right stream before pairing.",
        default=0.0,
        metavar="MS",
        panel="Input",
    )
    clock: Literal["auto", "stamps", "arrival"] = option(
        "stamps: both streams share a clock, so their time stamps are compared directly; arrival: each "
        "stream is first aligned by when its frames arrive; auto: stamps for cameras and videos, arrival for "
        "network streams.",
        default="auto",
        panel="Input",
    )
    output: Place | None = option(
        "Write each result into a folder (16 bits: 256 units per px, or mm with --depth), or to stdout.",
        "-o",
        metavar="FOLDER|-",
    )
    format: Literal["png", "tif", "npy", "raw", "mjpeg"] | None = option(
        "Format of --output: png, tif or npy in a folder [default: png]; on stdout raw 16-bit frames or "
        "mjpeg of colour maps [default: raw]."
    )
    depth: bool = flag("Write and print depth in metres instead of disparity in pixels.")
    record: Path | None = option(
        "Record both images (side by side) and the results (16 bits) as a lossless video.", metavar="FILE.mkv"
    )
    color_map: Place | None = option(
        "Send the colour map as H.264 to udp://, rtmp:// or srt://, or write a video (.mkv, .mp4).",
        metavar="URL|FILE",
    )
    range: ColorRange | None = option("Range of the colours, px [default: follows the scene].")
    at: Sequence[Point] | None = option(
        "Print the distance (with a calibration), else the disparity, at this pixel of the left image. "
        "Repeatable."
    )
    count: int | None = option("Stop after N results.", min=1)
    no_page: bool = flag("Do not serve a page for the browser.")
    no_browser: bool = flag("Print the address of the page without opening a browser.")
    port: int = option(
        "Serve the page on this port of this computer [default: a free one].", default=0, min=0, max=65535
    )
    steady: bool = flag("Reduce flicker: fuse each disparity map with the previous one.")
    min_confidence: float | None = option(
        "Mark pixels with a confidence below T as unknown.", metavar="T", min=0, max=1
    )

    fps: float | None = option(
        "Choose the matching resolution that holds N results per second, measured in the first seconds.",
        metavar="N",
        panel="Performance",
    )
    doctor: bool = flag(
        "Show row offset, rotation and order of the images while you turn the cameras into place.",
        panel="Calibration",
    )
    calibrate: bool = flag(
        "Calibrate the cameras with a board: boards that are sharp, still and in a new place are taken by "
        "themselves. --output names the calibration (.yaml).",
        panel="Calibration",
    )
    board: BoardSize | None = option(
        "With --calibrate: inner corners of the chessboard, such as 9x6; or, with --marker, squares of the "
        "ChArUco board.",
        panel="Calibration",
    )
    square: Metres | None = option("With --calibrate: side of a square, such as 25mm.", panel="Calibration")
    marker: Metres | None = option("With --calibrate: side of a ChArUco marker.", panel="Calibration")

    rules = (
        require("calibrate", "output")
        + require("calibrate", "board")
        + require("calibrate", "square")
        + forbid(
            "calibrate", "doctor", "calibration", "focal", "record", "color_map", "depth", "at", "format"
        )
        + require("board square marker", "calibrate")
        + forbid("doctor", "output", "record", "color_map", "depth", "at", "fps", "steady")
        + forbid("fps", "match_size", "effort")
        + forbid("packed", "tolerance", "offset", "clock")
        + require("format", "output")
        + require("depth", "calibration", "focal")
        + require("range", "color_map", "output")
        + forbid("no_page", "no_browser", "port")
    )

    def check(self) -> None:
        needed = 1 if self.packed else 2
        if len(self.inputs) != needed:
            expected = "one source with `packed`" if self.packed else "a left and a right source"
            hint = "a single source holds both views: add `packed` lr" if len(self.inputs) == 1 else None
            raise UsageError(f"expected {expected}, got {len(self.inputs)}", hint)
        if self.packed == "auto":
            raise UsageError("`packed` auto: a stream states no layout", "use lr, rl, tb or bt")
        if self.range == "shared":
            raise UsageError("`range` shared: the range of a stream is not known before its end")
        if self.format and (self.format in STREAMED) != (self.output == "-"):
            where = "stdout (`output` -)" if self.format in STREAMED else "a folder"
            raise UsageError(f"`format` {self.format} requires that `output` is {where}")
        if self.record is not None and self.record.suffix.lower() != ".mkv":
            raise UsageError(f"`record` {self.record} must end in .mkv", "it holds every bit of the images")
        to = str(self.color_map or "")
        if to and "://" not in to and Path(to).suffix.lower() not in VIDEO_OUTPUT_SUFFIXES:
            hint = "such as udp://127.0.0.1:5000, or a file that ends in .mkv or .mp4"
            raise UsageError(f"`color_map` {to} is neither an address nor a video", hint)
