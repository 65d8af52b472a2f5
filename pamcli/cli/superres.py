"""pam superres: both pictures of a pair made larger, with detail borrowed from each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pamcli.cli import options
from pamcli.cli.batch import Encoded, Task, run_jobs
from pamcli.cli.console import Console
from pamcli.cli.jobs import Job, Selection, Target, plan_jobs
from pamcli.files.outputs import OutputKind
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES

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
        typer.Option("--scale", help="How many times larger on each side, by default 4.", show_default=False),
    ] = None,
    format_name: Annotated[
        Literal["png", "tif", "jpg", "webp"] | None,
        typer.Option(
            "--format", help="Of pictures in a folder or on stdout; by default png.", show_default=False
        ),
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
    max_memory: options.MaxMemory = None,
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
    options.check_device(device)
    memory = options.memory_size(max_memory)
    layout = options.layout(packed, side_by_side)
    plan = plan_jobs(
        Selection(inputs or (), pairs, null, layout, skip_unpaired, skip_existing, overwrite),
        {LEFT: output, RIGHT: output_right},
        format_name,
        console,
    )

    from pamcli.cli.network import load_upscaler

    name = weights or f"passrnet-x{scale or DEFAULT_SCALE}"
    upscaler = load_upscaler(name, device, precision, int(scale) if scale else None, console, memory)
    run_jobs(plan, _Upscaling(upscaler), limit, console)


class _Upscaling(Task["dict[str, np.ndarray]"]):
    def __init__(self, upscaler: StereoUpscaler) -> None:
        self.upscaler = upscaler
        self.constants: Mapping[str, Any] = upscaler.compute.describe()

    def check(self, target: Target, pair: StereoPair) -> None:
        from pamcli.imaging.images import check_encodable

        view = pair.left if target.name == LEFT.name else pair.right
        check_encodable(
            target.suffix,
            height=pair.height * self.upscaler.scale,
            width=pair.width * self.upscaler.scale,
            bits=8 * view.pixels.itemsize,
            alpha=view.alpha is not None,
            name=str(target),
        )

    def apply(self, job: Job, pair: StereoPair) -> dict[str, np.ndarray]:
        views = pair.left.pixels, pair.right.pixels
        if all(target.name == LEFT.name for target in job.targets):
            return {LEFT.name: self.upscaler.left_only(*views)}
        left, right = self.upscaler(*views)
        return {LEFT.name: left, RIGHT.name: right}

    def encode(self, target: Target, pair: StereoPair, result: dict[str, np.ndarray]) -> Encoded:
        from pamcli.imaging.images import Picture, encode_picture
        from pamcli.imaging.resize import bicubic

        view = pair.left if target.name == LEFT.name else pair.right
        alpha = None if view.alpha is None else bicubic(view.alpha, self.upscaler.scale)
        larger = Picture(result[target.name], alpha, view.grey, view.icc_profile)
        return Encoded(encode_picture(larger, target.suffix, name=str(target)))
