"""Run `pam dataset prepare-flickr1024`."""

import typer

from pamcli.cli.console import JSONL, Quiet
from pamcli.settings.data import PrepareSettings


def command(settings: PrepareSettings, messages: Quiet, jsonl: bool = JSONL) -> None:
    """Cut training patches for super-resolution from published pairs or stereograms.

    Pairs are cropped to a multiple of the scale, downscaled with MATLAB's bicubic filter and rounded to 8
    bits. Patches are 90x30 px before upscaling, every 20 px, at the authors' offsets. The same input gives
    the same bytes.

    An interrupted command continues when it is repeated. The result is the data set flickr1024:FOLDER.

    $ pam dataset prepare-flickr1024 Flickr1024/ -o data/flickr1024 --scale 4
    $ pam dataset prepare-flickr1024 stereograms/ -o data/mine --from-stereograms --infinity no
    """
    console = messages.console(jsonl=jsonl)
    from pamcli.data.preparing import DamagedError, prepare_patches

    try:
        for facts, lines in prepare_patches(settings, console):
            console.answer(facts, *lines)
    except DamagedError as error:  # each was reported before
        raise typer.Exit(error.exit_code) from error
