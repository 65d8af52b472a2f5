"""pam dataset prepare-flickr1024: training patches from published pairs, or from stereograms."""

import typer

from pamcli.cli.console import JSONL, Quiet
from pamcli.settings.data import PrepareSettings


def command(settings: PrepareSettings, messages: Quiet, jsonl: bool = JSONL) -> None:
    """Make training patches for super-resolution.

    Pairs are cut to a multiple of the scale, reduced by MATLAB's bicubic and rounded to 8 bits; patches have
    30 x 90 low-resolution pixels and a stride of 20, at the authors' offsets. Same input, same bytes.

    Repeat a command that was interrupted, and it goes on. The result is a data set: flickr1024:FOLDER.

    $ pam dataset prepare-flickr1024 Flickr1024/ -o data/flickr1024 --scale 4
    $ pam dataset prepare-flickr1024 stereograms/ -o data/mine --from-stereograms --infinity no
    """
    console = messages.console(jsonl=jsonl)
    from pamcli.data.preparing import DamagedError, prepared

    try:
        for facts, lines in prepared(settings, console):
            console.answer(facts, *lines)
    except DamagedError as error:  # each was reported when it was found
        raise typer.Exit(error.exit_code) from error
