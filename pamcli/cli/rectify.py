"""pam rectify: pictures as the cameras took them, made so that a point lies in the same row of both."""

from pathlib import Path

from pamcli.cli import options, parsing
from pamcli.cli.calibration import EXTRINSICS, FISHEYE, Extrinsics, Files
from pamcli.cli.groups import flag, option
from pamcli.cli.report import work_off


class Rectified(options.Pictures):
    """Where the rectified pictures go."""

    output_calibration: Path | None = option(
        "Calibration of the results, for `pam disparity`; by default calibration.yaml beside them.",
        metavar="FILE",
    )


class Views(Files):
    """Which cameras, and which part of their pictures."""

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
    fisheye: bool = FISHEYE
    extrinsics: Extrinsics = EXTRINSICS
    uncalibrated: bool = flag("Rectify by what both pictures show, without a calibration: no distances.")


def command(
    pairs: options.Pairs,
    output: Rectified,
    views: Views,
    cluster: options.Cluster,
    messages: options.Messages,
) -> None:
    """Rectify pictures: make two of them in which a point lies in the same row.

    Both keep their depth (8 or 16 bits). The calibration of the new pictures, where the cameras' is given,
    is written beside them.

    $ pam rectify photo_left.jpg photo_right.jpg --calibration rig.yaml -o rectified/
    $ pam rectify photo_left.jpg photo_right.jpg --uncalibrated -o straight/
    """
    from pamcli.batch.rectifying import rectify_files

    work_off(rectify_files, pairs.inputs, messages, (output,), pairs, views, cluster)
