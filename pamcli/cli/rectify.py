"""pam rectify: pictures as the cameras took them, made so that a point lies in the same row of both."""

from pamcli.cli.console import Console, run_batch
from pamcli.settings.batches import RectifySettings


def command(settings: RectifySettings, console: Console) -> None:
    """Rectify pictures: make two of them in which a point lies in the same row.

    Both keep their depth (8 or 16 bits). The calibration of the new pictures, where the cameras' is given,
    is written beside them.

    $ pam rectify photo_left.jpg photo_right.jpg --calibration rig.yaml -o rectified/
    $ pam rectify photo_left.jpg photo_right.jpg --uncalibrated -o straight/
    """
    from pamcli.batch.rectification import rectify_files

    run_batch(rectify_files, settings, console)
