"""Results in metres: the options of every command that has them, and pam depth, for stored disparities."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pamcli.cli import options
from pamcli.cli.batch import Encoded, Operation, run_jobs
from pamcli.cli.calibration import Cameras
from pamcli.cli.console import Console
from pamcli.cli.groups import OptionGroup, argument, asked_results, option, result
from pamcli.cli.jobs import Job, Target, plan_jobs
from pamcli.cli.parsing import empty
from pamcli.errors import InputError, UsageError
from pamcli.files.finding import files_by_text, listed, natural, pictures_by_stem, require_file
from pamcli.files.pairing import Pairing, PairName, is_template, resolve_packed
from pamcli.files.suffixes import DEPTH_SUFFIXES, DISPARITY_SUFFIXES

if TYPE_CHECKING:
    import numpy as np

    from pamcli.calibration.rectified import Calibration


class Metric(OptionGroup, panel="Calibration"):
    """The results in metres."""

    depth: str | None = result(
        "Depth: .tif or .npy (metres), .png (16 bits, millimetres).", DEPTH_SUFFIXES, folder_tag="_depth"
    )
    depth_error: str | None = result(
        "One standard deviation of depth, as --depth.", DEPTH_SUFFIXES, folder_tag="_depth_error"
    )
    point_cloud: str | None = result("Coloured points (.ply), in metres.", (".ply",), folder_tag="_cloud")
    disparity_error: float = option(
        "Take disparities to be off by this much (standard deviation), for --depth-error.",
        default=0.5,
        metavar="PX",
    )
    max_depth: float | None = option("Leave out what is farther, as unknown.", metavar="METRES")
    stride: int = option(
        "Write a point for every N-th column and row alone.", default=1, min=1, max=100_000, metavar="N"
    )

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
        if size and scaled.size not in (*self.calibration.sizes, *self.scaled_sizes):
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


class Stored(options.Limit):
    """Which disparities, and the pictures that they belong to."""

    inputs: list[str] = argument(
        "Files (.pfm, .npy, .tif, or .png of 16 bits, 256 a pixel), folders, or a template with {}.",
        default=...,
        metavar="DISPARITY",
        show_default=False,
    )
    picture: str | None = option(
        "The left pictures, of the same names, for the colours of the points.", metavar="FILE|FOLDER|TEMPLATE"
    )

    def find(self) -> Pairing:
        """Disparities with their pictures (None: without).

        Raises UsageError where a picture has no name of its own, InputError for what does not exist.
        """
        if "" in self.inputs:
            raise empty("DISPARITY")
        if len(self.inputs) == 1 and is_template(self.inputs[0]):
            found = files_by_text(self.inputs[0])
            if not found:
                raise UsageError(f"no file matches {self.inputs[0]}")
            names = [PairName(path, None, key) for key, path in found.items()]
            pairing = Pairing(tuple(sorted(names, key=lambda pair: natural(str(pair.key)))))
        else:
            pairing = resolve_packed(self.inputs, suffixes=DISPARITY_SUFFIXES)
        if self.picture is None:
            return pairing
        if pairing.batch and not (is_template(self.picture) or os.path.isdir(self.picture)):
            raise UsageError(f"--picture {self.picture} is one file for many", "name a folder or a template")
        if os.path.isdir(self.picture):
            by_stem = pictures_by_stem(Path(self.picture))
            if alone := [pair.left for pair in pairing.pairs if pair.left.stem not in by_stem]:
                raise UsageError(f"no picture in {self.picture} for {listed(alone)}")
            pictures = [by_stem[pair.left.stem] for pair in pairing.pairs]
        else:
            pictures = [Path(self.picture.replace("{}", pair.key or "")) for pair in pairing.pairs]
        for picture in pictures:
            require_file(picture)
        pairs = (replace(pair, right=picture) for pair, picture in zip(pairing.pairs, pictures, strict=True))
        return replace(pairing, pairs=tuple(pairs), unpaired=())


class Depths(Metric, panel="Output"):
    """The results in metres."""

    depth: str | None = result(
        "Depth: .tif or .npy (metres), .png (16 bits, millimetres).",
        DEPTH_SUFFIXES,
        "-o",
        folder_tag="_depth",
        metavar="FILE|FOLDER|TEMPLATE|-",
    )


def command(
    stored: Stored, results: options.Results, output: Depths, cameras: Cameras, messages: options.Messages
) -> None:
    """Make depth in metres, and point clouds, of disparities that are there already.

    $ pam depth disp.pfm --calibration calib.txt --depth depth.tif
    $ pam depth disparities/ --calibration calib.txt --picture lefts/ --point-cloud clouds/
    """
    console = messages.console(jsonl=results.jsonl)
    limits = options.Pairs(max_pixels=stored.max_pixels)
    asked, found, read = asked_results(output), stored.find(), cameras.calibration or ()
    plan = plan_jobs(limits, results, asked, None, console, found=found, read=read)
    metric = output.prepared(cameras, console)
    assert metric is not None  # a plan has results
    run_jobs(plan, _Converting(metric), console)


@dataclass(frozen=True)
class _Map:
    """A stored disparity, and the left picture."""

    disparity: np.ndarray
    picture: np.ndarray | None
    width: int
    height: int


class _Converting(Operation[None]):
    def __init__(self, metric: InMetres) -> None:
        self.metric = metric

    def read(self, job: Job, layout: Any, max_pixels: int | None) -> Any:
        from pamcli.imaging.disparity_files import read_disparity
        from pamcli.imaging.images import read_picture

        assert job.pair is not None
        disparity = read_disparity(job.pair.left, max_pixels=max_pixels)
        picture = None
        if job.pair.right is not None:
            picture = read_picture(job.pair.right, max_pixels=max_pixels).pixels
            if picture.shape[:2] != disparity.shape:
                raise InputError(
                    f"{job.pair.right} has {picture.shape[1]} x {picture.shape[0]} pixels, "
                    f"{job.pair.left} {disparity.shape[1]} x {disparity.shape[0]}"
                )
        height, width = disparity.shape
        return _Map(disparity, picture, width, height)

    def check(self, target: Target, pair: Any) -> None:
        self.metric.check(pair.width, pair.height)

    def apply(self, job: Job, pair: Any) -> None:
        return None

    def encode(self, target: Target, pair: Any, result: None) -> Encoded | None:
        return self.metric.encode(target, pair.disparity, pair.picture)
