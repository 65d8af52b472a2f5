"""Compute disparity maps, colour maps, depth maps and pages of image pairs in files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.colors import ColorRange, encode_colors, render_frames
from pamcli.batch.depth import (
    DEPTH,
    DEPTH_ERROR,
    DISTANCES,
    MESH,
    METRIC,
    POINT_CLOUD,
    RERUN,
    MetricEncoder,
    load_rectified_calibration,
    read_stated_calibration,
)
from pamcli.batch.jobs import Job, Result
from pamcli.batch.overlapping import attempt
from pamcli.batch.plan import Plan, plan_batch
from pamcli.batch.processing import NetworkProcessor, Outcome, Results
from pamcli.batch.run import Batch
from pamcli.calibration.geometry import Calibration
from pamcli.errors import DiskFullError, InputError, PamError, UsageError
from pamcli.files.atomic import FolderGoneError, write_atomically
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.files.suffixes import (
    BAG_OUTPUT_SUFFIXES,
    CONFIDENCE_SUFFIXES,
    DISPARITY_SUFFIXES,
    IMAGE_OUTPUT_SUFFIXES,
)
from pamcli.imaging.disparity_files import (
    encode_confidence,
    encode_disparity,
    quantize_disparity,
    read_disparity,
)
from pamcli.imaging.images import check_encodable, encode_mask
from pamcli.imaging.stereo_pair import StereoPair
from pamcli.imaging.temporal_fusion import Floats, PreviousFrame, fuse_frames
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

LEAST_CONFIDENCE = 0.5
"""Confidence below which `at` and `boxes` ignore a pixel, unless `min_confidence` is set."""

STORED_AS_DISPARITY = {kind.name for kind in (DISPARITY, RIGHT_DISPARITY, COLOR_MAP)}
"""Kinds of videos whose frames are stored as disparity maps."""


@takes(MatchSettings)
def match_files(settings: MatchSettings) -> Batch:
    """Match image pairs in files, as `pam disparity` does; iterate over the batch for a `Result` each.

    >>> for result in pamcli.match_files("lefts/", "rights/", output="maps/", skip_existing=True):
    ...     print(result.status, result.left, result.outputs.get("disparity"), result.error)

    Args:
        settings: A left and a right image, folders, or templates with `{}`; then a `MatchSettings`, or its
            fields as keywords, which are the options of the command (`pam guide options`). With output="-"
            the bytes of the disparity map are in `Result.data`. A video is complete after the last result.

    Returns:
        A `Batch`, whose pairs are processed while it is iterated. If a pair fails, its result has an `error`.

    Raises:
        UsageError, InputError: Before any work, for inputs that are not pairs, or results that exist.
        ModelError, DeviceError: During the iteration.
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
        MESH: settings.mesh,
        RERUN: settings.rerun,
    }
    read = [*settings.calibration_files, *list_network_files(settings.weights)]
    plan = plan_batch(settings, results, read=read, tag="_disparity")
    if settings.range == "shared" and COLOR_MAP.name not in plan.videos:
        parts = {
            "`skip_existing`": settings.skip_existing,
            "`pairs` -": str(settings.pairs) == "-",
            "`shard`": settings.shard,
            "`engine` ray": settings.engine == "ray",
        }
        if conflict := next(filter(parts.get, parts), None):
            message = f"cannot use both `range` shared and {conflict}: the range needs the whole batch"
            raise UsageError(message, "give MIN:MAX, or drop `range` for one range per pair")
    if settings.min_disparity < 0 and STORED_AS_DISPARITY & plan.videos.keys():
        message = f"a video cannot hold negative disparities (`min_disparity` {settings.min_disparity})"
        raise UsageError(message, "write the results into a folder")
    if settings.steady and not plan.many:
        raise UsageError("`steady` requires a video or numbered frames", "drop `steady` for a single pair")
    return Batch(plan, MatchProcessor(settings, plan))


class MatchProcessor(NetworkProcessor):
    """The steps of `pam disparity` for each pair."""

    settings: MatchSettings

    def __init__(self, settings: MatchSettings, plan: Plan) -> None:
        super().__init__(settings, plan)
        self.min_disparity = settings.min_disparity
        is_given = settings.calibration or settings.focal
        self.calibration = load_rectified_calibration(settings) if is_given else None
        """The calibration of all pairs; None if each pair may state its own."""
        self.reader.rectifies_recording = not is_given
        self.fusion = VideoFusion() if settings.steady else None
        self.index: Path | None = None
        """Index of the pages of a batch."""
        if plan.many and settings.page is not None:
            from pamcli.viewing.index import check_index, find_index_path

            self.index = find_index_path(str(settings.page))
            check_index(self.index, plan.outputs)
        self.needs_whole_batch = (
            settings.range == "shared" and plan.many and COLOR_MAP.name not in plan.videos
        )
        if settings.steady or self.needs_whole_batch:
            self.sequential = "`steady`" if settings.steady else "`range` shared"
        self.colors: tuple[float, float] | None = None
        """The range of the whole batch, once known."""
        self.stored: dict[Path, Path] = {}
        """The stored disparity map of each colour map that is written after the whole batch."""
        needs_confidence = settings.has_distances or (
            (settings.confidence, settings.min_confidence, settings.page) != (None, None, None)
        )
        requested = {
            "right_disparity": settings.output_right is not None,
            "visible": settings.visible is not None or settings.unknown == "occluded",
            "confidence": needs_confidence,
        }
        self.extras = {*filter(requested.get, requested)}
        """Outputs of the network besides the disparity map."""

    @cached_property
    def network(self) -> StereoMatcher:
        return load_matcher(self.settings)[0]

    def get_calibration(self, pair: StereoPair) -> Calibration | None:
        """Return the given calibration, or the one that the pair states."""
        if self.calibration is not None or not pair.stated:
            return self.calibration
        return read_stated_calibration(pair, self.settings)

    @cached_property
    def metric(self) -> MetricEncoder:
        return MetricEncoder(self.settings)

    def skip(self, job: Job) -> None:
        if self.fusion is not None:
            self.fusion.skipped = job

    def read(self, job: Job) -> StereoPair:
        pair = super().read(job)
        if self.settings.has_distances:
            self.check_result(DISTANCES, Path(), pair)
        if self.fusion is not None:
            self.fusion.read_previous(job, super().read)
        return pair

    def apply(self, job: Job, pair: StereoPair) -> Outcome:
        progress = None if self.bar is None else self.bar.watch(pair.height)
        left, right = self.rotate(pair.left.pixels), self.rotate(pair.right.pixels)
        result: StereoResult = self.network(left, right, extras=self.extras, progress=progress)
        if self.settings.vertical:
            size = result.matched_size and result.matched_size[::-1]
            back = partial(self.rotate, turns=-1)
            result = replace(
                result.map_arrays(back, back, disparity=lambda values: values), matched_size=size
            )
        if self.fusion is not None:
            fused = self.fusion.fuse(job, pair, result.disparity)
            result = replace(result, disparity=np.maximum(fused, np.float32(self.settings.min_disparity)))
            self.fusion.remember(job, pair, self._mask_unknown(result))
        height, width = result.matched_size or result.disparity.shape
        warnings = []
        if "confidence" in self.extras and result.doubtful:
            share = f"only {100 * result.confident_share:.0f} % of the pixels are confident"
            warnings = [f"{share}: the images may not be a pair, or have little texture"]
        facts = {"matched_width": width, "matched_height": height}
        if self.settings.has_distances:
            known = self._mask_unknown(result, LEAST_CONFIDENCE)
            distances, doubts = self.metric.measure(job, known, self.get_calibration(pair))
            return result, {**facts, **distances}, [*warnings, *doubts]
        return result, facts, warnings

    def remarks(self, pair: StereoPair, facts: Mapping[str, Any]) -> list[str]:
        remarks = super().remarks(pair, facts)
        if facts["matched_width"] < facts["width"]:
            remarks.append(
                f"images of {facts['width']}x{facts['height']} px are matched at {facts['matched_width']}x"
                f"{facts['matched_height']} px, and the disparity map is upsampled along image edges "
                "(`match_size` 1 matches at full size)"
            )
        return remarks

    def check_result(self, name: str, path: Path, pair: StereoPair) -> None:
        calibration, is_metric = self.get_calibration(pair), name in METRIC
        if calibration is not None and (is_metric or calibration.baseline):
            self.metric.check(calibration, pair.width, pair.height)
        elif is_metric:
            message = f"{pair.title} does not state its calibration"
            raise InputError(message, "give `calibration`, or `focal` and `baseline`")
        if name == COLOR_MAP.name:
            check_encodable(
                path.suffix, height=pair.height, width=pair.width, bits=8, alpha=False, name=str(path)
            )

    def encode(self, name: str, path: Path, pair: StereoPair, computed: StereoResult) -> Encoded | None:
        suffix, disparity = path.suffix.lower(), self._mask_unknown(computed)
        calibration = self.get_calibration(pair)
        if name in METRIC:
            assert calibration is not None
            return self.metric.encode(name, suffix, disparity, pair.left.pixels, calibration)
        if name == DISPARITY.name or (name == COLOR_MAP.name and name in self.videos):
            return encode_disparity(disparity, suffix)
        if name == VISIBLE.name:
            assert computed.visible is not None
            return Encoded(encode_mask(computed.visible))
        if name == CONFIDENCE.name:
            assert computed.confidence is not None
            return Encoded(encode_confidence(computed.confidence, suffix))
        if name == RIGHT_DISPARITY.name:
            assert computed.right_disparity is not None
            return encode_disparity(computed.right_disparity, suffix)
        if name == RERUN.name:
            from pamcli.recordings.rrd import encode_frame

            return Encoded(encode_frame(pair.left.pixels, pair.right.pixels, disparity, calibration))
        if name == PAGE.name:
            from pamcli.viewing.page import render_page

            calibration = calibration if calibration and calibration.baseline else None
            image, confidence = pair.left.pixels, computed.confidence
            return Encoded(
                render_page(pair.title, image, disparity, confidence=confidence, calibration=calibration)
            )
        if self.needs_whole_batch:
            self.shared_range.add(disparity)
            stored = Path(self.stored_maps, f"{len(self.stored)}.npy")
            write_atomically(stored, encode_disparity(disparity, ".npy").data)
            self.stored[path] = stored
            return None
        given, grey = self.settings.range, self.settings.grey
        if isinstance(given, tuple):
            return encode_colors(disparity, given, path, warn=True, grey=grey)
        colors = ColorRange([disparity]).report(pair.title, LOG.debug if self.many else LOG.info)
        return encode_colors(disparity, colors, path, warn=False, grey=grey)

    def write_video(self, kind: str, video: Path, frames: StoredFrames) -> None:
        from pamcli.batch import video_results

        if kind == RERUN.name:
            video_results.write_rerun(video, frames, self.metric.max_depth, self.settings.stride)
        elif video.suffix.lower() in BAG_OUTPUT_SUFFIXES:
            pair = self.reader.read(next(iter(frames.pairing.pairs)))
            video_results.write_bag(video, frames, self.get_calibration(pair))
        elif kind == COLOR_MAP.name:
            given = self.settings.range if isinstance(self.settings.range, tuple) else None
            coloured = render_frames(frames, given, grey=self.settings.grey)
            video_results.write_frames(video, coloured, frames.clock, kind)
        else:
            super().write_video(kind, video, frames)

    def finish(self, results: Results) -> Results:
        failed = False
        for result in self._color_together(results) if self.needs_whole_batch else results:
            failed |= result.error is not None
            yield result
        if self.index is not None:
            from pamcli.viewing.index import write_index

            index = attempt(write_index, self.index)
            if isinstance(index, PamError) and not failed:
                raise index
            if isinstance(index, PamError):
                LOG.error("%s", index)

    def _color_together(self, results: Results) -> Results:
        """Write the colour maps with one range after the last pair, then yield the results."""
        self.shared_range = ColorRange()
        with tempfile.TemporaryDirectory(prefix="pam-") as self.stored_maps:
            done = []
            for result in results:
                if isinstance(result.error, (FolderGoneError, DiskFullError)):  # as for all
                    raise result.error
                done.append(result)
            for result in done:
                outcome = attempt(self._write_colors, result)
                yield replace(result, error=outcome) if isinstance(outcome, PamError) else result

    def _write_colors(self, result: Result) -> None:
        path = result.job.files.get(COLOR_MAP.name, Path())
        if path in self.stored:
            disparity = read_disparity(self.stored[path], max_pixels=None)
            self.colors = self.colors or self.shared_range.report("the batch")
            encoded = encode_colors(disparity, self.colors, path, warn=False, grey=self.settings.grey)
            self.write(result.job, path, encoded.data)

    def _mask_unknown(self, result: StereoResult, least: float | None = None) -> Any:
        """Return the disparity map, NaN where it counts as unknown; `least`: confidence if none is set."""
        settings = self.settings
        least = least if settings.min_confidence is None else settings.min_confidence
        return result.disparity_where(visible=settings.unknown == "occluded", min_confidence=least)


class VideoFusion:
    """Fuses disparity maps with those of the previous frame as written, so that resuming changes nothing."""

    def __init__(self) -> None:
        self.previous: PreviousFrame | None = None
        """The last frame that was processed."""
        self.skipped: Job | None = None
        """The last frame, if it was skipped."""
        self.restored: dict[str, PreviousFrame | None] = {}
        """The skipped frame before each pair; None if it is only in a finished video."""

    def read_previous(self, job: Job, read: Callable[[Job], StereoPair]) -> None:
        """Read the files of the previous frame if it was skipped. Raises InputError."""
        if self.skipped is None:
            return
        path, previous = self.skipped.places[DISPARITY.name], None
        if not path.exists() and self.skipped.videos:
            LOG.warning(
                f"`steady` starts anew at {job.pair}: the previous disparity map is stored only in a video"
            )
        else:
            pair = read(self.skipped)
            disparity = read_disparity(path, max_pixels=None)
            previous = PreviousFrame(pair.left.pixels, pair.right.pixels, disparity)
        self.restored[str(job.pair)] = previous
        self.skipped = None

    def fuse(self, job: Job, pair: StereoPair, disparity: Floats) -> Floats:
        """Return the disparity map (H, W), px, fused with the previous one."""
        previous = self.restored.pop(str(job.pair), self.previous)
        if previous is None:
            return disparity
        return fuse_frames(disparity, pair.left.pixels, pair.right.pixels, previous)

    def remember(self, job: Job, pair: StereoPair, disparity: Floats) -> None:
        """Keep a frame for the next one. disparity: as written, NaN = unknown."""
        suffix = job.places.get(DISPARITY.name, Path()).suffix
        self.previous = PreviousFrame(
            pair.left.pixels, pair.right.pixels, quantize_disparity(disparity, suffix)
        )
