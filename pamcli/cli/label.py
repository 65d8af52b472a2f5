"""pam dataset label: disparities to learn from, for pairs without a truth."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pamcli.cli.console import Console
from pamcli.cli.groups import OptionGroup, argument, flag, option
from pamcli.cli.network import Network, find_weights
from pamcli.cli.options import DATA, FORM, JSONL, Compute, Quiet
from pamcli.errors import BATCH_FAILED, InputError, UsageError
from pamcli.files.atomic import owned, write_atomically
from pamcli.files.finding import counted, shown
from pamcli.registry.catalog import DEFAULT_MATCHING, files_behind

if TYPE_CHECKING:
    from pamcli.data.source import Source

MIRROR, MIRRORED = "--mirrored", "-mirrored"  # the option, and what it adds to a pair's name
Waiting = tuple[int, str, bool]  # place in the data set, name of the labelled pair, whether it is mirrored
LEAST = 0.3  # share of the pixels that must have a label, or the pair is left out


class To(OptionGroup, panel="Output"):
    """The labelled pairs."""

    output: Path = option(
        "Write folders left, right and disparity into this.", "-o", default=..., metavar="FOLDER"
    )
    overwrite: bool = flag("Label pairs anew that are labelled there.")
    mirrored: bool = flag("Label each pair mirrored, too, its views exchanged: twice as much to learn from.")
    jsonl: bool = JSONL


class Labelling(Quiet, Compute, Network):
    """Whose network, where it computes, and what is said."""

    @property
    def name(self) -> str:
        """Name, file or address of the weights."""
        return self.weights or DEFAULT_MATCHING


def label_pairs(
    to: To, using: Labelling, data: str = argument(f"{FORM}, of rectified pairs.", default=..., **DATA)
) -> None:
    """Label pairs without a truth, to learn from them.

    A pixel's label is the disparity that the network, which sees small pictures enlarged, finds equally from
    both views, unless block matching contradicts it. Elsewhere it has none, and pairs with labels for fewer
    than 30 % of their pixels are left out. Pictures above 1250 x 900 px are reduced.

    Repeat a command that was interrupted, and it goes on. The result is a data set: pairs:FOLDER.

    $ pam dataset label pairs:mine/ -o labelled/
    $ pam dataset label pairs:mine/ -o labelled/ --mirrored
    """
    console = using.console(jsonl=to.jsonl)
    from pamcli.data.open import open_data, parse_data

    spec = parse_data(data)
    source = open_data(spec).without_truth()
    if source.endless:
        raise UsageError(f"{spec.text} has a truth at every pixel", "label pairs that have none")
    target = Path(os.path.realpath(to.output))
    read = (Path(os.path.realpath(path)) for files in source.files for path in (files.left, files.right))
    if any(path.parent in (target / "left", target / "right") for path in read):
        raise UsageError(f"{shown(to.output)} holds the pairs that are to be labelled", "name another folder")
    networks = (Path(os.path.realpath(path)) for path in files_behind(using.weights))
    if any(path.parent.parent == target for path in networks):
        raise UsageError(f"{shown(to.output)} holds the network among its pairs", "name another folder")
    if to.output.exists() and not to.output.is_dir():
        raise UsageError(f"{shown(to.output)} is a file", "name a folder")
    with owned(to.output):
        wanted = [(index, name, False) for index, name in enumerate(source.names)]
        if to.mirrored:
            wanted += [(index, f"{name}{MIRRORED}", True) for index, name, _ in wanted]
            if double := {name for _, name, _ in wanted[len(source) :]} & set(source.names):
                raise UsageError(f"{min(double)} is among the pairs already", f"rename it, or omit {MIRROR}")
        waiting = [one for one in wanted if to.overwrite or not _parts(to.output, one[1])["right"].exists()]
        if there := len(wanted) - len(waiting):
            console.inform(f"{counted(there, 'pair')} of {len(wanted)} labelled there already")
        failed = _label(source, waiting, to, using, console) if waiting else 0
    if len(wanted) > failed:
        console.inform(f"to learn from them: pam train disparity --data pairs:{to.output}")
    if failed:
        raise typer.Exit(BATCH_FAILED)


def _parts(folder: Path, name: str) -> dict[str, Path]:
    """Files of a labelled pair, in the order in which they are written: the last one makes it a pair."""
    flat = name.replace("/", "_")
    suffixes = {"disparity": ".npy", "left": ".png", "right": ".png"}
    return {part: folder / part / f"{flat}{suffix}" for part, suffix in suffixes.items()}


def _label(
    source: Source, waiting: list[tuple[int, str, bool]], to: To, using: Labelling, console: Console
) -> int:
    """Label what is waiting; how many pairs could not be read or matched."""
    path, failed = find_weights(using.name, console), 0
    with console.starting(using.name):
        from pamcli.imaging.disparity_files import encode_disparity
        from pamcli.imaging.images import Picture, encode_picture
        from pamcli.inference.matcher import StereoMatcher
        from pamcli.training.labels import labelled

        matcher = StereoMatcher.load(
            path,
            device=using.device,
            precision=using.precision,
            max_memory=using.max_memory,
            network_from=using.network_from,
        )
    with console.progress("pairs", len(waiting)) as bar:
        for index, name, mirrored in waiting:
            try:
                sample = source.load(index)
                left, right = sample.left, sample.right
                if mirrored:
                    left, right = right[:, ::-1], left[:, ::-1]
                made = labelled(matcher, left, right)
            except InputError as error:
                console.error(f"{name}: {error}")
                failed += 1
            else:
                kept = made.share >= LEAST
                if kept:
                    content = {"disparity": encode_disparity(made.disparity, ".npy").data}
                    for side, view in (("left", made.left), ("right", made.right)):
                        content[side] = encode_picture(Picture(view), ".png", name=name)
                    for part, file in _parts(to.output, name).items():
                        write_atomically(file, content[part])
                left_out = "" if kept else ": too few, left out"
                console.answer(
                    {"pair": name, "labelled": made.share, "kept": kept},
                    f"{name}: {made.share:.0%} of the pixels have a label{left_out}",
                )
            bar.advance()
    return failed
