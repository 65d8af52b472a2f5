"""pam rectify: pictures as the cameras took them, made so that a point lies in the same row of both."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pamcli.cli import options, parsing
from pamcli.cli.batch import Encoded, Operation, run_jobs
from pamcli.cli.calibration import FISHEYE, Files
from pamcli.cli.console import Console
from pamcli.cli.groups import asked_results, flag, option
from pamcli.cli.jobs import Job, Target, plan_jobs
from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import check_writable
from pamcli.files.outputs import check_beside

if TYPE_CHECKING:
    from pamcli.calibration.rig import Rectification, Rig
    from pamcli.imaging.images import Picture
    from pamcli.imaging.stereo_pair import StereoPair

CALIBRATION = "calibration.yaml"
LARGEST_OFFSET = 0.5
"""Median pixels by which matches may lie above or below each other afterwards."""
CHECKED, THEN_EVERY = 3, 16
"""Pairs of a calibrated batch that are checked at its beginning, and which of them afterwards."""


def _angles(field_of_view: tuple[float, float]) -> str:
    return " x ".join(f"{angle:.0f}" for angle in field_of_view) + " degrees"


class Rectified(options.Pictures):
    """Where the rectified pictures go."""

    output_calibration: Path | None = option(
        "Calibration of the results, for `pam disparity`; by default calibration.yaml beside them.",
        metavar="FILE",
    )


class Views(Files):
    """Which cameras, and which part of their pictures. Raises UsageError for what contradicts itself."""

    alpha: float | None = option(
        "0: only pixels that the cameras saw; 1: all that they saw, with black around it. By default as "
        "the calibration's own R and P have it (ROS, KITTI, OpenCV), where it has them, else 0.",
        min=0,
        max=1,
        metavar="0...1",
    )
    size: tuple[int, int] | None = option(
        "Size of the rectified pictures; by default that of the given ones.",
        metavar="WxH",
        parse=parsing.picture_size,
    )
    fov: float | None = option(
        "Field of view of the rectified pictures, from left to right, instead of --alpha's.",
        min=1,
        max=170,
        metavar="DEGREES",
    )
    fisheye: bool = flag(FISHEYE)
    uncalibrated: bool = flag("Rectify by what both pictures show, without a calibration: no distances.")

    def __post_init__(self) -> None:
        if self.uncalibrated == bool(self.calibration):
            said = "contradict each other" if self.uncalibrated else "are both missing"
            raise UsageError(f"--calibration and --uncalibrated {said}", "give one of them")

    def rig(self, console: Console) -> Rig | None:
        """None: without a calibration. Raises InputError."""
        if self.uncalibrated:
            return None
        stored = self.read(console)
        if stored.rig is None:
            raise InputError(
                f"{self.name} describes pictures that are rectified already, not of the cameras",
                "take the pictures as they are, or the cameras' own calibration",
            )
        from pamcli.calibration.files import naming

        with naming(self.name):
            rig = stored.rig if self.baseline is None else stored.rig.with_baseline(self.baseline)
            return rig.as_fisheye() if self.fisheye else rig


def command(
    pairs: options.Pairs,
    output: Rectified,
    views: Views,
    cluster: options.Cluster,
    messages: options.Messages,
) -> None:
    """Rectify pictures: make two of them in which a point lies in the same row.

    Both keep their depth (8 or 16 bits). The calibration of the new pictures is written beside them.

    $ pam rectify photo_left.jpg photo_right.jpg --calibration rig.yaml -o rectified/
    $ pam rectify photo_left.jpg photo_right.jpg --uncalibrated -o straight/
    """
    console = messages.console(jsonl=output.jsonl)
    asked, read = asked_results(output), views.calibration or ()
    plan = plan_jobs(pairs, output, asked, output.format_name, console, stream=cluster.remote, read=read)
    first = next(plan.outputs, None)
    place = output.output_calibration or (first.parent / CALIBRATION if first else None)
    if place is not None and read:
        known = plan.jobs if plan.total is not None else ()
        check_beside(place, read, ((job.pair, job.outputs) for job in known if job.pair))
        check_writable(place)
    operation = _Rectifying(views, output, views.rig(console), plan.batch, console)
    run_jobs(plan, operation, console, cluster)


@dataclass(frozen=True)
class _Result:
    pictures: Mapping[str, Picture]
    matches: int | None = None
    """Found between them; None: the pair was not checked."""
    offset: float | None = None
    """Median pixels by which these lie above or below each other; None: they are too few."""


class _Rectifying(Operation[_Result]):
    def __init__(
        self, views: Views, asked: Rectified, rig: Rig | None, batch: bool, console: Console
    ) -> None:
        self.views, self.asked, self.rig, self.batch, self.console = views, asked, rig, batch, console
        self.size: tuple[int, int] | None = None
        self.rectification: Rectification | None = None
        self.count = 0
        self.offsets = array("f")
        """Vertical offset of each pair that was checked, pixels."""
        self.written = False
        self.same_for_all = rig is not None

    def begin(self, job: Job, pair: StereoPair) -> None:
        self._of(pair)
        for target in job.targets:
            if target.name == "left":
                self._write_calibration(target)
        self.rectification = None  # whoever needs it makes it of `size`: it is large

    def note(self, facts: Mapping[str, Any]) -> None:
        if facts.get("vertical_offset") is not None:
            self.offsets.append(facts["vertical_offset"])

    def end_batch(self) -> None:
        if offsets := sorted(self.offsets):
            self.console.inform(
                f"median vertical offset {offsets[len(offsets) // 2]:.2f} px, largest {offsets[-1]:.2f} px "
                f"in {len(offsets)} pairs that were checked"
            )

    def check(self, target: Target, pair: StereoPair) -> None:
        from pamcli.imaging.images import check_encodable

        width, height = self.views.size or (pair.width, pair.height)
        view = pair.left if target.name == "left" else pair.right
        bits, alpha = 8 * view.pixels.itemsize, view.alpha is not None
        check_encodable(target.suffix, height=height, width=width, bits=bits, alpha=alpha, name=str(target))

    def apply(self, job: Job, pair: StereoPair) -> _Result:
        from pamcli.imaging.images import Picture
        from pamcli.imaging.preflight import ENOUGH_MATCHES, check_pair

        rectification = self._of(pair)
        sides = {"left": (pair.left, rectification.left), "right": (pair.right, rectification.right)}
        pictures = {
            name: Picture(
                warp(view.pixels),
                None if view.alpha is None else warp(view.alpha),
                view.grey,
                view.icc_profile,
            )
            for name, (view, warp) in sides.items()
        }
        self.count += 1
        if self.rig is not None and self.count > CHECKED and self.count % THEN_EVERY:
            return _Result(pictures)
        check = check_pair(*(each.pixels for each in pictures.values()))
        measured = check.matches >= ENOUGH_MATCHES and check.vertical_error > 0
        return _Result(pictures, check.matches, check.vertical_error if measured else None)

    def _of(self, pair: StereoPair) -> Rectification:
        size = (pair.width, pair.height)
        if self.rig is None:
            from pamcli.calibration.uncalibrated import rectification_by_features

            found, matches = rectification_by_features(
                pair.left.pixels, pair.right.pixels, size=self.views.size
            )
            say = self.console.detail if self.batch else self.console.inform
            say(f"rectified by {matches} matches; without a calibration, distances have no scale")
            return found
        if self.rectification is None:
            first = self.size or size
            rig = self.rig.for_size(*first)
            if self.size is None and self.rig.size is not None and first not in self.rig.sizes:
                self.console.inform(
                    f"the calibration of {self.rig.size[0]} x {self.rig.size[1]} is scaled to "
                    f"{first[0]} x {first[1]}"
                )
            views = self.views
            if self.size is None and rig.stated and (views.alpha, views.size, views.fov) == (None,) * 3:
                self.console.inform("rectified as the calibration says, by its own R and P")
            self.rectification = rig.rectification(alpha=views.alpha, size=views.size, fov=views.fov)
            if rig.left.fisheye and self.size is None and self.rectification.calibration:
                self.console.inform(
                    f"the fisheye sees {_angles(rig.left.field_of_view(first))}, the rectified pictures "
                    f"{_angles(self.rectification.calibration.field_of_view)}: --fov takes more or less"
                )
            self.size = first
        if size != self.size:
            assert self.size is not None
            raise InputError(
                f"the pictures have {size[0]} x {size[1]} pixels, others {self.size[0]} x {self.size[1]}",
                "rectify pictures of each size in a batch of their own: they have different calibrations",
            )
        return self.rectification

    def facts(self, result: _Result) -> Mapping[str, Any]:
        return {"vertical_offset": None if result.offset is None else round(result.offset, 3)}

    def encode(self, target: Target, pair: StereoPair, result: _Result) -> Encoded:
        from pamcli.imaging.images import encode_picture

        warnings = []
        if target.name == "left":
            self._write_calibration(target)
            warnings = self._checked(result)
        data = encode_picture(result.pictures[target.name], target.suffix, name=str(target))
        return Encoded(data, warnings)

    def _checked(self, result: _Result) -> list[str]:
        if result.matches is None:
            return []
        if result.offset is None:
            return ["too few matches to check the rows of the rectified pictures"]
        if not self.batch:
            self.console.inform(f"median vertical offset {result.offset:.2f} px in {result.matches} matches")
        if result.offset <= LARGEST_OFFSET:
            return []
        why = "does the calibration belong to these pictures?" if self.rig else "calibrate the cameras"
        return [f"matches stay {result.offset:.2f} px above or below each other: {why}"]

    def _write_calibration(self, target: Target) -> None:
        from pamcli.calibration.files import encode_calibration
        from pamcli.files.atomic import write_atomically

        calibration = self.rectification.calibration if self.rectification else None
        beside = None if target.path is None else target.path.parent / CALIBRATION
        path = self.asked.output_calibration or beside
        if self.written or calibration is None or path is None:
            return
        data = encode_calibration(calibration)
        if path.is_file() and not self.asked.overwrite and path.read_bytes() != data:
            raise UsageError(
                f"{path} exists, and is not that of these pictures",
                "--overwrite replaces it, --output-calibration gives another name",
            )
        write_atomically(path, data)
        self.written = True
        for warning in calibration.warnings():
            self.console.warn(f"{path}: {warning}")
        self.console.inform(
            f"{path}: focal length {calibration.focal_length:.2f} px, baseline {calibration.baseline:g} m"
        )
