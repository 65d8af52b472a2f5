"""pam superres: both pictures of a pair made larger, with detail borrowed from each other."""

from typing import Literal

from pamcli.cli import options
from pamcli.cli.groups import option, result
from pamcli.cli.network import Upscaling
from pamcli.cli.report import work_off
from pamcli.files.suffixes import Packing
from pamcli.registry.catalog import default_upscaling


class Enlarging(Upscaling):
    """A network for super-resolution, and which one where none is named."""

    input: Literal["clean", "camera", "auto"] | None = option(
        "Say what the pictures are, where no --weights are given: clean, or as a camera gives them, with "
        "noise or traces of JPEG. auto, the default, tells by such traces and by the noise of the pixels."
    )

    @property
    def name(self) -> str:
        """Name of the weights: those that are given, else the default of the scale and the pictures."""
        return self.weights or default_upscaling(self.scale, camera=self.input == "camera")


class Larger(options.Pictures):
    """Where the larger pictures go."""

    output_packed: str | None = result("Picture that holds both larger ones.")
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
    network: Enlarging,
    compute: options.Engine,
    messages: options.Messages,
) -> None:
    """Make both pictures of a pair larger, each with detail borrowed from the other.

    The pictures must be rectified: a point lies in the same row of both. Depth (8 or 16 bits), transparency,
    colour profile and the camera's notes (EXIF) are kept. The paths of the results go to stdout, everything
    else to stderr.

    $ pam superres left.png right.png --scale 4 -o left_x4.png --output-right right_x4.png
    $ pam superres lefts/ rights/ --scale 2 --input camera -o larger/
    """
    from pamcli.batch.enlarging import enlarge_files

    work_off(enlarge_files, pairs.inputs, messages, (output,), pairs, network, compute, loading=network.name)
