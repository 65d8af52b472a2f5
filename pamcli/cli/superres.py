"""pam superres: both pictures of a pair made larger, with detail borrowed from each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pamcli.cli import options
from pamcli.cli.batch import Encoded, NetworkOperation, run_jobs
from pamcli.cli.groups import asked_results, option, result
from pamcli.cli.jobs import Job, Target, plan_jobs
from pamcli.cli.network import Upscaling
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES, Packing

if TYPE_CHECKING:
    import numpy as np

    from pamcli.imaging.stereo_pair import StereoPair


class Larger(options.Pictures):
    """Where the larger pictures go."""

    output_packed: str | None = result(
        "Picture that holds both larger ones.", PICTURE_OUTPUT_SUFFIXES, name="packed", folder_tag="_packed"
    )
    packing: Packing = option(
        "Lay the pictures of --output-packed out as --packed has them; red-cyan: an anaglyph for glasses, "
        "red from the left view.",
        default="lr",
    )
    quality: int | None = option(
        "Compress JPEG and WebP at this quality, 1 to 100; by default JPEG at 95 and lossless WebP.",
        metavar="N",
        min=1,
        max=100,
    )


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
    run_jobs(plan, _Upscaling(output, network, compute, console), console, compute)


class _Upscaling(NetworkOperation["dict[str, np.ndarray]"]):
    def __init__(self, asked: Larger, *how: Any) -> None:
        super().__init__(*how)
        self.asked = asked

    def check(self, target: Target, pair: StereoPair) -> None:
        from pamcli.imaging.images import check_encodable
        from pamcli.imaging.stereo_pair import RED_CYAN, packed_size

        view = pair.right if target.name == "right" else pair.left
        height, width = pair.height * self.network.scale, pair.width * self.network.scale
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
        progress = self.watched(pair)
        if all(target.name == "left" for target in job.targets):
            return {"left": self.network.left_only(*views, progress=progress)}
        return dict(zip(("left", "right"), self.network(*views, progress=progress), strict=True))

    def encode(self, target: Target, pair: StereoPair, result: dict[str, np.ndarray]) -> Encoded:
        from pamcli.imaging.images import encode_picture
        from pamcli.imaging.resize import imresize
        from pamcli.imaging.stereo_pair import packed

        views = {}
        for name, view in (("left", pair.left), ("right", pair.right)):
            if name in result and target.name in (name, "packed"):
                alpha = None if view.alpha is None else imresize(view.alpha, self.network.scale)
                views[name] = replace(view, pixels=result[name], alpha=alpha)
        if target.name == "packed":
            larger = packed(views["left"], views["right"], self.asked.packing)
        else:
            larger = views[target.name]
        return Encoded(encode_picture(larger, target.suffix, name=str(target), quality=self.asked.quality))
