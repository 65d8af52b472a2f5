"""pam disparity: where each pixel of the left picture sits in the right one."""

from typing import Literal

from pamcli.cli import options, parsing
from pamcli.cli.calibration import Cameras
from pamcli.cli.depth import Metric
from pamcli.cli.groups import flag, option, result
from pamcli.cli.network import Matching
from pamcli.cli.report import work_off


class Maps(options.Results):
    """The results that are asked for, and where they go."""

    output: str | None = result(
        "Disparity of the left view: .pfm, .npy, .tif (float) or .png (16 bits, 256 a pixel); frames: .mkv.",
        "-o",
        metavar="FILE|FOLDER|TEMPLATE|-",
    )
    output_right: str | None = result("Disparity of the right view.")
    color_map: str | None = result("Picture of the disparity in colours, unknown black; frames: .mkv, .mp4.")
    visible: str | None = result("Mask (.png): 255 where both views see a pixel.")
    confidence: str | None = result("Confidence of the disparity, pixel by pixel, in [0, 1].")
    page: str | None = result(
        "Page (.html) to look at in a browser: picture, disparity, the pixel under the pointer, a point "
        "cloud; a batch gets an index, too."
    )
    format_name: Literal["pfm", "png", "npy", "tif"] | None = option(
        "Write disparities in this format, in a folder or on stdout; by default pfm.", "--format"
    )
    color_range: tuple[float, float] | Literal["shared"] | None = option(
        "Range of the colours, px; by default that of each pair, in a video that of all frames. shared: one "
        "range for the whole batch, whose colour maps are written at its end.",
        "--range",
        metavar="MIN:MAX|shared",
        parse=parsing.color_range,
    )
    unknown: Literal["occluded", "none"] = option(
        "Mark these pixels of the left view as unknown in -o, --color-map, depth and points.", default="none"
    )
    steady: bool = flag(
        "Let disparities flicker less from frame to frame: fuse each frame's with those before, moved along, "
        "where the pictures agree (pam guide videos)."
    )
    min_confidence: float | None = option(
        "Mark pixels less confident than T (0 to 1) as unknown too.", metavar="T", parse=None
    )


def command(
    pairs: options.Pairs,
    output: Maps,
    metric: Metric,
    cameras: Cameras,
    network: Matching,
    compute: options.Engine,
    messages: options.Messages,
) -> None:
    """Find, for each pixel of the left picture, where it sits in the right one.

    The pictures must be rectified: a point lies in the same row of both, and left pixel (y, x) matches right
    pixel (y, x - disparity). The paths of the results go to stdout, everything else to stderr.

    The weights that come with pam learned from drawn scenes and few real pairs: in streets and rooms one
    pixel in twenty or more is off by more than 3 px. Act on confident pixels only: --min-confidence (pam
    guide confidence).

    $ pam disparity left.png right.png -o map.pfm --color-map map.png --confidence conf.tif
    $ pam disparity lefts/ rights/ -o out/ --skip-existing
    """
    from pamcli.batch.matching import match_files

    given = pairs, cameras, network, compute
    work_off(match_files, pairs.inputs, messages, (output, metric), *given, loading=network.name)
