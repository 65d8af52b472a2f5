"""`pam rectify`: rectify image pairs so that a point lies in the same row of both images."""

from pamcli.cli.console import Console, run_batch
from pamcli.settings.batches import RectifySettings


def command(settings: RectifySettings, console: Console) -> None:
    """Rectify image pairs, so that a point lies in the same row of both images.

    The images keep their bit depth (8 or 16 bits). With --calibration, the calibration of the rectified
    images is written beside them.

    $ pam rectify photo_left.jpg photo_right.jpg --calibration rig.yaml -o rectified/
    $ pam rectify photo_left.jpg photo_right.jpg --uncalibrated -o straight/
    """
    from pamcli.batch.rectification import rectify_files

    run_batch(rectify_files, settings, console)
