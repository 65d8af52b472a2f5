"""pam eval: how far disparities are from the truth, and what enlarged pictures are worth beside bicubic."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pamcli.cli import options, parsing
from pamcli.cli.console import Console
from pamcli.cli.groups import OptionGroup, flag, option, set_options
from pamcli.cli.network import Matching, Upscaling
from pamcli.cli.options import DATA, FORM, PRECISION, Compute, Precision, at_most_one
from pamcli.errors import UsageError
from pamcli.files.finding import shown as shown_path
from pamcli.files.outputs import check_beside, check_new_file
from pamcli.registry.catalog import DEFAULT_SCALE, keep_networks

if TYPE_CHECKING:
    from pamcli.data.source import Source
    from pamcli.evaluation.methods import Method
    from pamcli.evaluation.run import Task


class Exact(Compute):
    """How figures are computed: in fp32, if nothing else is said."""

    precision: Precision = option(PRECISION, default="fp32")


class DataSets(OptionGroup, panel="Input"):
    """Data sets, and whose results. Raises UsageError for what goes with files alone."""

    data: list[str] = option(
        "Take the pairs of this data set of `pam dataset list`; may be given several times.",
        default=...,
        **(DATA | {"metavar": FORM}),
    )
    predictions: Path | None = option(
        "Take the results in this folder, which any program may have made, not a network's.", metavar="FOLDER"
    )

    def __post_init__(self) -> None:
        about_files = {"--allow-missing", "--prediction-scale", "--prediction-seconds"}
        if not self.has_files() and (asked := sorted(about_files & {*set_options(self)})):
            raise UsageError(f"{', '.join(asked)}: about files, and no --predictions are given")

    def has_files(self) -> bool:
        """Whether results are taken from files."""
        return self.predictions is not None

    def opened(self, console: Console) -> list[Source]:
        """Open every data set. Raises UsageError, InputError."""
        from pamcli.evaluation.run import opened

        sets = opened(self.data)
        for text, source in zip(self.data, sets, strict=True):
            console.detail(f"{text}: {len(source)} pairs")
        return sets


class Disparities(DataSets, panel="Input"):
    """Disparities of a network, or in files."""

    prediction_scale: float = option(
        "Multiply the numbers in the files by this factor.", default=1.0, metavar="X"
    )

    def check(self, network: Matching) -> None:
        """Raise UsageError where files are given, and something about a network beside."""
        alone = {"--predictions": self.predictions}
        at_most_one({**alone, "--weights": network.weights})
        at_most_one({**alone, "--network-from": network.network_from})
        if self.predictions is not None and network.max_disparity != "stored":
            raise UsageError("--max-disparity is about a network, and none is run")

    def method_alone(self, network: Matching, compute: Exact, console: Console, **files: Any) -> Method:
        """Load the network, unless files are given. files: fields of a `FilesMethod`."""
        from pamcli.evaluation.methods import FilesMethod, NetworkMethod

        if self.predictions is not None:
            return FilesMethod(self.predictions, self.prediction_scale, **files)
        matcher, path = network.load(compute, console)
        return NetworkMethod(matcher, network.name, path)


class Shown(options.NewFile):
    """Where the figures go."""

    as_json: bool = flag("Print one JSON object instead of tables.", "--json")
    per_image: Path | None = option("Write the figures of every picture.", metavar="FILE.csv")
    report: Path | None = option("Write a report that a browser shows, in one file.", metavar="FILE.html")
    table: list[Path] | None = option(
        "Write what is printed as a table for a paper or a page; may be given several times.",
        metavar="FILE.tex|.md|.csv",
    )
    compare: bool = flag("Show published figures for these sets beside it.")

    def check(self, data: Iterable[str], *weights: str | None) -> None:
        """Check the files that are to be written, before any work. Raises UsageError, OutputError.

        data: sets, as of --data, which may be lists in files. weights: what networks are read from.
        """
        from pamcli.data.open import parse_data

        named = (parse_data(each).path for each in data)
        lists = [place for place in named if place is not None and place.is_file()]
        files = [("--per-image", self.per_image, [".csv"]), ("--report", self.report, [".html"])]
        files += [("--table", path, [".tex", ".md", ".csv"]) for path in self.table or ()]
        for name, path, suffixes in files:
            if path is not None:
                check_new_file(path, *suffixes, overwrite=self.overwrite, option=name)
        paths = [path for _, path, _ in files if path is not None]
        keep_networks(paths, *weights)
        places = [os.path.realpath(path) for path in paths]
        for path, place in zip(paths, places, strict=True):
            if places.count(place) > 1:
                raise UsageError(f"{shown_path(path)} is asked for twice", "give each file its own name")
        for path in paths:
            check_beside(path, lists)


def measured(
    task: Task[Any, Any, Any], sets: list[Source], methods: list[Method], shown: Shown, console: Console
) -> None:
    """Measure, write the files that were asked for, then print the tables, or everything as JSON."""
    from pamcli.evaluation.results import WORST
    from pamcli.evaluation.run import evaluate

    how: dict[str, Any] = {"compare": shown.compare, "worst": WORST if shown.report else 0}
    with console.progress("pairs", sum(map(len, sets))) as bar:
        found = evaluate(task, sets, methods, **how, advance=bar.advance, watch=bar.watch)
    try:
        found.write(per_image=shown.per_image, report=shown.report, tables=shown.table or ())
    finally:  # what was measured for hours is printed, whatever became of the files
        for warning in found.warnings:
            console.warn(warning)
        # On stdout, too: a table that was kept without them cannot be compared with anything.
        lines = [f"{name}: {value}" for name, value in found.facts]
        lines += [f"note: {note}" for note in found.notes]
        tables = found.text(shutil.get_terminal_size().columns).split("\n")
        console.answer(found.json(), *tables, "", *lines)


def _protocols() -> Iterable[str]:
    from pamcli.evaluation.protocols import PROTOCOLS

    return PROTOCOLS


class DisparityInput(Disparities):
    """What is measured, and how."""

    allow_missing: bool = flag("Leave out samples that have no prediction.")
    method: list[tuple[str, str]] | None = option(
        "Compare methods side by side, one for each time it is given. WHAT: a network as of --weights, "
        "files:FOLDER, opencv (StereoSGBM), opencv-wls. Differences are to the first.",
        metavar="[NAME=]WHAT",
        parse=parsing.method,
    )
    protocol: list[str] | None = option(
        "Measure by the rules of this name (pam eval protocols lists them); given several times, each has "
        "a column. By default by those of each data set's benchmark.",
        metavar="NAME",
        autocompletion=options.completing(_protocols),
    )
    max_gt: float | None = option(
        "Count only true disparities below this; the paper's limit is 192.", metavar="PX", parse=None
    )
    resize: tuple[int, int] | None = option(
        "Bring pictures and truth to this size first.", metavar="WxH", parse=parsing.picture_size
    )
    study: Literal["resolution", "range"] | None = option(
        "resolution: measure also with pictures of 0.25 to 2 times the size; range: also by range of the "
        "truth and with fixed maximum disparities."
    )

    def has_files(self) -> bool:
        return super().has_files() or any(what.startswith("files:") for _, what in self.method or ())

    def check(self, network: Matching) -> None:
        super().check(network)
        asked = {"--method": self.method}
        at_most_one({**asked, "--predictions": self.predictions, "--weights": network.weights})
        at_most_one({**asked, "--study": self.study})

    def methods(self, network: Matching, compute: Exact, console: Console) -> list[Method]:
        """Load what --method names, each in turn; else the one that is measured alone."""
        from pamcli.evaluation.methods import method_of
        from pamcli.registry.description import SUFFIX, read_description

        if not self.method:
            return [self.method_alone(network, compute, console, allow_missing=self.allow_missing)]
        given: dict[str, Any] = {"scale": self.prediction_scale, "allow_missing": self.allow_missing}
        given["max_disparity"] = network.max_disparity if isinstance(network.max_disparity, int) else None
        described = [Path(what) for _, what in self.method if what.endswith(SUFFIX)]
        made = [
            str(path) for path in described if network.network_from and not read_description(path).network
        ]
        if network.network_from and not made:
            raise UsageError("no --method is a description (.toml) of a network that --network-from makes")

        def load(what: str) -> tuple[Any, Path]:
            source = network.network_from if str(Path(what)) in made else None
            return replace(network, weights=what, network_from=source).load(compute, console)

        return [method_of(name, what, load, **given) for name, what in self.method]


def disparity(
    given: DisparityInput, shown: Shown, network: Matching, compute: Exact, messages: options.Messages
) -> None:
    """Measure disparity on data sets with ground truth: of a network, or of files by any program.

    Figures are given pooled over all pixels of a set (the headline) and as means of the pictures.

    $ pam eval disparity --data kitti2015:kitti --method ours=pasmnet2 --method opencv --report both.html
    $ pam eval disparity --data kitti2015:kitti --predictions made/ --protocol kitti --protocol raft-stereo
    """
    from pamcli.evaluation.disparity import Disparity

    console = messages.console(jsonl=shown.as_json)
    given.check(network)
    shown.check(given.data, network.weights, *(what for _, what in given.method or ()))
    comparing = len(given.method or ()) > 1
    rules = tuple(given.protocol or ())
    task = Disparity(given.max_gt, given.resize, given.study, comparing, rules)
    sets = given.opened(console)
    measured(task, sets, given.methods(network, compute, console), shown, console)


class SuperresInput(DataSets):
    """Pictures to measure."""

    allow_missing: bool = flag("Leave out samples that have no prediction.")
    baseline_only: bool = flag("Measure bicubic enlargement alone, without a network.")
    right_view: Literal["both", "right", "left"] = option(
        "left: give the network the left view twice. right: give it the right one. both: tell besides what "
        "the second view is worth, for up to twice the time.",
        default="both",
    )
    degrade: str | None = option(
        "Degrade the reduced pictures as a camera does before they are enlarged: KEY=VALUE,... of jpeg "
        "(quality), noise (levels of 255), blur (px), sharpening (share).",
        metavar="KEY=VALUE,...",
        parse=parsing.name,
    )
    save: Path | None = option(
        "Write enlarged views: <name>_left.png, _right.png.", metavar="FOLDER", rich_help_panel="Output"
    )


def superres(
    given: SuperresInput,
    shown: Shown,
    network: Upscaling,
    compute: Exact,
    messages: options.Messages,
) -> None:
    """Measure super-resolution on data sets: of a network, or of pictures by any program.

    Pictures are cut to a multiple of the scale, reduced by MATLAB's bicubic, rounded to 8 bits, enlarged, and
    compared in 8 bits; bicubic's figures always stand beside. Degraded ones are also denoised by OpenCV and
    enlarged by bicubic.

    $ pam eval superres --scale 4 --data 'kitti2012/testing:kitti2012?first=20' --save larger/ --compare
    $ pam eval superres --scale 4 --data kitti2012/testing:kitti2012 --degrade jpeg=75,noise=3 --baseline-only
    """
    console = messages.console(jsonl=shown.as_json)
    predictions, save, alone = given.predictions, given.save, given.baseline_only
    at_most_one({"--predictions": predictions, "--weights": network.weights, "--baseline-only": alone})
    if (predictions is not None or alone) and (given.right_view != "both" or save is not None):
        raise UsageError("--right-view and --save are about a network, and none is run")
    if predictions is not None and given.degrade is not None:
        raise UsageError("--degrade: the pictures in --predictions were made of others")
    shown.check(given.data, network.weights)
    sets, keep = given.opened(console), None
    if save is not None:
        from pamcli.evaluation.saved_views import SavedViews

        keep = SavedViews(save, sets, network.weights, overwrite=shown.overwrite)
    from pamcli.evaluation.methods import FilesMethod, NetworkMethod
    from pamcli.evaluation.opencv_methods import DenoisedBicubic
    from pamcli.evaluation.superres import Superres
    from pamcli.imaging.degrading import parse_degradation

    degradation = None if given.degrade is None else parse_degradation(given.degrade, "--degrade")
    methods: list[Method] = [] if degradation is None else [DenoisedBicubic(degradation)]
    factor = network.scale or DEFAULT_SCALE
    if not isinstance(factor, int):
        raise UsageError(f"--scale {factor:g}: pairs are measured at whole scales", "2, 3 or 4")
    if predictions is not None:
        methods.append(FilesMethod(predictions, allow_missing=given.allow_missing))
    elif not alone:
        upscaler, path = network.load(compute, console)
        factor = int(upscaler.scale)
        name = Path(network.name).stem + (", ensemble" if network.ensemble else "")
        methods.append(NetworkMethod(upscaler, name, path, given.right_view, keep))
    measured(Superres(factor, degradation), sets, methods, shown, console)


def protocols(
    name: str | None = options.one_or_all("the rules", _protocols),
    jsonl: bool = options.JSONL,
) -> None:
    """Show what papers and benchmarks mean by their figures of disparity: rules by name, for --protocol.

    With a name: which figures are stated under these rules, on what data sets they differ, and the source.

    $ pam eval protocols
    $ pam eval protocols raft-stereo
    """
    from pamcli.evaluation.protocols import PROTOCOLS, check_protocol

    console = Console(jsonl=jsonl)
    if name is not None:
        check_protocol(name)
    for each in [name] if name else PROTOCOLS:
        row = PROTOCOLS[each]
        told = {", ".join(data) or "any data": rules.figures() for data, rules in row.told()}
        entry = {"name": each, "about": row.about, "source": row.source, "figures": told}
        if name is None:
            console.answer(entry, f"{each:18} {row.about}")
        else:
            lines = [
                line for data, each in told.items() for line in (f"{data}:", *(f"  {one}" for one in each))
            ]
            console.answer(entry, row.about, f"source: {row.source}", "", *lines)
