"""pam superres: both pictures of a pair made larger, with detail borrowed from each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from pamcli.cli import options
from pamcli.cli.batch import Encoded, Operation, run_jobs
from pamcli.cli.groups import asked_results, flag, option, result
from pamcli.cli.jobs import Job, Target, plan_jobs
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES, Packing
from pamcli.registry.catalog import DEFAULT_UPSCALING

if TYPE_CHECKING:
    import numpy as np

    from pamcli.imaging.stereo_pair import StereoPair
    from pamcli.inference.upscaler import StereoUpscaler

DEFAULT_SCALE = 4


@dataclass(frozen=True, kw_only=True)
class Larger(options.Pictures):
    """Where the larger pictures go."""

    output_packed: str | None = result(
        "Both larger pictures in one.", PICTURE_OUTPUT_SUFFIXES, name="packed", folder_tag="_packed"
    )
    packing: Packing = option(
        "How: as of --packed; red-cyan is for glasses, red of the left, the rest of the right.", default="lr"
    )
    quality: int | None = option(
        "Of JPEG and WebP, 1 to 100; by default JPEG at 95 and lossless WebP.", metavar="N", min=1, max=100
    )


@dataclass(frozen=True, kw_only=True)
class Upscaling(options.Network):
    """A network for super-resolution."""

    scale: Literal["2", "4"] | None = option("How many times larger on each side, by default 4.")

    ensemble: bool = flag("The mean over the flips of the pair: finer, in four times the time.")

    @property
    def factor(self) -> int | None:
        """The scale that is asked for."""
        return int(self.scale) if self.scale else None


def command(
    pairs: options.Pairs,
    output: Larger,
    network: Upscaling,
    compute: options.Engine,
    messages: options.Messages,
) -> None:
    """Make both pictures of a pair larger, each with detail borrowed from the other.

    The pictures must be rectified: a point lies in the same row of both. Depth (8 or 16 bits), transparency,
    colour profile and the camera's notes (EXIF) are kept. The paths of the results go to stdout, everything
    else to stderr.

    $ pam superres left.png right.png --scale 4 -o left_x4.png --output-right right_x4.png
    $ pam superres lefts/ rights/ --scale 2 -o larger/
    """
    console = messages.console(jsonl=output.jsonl)
    asked, read = asked_results(output), [network.weights]
    plan = plan_jobs(pairs, output, asked, output.format_name, console, stream=compute.remote, read=read)

    from pamcli.cli.network import load_upscaler

    name = network.weights or DEFAULT_UPSCALING[network.factor or DEFAULT_SCALE]
    load = partial(load_upscaler, name, network.factor, compute, console, ensemble=network.ensemble)
    run_jobs(plan, _Upscaling(load, output), console, compute)


class _Upscaling(Operation["dict[str, np.ndarray]"]):
    def __init__(self, load: Callable[[], StereoUpscaler], asked: Larger) -> None:
        self.load, self.asked = load, asked

    @cached_property
    def upscaler(self) -> StereoUpscaler:
        """Loaded where it is used."""
        return self.load()

    @property
    def constants(self) -> Mapping[str, Any]:
        return self.upscaler.compute.describe()

    def check(self, target: Target, pair: StereoPair) -> None:
        from pamcli.imaging.images import check_encodable
        from pamcli.imaging.stereo_pair import RED_CYAN, packed_size

        view = pair.right if target.name == "right" else pair.left
        height, width = pair.height * self.upscaler.scale, pair.width * self.upscaler.scale
        alpha = view.alpha is not None
        if target.name == "packed":
            height, width = packed_size(height, width, self.asked.packing)
            alpha = alpha and self.asked.packing != RED_CYAN
        check_encodable(
            target.suffix,
            height=height,
            width=width,
            bits=8 * view.pixels.itemsize,
            alpha=alpha,
            name=str(target),
            quality=self.asked.quality,
        )

    def apply(self, job: Job, pair: StereoPair) -> dict[str, np.ndarray]:
        views = pair.left.pixels, pair.right.pixels
        if all(target.name == "left" for target in job.targets):
            return {"left": self.upscaler.left_only(*views)}
        return dict(zip(("left", "right"), self.upscaler(*views), strict=True))

    def encode(self, target: Target, pair: StereoPair, result: dict[str, np.ndarray]) -> Encoded:
        from pamcli.imaging.images import encode_picture
        from pamcli.imaging.resize import imresize
        from pamcli.imaging.stereo_pair import packed

        views = {}
        for name, view in (("left", pair.left), ("right", pair.right)):
            if name in result and target.name in (name, "packed"):
                alpha = None if view.alpha is None else imresize(view.alpha, self.upscaler.scale)
                views[name] = replace(view, pixels=result[name], alpha=alpha)
        if target.name == "packed":
            larger = packed(views["left"], views["right"], self.asked.packing)
        else:
            larger = views[target.name]
        return Encoded(encode_picture(larger, target.suffix, name=str(target), quality=self.asked.quality))
