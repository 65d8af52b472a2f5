"""What is asked for in metres, of which cameras: options and results of every command that has them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pamcli.cli import parsing
from pamcli.cli.batch import Encoded
from pamcli.cli.console import Console
from pamcli.cli.groups import asked_results, option, result
from pamcli.cli.jobs import Target
from pamcli.errors import InputError, UsageError
from pamcli.files.suffixes import DEPTH_SUFFIXES

if TYPE_CHECKING:
    from pamcli.calibration.formats import StoredCalibration
    from pamcli.calibration.rectified import Calibration


FISHEYE = "An OpenCV file's coefficients are of its fisheye model."


@dataclass(frozen=True, kw_only=True)
class Files:
    """A calibration in files."""

    panel: ClassVar[str] = "Calibration"
    calibration: list[str] | None = option(
        "OpenCV, ROS, Kalibr, KITTI or Middlebury. Twice for two files: ROS's left and right, or "
        "OpenCV's intrinsics and extrinsics.",
        metavar="FILE",
    )
    cameras: tuple[int, int] | None = option(
        "Left and right one in a file that has several, as in 0:1.", metavar="L:R", parse=parsing.cameras
    )
    baseline: float | None = option(
        "Distance of the cameras, instead of the file's.", metavar="METRES", parse=parsing.above_zero
    )

    def read(self, console: Console) -> StoredCalibration:
        """What the files say. Raises InputError, UsageError."""
        from pamcli.calibration.files import read_calibration

        if "" in (self.calibration or ()):
            raise parsing.empty("--calibration")
        stored = read_calibration(*map(Path, self.calibration or []), cameras=self.cameras)
        for note in stored.notes:
            console.inform(f"{self.name}: {note}")
        return stored

    @property
    def name(self) -> str:
        return ", ".join(self.calibration or [])


@dataclass(frozen=True, kw_only=True)
class Cameras(Files):
    """The calibration of rectified pictures, in files or by hand."""

    focal: float | None = option(
        "Focal length of the rectified pictures.", metavar="PX", parse=parsing.above_zero
    )
    doffs: float | None = option(
        "x of the right principal point minus that of the left one.", metavar="PX", parse=parsing.number
    )

    def rectified(self, console: Console) -> Calibration | None:
        """None where none of the options is given. Raises InputError, UsageError."""
        from pamcli.calibration.rectified import Calibration

        given = {"focal_length": self.focal, "baseline": self.baseline, "offset": self.doffs}
        by_hand: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self.calibration:
            found = self.read(console).rectified
            if found is None:
                raise InputError(
                    f"{self.name} describes cameras whose pictures are not rectified",
                    "`pam rectify` makes rectified ones, and their calibration.yaml",
                )
            calibration = replace(found, **by_hand)
        elif not by_hand:
            return None
        elif self.focal is None or self.baseline is None:
            raise UsageError("depth takes --focal and --baseline", "or a file, with --calibration")
        else:
            calibration = Calibration(**by_hand)
        for warning in calibration.warnings():
            console.warn(f"{self.name or 'the calibration'}: {warning}")
        return calibration


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The results in metres."""

    panel: ClassVar[str] = "Calibration"
    depth: str | None = result(
        "Depth: .tif or .npy (metres), .png (16 bits, millimetres).", DEPTH_SUFFIXES, folder_tag="_depth"
    )
    depth_error: str | None = result(
        "One standard deviation of depth, as --depth.", DEPTH_SUFFIXES, folder_tag="_depth_error"
    )
    point_cloud: str | None = result("Coloured points (.ply), in metres.", (".ply",), folder_tag="_cloud")
    disparity_error: float = option(
        "That of disparity, for --depth-error.", default=0.5, metavar="PX", parse=parsing.above_zero
    )
    max_depth: float | None = option(
        "What is farther is unknown.", metavar="METRES", parse=parsing.above_zero
    )
    stride: int = option("A point of every N-th column and row.", default=1, min=1, max=100_000, metavar="N")

    def prepared(self, cameras: Cameras, console: Console) -> InMetres | None:
        """What makes the results; None without a calibration. Raises InputError, UsageError."""
        asked = [kind.option for kind, text in asked_results(self).items() if text is not None]
        calibration = cameras.rectified(console)
        if calibration is not None:
            return InMetres(calibration, self, console)
        if asked:
            raise UsageError(
                f"{asked[0]} needs a calibration", "give --calibration, or --focal and --baseline"
            )
        return None


class InMetres:
    """Makes the files of `Metric` from disparities."""

    def __init__(self, calibration: Calibration, asked: Metric, console: Console) -> None:
        self.calibration, self.asked, self.console = calibration, asked, console
        self.scaled_sizes: set[tuple[int, int]] = set()

    def check(self, width: int, height: int) -> None:
        """Raise InputError where the calibration is for other pictures, and say where it is scaled."""
        scaled = self.calibration.for_size(width, height)
        scaled.reprojection()  # knows the baseline
        size = self.calibration.size
        if size not in (None, scaled.size) and scaled.size not in self.scaled_sizes:
            self.scaled_sizes.add((width, height))
            self.console.inform(
                f"the calibration of {size[0]} x {size[1]} is scaled to {width} x {height}: "
                f"focal length {scaled.focal_length:g} px"
            )

    def encode(self, target: Target, disparity: Any, picture: Any, confidence: Any = None) -> Encoded:
        """disparity: (H, W) pixels, NaN = unknown."""
        import numpy as np

        height, width = disparity.shape
        calibration = self.calibration.for_size(width, height)
        if target.name == "point_cloud":
            from pamcli.calibration.point_cloud import encode_point_cloud

            data, count = encode_point_cloud(
                disparity,
                calibration,
                picture=picture,
                confidence=confidence,
                max_depth=self.asked.max_depth,
                stride=self.asked.stride,
            )
            return Encoded(data, [] if count else ["the point cloud is empty: no depth is known"])
        from pamcli.imaging.disparity_files import encode_depth

        metres = calibration.depth(disparity)
        known = metres <= (self.asked.max_depth or math.inf)
        if target.name == "depth_error":
            metres = calibration.depth_error(disparity, self.asked.disparity_error)
        file = encode_depth(np.where(known, metres, np.float32("nan")), target.suffix)
        warnings = [] if known.any() else ["no depth is known"]
        if file.saturated:
            share = f"{file.saturated} pixels are beyond 65.535 m, the most that a depth PNG can hold"
            warnings.append(f"{share}, and unknown in it; .tif and .npy hold any")
        return Encoded(file.data, warnings)
