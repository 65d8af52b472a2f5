"""Run `pam disparity`."""

from pamcli.cli.console import Console, run_batch
from pamcli.settings.batches import MatchSettings


def command(settings: MatchSettings, console: Console) -> None:
    """Compute the disparity map of an image pair: how many px each left pixel is shifted in the right image.

    The images must be rectified (pam rectify): a point lies in the same row of both, and left pixel (y, x)
    matches right pixel (y, x - disparity). Paths of results are printed to stdout, all else to stderr.

    The included weights were trained on synthetic scenes and few real pairs. In streets and rooms, at least
    one pixel in twenty is wrong by more than 3 px; --min-confidence removes most of them (pam guide
    confidence).

    $ pam disparity left.png right.png -o map.pfm --color-map map.png --confidence conf.tif
    $ pam disparity lefts/ rights/ -o out/ --skip-existing
    """
    from pamcli.batch.matching import match_files

    run_batch(match_files, settings, console, loading=settings.name)
