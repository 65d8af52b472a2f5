"""pam superres: both pictures of a pair made larger, with detail borrowed from each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pamcli.cli import options
from pamcli.cli.batch import Encoded, Task, run_jobs
from pamcli.cli.jobs import Job, Target, plan_jobs
from pamcli.files.outputs import OutputKind
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES

if TYPE_CHECKING:
    import numpy as np

    from pamcli.imaging.stereo_pair import StereoPair
    from pamcli.inference.upscaler import StereoUpscaler

LEFT = OutputKind("left", "--output", PICTURE_OUTPUT_SUFFIXES, "_left")
RIGHT = OutputKind("right", "--output-right", PICTURE_OUTPUT_SUFFIXES, "_right", joins_main_folder=True)

DEFAULT_SCALE = "4"


@dataclass(frozen=True, kw_only=True)
class Larger(options.Results):
    """Where the larger pictures go."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|FOLDER|TEMPLATE|-",
            help="The left picture, larger (.png, .tif, .jpg, .webp); a folder receives both pictures.",
        ),
    ] = None
    output_right: Annotated[
        str | None, typer.Option("--output-right", metavar="FILE|...", help="The right picture, larger.")
    ] = None
    format_name: Annotated[
        Literal["png", "tif", "jpg", "webp"] | None,
        typer.Option(
            "--format", help="Of pictures in a folder or on stdout; by default png.", show_default=False
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Upscaling(options.Network):
    """A network for super-resolution."""

    scale: Annotated[
        Literal["2", "4"] | None,
        typer.Option("--scale", help="How many times larger on each side, by default 4.", show_default=False),
    ] = None

    @property
    def factor(self) -> int | None:
        """The scale that is asked for."""
        return int(self.scale) if self.scale else None


def command(
    pairs: options.Pairs,
    output: Larger,
    network: Upscaling,
    compute: options.Compute,
    messages: options.Messages,
) -> None:
    """Make both pictures of a pair larger, each with detail borrowed from the other.

    The pictures must be rectified: a point lies in the same row of both. Depth (8 or 16 bits), transparency
    and colour profile are kept. The paths of the results go to stdout, everything else to stderr.
    """
    console = messages.console(jsonl=output.jsonl)
    kinds = {LEFT: output.output, RIGHT: output.output_right}
    plan = plan_jobs(pairs, output, kinds, output.format_name, console)

    from pamcli.cli.network import load_upscaler

    name = network.weights or f"passrnet-x{network.scale or DEFAULT_SCALE}"
    upscaler = load_upscaler(name, network.factor, compute, console)
    run_jobs(plan, _Upscaling(upscaler), console)


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
