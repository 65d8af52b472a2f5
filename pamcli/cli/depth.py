"""pam depth: depth in metres of stored disparities."""

from pamcli.cli.console import Console, run_batch
from pamcli.settings.batches import DepthSettings


def command(settings: DepthSettings, console: Console) -> None:
    """Make depth in metres, and point clouds, of disparities that are there already.

    $ pam depth disp.pfm --calibration calib.txt --depth metres.tif
    $ pam depth disparities/ --calibration calib.txt --picture lefts/ --point-cloud clouds/
    """
    from pamcli.batch.depth import depth_files

    run_batch(depth_files, settings, console)
