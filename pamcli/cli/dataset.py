"""pam dataset: what data sets pam reads; of one on disk whether it is whole, what it looks like, its figures.

`label` finds disparities to learn from; `prepare-flickr1024` has a file of its own.
"""

import os
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pamcli.cli.completing import one_or_all
from pamcli.cli.console import JSONL, Console, Quiet
from pamcli.cli.groups import command, group
from pamcli.errors import BATCH_FAILED, InputError, UsageError
from pamcli.files.atomic import lock_folder
from pamcli.files.outputs import check_extra_output, check_new_file
from pamcli.files.paths import join_names, pluralize
from pamcli.files.suffixes import IMAGE_OUTPUT_SUFFIXES
from pamcli.registry.catalog import locate
from pamcli.settings.data import LabelSettings
from pamcli.settings.options import argument, option
from pamcli.settings.shared import DATA, FORM, WORKERS, NewFile

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher

app = group("List, check, preview, measure, label and prepare data sets.")

GIVEN = argument(f"{FORM}, with the names, splits and keys of `pam dataset list`.", default=..., **DATA)

_WIDTH = 100  # characters, where a line of `list` may be broken
_MOST_ROWS = 200  # of a contact sheet, which is held in memory: about 0.3 GB
LISTS = ("copies", "near_copies", "same_views", "damaged")  # of names, in a set's figures
_PATCHES = 1000  # of a tree of patches, which show every part of a picture nearly seven times


@command(app, "list", "List the data sets that can be read.")
def list_sources(
    name: str | None = one_or_all("the data set", "data sets"),
    jsonl: bool = JSONL,
) -> None:
    """Show what can be read: names, splits, keys, expected tree.

    $ pam dataset list
    $ pam dataset list kitti2015
    """
    from pamcli.data.open import unknown_error
    from pamcli.data.sources import COMMON_KEYS, SOURCES

    console = Console(jsonl=jsonl)
    if name is not None and name not in SOURCES:
        raise unknown_error("data set", name, list(SOURCES))
    for row in SOURCES.values() if name is None else [SOURCES[name]]:
        keys = [*map(asdict, (*row.keys, *COMMON_KEYS))]
        values = {"name": row.name, "about": row.about, "splits": row.splits, "keys": keys, "tree": row.tree}
        console.answer({**values, "unverified": row.unverified or None}, *row.describe(_WIDTH), "")
    if not jsonl:
        every = ", ".join(f"{key.name} ({key.meaning})" for key in COMMON_KEYS)
        console.result(f"Given as {FORM}; the first split is the default.")
        console.result(f"Keys of every data set: {every}.")


@command(app, "verify", "Check whether data sets are whole and sound.")
def verify(messages: Quiet, data: list[str] = GIVEN, jsonl: bool = JSONL) -> None:
    """Check that data sets are whole and sound.

    Every file is read, and every truth is tried on its pictures.

    A line of stdout for whatever is wrong, and a last one with the counts. Damage (a view without the other,
    a file that cannot be read, sizes that differ, a truth that does not warp the right picture onto the left
    one) ends with 3; what is merely not there is reported and ends with 0.

    $ pam dataset verify kitti2015:kitti 'pairs:mine?first=20'
    $ pam dataset verify flickr1024:data/flickr1024
    """
    from pamcli.data.open import open_data, parse_data

    console = messages.console(jsonl=jsonl)
    specs = [parse_data(each) for each in data]
    # All are opened before any is read: reading takes long, and a mistyped path is reported at once.
    sources = [open_data(spec) for spec in specs]
    from pamcli.data.verify import verify as findings_of

    damaged = 0
    with console.progress("verifying", sum(map(len, sources))) as bar:
        for spec, source in zip(specs, sources, strict=True):
            counts = Counter({"damage": 0, "incomplete": 0})
            for finding in findings_of(source, lambda done: bar.advance()):
                counts[finding.severity] += 1
                facts = {**asdict(finding), "sample": finding.sample or None}
                console.answer({"kind": "finding", "data": spec.text, **facts}, f"{spec.text}: {finding}")
            damaged += counts["damage"]
            place = {"name": spec.info.name, "split": spec.split, "path": spec.path, "pairs": len(source)}
            unverified = {"unverified": spec.info.unverified or None}
            found = ", ".join(f"{count} {severity}" for severity, count in counts.items())
            unsure = f"; layout unverified: {spec.info.unverified}" if spec.info.unverified else ""
            console.answer(
                {"kind": "summary", "data": spec.text, **place, **counts, **unverified},
                f"{spec.text}: {pluralize(len(source), 'pair')}, {found}{unsure}",
            )
    if damaged:
        raise typer.Exit(InputError.exit_code)


class Sheet(NewFile):
    """The contact sheet."""

    output: Path = option("Picture to write: .png, .jpg, .webp, .tif.", "-o", default=..., metavar="FILE")
    count: int = option(
        "Draw so many samples, spread evenly over the set.",
        default=8,
        min=1,
        max=_MOST_ROWS,
    )


@command(app, "preview", "Draw pairs of a data set in one picture.")
def preview(sheet: Sheet, messages: Quiet, data: str = GIVEN) -> None:
    """Draw a contact sheet of a data set.

    A row a sample, with left and right picture, disparity, and occlusion.

    Occlusion is white where both views see a pixel, black where the left one alone does, grey where that is
    not known. A cell stays dark where the data set does not have the part.

    $ pam dataset preview kitti2015:kitti -o sheet.png --count 12
    $ pam dataset preview flickr1024:data/flickr1024 -o sheet.png
    """
    from pamcli.data.open import open_data, parse_data

    console, output = messages.console(), sheet.output
    check_new_file(output, *IMAGE_OUTPUT_SUFFIXES, overwrite=sheet.overwrite)
    spec = parse_data(data)
    source = open_data(spec)
    parts = (path for files in source.files for path in (files.left, files.right, *files.parts.values()))
    check_extra_output(output, [*parts])
    if spec.info.unverified:
        console.inform(f"{spec.text}: layout unverified: {spec.info.unverified}")
    for line in source.absent:
        console.inform(f"{spec.text}: {line}")
    if source.unpaired:
        console.warn(f"{spec.text}: {join_names(source.unpaired, '; ')}")
    from pamcli.data.preview import render_contact_sheet
    from pamcli.imaging.images import write_image

    write_image(output, render_contact_sheet(source, sheet.count))
    console.path(output)


@command(app, "stats", "Measure sizes, disparities, sharpness, duplicates.")
def stats(
    messages: Quiet,
    data: list[str] = argument(f"{FORM}, or a folder of prepare-flickr1024.", default=..., **DATA),
    count: int | None = option("Look at so many pairs, spread over the set.", min=1, show_default="all"),
    workers: int | None = WORKERS,
    jsonl: bool = JSONL,
) -> None:
    """Measure the pictures of data sets.

    Pairs and pixels per image as in the paper's table of data sets, whose rows stand below; the range of
    disparities, estimated by block matching; sharpness (mean gradient) and entropy (bits) of the left
    pictures; pairs that are there twice.

    $ pam dataset stats data/flickr1024
    $ pam dataset stats kitti2015:kitti --count 100 --jsonl
    """
    from pamcli.data.open import is_data_spec, open_data

    console = messages.console(jsonl=jsonl)
    # Of a folder that `prepare-flickr1024` made, the pictures that its patches are cut from.
    sets = []
    for label in data:
        is_folder = Path(os.path.expanduser(label.partition("?")[0])).is_dir()
        label = label if is_data_spec(label) or not is_folder else f"flickr1024:{label}"
        opened = open_data(label)
        pictures = opened.whole_images().without_truth()
        if pictures is not opened and opened.spec and opened.spec.first is not None:
            pictures = pictures.first(opened.spec.first)
        sets.append((label, pictures))
    from pamcli.data.statistics import measure_data_set
    from pamcli.evaluation.published import table_of_sets
    from pamcli.evaluation.results import json_row, text_table
    from pamcli.workers import default_workers

    rows = []
    for label, source in sets:
        if source.has_patches:
            console.inform(f"{label} holds patches without their pictures: figures are of patches")
        chosen = source.spread(count or (_PATCHES if source.has_patches else len(source)))
        with console.progress(label, len(chosen)) as bar:
            figures = measure_data_set(source, chosen, workers or default_workers(), bar.advance)
        for name, reason in figures.damaged:
            console.error(f"{label}: {name}: {reason}")
        values = {"data": label, **json_row(figures.row()), "cnniqa": None, "sr_metric": None}
        values |= {each: getattr(figures, each) for each in LISTS}
        console.answer(values, *(f"{label}: {line}" for line in figures.describe_copies()))
        rows.append((label, figures))
    if not jsonl:
        console.block(text_table(table_of_sets(rows)))
        console.inform(
            "of the paper's table, CNNIQA needs the weights of its authors' network, and SR-metric its "
            "authors' MATLAB program with the regression forests in it: neither comes with pam, so neither "
            "is computed"
        )
    if any(figures.damaged for _, figures in rows):
        raise typer.Exit(InputError.exit_code)


@command(app, "label", "Find disparities to learn from, for pairs without a truth.")
def label(settings: LabelSettings, messages: Quiet, jsonl: bool = JSONL) -> None:
    """Label pairs without a truth, to learn from them.

    A pixel's label is the disparity that the network, which sees small pictures enlarged, finds equally from
    both views, unless block matching contradicts it. Elsewhere it has none, and pairs with labels for fewer
    than 30 % of their pixels are left out. Pictures above 1250 x 900 px are reduced.

    With --agree-with another network of yours is asked instead of block matching: fewer labels are wrong.

    Repeat a command that was interrupted, and it goes on. The result is a data set: pairs:FOLDER.

    $ pam dataset label pairs:mine/ -o labelled/
    $ pam dataset label pairs:mine/ -o agreed/ --agree-with pasmnet
    """
    console, to = messages.console(jsonl=jsonl), settings
    from pamcli.data.open import open_data

    given, failed, kept = open_data(settings.data), 0, 0
    source = given.without_truth()
    with lock_folder(to.output):
        with console.starting(str(settings.name)):
            from pamcli.training.labels import LEAST, label_pairs, select_pairs_to_label
        wanted = select_pairs_to_label(
            source,
            to.output,
            mirrored=to.mirrored,
            overwrite=to.overwrite,
            networks=[to.weights, to.agree_with],
            truths=[path for each in given.files for path in each.parts.values()],
        )
        matcher, second = _labelling(settings, console) if wanted else (None, None)
        labelled = label_pairs(matcher, source, wanted, to.output, second=second) if matcher else ()
        with console.progress("pairs", len(wanted)) as bar:
            for sample, found in labelled:
                if isinstance(found, InputError):
                    console.error(f"{sample}: {found}")
                    failed += 1
                else:
                    line = f"{sample}: {found:.0%} of the pixels have a label"
                    facts = {"pair": sample, "labelled": found, "kept": found >= LEAST}
                    kept += found >= LEAST
                    console.answer(facts, line if found >= LEAST else f"{line}: too few, left out")
                bar.advance()
    if kept or not wanted:
        console.inform(f"to learn from them: pam train disparity --data pairs:{to.output}")
    if failed:
        raise typer.Exit(BATCH_FAILED)


def _labelling(settings: LabelSettings, console: Console) -> "tuple[StereoMatcher, StereoMatcher | None]":
    """Load the network that labels, and the other one. Raises as `load_matcher`; UsageError: they are one."""
    from pamcli.inference.loading import load_matcher

    other = settings.agree_with
    if other is not None and locate(other) == locate(settings.name):
        said = f"`agree_with` {other} is the network itself, which always agrees"
        raise UsageError(said, "name another one")
    with console.starting(str(settings.name)):
        first = load_matcher(settings)[0]
        if other is None:
            return first, None
        return first, load_matcher(replace(settings, weights=other, network_from=None))[0]
