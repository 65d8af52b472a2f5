"""pam-asp: the matcher of a tile, as the Ames Stereo Pipeline calls programs of other people."""

import math
from pathlib import Path
from typing import NoReturn

from pamcli.cli import guarded
from pamcli.cli.console import Console
from pamcli.cli.groups import command, group
from pamcli.errors import UsageError
from pamcli.settings.options import argument, flag, option
from pamcli.settings.shared import Compute, Matching

WIDEST = 192.0
"""Pixels to either side that are searched where no range is given."""

app = group("")


class Searched(Matching, Compute):
    """The network, and where it searches."""


def match(
    left: Path = argument("Left tile.", default=..., metavar="left"),
    right: Path = argument("Right tile.", default=..., metavar="right"),
    output: Path = argument("What is found.", default=..., metavar="output"),
    lowest: float | None = option(
        "Search from this shift on, right column minus left column.", "-r", "-m", metavar="PX", parse=None
    ),
    highest: float | None = option("Search up to this shift.", "-R", "-M", metavar="PX", parse=None),
    weights: str | None = option(
        "Weights for disparity, as `pam disparity` takes them.", "-weights", metavar="NAME|PATH"
    ),
    device: str = option("auto, cpu, cuda ...", "-device", default="auto", metavar="DEVICE"),
    occluded: bool = flag("Keep pixels that the right view does not see.", "-occluded"),
    min_confidence: float | None = option(
        "Drop pixels less confident than T.", "-min_confidence", metavar="T", min=0, max=1
    ),
) -> None:
    """Match two tiles of float32 with horizontal epipolar lines, NaN where there is no data.

    Writes the signed shift from each left pixel to its column in the right tile as float32, NaN = unknown.

    $ pam-asp -r -40 -R 10 left.tif right.tif shift.tif
    """
    console = Console(verbose=True)
    if (lowest is None) != (highest is None):
        raise UsageError("one of -r and -R is missing", "give both, or none")
    if lowest is None or highest is None:
        lowest, highest = -WIDEST, WIDEST
        console.inform(f"no range (-r, -R) is given: from {lowest:g} to {highest:g} px")
    if not -1e5 < lowest <= highest < 1e5:  # also true for NaN
        raise UsageError(f"-r {lowest:g} -R {highest:g} is no range of shifts")
    from pamcli.files.atomic import check_writable, write_atomically
    from pamcli.files.outputs import check_extra_output
    from pamcli.imaging.disparity_files import encode_disparity, read_disparity
    from pamcli.inference.satellite_tiles import PERCENTILES, match_tile

    views = read_disparity(left), read_disparity(right)
    check_extra_output(output, (left, right))
    check_writable(output)
    # A shift to the right is a negative disparity.
    most, least = max(1, math.ceil(-lowest)), math.floor(-highest)
    most = max(most, least + 1)
    asked = Searched(weights=weights, device=device, min_disparity=least, max_disparity=most)
    with console.starting(str(asked.name)):
        from pamcli.inference.loading import load_matcher

        matcher, _ = load_matcher(asked)
    console.detail("grey from the percentiles {:g} to {:g} of each tile".format(*PERCENTILES))
    found = match_tile(matcher, *views, occluded=occluded, min_confidence=min_confidence)
    shift = -found  # networks search by 16 px, and so a little beyond the range
    shift[(shift < lowest - 0.5) | (shift > highest + 0.5)] = math.nan
    write_atomically(output, encode_disparity(shift, ".tif").data)


command(app, "pam-asp", "")(match)


def main() -> NoReturn:
    """Run the program and exit, with the codes of `pam`."""
    guarded(app, "pam-asp")
