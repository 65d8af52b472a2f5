"""Results in metres: the options of every command that has them, and pam depth, for stored disparities."""

from pamcli.cli import options, parsing
from pamcli.cli.calibration import Cameras
from pamcli.cli.groups import OptionGroup, argument, option, result
from pamcli.cli.report import work_off

DEPTH = "Depth: .tif or .npy (metres), .png (16 bits, millimetres)."


class Metric(OptionGroup, panel="Calibration"):
    """The results in metres."""

    depth: str | None = result(DEPTH)
    depth_error: str | None = result("One standard deviation of depth, as --depth.")
    point_cloud: str | None = result("Coloured points (.ply), in metres.")
    disparity_error: float = option(
        "Take disparities to be off by this much (standard deviation), for --depth-error.",
        default=0.5,
        metavar="PX",
    )
    max_depth: float | None = option(
        "Leave out what is farther, as unknown; a bare number means metres.",
        metavar="LENGTH",
        parse=parsing.length,
    )
    stride: int = option(
        "Write a point for every N-th column and row alone.", default=1, min=1, max=100_000, metavar="N"
    )


class Stored(options.Limit):
    """Which disparities, and the pictures that they belong to."""

    inputs: list[str] = argument(
        "Files (.pfm, .npy, .tif, or .png of 16 bits, 256 a pixel), folders, a template with {}, or a video "
        "(.mkv) that pam disparity wrote.",
        default=...,
        metavar="DISPARITY",
        show_default=False,
    )
    picture: str | None = option(
        "The left pictures, of the same names, for the colours of the points.", metavar="FILE|FOLDER|TEMPLATE"
    )


class Depths(Metric, panel="Output"):
    """The results in metres."""

    depth: str | None = result(DEPTH, "-o", metavar="FILE|FOLDER|TEMPLATE|-")


def command(
    stored: Stored, results: options.Results, output: Depths, cameras: Cameras, messages: options.Messages
) -> None:
    """Make depth in metres, and point clouds, of disparities that are there already.

    $ pam depth disp.pfm --calibration calib.txt --depth metres.tif
    $ pam depth disparities/ --calibration calib.txt --picture lefts/ --point-cloud clouds/
    """
    from pamcli.batch.metres import depth_files

    work_off(depth_files, stored.inputs, messages, (results, output), stored, cameras)
