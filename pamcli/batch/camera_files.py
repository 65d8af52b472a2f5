"""Read the calibration that the settings of a command name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pamcli.batch import LOG
from pamcli.batch.plan import EMPTY_NAME
from pamcli.calibration.camera import OtherCamera
from pamcli.calibration.description import CameraDescription, Extrinsics, Interpretation, StoredCalibration
from pamcli.calibration.files import describe_calibration, describe_other_camera, prefix_errors
from pamcli.calibration.geometry import Calibration
from pamcli.errors import InputError, UsageError
from pamcli.files.units import parse_length
from pamcli.imaging.images import StereoPair
from pamcli.settings.batches import DepthSettings
from pamcli.settings.options import Place
from pamcli.settings.shared import CalibrationFiles, RectifiedCalibration

if TYPE_CHECKING:
    from pamcli.recordings.bags import Recording


def read_description(
    settings: CalibrationFiles,
    *,
    fisheye: bool = False,
    extrinsics: Extrinsics = "transform",
    recording: Recording | None = None,
) -> tuple[CameraDescription, Interpretation]:
    """Return the cameras in calibration files, completed by options. Raises InputError, UsageError."""
    if "" in settings.calibration_files:
        raise UsageError("`calibration` is empty", EMPTY_NAME)
    how = (extrinsics, fisheye, settings.unit, settings.baseline)
    if recording is None or settings.calibration_files:
        return describe_calibration(*settings.calibration_files, cameras=settings.cameras, how=how)
    if recording.camera_description is None:
        message = f"{recording.place} has no calibrated camera_info for both cameras"
        raise InputError(message, "give a `calibration`")
    return recording.camera_description, Interpretation(settings.cameras == (1, 0), *how)


def finish_calibration(
    files: Sequence[Place], description: CameraDescription, interpretation: Interpretation
) -> StoredCalibration:
    """Return the calibration of files, and log its notes. Raises InputError, UsageError."""
    names = ", ".join(map(str, files))
    with prefix_errors(names):
        stored = description.resolve(interpretation)
    for note in (*stored.notes, *([stored.unit_note] if stored.unit_note and not stored.doubt else [])):
        LOG.info("%s: %s", names, note)
    return stored


def load_rectified_calibration(settings: RectifiedCalibration) -> Calibration:
    """Return the calibration of rectified images, from files or options. Raises InputError, UsageError."""
    if isinstance(settings.calibration, Calibration):
        for name in ("focal", "baseline", "doffs", "cameras", "unit", "principal_point"):
            if settings.is_set(name):
                message = f"cannot use both a `Calibration` and `{name}`"
                raise UsageError(message, f"set it in the `Calibration`, or drop `{name}`")
        return settings.calibration
    files, doubt = settings.calibration_files, None
    names = ", ".join(map(str, files))
    given = {"focal_length": settings.focal, "offset": settings.doffs, "principal": settings.principal_point}
    if files:
        stored = finish_calibration(files, *read_description(settings))
        if stored.rectified is None:
            raise InputError(
                f"{names} describes cameras whose images are not rectified",
                "rectify the images with `pam rectify`, and use its calibration.yaml",
            )
        calibration, doubt = stored.rectified.with_pixels(**given), stored.doubt
    else:
        known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        calibration = Calibration(**known, baseline=settings.baseline)  # type: ignore[arg-type]
    for warning in [doubt] if doubt else calibration.warnings():
        LOG.warning("%s: %s", names or "the calibration", warning)
    return calibration


def load_other_camera(settings: DepthSettings) -> list[OtherCamera]:
    """Return the camera that `align_to` names, as [FILE:][[LEFT:]NUMBER], for each size of left images.

    Raises InputError, UsageError.
    """
    if settings.align_to is None:
        return []
    text = str(settings.align_to)
    found = re.fullmatch(r"(?:(?!\d+:)(.+?):)?(?:(\d{1,3}):)?(\d{1,3})", text)
    file, first, number = found.groups() if found else (text, None, None)
    own = settings.calibration_files
    if not (file or own):
        raise UsageError(f"`align_to` {text} requires `calibration`", "or name a file: FILE:NUMBER")
    if not file and settings.baseline is not None:
        message = "cannot use both `baseline` and a camera of the same `calibration`"
        raise UsageError(message, "correct the file: all of its distances have the same unit")
    files, cameras = [file] if file else own, None
    if number:
        usual = (None if file else settings.cameras) or describe_calibration(*files)[0].numbers or (0, 1)
        cameras = int(first or usual[0]), int(number)
        if cameras[0] == cameras[1]:
            message = f"`align_to` {text} is the left camera, as which the map is given"
            raise UsageError(message, "name another camera; `cameras` states the left one")
    metres = parse_length(settings.unit or 1.0, "`unit`")
    others = describe_other_camera(*files, cameras=cameras, metres=metres)
    description, interpretation = read_description(settings) if own else (None, Interpretation())
    rotations = description.projections[0].rotations if description and description.projections else ()
    if not rotations or others[0].is_rectified:
        return others
    return [each.rotate_left(rotations[interpretation.swapped]) for each in others]


def read_stated_calibration(pair: StereoPair, settings: CalibrationFiles) -> Calibration | None:
    """Return the calibration that a recording or a photo states, with the user's baseline if given."""
    if not pair.stated:
        return None
    stated = Calibration(**pair.stated)
    if settings.baseline is None:
        return stated
    return stated.with_baseline(parse_length(settings.baseline, "`baseline`"))
