"""pam dataset label: disparities to learn from, for pairs without a truth."""

import os
from pathlib import Path

import typer

from pamcli.cli.groups import OptionGroup, argument, as_keywords, flag, option
from pamcli.cli.network import Network
from pamcli.cli.options import DATA, FORM, JSONL, Compute, Quiet
from pamcli.errors import BATCH_FAILED, InputError, UsageError
from pamcli.files.atomic import owned
from pamcli.files.finding import counted, shown
from pamcli.registry.catalog import DEFAULT_MATCHING, files_behind


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
    from pamcli.data.open import open_data, parse_data

    spec = parse_data(data)
    source = open_data(spec).without_truth()
    if source.endless:
        raise UsageError(f"{spec.text} has a truth at every pixel", "label pairs that have none")
    target = Path(os.path.realpath(to.output))
    read = (Path(os.path.realpath(path)) for files in source.files for path in (files.left, files.right))
    if any(path.parent in (target / "left", target / "right") for path in read):
        raise UsageError(f"{shown(to.output)} holds the pairs that are to be labelled", "name another folder")
    networks = (Path(os.path.realpath(path)) for path in files_behind(network.weights))
    if any(path.parent.parent == target for path in networks):
        raise UsageError(f"{shown(to.output)} holds the network among its pairs", "name another folder")
    if to.output.exists() and not to.output.is_dir():
        raise UsageError(f"{shown(to.output)} is a file", "name a folder")
    failed = 0
    with owned(to.output):
        with console.starting(name):
            from pamcli.batch.networks import load_matcher
            from pamcli.training.labels import LEAST, label_files, label_pairs, to_label
        wanted = to_label(source, mirrored=to.mirrored)
        waiting = {
            sample: view
            for sample, view in wanted.items()
            if to.overwrite or not label_files(to.output, sample)["right"].exists()
        }
        if there := len(wanted) - len(waiting):
            console.inform(f"{counted(there, 'pair')} of {len(wanted)} labelled there already")
        if waiting:
            matcher, _ = load_matcher(**as_keywords(network, compute) | {"weights": name})
            with console.progress("pairs", len(waiting)) as bar:
                for sample, found in label_pairs(matcher, source, waiting, to.output):
                    if isinstance(found, InputError):
                        console.error(f"{sample}: {found}")
                        failed += 1
                    else:
                        kept = found >= LEAST
                        line = f"{sample}: {found:.0%} of the pixels have a label"
                        facts = {"pair": sample, "labelled": found, "kept": kept}
                        console.answer(facts, line if kept else f"{line}: too few, left out")
                    bar.advance()
    if len(wanted) > failed:
        console.inform(f"to learn from them: pam train disparity --data pairs:{to.output}")
    if failed:
        raise typer.Exit(BATCH_FAILED)
