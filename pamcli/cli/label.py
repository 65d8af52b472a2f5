"""pam dataset label: disparities to learn from, for pairs without a truth."""

from pathlib import Path

import typer

from pamcli.cli.groups import OptionGroup, argument, as_keywords, flag, option
from pamcli.cli.network import Network
from pamcli.cli.options import DATA, FORM, JSONL, Compute, Quiet
from pamcli.errors import BATCH_FAILED, InputError
from pamcli.files.atomic import owned
from pamcli.registry.catalog import DEFAULT_MATCHING


class To(OptionGroup, panel="Output"):
    """The labelled pairs."""

    output: Path = option(
        "Write folders left, right and disparity into this.", "-o", default=..., metavar="FOLDER"
    )
    overwrite: bool = flag("Label pairs anew that are labelled there.")
    mirrored: bool = flag("Label each pair mirrored, too, its views exchanged: twice as much to learn from.")
    jsonl: bool = JSONL


def command(
    to: To,
    network: Network,
    compute: Compute,
    messages: Quiet,
    data: str = argument(f"{FORM}, of rectified pairs.", default=..., **DATA),
) -> None:
    """Label pairs without a truth, to learn from them.

    A pixel's label is the disparity that the network, which sees small pictures enlarged, finds equally from
    both views, unless block matching contradicts it. Elsewhere it has none, and pairs with labels for fewer
    than 30 % of their pixels are left out. Pictures above 1250 x 900 px are reduced.

    Repeat a command that was interrupted, and it goes on. The result is a data set: pairs:FOLDER.

    $ pam dataset label pairs:mine/ -o labelled/
    $ pam dataset label pairs:mine/ -o labelled/ --mirrored
    """
    console, name = messages.console(jsonl=to.jsonl), network.weights or DEFAULT_MATCHING
    from pamcli.data.open import open_data

    source, failed = open_data(data).without_truth(), 0
    with owned(to.output):
        with console.starting(name):
            from pamcli.batch.networks import load_matcher
            from pamcli.training.labels import LEAST, label_pairs, to_label
        wanted = to_label(
            source, to.output, mirrored=to.mirrored, overwrite=to.overwrite, weights=network.weights
        )
        if wanted:
            matcher, _ = load_matcher(**as_keywords(network, compute) | {"weights": name})
        with console.progress("pairs", len(wanted)) as bar:
            for sample, found in label_pairs(matcher, source, wanted, to.output) if wanted else ():
                if isinstance(found, InputError):
                    console.error(f"{sample}: {found}")
                    failed += 1
                else:
                    line = f"{sample}: {found:.0%} of the pixels have a label"
                    facts = {"pair": sample, "labelled": found, "kept": found >= LEAST}
                    console.answer(facts, line if found >= LEAST else f"{line}: too few, left out")
                bar.advance()
    if not wanted or len(wanted) > failed:
        console.inform(f"to learn from them: pam train disparity --data pairs:{to.output}")
    if failed:
        raise typer.Exit(BATCH_FAILED)
