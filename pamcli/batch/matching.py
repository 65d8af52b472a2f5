"""Disparities of pairs of pictures, in files."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.colors import ColorRange, Range, colored, colored_frames, disparities
from pamcli.batch.job import Job
from pamcli.batch.metres import DEPTH, DEPTH_ERROR, POINT_CLOUD, InMetres, in_metres, rectified_calibration
from pamcli.batch.networks import load_matcher
from pamcli.batch.operation import NetworkOperation
from pamcli.batch.plan import BatchOptions, Place, Request
from pamcli.batch.run import Batch
from pamcli.batch.steadiness import Steadiness, check_steady
from pamcli.batch.video_results import StoredFrames
from pamcli.calibration.rectified import Calibration
from pamcli.errors import UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.files.suffixes import (
    CONFIDENCE_SUFFIXES,
    DISPARITY_SUFFIXES,
    PICTURE_OUTPUT_SUFFIXES,
    PackedLayout,
)
from pamcli.imaging.disparity_files import encode_confidence, encode_disparity, read_disparity
from pamcli.imaging.images import check_encodable, encode_mask
from pamcli.imaging.stereo_pair import StereoPair
from pamcli.registry.catalog import DEFAULT_MATCHING, files_behind

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher, StereoResult

DISPARITY = OutputKind("disparity", "`output`", DISPARITY_SUFFIXES)
RIGHT_DISPARITY = OutputKind("right_disparity", "`output_right`", DISPARITY_SUFFIXES, "_right")
COLOR_MAP = OutputKind("color_map", "`color_map`", PICTURE_OUTPUT_SUFFIXES, "_color")
VISIBLE = OutputKind("visible", "`visible`", (".png",), "_visible")
CONFIDENCE = OutputKind("confidence", "`confidence`", CONFIDENCE_SUFFIXES, "_confidence")
PAGE = OutputKind("page", "`page`", (".html",))

OF_DISPARITIES = {kind.name for kind in (DISPARITY, RIGHT_DISPARITY, COLOR_MAP)}
"""Kinds whose frames are disparities while they wait to become a video."""


def match_files(
    *inputs: Place,
    output: Place | None = None,
    output_right: Place | None = None,
    color_map: Place | None = None,
    visible: Place | None = None,
    confidence: Place | None = None,
    page: Place | None = None,
    depth: Place | None = None,
    depth_error: Place | None = None,
    point_cloud: Place | None = None,
    format: Literal["pfm", "png", "npy", "tif"] | None = None,
    range: ColorRange | None = None,
    unknown: Literal["occluded", "none"] = "none",
    min_confidence: float | None = None,
    steady: bool = False,
    disparity_error: float = 0.5,
    max_depth: str | float | None = None,
    stride: int = 1,
    calibration: Calibration | Place | Sequence[Place] | None = None,
    cameras: tuple[int, int] | None = None,
    baseline: str | float | None = None,
    unit: str | float | None = None,
    focal: float | None = None,
    doffs: float | None = None,
    principal_point: tuple[float, float] | None = None,
    weights: Place | None = None,
    max_disparity: int | Literal["stored"] | None = "stored",
    min_disparity: int = 0,
    match_size: float | Literal["auto"] | None = None,
    network_from: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    max_memory: int | None = None,
    **options: Unpack[BatchOptions],
) -> Batch:
    """Match pairs of pictures in files, as `pam disparity` does: iterate over it, for an outcome each.

    >>> for outcome in pamcli.match_files("lefts/", "rights/", output="maps/", skip_existing=True):
    ...     print(outcome.status, outcome.left, outcome.outputs.get("disparity"), outcome.error)

    Arguments are the command's, under the names of its options (`pam disparity --help`; `BatchOptions` of
    `pamcli.batch.plan` are those of every batch): inputs and outputs are files, folders or templates with
    `{}`. output: disparities of the left view, pixels, in the format of the suffix, of a folder in `format`;
    `-` hands the bytes back in `Outcome.data`; a video is there after the last outcome. range, max_disparity,
    min_disparity, focal, doffs, disparity_error: pixels. min_confidence: 0 to 1. principal_point: x, y.
    baseline, max_depth, unit: lengths as "120mm", or metres. max_memory: bytes.
    network_from: "module:function" that makes the network which `weights` describes; its code runs.
    Raises UsageError and InputError before any work: inputs that are no pairs, results that exist;
    while it is iterated, ModelError and DeviceError. What is wrong with a pair is its outcome's `error`.
    """
    request = Request(inputs=inputs, **options)
    maps = {
        DISPARITY: output,
        RIGHT_DISPARITY: output_right,
        COLOR_MAP: color_map,
        VISIBLE: visible,
        CONFIDENCE: confidence,
        PAGE: page,
    }
    metric = {DEPTH: depth, DEPTH_ERROR: depth_error, POINT_CLOUD: point_cloud}
    if min_confidence is not None and not 0 <= min_confidence <= 1:  # also true for NaN
        raise UsageError(f"`min_confidence` {min_confidence:g} is not between 0 and 1")
    for kind, place in maps.items():
        ends = f".{format}" if format else Path(place or "").suffix
        if min_disparity < 0 and place and kind.suffixes == DISPARITY_SUFFIXES and ends.lower() == ".png":
            raise UsageError(
                f"{kind.option} {place}: a PNG cannot hold negative disparities", "take .pfm, .npy or .tif"
            )
    files: Sequence[Place] = ()
    if isinstance(calibration, str | Path):
        files = [calibration]
    elif isinstance(calibration, Sequence):
        files = calibration
    batch = Batch.asked(
        request, {**maps, **metric}, format, read=[*files, *files_behind(weights)], tag="_disparity"
    )
    colored_video = COLOR_MAP.name in batch.videos
    _check_range(range, color_map, request, colored_video)
    if min_disparity < 0 and (OF_DISPARITIES & batch.videos.keys()):
        raise UsageError("a video cannot hold negative disparities", "write the results into a folder")
    if steady:
        check_steady(request, output, many=batch.many)
    if calibration is None or isinstance(calibration, str | Path | Sequence):
        calibration = rectified_calibration(
            files,
            cameras=cameras,
            baseline=baseline,
            focal=focal,
            doffs=doffs,
            unit=unit,
            principal_point=principal_point,
        )
    elif (focal, baseline, doffs, cameras, unit, principal_point) != (None,) * 6:
        raise UsageError(
            "a `Calibration` has `focal`, `baseline` and `doffs` of its own", "change it by its own methods"
        )
    metres = in_metres(metric, calibration, disparity_error, max_depth, stride, page)
    index = None
    if batch.many and page is not None:
        from pamcli.viewing.page import check_index, index_place

        index = index_place(str(page))
        check_index(index, batch.outputs)
    settings: dict[str, Any] = {
        **{"max_disparity": max_disparity, "min_disparity": min_disparity, "match_size": match_size},
        "network_from": network_from,
        **{"device": device, "precision": precision, "max_memory": max_memory},
    }
    load = partial(load_matcher, weights or DEFAULT_MATCHING, **settings)
    operation = _Matching(load, range, metres, index)
    operation.min_disparity, operation.steadiness = min_disparity, Steadiness() if steady else None
    operation.occluded, operation.min_confidence = unknown == "occluded", min_confidence
    operation.many = batch.many
    operation.whole_batch_first = range == "shared" and batch.many and not colored_video
    wanted = {
        "right_disparity": output_right is not None,
        "visible": visible is not None or unknown == "occluded",
        "confidence": (confidence, min_confidence, page) != (None, None, None),
    }
    operation.extras = {name for name, asked in wanted.items() if asked}
    return batch.working(operation, gpus=device != "cpu")


def _check_range(
    range: ColorRange | None, color_map: Place | None, request: Request, colored_video: bool
) -> None:
    if range is not None and color_map is None:
        raise UsageError("`range` is about the colours of `color_map`, which is not asked for")
    if range != "shared" or colored_video:
        return
    parts = {
        "`skip_existing`": request.skip_existing,
        "`pairs` -": str(request.pairs) == "-",
        "`shard`": request.shard,
        "`engine` ray": request.remote,
    }
    if partly := [option for option, given in parts.items() if given]:
        hint = "give MIN:MAX, or leave `range` out: each pair has a range of its own then"
        raise UsageError(f"`range` shared needs the whole batch, which {partly[0]} has not", hint)


class _Matching(NetworkOperation["StereoResult"]):
    extras: Collection[str] = ()
    """What the network has to find besides the disparity."""
    occluded = False
    """Whether pixels of the left view that the right one does not see are to be unknown."""
    min_confidence: float | None = None
    steadiness: Steadiness | None = None
    many = False
    """Whether there are several pairs."""

    def __init__(
        self,
        load: partial[tuple[StereoMatcher, Path]],
        color_range: ColorRange | None,
        metric: InMetres | None,
        index: Path | None,
    ) -> None:
        """index: that of the pages of a batch."""
        super().__init__(load)
        self.asked_range, self.metric, self.index = color_range, metric, index
        self.spool: tempfile.TemporaryDirectory[str] | None = None
        """Folder in which disparities wait for the range of the whole batch."""
        self.kept: dict[Path, Path] = {}
        """The files of these, by the pictures to make of them."""
        self.shared = Range()
        """Range of the colours of the whole batch, until it is settled."""
        self.colors: tuple[float, float] | None = None
        self.said: set[str] = set()
        """Sizes of pictures of which it was said that they are reduced."""

    def passed(self, job: Job) -> None:
        if self.steadiness is not None:
            self.steadiness.left_out = job

    def read(self, job: Job, layout: PackedLayout | None, max_pixels: int | None) -> StereoPair:
        pair = super().read(job, layout, max_pixels)
        if self.steadiness is not None:
            read = super().read
            self.steadiness.read_again(job, lambda before: read(before, layout, max_pixels))
        return pair

    def apply(self, job: Job, pair: StereoPair) -> StereoResult:
        found: StereoResult = self.network(
            pair.left.pixels, pair.right.pixels, extras=self.extras, progress=self.watched(pair)
        )
        if self.steadiness is not None:
            fused = self.steadiness.fused(job, pair, found.disparity)
            found = replace(found, disparity=np.maximum(fused, np.float32(self.min_disparity)))
            self.steadiness.keep(job, pair, self._shown(found))
        return found

    def facts(self, result: StereoResult) -> Mapping[str, Any]:
        height, width = result.matched_size or result.disparity.shape
        return {"matched_width": width, "matched_height": height}

    def note(self, facts: Mapping[str, Any]) -> None:
        if facts.get("matched_width", math.inf) >= facts.get("width", 0):
            return
        given, taken = (
            "{} x {}".format(*(facts[f"{of}{side}"] for side in ("width", "height")))
            for of in ("", "matched_")
        )
        if given not in self.said:
            self.said.add(given)
            LOG.info(
                f"pictures of {given} px are matched at {taken}, and the result is brought back to their "
                "size along the edges of the left one (`match_size` 1 matches them as they are)"
            )

    def doubts(self, result: StereoResult) -> list[str]:
        if "confidence" not in self.extras or not result.doubtful:
            return []
        share = f"only {100 * result.confident_share:.0f} % of the pixels are confident"
        return [f"{share}: the pictures seem to be no pair, or to show hardly any texture"]

    def check(self, name: str, place: Path, pair: StereoPair) -> None:
        if self.metric is not None:
            self.metric.check(pair.width, pair.height)
        if name == COLOR_MAP.name:
            check_encodable(
                place.suffix, height=pair.height, width=pair.width, bits=8, alpha=False, name=str(place)
            )

    def encode(self, name: str, place: Path, pair: StereoPair, result: StereoResult) -> Encoded | None:
        suffix = place.suffix.lower()
        if name == VISIBLE.name:
            assert result.visible is not None
            return Encoded(encode_mask(result.visible))
        if name == CONFIDENCE.name:
            assert result.confidence is not None
            return Encoded(encode_confidence(result.confidence, suffix))
        if name == RIGHT_DISPARITY.name:
            assert result.right_disparity is not None
            return encode_disparity(result.right_disparity, suffix)
        disparity = self._shown(result)
        if name == PAGE.name:
            from pamcli.viewing.page import render_page

            calibration = self.metric.calibration if self.metric else None
            picture, confidence = pair.left.pixels, result.confidence
            return Encoded(
                render_page(pair.title, picture, disparity, confidence=confidence, calibration=calibration)
            )
        if name == COLOR_MAP.name and name in self.videos:
            return encode_disparity(disparity, suffix)
        if name == COLOR_MAP.name:
            if self.whole_batch_first:
                self._keep(disparity, place)
                return None
            if isinstance(self.asked_range, tuple):
                return colored(disparity, self.asked_range, place, warn=True)
            colors = Range(disparity).settled(pair.title, LOG.debug if self.many else LOG.info)
            return colored(disparity, colors, place, warn=False)
        if name == DISPARITY.name:
            return encode_disparity(disparity, suffix)
        assert self.metric is not None
        return self.metric.encode(name, suffix, disparity, pair.left.pixels)

    def for_video(self, name: str, frames: StoredFrames) -> Iterable[tuple[Fraction, np.ndarray]]:
        if name != COLOR_MAP.name:
            return frames
        if isinstance(self.asked_range, tuple):
            return colored_frames(frames, self.asked_range, warn=True)
        colors = Range(*(each for _, each in disparities(frames))).settled("the video")
        return colored_frames(frames, colors, warn=False)

    def _shown(self, result: StereoResult) -> Any:
        """The disparity, NaN where it is to be unknown."""
        return result.disparity_where(visible=self.occluded, min_confidence=self.min_confidence)

    def end_batch(self) -> None:
        if self.index is not None:
            from pamcli.viewing.page import write_index

            write_index(self.index)

    def close(self) -> None:
        if self.spool is not None:
            self.spool.cleanup()

    def _keep(self, disparity: Any, place: Path) -> None:
        """Store it until the range of the whole batch is known."""
        self.shared.add(disparity)
        self.spool = self.spool or tempfile.TemporaryDirectory(prefix="pam-")
        stored = Path(self.spool.name, f"{len(self.kept)}.npy")
        write_atomically(stored, encode_disparity(disparity, ".npy").data)
        self.kept[place] = stored

    def encode_at_the_end(self, name: str, place: Path) -> Encoded | None:
        if name != COLOR_MAP.name:
            return None
        if self.colors is None:
            self.colors = self.shared.settled("the batch")
        disparity = read_disparity(self.kept[place], max_pixels=None)
        return colored(disparity, self.colors, place, warn=False)
