"""Define `pam dataset`: list, verify, preview, measure and label data sets."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pamcli.cli.console import Console
from pamcli.cli.groups import make_name_argument
from pamcli.errors import BATCH_FAILED, InputError, UsageError
from pamcli.files.atomic import lock_folder
from pamcli.files.outputs import check_extra_output, check_new_file
from pamcli.files.paths import join_names, pluralize
from pamcli.files.suffixes import IMAGE_OUTPUT_SUFFIXES
from pamcli.registry.catalog import locate
from pamcli.settings.data import LabelSettings, PrepareSettings
from pamcli.settings.options import argument, option
from pamcli.settings.parsing import DataSet
from pamcli.settings.shared import FORM, MatcherSettings, NewFile, Workers

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher

GIVEN = argument(f"{FORM}, with the names, splits and keys of `pam dataset list`.", default=...)

_WIDTH = 100  # characters per line of `list`
_MOST_ROWS = 200  # rows of a contact sheet, about 0.3 GB of memory
LISTS = ("copies", "near_copies", "same_views", "damaged")  # lists of pairs in the JSON of `stats`
_PATCHES = 1000  # patches to measure by default; they overlap nearly sevenfold


def list_sources(
    console: Console, name: str | None = make_name_argument("the data set", "data sets")
) -> None:
    """List the supported data sets: names, splits, keys and expected files.

    $ pam dataset list
    $ pam dataset list kitti2015
    """
    from pamcli.data.open import unknown_name_error
    from pamcli.data.sources import COMMON_KEYS, SOURCES

    if name is not None and name not in SOURCES:
        raise unknown_name_error("data set", name, list(SOURCES))
    for row in SOURCES.values() if name is None else [SOURCES[name]]:
        keys = [asdict(key) for key in (*row.keys, *COMMON_KEYS)]
        values = {"name": row.name, "about": row.about, "splits": row.splits, "keys": keys, "tree": row.tree}
        console.answer({**values, "unverified": row.unverified or None}, *row.describe(_WIDTH), "")
    if not console.jsonl:
        every = ", ".join(f"{key.name} ({key.meaning})" for key in COMMON_KEYS)
        console.result(f"Specify a data set as {FORM}; the first split is the default.")
        console.result(f"Keys of every data set: {every}.")


def verify(console: Console, data: Sequence[DataSet] = GIVEN) -> None:
    """Check data sets for missing and damaged files.

    Every file is read, and every ground truth is compared with its images.

    Each problem is one line of stdout; the last line has the counts. The exit code is 3 if there is damage:
    an image without a counterpart, an unreadable file, different sizes, or ground truth that does not warp
    the right image onto the left one. Missing parts are reported, with exit code 0.

    $ pam dataset verify kitti2015:kitti 'pairs:mine?first=20'
    $ pam dataset verify flickr1024:data/flickr1024
    """
    from pamcli.data.open import open_data, parse_data

    specs = [parse_data(each) for each in data]
    # Open everything before reading, which takes long, to report a mistyped path at once.
    sources = [open_data(spec) for spec in specs]
    from pamcli.data.verify import verify as find_problems

    damaged = 0
    with console.progress("verifying", sum(map(len, sources))) as bar:
        for spec, source in zip(specs, sources, strict=True):
            counts = Counter({"damage": 0, "incomplete": 0})
            for finding in find_problems(source, lambda done: bar.advance()):
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
    """Options of the contact sheet."""

    output: Path = option("Image to write: .png, .jpg, .webp or .tif.", "-o", default=..., metavar="FILE")
    count: int = option("Show N samples, spread evenly over the data set.", default=8, min=1, max=_MOST_ROWS)


def preview(sheet: Sheet, console: Console, data: DataSet = GIVEN) -> None:
    """Write a contact sheet of a data set.

    Each row shows one sample: left image, right image, disparity map and visibility.

    Visibility is white for pixels visible in both images, black for occluded pixels, and grey where it is
    unknown. Cells of parts that the data set lacks stay dark.

    $ pam dataset preview kitti2015:kitti -o sheet.png --count 12
    $ pam dataset preview flickr1024:data/flickr1024 -o sheet.png
    """
    from pamcli.data.open import open_data, parse_data

    output = sheet.output
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


def stats(
    console: Console,
    processes: Workers,
    data: Sequence[DataSet] = argument(f"{FORM}, or a folder made by prepare-flickr1024.", default=...),
    count: int | None = option("Measure N pairs, spread evenly over the set [default: all].", min=1),
    cnniqa: Path | None = option("Compute CNNIQA with the weights in FILE.", metavar="FILE"),
) -> None:
    """Measure the images of data sets.

    Shows pairs and pixels per image, with the paper's table of data sets for comparison; the range of
    disparities (px), estimated by block matching; sharpness (mean gradient) and entropy (bits) of the left
    images; and duplicate pairs.

    With --cnniqa, shows the image quality CNNIQA of both views (lower is better). `pam guide patches` says
    where its weights are published. Where pyiqa is installed, shows SR-metric too (higher is better).

    $ pam dataset stats data/flickr1024
    $ pam dataset stats kitti2015:kitti --count 100 --jsonl
    """
    from pamcli.data.open import is_data_spec, open_data

    # For packed patches, measure the images that they are cut from.
    sets = []
    for label in data:
        is_folder = Path(os.path.expanduser(label.partition("?")[0])).is_dir()
        label = label if is_data_spec(label) or not is_folder else f"flickr1024:{label}"
        opened = open_data(label)
        images = opened.whole_images().without_truth()
        if images is not opened and opened.spec and opened.spec.first is not None:
            images = images.first(opened.spec.first)
        sets.append((label, images))
    scores = {}
    if cnniqa is not None or find_spec("pyiqa") is not None:
        from pamcli.evaluation.image_quality import load_scores, measure_quality

        scores = load_scores(cnniqa)
    from pamcli.data.statistics import measure_data_set
    from pamcli.evaluation.published import make_data_set_table
    from pamcli.evaluation.results import format_text, to_json
    from pamcli.workers import default_workers

    rows = []
    for label, source in sets:
        if source.has_patches:
            console.inform(f"{label} contains patches without their images: the patches are measured")
        chosen = source.spread(count or (_PATCHES if source.has_patches else len(source)))
        with console.progress(label, len(chosen)) as bar:
            figures = measure_data_set(source, chosen, processes.workers or default_workers(), bar.advance)
        for name, reason in figures.damaged:
            console.error(f"{label}: {name}: {reason}")
        quality = {}
        if scores:
            with console.progress(f"quality of {label}", len(chosen)) as bar:
                quality = measure_quality(source, chosen, scores, bar.advance)
        values = {"data": label, **to_json(figures.row()), "cnniqa": None, "sr_metric": None}
        values |= to_json(quality)
        values |= {each: getattr(figures, each) for each in LISTS}
        console.answer(values, *(f"{label}: {line}" for line in figures.describe_copies()))
        rows.append((label, figures, quality))
    if not console.jsonl:
        console.block(format_text(make_data_set_table(rows)))
        missing = {"cnniqa": "CNNIQA requires --cnniqa FILE", "sr_metric": "SR-metric requires pyiqa"}
        if lines := [line for name, line in missing.items() if name not in scores]:
            console.inform(f"not computed: {'; '.join(lines)} (pam guide patches)")
    if any(figures.damaged for _, figures, _ in rows):
        raise typer.Exit(InputError.exit_code)


def label(settings: LabelSettings, console: Console) -> None:
    """Write pseudo-labels for pairs without ground truth, to train on them.

    A pixel gets the network's disparity as its label if both directions of matching and two matching
    resolutions agree, and block matching does not contradict. Pairs with labels for less than 30 % of their
    pixels are skipped. Images above 1250x900 are downscaled.

    With --agree-with, a second network replaces block matching, and fewer labels are wrong.

    Interrupted runs resume where they stopped. The result is a data set: pairs:FOLDER.

    $ pam dataset label pairs:mine/ -o labelled/
    $ pam dataset label pairs:mine/ -o agreed/ --agree-with pasmnet
    """
    to = settings
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
        matcher, second = _load_networks(settings, console) if wanted else (None, None)
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
                    console.answer(facts, line if found >= LEAST else f"{line}: too few, skipped")
                bar.advance()
    if kept or not wanted:
        console.inform(f"to train on these labels: pam train disparity --data pairs:{to.output}")
    if failed:
        raise typer.Exit(BATCH_FAILED)


def _load_networks(settings: LabelSettings, console: Console) -> "tuple[StereoMatcher, StereoMatcher | None]":
    """Load the network that labels, and the one to agree with. Raises UsageError if they are the same."""
    from pamcli.inference.loading import load_matcher

    other = settings.agree_with
    if other is not None and locate(other) == locate(settings.name):
        message = f"`agree_with` {other} is the network that labels, which always agrees with itself"
        raise UsageError(message, "choose another network")
    shared: Any = {name: getattr(settings, name) for name in ("device", "precision", "max_memory")}
    with console.starting(str(settings.name)):
        labelling = MatcherSettings(weights=settings.weights, network_from=settings.network_from, **shared)
        first = load_matcher(labelling)[0]
        return first, None if other is None else load_matcher(MatcherSettings(weights=other, **shared))[0]


def prepare_flickr1024(settings: PrepareSettings, console: Console) -> None:
    """Cut training patches for super-resolution from published pairs or stereograms.

    Pairs are cropped to a multiple of the scale, downscaled with MATLAB's bicubic filter and rounded to 8
    bits. Patches are 90x30 px in the downscaled image, every 20 px, at the authors' offsets. The same input
    gives the same bytes.

    To resume after an interruption, repeat the command. The result is the data set flickr1024:FOLDER.

    $ pam dataset prepare-flickr1024 Flickr1024/ -o data/flickr1024 --scale 4
    $ pam dataset prepare-flickr1024 stereograms/ -o data/mine --from-stereograms --infinity no
    """
    from pamcli.data.preparing import prepare_patches
    from pamcli.flickr1024.resumable import DamagedError

    try:
        for facts, lines in prepare_patches(settings, console):
            console.answer(facts, *lines)
    except DamagedError as error:  # each was reported before
        raise typer.Exit(error.exit_code) from error
