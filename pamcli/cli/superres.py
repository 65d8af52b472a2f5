"""Run `pam superres`."""

from pamcli.cli.console import Console, run_batch
from pamcli.settings.batches import UpscaleSettings


def command(settings: UpscaleSettings, console: Console) -> None:
    """Upscale both images of a pair, each with detail from the other.

    The images must be rectified (pam rectify): a point lies in the same row of both. Bit depth (8 or 16),
    transparency, colour profile and EXIF data are kept. Paths of results are printed to stdout, all else to
    stderr.

    $ pam superres left.png right.png --scale 4 -o left_x4.png --output-right right_x4.png
    $ pam superres lefts/ rights/ --scale 2 --input camera -o upscaled/
    """
    from pamcli.batch.upscaling import upscale_files

    run_batch(upscale_files, settings, console, loading=settings.name)
