"""Compute disparity maps, colour maps, depth maps and pages of image pairs in files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.colors import ColorRange, encode_colors, iterate_disparities, render_frames
from pamcli.batch.depth import (
    DEPTH,
    DEPTH_ERROR,
    MESH,
    METRIC,
    POINT_CLOUD,
    RERUN,
    MetricEncoder,
    load_rectified_calibration,
    read_stated_calibration,
)
from pamcli.batch.jobs import Job
from pamcli.batch.processing import Outcome, PairProcessor
from pamcli.batch.run import Batch
from pamcli.calibration.geometry import Calibration
from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.files.suffixes import CONFIDENCE_SUFFIXES, DISPARITY_SUFFIXES, IMAGE_OUTPUT_SUFFIXES
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
    batch = Batch(settings, results, read=read, tag="_disparity")
    if settings.range == "shared" and COLOR_MAP.name not in batch.videos:
        parts = {
            "`skip_existing`": settings.skip_existing,
            "`pairs` -": str(settings.pairs) == "-",
            "`shard`": settings.shard,
            "`engine` ray": settings.engine == "ray",
        }
        if conflict := next(filter(parts.get, parts), None):
            message = f"cannot use both `range` shared and {conflict}: the range needs the whole batch"
            raise UsageError(message, "give MIN:MAX, or drop `range` for one range per pair")
    if settings.min_disparity < 0 and STORED_AS_DISPARITY & batch.videos.keys():
        message = f"a video cannot hold negative disparities (`min_disparity` {settings.min_disparity})"
        raise UsageError(message, "write the results into a folder")
    if settings.steady and not batch.many:
        raise UsageError("`steady` requires a video or numbered frames", "drop `steady` for a single pair")
    return batch.set_processor(MatchProcessor(settings, batch))


class MatchProcessor(PairProcessor):
    """The steps of `pam disparity` for each pair."""

    stretches_contrast = True

    def __init__(self, settings: MatchSettings, batch: Batch) -> None:
        super().__init__(settings)
        self.uses_gpu = settings.device != "cpu"
        is_given = settings.calibration or settings.focal
        self.calibration = load_rectified_calibration(settings) if is_given else None
        """The calibration of all pairs; None if each pair may state its own."""
        self.rectifies_recording = not is_given
        self.fusion = VideoFusion() if settings.steady else None
        self.index: Path | None = None
        """Index of the pages of a batch."""
        if batch.many and settings.page is not None:
            from pamcli.viewing.index import check_index, find_index_path

            self.index = find_index_path(str(settings.page))
            check_index(self.index, batch.outputs)
        self.many = batch.many
        self.needs_whole_batch = (
            settings.range == "shared" and batch.many and COLOR_MAP.name not in batch.videos
        )
        self.stored_maps: tempfile.TemporaryDirectory[str] | None = None
        """Folder of disparity maps that are coloured after the whole batch."""
        self.stored: dict[Path, Path] = {}
        """The stored disparity map of each colour map."""
        self.shared_range: ColorRange | None = None
        self.colors: tuple[float, float] | None = None
        """The range of the whole batch, once known."""
        needs_confidence = (settings.confidence, settings.min_confidence, settings.page) != (None, None, None)
        requested = {
            "right_disparity": settings.output_right is not None,
            "visible": settings.visible is not None or settings.unknown == "occluded",
            "confidence": needs_confidence,
        }
        self.extras = {*filter(requested.get, requested)}
        """Outputs of the network besides the disparity map."""

    @cached_property
    def network(self) -> StereoMatcher:
        return load_matcher(self.settings, self.max_memory)[0]

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
        return result, {"matched_width": width, "matched_height": height}, warnings

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
        if name == COLOR_MAP.name:
            if self.needs_whole_batch:
                self._store(disparity, path)
                return None
            given, grey = self.settings.range, self.settings.grey
            if isinstance(given, tuple):
                return encode_colors(disparity, given, path, warn=True, grey=grey)
            colors = ColorRange([disparity]).report(pair.title, LOG.debug if self.many else LOG.info)
            return encode_colors(disparity, colors, path, warn=False, grey=grey)
        assert calibration is not None
        return self.metric.encode(name, suffix, disparity, pair.left.pixels, calibration)

    def render_video(self, name: str, frames: StoredFrames) -> Iterable[tuple[Fraction, np.ndarray]]:
        if name != COLOR_MAP.name:
            return frames
        given, grey = self.settings.range, self.settings.grey
        if isinstance(given, tuple):
            return render_frames(frames, given, warn=True, grey=grey)
        colors = ColorRange(each for _, each in iterate_disparities(frames)).report("the video")
        return render_frames(frames, colors, warn=False, grey=grey)

    def _mask_unknown(self, result: StereoResult) -> Any:
        """Return the disparity map, NaN where it counts as unknown."""
        settings = self.settings
        return result.disparity_where(
            visible=settings.unknown == "occluded", min_confidence=settings.min_confidence
        )

    def end_batch(self) -> None:
        if self.index is not None:
            from pamcli.viewing.index import write_index

            write_index(self.index)

    def close(self) -> None:
        if self.stored_maps is not None:
            self.stored_maps.cleanup()

    def _store(self, disparity: Any, path: Path) -> None:
        """Store a disparity map until the range of the whole batch is known."""
        self.shared_range = self.shared_range or ColorRange()
        self.shared_range.add(disparity)
        self.stored_maps = self.stored_maps or tempfile.TemporaryDirectory(prefix="pam-")
        stored = Path(self.stored_maps.name, f"{len(self.stored)}.npy")
        write_atomically(stored, encode_disparity(disparity, ".npy").data)
        self.stored[path] = stored

    def encode_delayed(self, name: str, path: Path) -> Encoded | None:
        if name != COLOR_MAP.name:
            return None
        assert self.shared_range is not None
        self.colors = self.colors or self.shared_range.report("the batch")
        disparity = read_disparity(self.stored[path], max_pixels=None)
        return encode_colors(disparity, self.colors, path, warn=False, grey=self.settings.grey)


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
