"""pam superres: both pictures of a pair made larger, with detail borrowed from each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pamcli.cli import options
from pamcli.cli.batch import Encoded, Job, Selection, Task, plan_jobs, run_jobs
from pamcli.cli.console import Console
from pamcli.errors import UsageError
from pamcli.imaging.outputs import OutputKind
from pamcli.imaging.suffixes import PICTURE_OUTPUT_SUFFIXES

if TYPE_CHECKING:
    import numpy as np

    from pamcli.imaging.stereo_pair import StereoPair
    from pamcli.inference.upscaler import StereoUpscaler

LEFT = OutputKind("left", "--output", PICTURE_OUTPUT_SUFFIXES, "_left")
RIGHT = OutputKind("right", "--output-right", PICTURE_OUTPUT_SUFFIXES, "_right", joins_main_folder=True)

DEFAULT_SCALE = "4"


def command(
    inputs: options.Inputs = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|FOLDER|TEMPLATE|-",
            help="The left picture, larger (.png, .tif, .jpg, .webp); a folder receives both pictures.",
        ),
    ] = None,
    output_right: Annotated[
        str | None, typer.Option("--output-right", metavar="FILE|...", help="The right picture, larger.")
    ] = None,
    scale: Annotated[
        Literal["2", "4"] | None,
        typer.Option("--scale", help="How many times larger on each side.", show_default=DEFAULT_SCALE),
    ] = None,
    format_name: Annotated[
        Literal["png", "tif", "jpg", "webp"] | None,
        typer.Option("--format", help="Of pictures in a folder or on stdout.", show_default="png"),
    ] = None,
    pairs: options.PairList = None,
    null: options.Null = False,
    packed: options.Packed = None,
    side_by_side: options.SideBySide = False,
    skip_unpaired: options.SkipUnpaired = False,
    skip_existing: options.SkipExisting = False,
    overwrite: options.Overwrite = False,
    max_pixels: options.MaxPixels = "400000000",
    weights: options.Weights = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    jsonl: options.JsonLines = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Make both pictures of a pair larger, each with detail borrowed from the other.

    The pictures must be rectified: a point lies in the same row of both. Depth (8 or 16 bits), transparency
    and colour profile are kept. The paths of the results go to stdout, everything else to stderr.
    """
    console = Console(quiet, verbose, jsonl)
    limit = options.number_or_none(max_pixels, "--max-pixels")
    layout = options.layout(packed, side_by_side)
    plan = plan_jobs(
        Selection(inputs or (), pairs, null, layout, skip_unpaired, skip_existing, overwrite),
        {LEFT: output, RIGHT: output_right},
        format_name,
        console,
    )

    from pamcli.cli.network import load_upscaler

    upscaler = load_upscaler(weights or f"passrnet-x{scale or DEFAULT_SCALE}", device, precision, console)
    if scale is not None and upscaler.scale != int(scale):
        raise UsageError(f"{weights} enlarges {upscaler.scale} times, not {scale}", "leave out --scale")
    run_jobs(plan, _Upscaling(upscaler), limit, console)


class _Upscaling(Task["dict[str, np.ndarray]"]):
    def __init__(self, upscaler: StereoUpscaler) -> None:
        self.upscaler = upscaler
        self.constants: Mapping[str, Any] = upscaler.compute.describe()

    def check(self, job: Job, pair: StereoPair) -> None:
        from pamcli.imaging.images import check_encodable

        for name, path in job.outputs.items():
            view = pair.left if name == LEFT.name else pair.right
            check_encodable(
                path.suffix,
                height=pair.height * self.upscaler.scale,
                width=pair.width * self.upscaler.scale,
                bits=8 * view.pixels.itemsize,
                alpha=view.alpha is not None,
                name=str(path),
            )

    def apply(self, job: Job, pair: StereoPair) -> dict[str, np.ndarray]:
        views = pair.left.pixels, pair.right.pixels
        if RIGHT.name not in job.outputs:
            return {LEFT.name: self.upscaler.left_only(*views)}
        left, right = self.upscaler(*views)
        return {LEFT.name: left, RIGHT.name: right}

    def encode(
        self, job: Job, name: str, suffix: str, pair: StereoPair, result: dict[str, np.ndarray]
    ) -> Encoded:
        from pamcli.imaging.images import Picture, encode_picture
        from pamcli.imaging.resize import bicubic

        view = pair.left if name == LEFT.name else pair.right
        alpha = None if view.alpha is None else bicubic(view.alpha, self.upscaler.scale)
        larger = Picture(result[name], alpha, view.grey, view.icc_profile)
        file = str(job.outputs.get(name, "stdout"))
        return Encoded(encode_picture(larger, suffix, name=file))
