"""Run `pam submit`."""

from pamcli.cli.console import Messages
from pamcli.settings.evaluation import SubmitSettings


def command(settings: SubmitSettings, messages: Messages) -> None:
    """Write a submission archive for KITTI 2012, KITTI 2015, Middlebury or ETH3D.

    The results are a network's, or files (--predictions). The archive is read back and verified; missing
    images are reported before the network runs.

    $ pam submit --data middlebury:MiddEval3 -o middlebury.zip
    $ pam submit --data middlebury:MiddEval3 --weights pasmnet -o pasmnet.zip
    """
    console = messages.console()
    from pamcli.evaluation.submissions import submit

    written = submit(settings, console)
    for note in written.notes:
        console.warn(note)
    console.inform(f"{written.kind}: {written.images} images, {written.files} files, verified")
    console.path(settings.output)
