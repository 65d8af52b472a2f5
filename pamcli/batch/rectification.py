"""Rectify image pairs in files."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pamcli.batch import LOG
from pamcli.batch.camera_files import finish_calibration, read_description
from pamcli.batch.kinds import LEFT, RIGHT
from pamcli.batch.plan import Job, Plan, plan_batch
from pamcli.batch.processing import Computed, PairProcessor, Results, attempt
from pamcli.batch.run import Batch
from pamcli.calibration.description import CameraDescription, Interpretation
from pamcli.calibration.feature_rectification import estimate_rectification
from pamcli.calibration.files import encode_calibration
from pamcli.calibration.geometry import Pixels, describe_resizing
from pamcli.calibration.interpretations import compare_interpretations
from pamcli.calibration.rig import Rectification, Rig
from pamcli.errors import DeviceError, InputError, PamError, UsageError
from pamcli.files.atomic import check_writable, write_atomically
from pamcli.files.outputs import Encoded, check_extra_output
from pamcli.files.pairing import PairPaths
from pamcli.files.paths import pluralize
from pamcli.imaging.images import RgbImage, StereoPair, check_encodable, encode_image
from pamcli.imaging.packed_views import make_rectilinear
from pamcli.imaging.preflight import ENOUGH_MATCHES, check_pair
from pamcli.imaging.raster import update_exif
from pamcli.settings.batches import RectifySettings
from pamcli.settings.options import takes

CALIBRATION = "calibration.yaml"
NO_METRES = "without a calibration, distances remain unknown"
FAR_APART, FAR_APART_SHARE = 5.0, 0.01
"""Vertical offset after rectification above which a pair fails: px, and share of the image height."""
LARGEST_OFFSET = 0.5  # median vertical offset after rectification above which a warning is given, px
SAMPLED_FRAMES = 8  # frames of a video from which the rectification without a calibration is estimated
CHECKED, THEN_EVERY = 3, 16
"""Number of first pairs of a calibrated batch that are checked, and step of the pairs checked after them."""


@takes(RectifySettings)
def rectify_files(settings: RectifySettings) -> Batch:
    """Rectify image pairs in files, as `pam rectify` does.

    >>> for result in pamcli.rectify_files("lefts/", "rights/", uncalibrated=True, output="rectified/"):
    ...     print(result.status, result.outputs)

    Args:
        settings: A left and a right image or folders; then a `RectifySettings`, or its fields as keywords.

    Raises:
        UsageError, InputError: Before any work. If a pair fails, its result has an `error`.
    """
    files, path = settings.calibration_files, settings.output_calibration
    plan = plan_batch(settings, (LEFT, RIGHT), read=files, tag="_rectified")
    main = next(iter(plan.names.templates), LEFT.name)
    first = plan.videos.get(main) or next(plan.outputs, None)
    target = path or (first.parent / CALIBRATION if first else None)
    if target is not None and files:
        known = plan.jobs() if plan.total is not None else ()
        check_extra_output(target, files, ((job.pair, job.files) for job in known if job.pair))
        check_writable(target)
    if settings.uncalibrated and target is not None and target.exists():
        raise UsageError(
            f"{target} exists and does not describe these images",
            "`uncalibrated` writes no calibration: name another folder",
        )
    if plan.names.templates.keys() == {LEFT.name}:
        LOG.info("only the left image is written: `output_right` writes the right one, a folder gets both")
    # The calibration is written beside a video, not beside its stored frames.
    return Batch(plan, _RectifyProcessor(settings, plan, target if main in plan.videos else path))


def encode_view(images: Mapping[str, RgbImage], kind: str, path: Path) -> Encoded:
    """Encode one of the rectified images for a file."""
    return Encoded(encode_image(images[kind], path.suffix, name=str(path)))


class _RectifyProcessor(PairProcessor):
    settings: RectifySettings
    cores = 1

    def __init__(self, settings: RectifySettings, plan: Plan, path: Path | None) -> None:
        """path: of the calibration, if given. Raises InputError, UsageError."""
        super().__init__(settings, plan)
        self.path, self.rectifies_recording = path, False
        self.files = settings.calibration_files
        self.reading: tuple[CameraDescription, Interpretation] | None = None
        """The cameras as files and options describe them; None without a calibration."""
        self.rig: Rig | None = None
        self.frames: Sequence[PairPaths] = ()  # frames of a video from which the rectification is estimated
        self.failure: InputError | None = None  # the error that prevents every rectification, if any
        self.sizes: tuple[tuple[int, int], tuple[int, int]] | None = None
        """Sizes of the first left and right image, which all others must have."""
        self.rectification: Rectification | None = None
        self.count, self.is_written = 0, False
        if settings.uncalibrated:
            if plan.frames is not None:
                self.frames = plan.frames.spread(SAMPLED_FRAMES)
            return
        recording = plan.recording
        if recording is not None and not self.files:
            if recording.states_rectified:
                raise InputError(
                    f"the images of {recording.name} are already rectified",
                    "use them with `pam disparity`, or add the key rectified=no: 'bag:FILE?rectified=no'",
                )
            self.files = [recording.place]
        self.reading = read_description(
            settings, fisheye=settings.fisheye, extrinsics=settings.extrinsics, recording=recording
        )
        self.same_size = not self.reading[0].has_two_sizes
        self.names = ", ".join(map(str, self.files))
        try:
            stored = finish_calibration(self.files, *self.reading)
        except InputError as error:
            raise self._suggest_interpretation(error, plan) from error
        if stored.rig is None:
            raise InputError(
                f"{self.names} describes images that are already rectified",
                "use them with `pam disparity`, or give the calibration of the cameras",
            )
        for warning in stored.warnings():
            LOG.warning("%s: %s", self.names, warning)
        self.rig = stored.rig

    def _suggest_interpretation(self, error: InputError, plan: Plan) -> InputError:
        """Add the options of an interpretation that fits the first pair to the error, if there is one."""
        assert self.reading is not None
        job = next(plan.jobs(), None) if self.reading[0].pairs and plan.total else None
        if job is not None and job.pair is not None:
            with suppress(PamError):
                pair = self._read_pair(job.pair)
                found = compare_interpretations(*self.reading, pair.left.pixels, pair.right.pixels)
                if found is not None and found.better is not None:
                    message = f"{error.message}; {found.text} with another interpretation"
                    return InputError(message, f"give {found.do}")
        return error

    def _read_pair(self, paths: PairPaths) -> StereoPair:
        return make_rectilinear(self.read_views(paths), self.settings.vr180)

    def read(self, job: Job) -> tuple[StereoPair, Sequence[str]]:
        if self.frames and self.rectification is None:
            self._rectify_video()
        assert job.pair is not None
        pair = self._read_pair(job.pair)
        width, height = self.settings.size or (pair.width, pair.height)
        for kind, path in job.places.items():
            view = pair.left if kind == LEFT.name else pair.right
            bits, alpha = 8 * view.pixels.itemsize, view.alpha is not None
            check_encodable(path.suffix, height=height, width=width, bits=bits, alpha=alpha, name=str(path))
        return pair, ()

    def prepare(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """Let the first readable pair determine the rectification and its calibration."""
        read: list[Job] = []
        for job in jobs if self.rig else ():
            read.append(job)
            loaded = attempt(self.load, job)
            if loaded is None or isinstance(loaded, PamError):
                continue
            pair = loaded[0]
            with suppress(InputError, DeviceError):  # the job fails when it is processed
                made = self._get_rectification(pair)
                self._check(pair, made.left(pair.left.pixels), made.right(pair.right.pixels))
                self._write_calibration(job)
                self.rectification = None  # it is large; other processes compute it from `sizes`
                break
        return itertools.chain(read, jobs)

    def finish(self, results: Results) -> Results:
        offsets, missing = array("f"), None
        for result in results:
            if result.status == "skipped" and self.rig is not None:
                path = self._find_calibration_path(result.job)
                missing = path if path is not None and not path.exists() else missing
            if result.facts.get("vertical_offset") is not None:
                offsets.append(result.facts["vertical_offset"])
            yield result
        if self.many and missing and not self.is_written:
            hint = "use `overwrite` instead of `skip_existing`"
            LOG.warning(f"{missing} is not written, because all images were skipped: {hint}")
        if self.many and offsets:
            ordered = sorted(offsets)
            LOG.info(
                f"vertical offset: median {ordered[len(ordered) // 2]:.2f} px, largest {ordered[-1]:.2f} px, "
                f"in {len(ordered)} checked pairs"
            )

    def apply(self, job: Job, pair: StereoPair) -> Computed:
        rectification = self._get_rectification(pair)
        images = {}
        for name in ("left", "right"):
            view, warp = getattr(pair, name), getattr(rectification, name)
            alpha = None if view.alpha is None else warp(view.alpha)
            pixels = warp(view.pixels)
            exif = update_exif(view.exif, pixels.shape[1], pixels.shape[0], rectified=True)
            images[name] = replace(view, pixels=pixels, alpha=alpha, exif=exif)
        self.count += 1
        offset, warnings = None, [] if self.frames else [*rectification.warnings]
        if self.rig is None or self.count <= CHECKED or not self.count % THEN_EVERY:
            matches, offset = self._check(pair, images["left"].pixels, images["right"].pixels)
            if offset is None:
                warnings.append("too few matches to check the rows of the rectified images")
            elif not self.many:
                LOG.info(f"median vertical offset {offset:.2f} px in {matches} matches")
            if offset is not None and offset > LARGEST_OFFSET:
                hint = "run pam doctor LEFT RIGHT --calibration FILE" if self.rig else "calibrate the cameras"
                apart = f"matches are {offset:.2f} px above or below each other after rectification"
                warnings.append(f"{apart}: {hint}")
        self._write_calibration(job)
        facts = {"vertical_offset": None if offset is None else round(offset, 3)}
        return Computed(partial(encode_view, images), facts, warnings, [pair.note] if pair.note else [])

    def _check(self, pair: StereoPair, left: Pixels, right: Pixels) -> tuple[int, float | None]:
        """Return the matches of rectified images, and their median vertical offset, px, or None.

        Raises InputError if rows are far apart, or another interpretation of the calibration fits better.
        """
        check = check_pair(left, right)
        is_measured = check.matches >= ENOUGH_MATCHES and check.vertical_error > 0
        offset = check.vertical_error if is_measured else None
        if self.reading is None or (offset is not None and offset <= LARGEST_OFFSET):
            return check.matches, offset
        found = compare_interpretations(*self.reading, pair.left.pixels, pair.right.pixels)
        if found is not None and found.better is not None:  # this holds for all pairs
            message = f"{self.names}: {found.text} with another interpretation"
            self.failure = InputError(message, f"give {found.do}")
            raise InputError(message, f"give {found.do}")
        apart = math.nan if found is None else min(offset or math.inf, found.row_error)
        if math.isfinite(apart) and apart > max(FAR_APART, FAR_APART_SHARE * pair.height):
            raise InputError(
                f"{self.names}: rows are {apart:.0f} px apart after rectification",
                "the calibration is of other cameras, or they have moved (pam doctor LEFT RIGHT ...)",
            )
        return check.matches, offset

    def _get_rectification(self, pair: StereoPair) -> Rectification:
        if self.reading is not None and self.failure is not None:
            raise InputError(self.failure.message, self.failure.hint)
        if self.rig is None:
            if self.rectification is not None:
                return self.rectification
            views = [(pair.left.pixels, pair.right.pixels)]
            rectification, matches = estimate_rectification(views, size=self.settings.size)
            say = LOG.debug if self.many else LOG.info
            say(f"rectified by {matches} matches; {NO_METRES}")
            return rectification
        sizes = (pair.width, pair.height), pair.right.pixels.shape[1::-1]
        if self.rectification is None:
            first, settings = self.sizes or sizes, self.settings
            rig = self.rig.for_size(*first[0], first[1])
            view: dict[str, Any] = {"alpha": settings.alpha, "size": settings.size, "fov": settings.fov}
            self.rectification = rig.compute_rectification(**view)
            is_first, self.sizes = self.sizes is None, first
            if is_first:
                self._report_rig(rig, is_stated=not any(each is not None for each in view.values()))
        assert self.sizes is not None
        if sizes != self.sizes:
            raise InputError(
                "the images are {}x{} px but earlier ones {}x{} px".format(*sizes[0], *self.sizes[0]),
                "rectify images of each size in a batch of their own",
            )
        return self.rectification

    def _report_rig(self, rig: Rig, *, is_stated: bool) -> None:
        """Log how the calibration is applied. is_stated: whether no option overrides its rectification."""
        assert self.rig is not None
        assert self.sizes is not None
        assert self.rectification is not None
        size, matrix = self.sizes[0], self.rig.left.matrix
        point, focal_length = matrix[:2, 2].tolist(), float(matrix[0, 0])
        if self.rig.size is None and (warning := describe_resizing(point, focal_length, *size)):
            LOG.warning("%s: %s", self.names, warning)
        if self.rig.size is not None and size not in self.rig.sizes:
            LOG.info("the calibration of {}x{} px is scaled to {}x{} px".format(*self.rig.size, *size))
        if rig.stated and is_stated:
            LOG.info("rectified with R and P of the calibration")
        if rig.left.fisheye and self.rectification.calibration:
            seen = rig.left.field_of_view(size)
            angles = (*seen, *self.rectification.calibration.field_of_view)
            if all(map(math.isfinite, seen)):
                LOG.info(
                    "the field of view of the fisheye lens is {:.0f}x{:.0f} degrees, that of the rectified "
                    "images {:.0f}x{:.0f} degrees (`fov` changes it)".format(*angles)
                )

    def _rectify_video(self) -> None:
        """Estimate one rectification for all frames, so that the video does not shake."""
        if self.failure is not None:
            raise self.failure
        views = []
        for name in self.frames:
            with suppress(InputError):  # reported for that frame
                pair = self._read_pair(name)
                views.append((pair.left.pixels, pair.right.pixels))
        try:
            if not views:
                raise InputError(f"cannot decode any of {pluralize(len(self.frames), 'frame')}")
            self.rectification, matches = estimate_rectification(views, size=self.settings.size)
        except InputError as error:
            self.failure = error
            raise
        LOG.info(f"rectified by {matches} matches in {pluralize(len(views), 'frame')}; {NO_METRES}")
        for warning in self.rectification.warnings:
            LOG.warning(warning)

    def _find_calibration_path(self, job: Job) -> Path | None:
        """Return the path of the calibration: given, or beside the first result if it is a file."""
        first = next((job.videos.get(name, path) for name, path in job.files.items()), None)
        return self.path or (None if first is None else first.parent / CALIBRATION)

    def _write_calibration(self, job: Job) -> None:
        """Write the calibration once."""
        made, path = self.rectification, self._find_calibration_path(job)
        if self.is_written or made is None or made.calibration is None or path is None:
            return
        check_extra_output(path, self.files)
        data = encode_calibration(made.calibration, made.rotations)
        if path.is_file() and not self.settings.overwrite and path.read_bytes() != data:
            raise UsageError(
                f"{path} exists and does not describe these images",
                "`overwrite` replaces it, `output_calibration` names another file",
            )
        write_atomically(path, data)
        self.is_written = True
        LOG.info(
            f"{path}: focal length {made.calibration.focal_length:.2f} px, "
            f"baseline {made.calibration.baseline:g} m"
        )
