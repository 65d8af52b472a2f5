"""pam submit: the archive that a benchmark's server takes."""

from pamcli.cli.console import Messages
from pamcli.settings.evaluation import SubmitSettings


def command(settings: SubmitSettings, messages: Messages) -> None:
    """Write the archive for KITTI 2012 or 2015, Middlebury or ETH3D, of a network's results or of files.

    It is read back and verified; an incomplete one is refused before the network runs.

    $ pam submit --data middlebury:MiddEval3 -o middlebury.zip
    $ pam submit --data middlebury:MiddEval3 --weights pasmnet -o pasmnet.zip
    """
    console = messages.console()
    from pamcli.evaluation.measure import submit

    written = submit(settings, console)
    for note in written.notes:
        console.warn(note)
    console.inform(f"{written.kind}: {written.pictures} pictures, {written.files} files, verified")
    console.path(settings.output)
