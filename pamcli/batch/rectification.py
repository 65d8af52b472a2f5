"""How are pairs rectified, from files to files, so that a point lies in the same row of both images?"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pamcli.batch import LOG
from pamcli.batch.depth import finish_calibration, named, read_description
from pamcli.batch.frames import FramePairs
from pamcli.batch.jobs import Job
from pamcli.batch.run import Batch
from pamcli.batch.upscaling import LEFT, RIGHT
from pamcli.batch.work import Found, Work
from pamcli.calibration.description import CameraDescription, Interpretation
from pamcli.calibration.feature_rectification import estimate_rectification
from pamcli.calibration.files import encode_calibration
from pamcli.calibration.geometry import Pixels
from pamcli.calibration.interpretations import compare_interpretations
from pamcli.calibration.rig import Rectification, Rig
from pamcli.errors import InputError, PamError, UsageError
from pamcli.files.atomic import check_writable, write_atomically
from pamcli.files.outputs import Encoded, check_extra_output
from pamcli.files.pairing import PairPaths
from pamcli.files.paths import pluralize
from pamcli.imaging.images import RgbImage, check_encodable, encode_image
from pamcli.imaging.preflight import ENOUGH_MATCHES, check_pair
from pamcli.imaging.stereo_pair import StereoPair, read_pair
from pamcli.settings.batches import RectifySettings
from pamcli.settings.options import takes

CALIBRATION = "calibration.yaml"
NO_METRES = "without a calibration no distance is known, whatever `focal` and `baseline`"
FAR_APART, FAR_APART_SHARE = 5.0, 0.01
"""Pixels, and share of the height, by which rows may be apart after rectification."""
LARGEST_OFFSET = 0.5
"""Median pixels by which matches may lie above or below each other afterwards."""
LOOKED_AT = 8
"""Frames of a video without a calibration by which all are rectified."""
CHECKED, THEN_EVERY = 3, 16
"""Pairs of a calibrated batch that are checked at its beginning, and which of them afterwards."""


@takes(RectifySettings)
def rectify_files(settings: RectifySettings) -> Batch:
    """Rectify pairs of images in files, as `pam rectify` does, under its options' names.

    >>> for result in pamcli.rectify_files("lefts/", "rights/", uncalibrated=True, output="straight/"):
    ...     print(result.status, result.outputs)

    Raises UsageError and InputError before any work; what is wrong with a pair is its result's `error`.
    """
    read, place = settings.calibration_files, settings.output_calibration
    results = {LEFT: settings.output, RIGHT: settings.output_right}
    batch = Batch(settings, results, read=read, tag="_rectified")
    main = next(iter(batch.names.templates), LEFT.name)
    first = batch.videos.get(main) or next(batch.outputs, None)
    beside = place or (first.parent / CALIBRATION if first else None)
    if beside is not None and read:
        known = batch.jobs() if batch.total is not None else ()
        check_extra_output(beside, read, ((job.pair, job.files) for job in known if job.pair))
        check_writable(beside)
    if settings.uncalibrated and beside is not None and beside.exists():
        raise UsageError(
            f"{beside} exists, and is not that of these pictures",
            "without a calibration they have none: name another folder",
        )
    # Beside a video, not beside its frames.
    work = _Rectifying(settings, batch.many, beside if main in batch.videos else place)
    batch.with_work(work)
    if not settings.uncalibrated:
        how = {"fisheye": settings.fisheye, "extrinsics": settings.extrinsics}
        recording = batch.recording if not work.files else None
        if recording is not None and recording.states_rectified:
            raise InputError(
                f"the images of {recording.name} are rectified already",
                "give them to `pam disparity` as they are, or state rectified=no in 'bag:FILE?rectified=no'",
            )
        work.reading = read_description(settings, **how, recording=batch.recording)  # type: ignore[arg-type]
        work.files = work.files or [batch.recording.place]  # type: ignore[union-attr]
        work.find_rig(batch)
    if settings.uncalibrated and batch.pairing and isinstance(batch.pairing.pairs, FramePairs):
        work.frames = batch.pairing.pairs.spread(LOOKED_AT)
    return batch


def _first(job: Job) -> Path | None:
    """The file of the first result, the left picture's if that is asked for; None: it goes to stdout."""
    return next((job.videos.get(name, path) for name, path in job.files.items()), None)


def _angles(field_of_view: tuple[float, float]) -> str:
    return " x ".join(f"{angle:.0f}" for angle in field_of_view) + " degrees"


@dataclass(frozen=True)
class _Rectified:
    pictures: Mapping[str, RgbImage]
    first: str
    """The result with which warnings come."""
    matches: int | None = None
    """Found between them; None: the pair was not checked."""
    offset: float | None = None
    """Median pixels by which these lie above or below each other; None: they are too few."""


class _Rectifying(Work):
    cores = 1

    @property
    def rectifies(self) -> bool:
        return False

    def __init__(self, settings: RectifySettings, many: bool, place: Path | None) -> None:
        """place: of the calibration, if it was given."""
        super().__init__(settings)
        self.many, self.place, self.missing = many, place, ""
        self.files = settings.calibration_files
        self.reading: tuple[CameraDescription, Interpretation] | None = None
        """What the files and the user say of the cameras; None: there is no calibration."""
        self.rig: Rig | None = None
        self.view: dict[str, Any] = {"alpha": settings.alpha, "size": settings.size, "fov": settings.fov}
        """Arguments of `Rig.compute_rectification`."""
        self.frames: Sequence[PairPaths] = ()
        """Frames of a video by which all are rectified where there is no calibration."""
        self.refused: InputError | None = None
        """Why they do not tell how, or why the calibration is read wrongly."""
        self.size: tuple[int, int] | None = None
        self.right_size: tuple[int, int] | None = None
        self.rectification: Rectification | None = None
        self.count = 0
        self.offsets = array("f")
        """Vertical offset of each pair that was checked, pixels."""
        self.written = False

    def find_rig(self, batch: Batch) -> None:
        """Take the cameras from the reading. Raises InputError, with the reading that fits the first pair."""
        assert self.reading is not None
        try:
            stored = finish_calibration(self.files, *self.reading)
        except InputError as error:
            raise self._with_better_reading(error, batch) from error
        if stored.rig is None:
            raise InputError(
                f"{named(self.files)} describes images that are rectified already, not the cameras that took "
                "them",
                "give such images to `pam disparity` as they are, others with the cameras' own calibration",
            )
        for warning in stored.warnings():
            LOG.warning("%s: %s", named(self.files), warning)
        self.rig, self.same_for_all = stored.rig, True

    def _with_better_reading(self, error: InputError, batch: Batch) -> InputError:
        """Return the error, with the options of a reading that fits the first pair, where there is one."""
        assert self.reading is not None
        job = next(batch.jobs(), None) if self.reading[0].pairs and batch.total else None
        if job is not None and job.pair is not None:
            with suppress(PamError):
                pair = self.read(job)
                found = compare_interpretations(*self.reading, pair.left.pixels, pair.right.pixels)
                if found is not None and found.better is not None:
                    return InputError(
                        f"{error.message}; {found.text} with another interpretation", f"give {found.do}"
                    )
        return error

    def look(self, pair: StereoPair) -> Sequence[str]:
        return ()

    def read(self, job: Job) -> StereoPair:
        if self.frames and self.rectification is None:
            self._look_at_frames()
        name, differs = job.pair, self.reading is not None and self.reading[0].has_two_sizes
        if differs and name and name.right and not name.frames:
            return read_pair(name.left, name.right, max_pixels=self.settings.max_pixels, same_size=False)
        return super().read(job)

    def decide(self, job: Job, pair: StereoPair) -> None:
        found = self._for(pair)
        self._compare(pair, found.left(pair.left.pixels), found.right(pair.right.pixels))
        self._write_calibration(_first(job))
        self.rectification = None  # whoever needs it makes it of `size`: it is large

    def skip(self, job: Job) -> None:
        """Remember a calibration that is missing beside pictures that are there."""
        path = self._calibration_of(_first(job))
        if self.rig is not None and path is not None and not path.exists():
            self.missing = str(path)

    def note(self, facts: Mapping[str, Any]) -> None:
        if facts.get("vertical_offset") is not None:
            self.offsets.append(facts["vertical_offset"])

    def end_batch(self) -> None:
        if self.missing and not self.written:
            said = f"{self.missing} is not written, as no picture was made"
            LOG.warning(f"{said}: `overwrite` instead of `skip_existing` makes both")
        if offsets := sorted(self.offsets):
            LOG.info(
                f"median vertical offset {offsets[len(offsets) // 2]:.2f} px, largest {offsets[-1]:.2f} px "
                f"in {len(offsets)} pairs that were checked"
            )

    def check(self, name: str, place: Path, pair: StereoPair) -> None:
        width, height = self.view["size"] or (pair.width, pair.height)
        view = pair.left if name == LEFT.name else pair.right
        bits, alpha = 8 * view.pixels.itemsize, view.alpha is not None
        check_encodable(place.suffix, height=height, width=width, bits=bits, alpha=alpha, name=str(place))

    def apply(self, job: Job, pair: StereoPair) -> Found:
        rectification = self._for(pair)
        sides = {"left": (pair.left, rectification.left), "right": (pair.right, rectification.right)}
        pictures = {
            name: RgbImage(
                warp(view.pixels),
                None if view.alpha is None else warp(view.alpha),
                view.grey,
                view.icc_profile,
            )
            for name, (view, warp) in sides.items()
        }
        first = next(iter(job.places))
        self.count += 1
        checked: tuple[int | None, float | None] = None, None
        if self.rig is None or self.count <= CHECKED or not self.count % THEN_EVERY:
            checked = self._compare(pair, pictures["left"].pixels, pictures["right"].pixels)
        self._write_calibration(_first(job))
        offset = None if checked[1] is None else round(checked[1], 3)
        return _Rectified(pictures, first, *checked), {"vertical_offset": offset}, ()

    def _compare(self, pair: StereoPair, left: Pixels, right: Pixels) -> tuple[int, float | None]:
        """Count the matches of rectified images, and measure how far their rows are apart, pixels.

        Raises InputError where these are far apart by the reading of the calibration that was asked for.
        """
        check = check_pair(left, right)
        measured = check.matches >= ENOUGH_MATCHES and check.vertical_error > 0
        if self.reading is not None and not (measured and check.vertical_error <= LARGEST_OFFSET):
            self._require_rows(pair, check.vertical_error if measured else None)
        return check.matches, check.vertical_error if measured else None

    def _require_rows(self, pair: StereoPair, measured: float | None) -> None:
        """Raise InputError where rows are far apart, or another reading of the calibration fits better."""
        assert self.reading is not None
        found = compare_interpretations(*self.reading, pair.left.pixels, pair.right.pixels)
        if found is None:
            return
        if found.better is not None:  # which holds for all pairs
            said = f"{named(self.files)}: {found.text} with another interpretation"
            self.refused = InputError(said, f"give {found.do}")
            raise InputError(said, f"give {found.do}")
        apart = min(measured or math.inf, found.row_error)
        if math.isfinite(apart) and apart > max(FAR_APART, FAR_APART_SHARE * pair.height):
            raise InputError(
                f"{named(self.files)}: rows are {apart:.0f} px apart after rectification",
                "the calibration is of other cameras, or they have moved (pam doctor LEFT RIGHT ...)",
            )

    def _for(self, pair: StereoPair) -> Rectification:
        size, right = (pair.width, pair.height), pair.right.pixels.shape[1::-1]
        if self.reading is not None and self.refused is not None:
            raise InputError(self.refused.message, self.refused.hint)
        if self.rig is None and self.rectification is not None:
            return self.rectification
        if self.rig is None:
            views = [(pair.left.pixels, pair.right.pixels)]
            found, matches = estimate_rectification(views, size=self.view["size"])
            say = LOG.debug if self.many else LOG.info
            say(f"rectified by {matches} matches; {NO_METRES}")
            return found
        if self.rectification is None:
            first = self.size or size
            rig = self.rig.for_size(*first, right if self.size is None else self.right_size)
            if self.size is None and self.rig.size is not None and first not in self.rig.sizes:
                LOG.info(
                    f"the calibration of {self.rig.size[0]} x {self.rig.size[1]} is scaled to "
                    f"{first[0]} x {first[1]}"
                )
            if self.size is None and rig.stated and not any(each is not None for each in self.view.values()):
                LOG.info("rectified as the calibration says, by its own R and P")
            self.rectification = rig.compute_rectification(**self.view)
            if rig.left.fisheye and self.size is None and self.rectification.calibration:
                seen = rig.left.field_of_view(first)
                fov = f"{_angles(self.rectification.calibration.field_of_view)}: `fov` takes more or less"
                if all(map(math.isfinite, seen)):
                    LOG.info(f"the fisheye sees {_angles(seen)}, the rectified pictures {fov}")
            self.size, self.right_size = first, self.right_size or right
        if size != self.size or right != self.right_size:
            assert self.size is not None
            raise InputError(
                f"the pictures have {size[0]} x {size[1]} pixels, others {self.size[0]} x {self.size[1]}",
                "rectify pictures of each size in a batch of their own: they have different calibrations",
            )
        return self.rectification

    def _look_at_frames(self) -> None:
        """Find what rectifies all frames: one rig took them, and what each alone tells would tremble."""
        if self.refused is not None:
            raise self.refused
        views = []
        for name in self.frames:
            with suppress(InputError):  # it will be said of that frame
                pair = self.read_frames(name)
                views.append((pair.left.pixels, pair.right.pixels))
        try:
            if not views:
                raise InputError(f"none of {pluralize(len(self.frames), 'frame')} can be decoded")
            self.rectification, matches = estimate_rectification(views, size=self.view["size"])
        except InputError as error:
            self.refused = error
            raise
        LOG.info(f"rectified by {matches} matches in {pluralize(len(views), 'frame')}; {NO_METRES}")

    def encode(self, name: str, place: Path, pair: StereoPair, found: _Rectified) -> Encoded:
        data = encode_image(found.pictures[name], place.suffix, name=str(place))
        return Encoded(data, self._checked(found) if name == found.first else ())

    def _checked(self, result: _Rectified) -> list[str]:
        if result.matches is None:
            return []
        if result.offset is None:
            return ["too few matches to check the rows of the rectified pictures"]
        if not self.many:
            LOG.info(f"median vertical offset {result.offset:.2f} px in {result.matches} matches")
        if result.offset <= LARGEST_OFFSET:
            return []
        why = "pam doctor LEFT RIGHT --calibration FILE tells why" if self.rig else "calibrate the cameras"
        return [f"matches stay {result.offset:.2f} px above or below each other: {why}"]

    def _calibration_of(self, picture: Path | None) -> Path | None:
        """Where it goes; picture: a result's file, if there is one."""
        return self.place or (None if picture is None else picture.parent / CALIBRATION)

    def _write_calibration(self, picture: Path | None) -> None:
        """Write it once. picture: a result's file, beside which it goes, if there is one."""
        calibration = self.rectification.calibration if self.rectification else None
        path = self._calibration_of(picture)
        if self.written or calibration is None or path is None:
            return
        check_extra_output(path, self.files)
        data = encode_calibration(calibration)
        if path.is_file() and not self.settings.overwrite and path.read_bytes() != data:
            raise UsageError(
                f"{path} exists, and is not that of these pictures",
                "`overwrite` replaces it, `output_calibration` gives another name",
            )
        write_atomically(path, data)
        self.written = True
        LOG.info(
            f"{path}: focal length {calibration.focal_length:.2f} px, baseline {calibration.baseline:g} m"
        )
