"""Run `pam-asp`, which the Ames Stereo Pipeline calls to match a tile."""

import math
from pathlib import Path
from typing import Annotated, NoReturn

from pamcli.cli import run_guarded
from pamcli.cli.console import Console
from pamcli.cli.groups import make_command
from pamcli.errors import UsageError
from pamcli.settings.options import argument, flag, option
from pamcli.settings.parsing import Form
from pamcli.settings.shared import MatcherSettings

WIDEST = 192.0
"""Default search range to either side, px."""


Shift = Annotated[float, Form("PX")]
"""May be negative, and infinite until it is checked."""


def match(
    left: Path = argument("Left tile.", default=..., metavar="left"),
    right: Path = argument("Right tile.", default=..., metavar="right"),
    output: Path = argument("Disparity map to write (.tif).", default=..., metavar="output"),
    lowest: Shift | None = option("Smallest shift, right column minus left column, px.", "-r", "-m"),
    highest: Shift | None = option("Largest shift, px.", "-R", "-M"),
    weights: str | None = option(
        "Weights of the matcher, as for `pam disparity`.", "-weights", metavar="NAME|PATH"
    ),
    device: str = option("Compute on auto, cpu, cuda ...", "-device", default="auto", metavar="DEVICE"),
    occluded: bool = flag("Keep pixels that are occluded in the right image.", "-occluded"),
    min_confidence: float | None = option(
        "Mark pixels with a confidence below T as unknown.", "-min_confidence", metavar="T", min=0, max=1
    ),
) -> None:
    """Match two float32 tiles with horizontal epipolar lines, NaN without data.

    The result is the shift from each left pixel to its column in the right tile, px, float32, NaN = unknown.

    $ pam-asp -r -40 -R 10 left.tif right.tif shift.tif
    """
    console = Console(verbose=True)
    if (lowest is None) != (highest is None):
        raise UsageError("-r requires -R, and -R requires -r", "give both, or drop both")
    if lowest is None or highest is None:
        lowest, highest = -WIDEST, WIDEST
        console.inform(f"search range {lowest:g} to {highest:g} px, because -r and -R are not given")
    if not -1e5 < lowest <= highest < 1e5:  # also true for NaN
        raise UsageError(f"-r {lowest:g} must be at most -R {highest:g}, and both within 100000 px")
    from pamcli.files.atomic import check_writable, write_atomically
    from pamcli.files.outputs import check_extra_output
    from pamcli.imaging.disparity_encoding import encode_disparity
    from pamcli.imaging.disparity_files import read_disparity
    from pamcli.inference.satellite_tiles import PERCENTILES, match_tile

    views = read_disparity(left), read_disparity(right)
    check_extra_output(output, (left, right))
    check_writable(output)
    # A shift to the right is a negative disparity.
    most, least = max(1, math.ceil(-lowest)), math.floor(-highest)
    most = max(most, least + 1)
    settings = MatcherSettings(weights=weights, device=device, min_disparity=least, max_disparity=most)
    with console.starting(str(settings.name)):
        from pamcli.inference.loading import load_matcher

        matcher, _ = load_matcher(settings)
    console.detail("grey from the percentiles {:g} to {:g} of each tile".format(*PERCENTILES))
    disparity = match_tile(matcher, *views, occluded=occluded, min_confidence=min_confidence)
    shift = -disparity  # networks search in steps of 16 px, beyond the range
    shift[(shift < lowest - 0.5) | (shift > highest + 0.5)] = math.nan
    write_atomically(output, encode_disparity(shift, ".tif").data)


def main() -> NoReturn:
    """Run the program and exit, with the codes of `pam`."""
    run_guarded(make_command("pam-asp", "", match), "pam-asp")
