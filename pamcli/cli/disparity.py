"""pam disparity: where each pixel of the left picture sits in the right one."""

from pamcli.cli.console import Console, run_batch
from pamcli.settings.batches import MatchSettings


def command(settings: MatchSettings, console: Console) -> None:
    """Find, for each pixel of the left picture, where it sits in the right one.

    The pictures must be rectified: a point lies in the same row of both, and left pixel (y, x) matches right
    pixel (y, x - disparity). The paths of the results go to stdout, everything else to stderr.

    The weights that come with pam learned from drawn scenes and few real pairs: in streets and rooms one
    pixel in twenty or more is off by more than 3 px. Act on confident pixels only: --min-confidence (pam
    guide confidence).

    $ pam disparity left.png right.png -o map.pfm --color-map map.png --confidence conf.tif
    $ pam disparity lefts/ rights/ -o out/ --skip-existing
    """
    from pamcli.batch.matching import match_files

    run_batch(match_files, settings, console, loading=settings.name)
