"""pam depth: stored disparities, of any program, to metres."""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pamcli.cli import options
from pamcli.cli.batch import Encoded, Operation, run_jobs
from pamcli.cli.groups import argument, asked_results, option, result
from pamcli.cli.jobs import Job, Target, plan_jobs
from pamcli.cli.metric import Cameras, InMetres, Metric
from pamcli.cli.parsing import empty
from pamcli.errors import InputError, UsageError
from pamcli.files.finding import files_by_text, listed, natural, pictures_by_stem, require_file
from pamcli.files.pairing import Pairing, PairName, is_template, resolve_packed
from pamcli.files.suffixes import DEPTH_SUFFIXES, DISPARITY_SUFFIXES

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class Stored(options.Limit):
    """Which disparities, and the pictures that they belong to."""

    inputs: list[str] = argument(
        "Files (.pfm, .npy, .tif, or .png of 16 bits, 256 a pixel), folders, or a template with {}.",
        default=MISSING,
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


@dataclass(frozen=True, kw_only=True)
class Depths(Metric):
    """The results in metres."""

    panel: ClassVar[str] = "Output"
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

    def look(self, pair: Any) -> list[str]:
        return []

    def check(self, target: Target, pair: Any) -> None:
        self.metric.check(pair.width, pair.height)

    def apply(self, job: Job, pair: Any) -> None:
        return None

    def encode(self, target: Target, pair: Any, result: None) -> Encoded | None:
        return self.metric.encode(target, pair.disparity, pair.picture)
