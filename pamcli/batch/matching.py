"""How are the disparity maps of pairs found, from files to files?"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.colors import Range, color, colored_frames, disparities
from pamcli.batch.depth import (
    DEPTH,
    DEPTH_ERROR,
    POINT_CLOUD,
    InMetres,
    rectified_calibration,
    stated_calibration,
)
from pamcli.batch.jobs import Job
from pamcli.batch.run import Batch
from pamcli.batch.steadiness import Steadiness
from pamcli.batch.work import Found, Work
from pamcli.calibration.geometry import Calibration
from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.files.suffixes import CONFIDENCE_SUFFIXES, DISPARITY_SUFFIXES, IMAGE_OUTPUT_SUFFIXES
from pamcli.imaging.disparity_files import encode_confidence, encode_disparity, read_disparity
from pamcli.imaging.images import check_encodable, encode_mask
from pamcli.imaging.stereo_pair import StereoPair
from pamcli.inference.loading import load_matcher
from pamcli.registry.catalog import list_network_files
from pamcli.settings.batches import MatchSettings
from pamcli.settings.options import takes

if TYPE_CHECKING:
    from pamcli.batch.video_results import StoredFrames
    from pamcli.inference.matcher import StereoMatcher, StereoResult

DISPARITY = OutputKind("disparity", "`output`", DISPARITY_SUFFIXES)
RIGHT_DISPARITY = OutputKind("right_disparity", "`output_right`", DISPARITY_SUFFIXES, "_right")
COLOR_MAP = OutputKind("color_map", "`color_map`", IMAGE_OUTPUT_SUFFIXES, "_color")
VISIBLE = OutputKind("visible", "`visible`", (".png",), "_visible")
CONFIDENCE = OutputKind("confidence", "`confidence`", CONFIDENCE_SUFFIXES, "_confidence")
PAGE = OutputKind("page", "`page`", (".html",))

OF_DISPARITIES = {kind.name for kind in (DISPARITY, RIGHT_DISPARITY, COLOR_MAP)}
"""Kinds whose frames are disparities while they wait to become a video."""


@takes(MatchSettings)
def match_files(settings: MatchSettings) -> Batch:
    """Match pairs of images in files, as `pam disparity` does: iterate over it, for a `Result` each.

    >>> for result in pamcli.match_files("lefts/", "rights/", output="maps/", skip_existing=True):
    ...     print(result.status, result.left, result.outputs.get("disparity"), result.error)

    Args:
        settings: A left and a right image, folders, or templates with `{}`; then a `MatchSettings`, or its
            fields as keywords. They are the options of the command (`pam disparity --help`, `pam guide
            options`). output: disparities of the left view, pixels; `-` hands the bytes back in
            `Result.data`; a video is there after the last result.

    Returns:
        A `Batch`, whose pairs are processed while it is iterated over. What is wrong with a pair is its
        result's `error`.

    Raises UsageError and InputError before any work: inputs that are no pairs, results that exist; while it
    is iterated, ModelError and DeviceError.
    """
    results = {
        DISPARITY: settings.output,
        RIGHT_DISPARITY: settings.output_right,
        COLOR_MAP: settings.color_map,
        VISIBLE: settings.visible,
        CONFIDENCE: settings.confidence,
        PAGE: settings.page,
        DEPTH: settings.depth,
        DEPTH_ERROR: settings.depth_error,
        POINT_CLOUD: settings.point_cloud,
    }
    read = [*settings.calibration_files, *list_network_files(settings.weights)]
    batch = Batch(settings, results, read=read, tag="_disparity")
    if settings.range == "shared" and COLOR_MAP.name not in batch.videos:
        parts = {
            "`skip_existing`": settings.skip_existing,
            "`pairs` -": str(settings.pairs) == "-",
            "`shard`": settings.shard,
            "`engine` ray": settings.engine == "ray",
        }
        if partly := [option for option, given in parts.items() if given]:
            hint = "give MIN:MAX, or leave `range` out: each pair has a range of its own then"
            raise UsageError(f"`range` shared needs the whole batch, which {partly[0]} has not", hint)
    if settings.min_disparity < 0 and OF_DISPARITIES & batch.videos.keys():
        raise UsageError("a video cannot hold negative disparities", "write the results into a folder")
    if settings.steady and not batch.many:
        raise UsageError("`steady` is about videos and numbered frames", "leave it out for a single pair")
    return batch.with_work(_Matching(settings, batch))


class _Matching(Work):
    stretches = True

    def __init__(self, settings: MatchSettings, batch: Batch) -> None:
        super().__init__(settings)
        self.gpus = settings.device != "cpu"
        given = settings.calibration or settings.focal
        self.given = rectified_calibration(settings) if given else None
        """The calibration of all pairs; None: each pair may state its own."""
        self.metric = InMetres(settings)
        self.steadiness = Steadiness() if settings.steady else None
        self.index: Path | None = None
        """Index of the pages of a batch."""
        if batch.many and settings.page is not None:
            from pamcli.viewing.index import check_index, find_index_path

            self.index = find_index_path(str(settings.page))
            check_index(self.index, batch.outputs)
        in_video = COLOR_MAP.name in batch.videos
        self.many = batch.many
        self.whole_batch_first = settings.range == "shared" and batch.many and not in_video
        self.spool: tempfile.TemporaryDirectory[str] | None = None
        """Folder in which disparities wait for the range of the whole batch."""
        self.kept: dict[Path, Path] = {}
        """The files of these, by the pictures to make of them."""
        self.shared: Range | None = None
        """Range of the colours of the whole batch, until it is settled."""
        self.colors: tuple[float, float] | None = None
        self.said: set[str] = set()
        """Sizes of pictures of which it was said that they are reduced."""
        sure = (settings.confidence, settings.min_confidence, settings.page) != (None, None, None)
        wanted = {
            "right_disparity": settings.output_right is not None,
            "visible": settings.visible is not None or settings.unknown == "occluded",
            "confidence": sure,
        }
        self.extras = {*filter(wanted.get, wanted)}
        """What the network has to find besides the disparity."""

    def calibration_of(self, pair: StereoPair) -> Calibration | None:
        """Return the calibration that was given, else the one that the pair states."""
        return self.given or stated_calibration(pair, self.settings)

    def load_network(self) -> StereoMatcher:
        return load_matcher(self.settings, self.max_memory)[0]

    def skip(self, job: Job) -> None:
        if self.steadiness is not None:
            self.steadiness.left_out = job

    def load(self, job: Job) -> Any:
        loaded = super().load(job)
        if self.steadiness is not None and loaded is not None:
            self.steadiness.read_again(job, self.read)
        return loaded

    def apply(self, job: Job, pair: StereoPair) -> Found:
        progress = None if self.bar is None else self.bar.within(pair.height)
        found: StereoResult = self.network(*self.views(pair), extras=self.extras, progress=progress)
        if self.vertical:
            size = found.matched_size and found.matched_size[::-1]
            turned = found.changed(self.turned_back, self.turned_back, disparity=lambda values: values)
            found = replace(turned, matched_size=size)
        if self.steadiness is not None:
            fused = self.steadiness.fused(job, pair, found.disparity)
            found = replace(found, disparity=np.maximum(fused, np.float32(self.settings.min_disparity)))
            self.steadiness.keep(job, pair, self._shown(found))
        height, width = found.matched_size or found.disparity.shape
        doubts = []
        if "confidence" in self.extras and found.doubtful:
            share = f"only {100 * found.confident_share:.0f} % of the pixels are confident"
            doubts = [f"{share}: the pictures seem to be no pair, or to show hardly any texture"]
        return found, {"matched_width": width, "matched_height": height}, doubts

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

    def check(self, name: str, place: Path, pair: StereoPair) -> None:
        calibration = self.calibration_of(pair)
        in_metres = name in (DEPTH.name, DEPTH_ERROR.name, POINT_CLOUD.name)
        if calibration is not None and (in_metres or calibration.baseline):
            self.metric.check(calibration, pair.width, pair.height)
        elif in_metres:
            raise InputError(
                f"{pair.title} does not state its calibration",
                "give `calibration`, or `focal` and `baseline`",
            )
        if name == COLOR_MAP.name:
            check_encodable(
                place.suffix, height=pair.height, width=pair.width, bits=8, alpha=False, name=str(place)
            )

    def encode(self, name: str, place: Path, pair: StereoPair, found: StereoResult) -> Encoded | None:
        suffix = place.suffix.lower()
        if name == DISPARITY.name:
            return encode_disparity(self._shown(found), suffix)
        if name == VISIBLE.name:
            assert found.visible is not None
            return Encoded(encode_mask(found.visible))
        if name == CONFIDENCE.name:
            assert found.confidence is not None
            return Encoded(encode_confidence(found.confidence, suffix))
        if name == RIGHT_DISPARITY.name:
            assert found.right_disparity is not None
            return encode_disparity(found.right_disparity, suffix)
        disparity = self._shown(found)
        calibration = self.calibration_of(pair)
        if name == PAGE.name:
            from pamcli.viewing.page import render_page

            picture, confidence = pair.left.pixels, found.confidence
            calibration = calibration if calibration and calibration.baseline else None
            return Encoded(
                render_page(pair.title, picture, disparity, confidence=confidence, calibration=calibration)
            )
        if name == COLOR_MAP.name and name in self.videos:
            return encode_disparity(disparity, suffix)
        if name == COLOR_MAP.name:
            if self.whole_batch_first:
                self._keep(disparity, place)
                return None
            if isinstance(self.settings.range, tuple):
                return color(disparity, self.settings.range, place, warn=True)
            colors = Range([disparity]).settled(pair.title, LOG.debug if self.many else LOG.info)
            return color(disparity, colors, place, warn=False)
        assert calibration is not None
        return self.metric.encode(name, suffix, disparity, pair.left.pixels, calibration)

    def for_video(self, name: str, frames: StoredFrames) -> Iterable[tuple[Fraction, np.ndarray]]:
        if name != COLOR_MAP.name:
            return frames
        if isinstance(self.settings.range, tuple):
            return colored_frames(frames, self.settings.range, warn=True)
        colors = Range(each for _, each in disparities(frames)).settled("the video")
        return colored_frames(frames, colors, warn=False)

    def _shown(self, result: StereoResult) -> Any:
        """The disparity, NaN where it is to be unknown."""
        given = self.settings
        return result.disparity_where(
            visible=given.unknown == "occluded", min_confidence=given.min_confidence
        )

    def end_batch(self) -> None:
        if self.index is not None:
            from pamcli.viewing.index import write_index

            write_index(self.index)

    def close(self) -> None:
        if self.spool is not None:
            self.spool.cleanup()

    def _keep(self, disparity: Any, place: Path) -> None:
        """Store it until the range of the whole batch is known."""
        self.shared = self.shared or Range()
        self.shared.add(disparity)
        self.spool = self.spool or tempfile.TemporaryDirectory(prefix="pam-")
        stored = Path(self.spool.name, f"{len(self.kept)}.npy")
        write_atomically(stored, encode_disparity(disparity, ".npy").data)
        self.kept[place] = stored

    def encode_at_the_end(self, name: str, place: Path) -> Encoded | None:
        if name != COLOR_MAP.name:
            return None
        if self.colors is None and self.shared is not None:
            self.colors = self.shared.settled("the batch")
        assert self.colors is not None
        disparity = read_disparity(self.kept[place], max_pixels=None)
        return color(disparity, self.colors, place, warn=False)
