"""pam superres: both pictures of a pair made larger, with detail borrowed from each other."""

from pamcli.cli.console import Console, run_batch
from pamcli.settings.batches import UpscaleSettings


def command(settings: UpscaleSettings, console: Console) -> None:
    """Make both pictures of a pair larger, each with detail borrowed from the other.

    The pictures must be rectified: a point lies in the same row of both. Depth (8 or 16 bits), transparency,
    colour profile and the camera's notes (EXIF) are kept. The paths of the results go to stdout, everything
    else to stderr.

    $ pam superres left.png right.png --scale 4 -o left_x4.png --output-right right_x4.png
    $ pam superres lefts/ rights/ --scale 2 --input camera -o larger/
    """
    from pamcli.batch.upscaling import upscale_files

    run_batch(upscale_files, settings, console, loading=settings.name)
