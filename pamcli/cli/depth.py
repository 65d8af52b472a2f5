"""Run `pam depth`."""

from pamcli.cli.console import Console, run_batch
from pamcli.settings.batches import DepthSettings


def command(settings: DepthSettings, console: Console) -> None:
    """Convert stored disparity maps to depth maps and point clouds, in metres.

    Units per pixel and markers of unknown pixels are recognised for the formats of common programs; --scale
    and --invalid state others.

    $ pam depth disp.pfm --calibration calib.txt --depth metres.tif
    $ pam depth disparities/ --calibration calib.txt --image lefts/ --point-cloud clouds/
    """
    from pamcli.batch.depth import depth_files

    run_batch(depth_files, settings, console)
