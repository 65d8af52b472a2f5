"""Write archives for the servers of the stereo benchmarks after the servers' own checks (`pam submit`).

`submissions.toml` has the files of each benchmark. Middlebury and ETH3D accept the training scenes alone, or
training and test scenes. Only Middlebury's dense results are written, not its sparse ones.

Sources: the readme files of KITTI's two development kits; Middlebury's upload-format page; the kit of the
Robust Vision Challenge. Rules without a source are marked "unverified" in the notes of a `Submission`.
"""

import functools
import math
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamcli.data.open import open_data_sets
from pamcli.data.source import Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.disparity import load_method
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.files.atomic import replace_atomically
from pamcli.files.outputs import check_new_file
from pamcli.files.paths import join_names, pluralize
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.registry.catalog import check_network_files
from pamcli.reporting import Reporter
from pamcli.settings.evaluation import SubmitSettings

KINDS = ("kitti2012", "kitti2015", "middlebury", "eth3d")

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest zip date, so that equal submissions give identical archives


class Submission(NamedTuple):
    """An archive that was written, read back, and found complete."""

    kind: str
    images: int
    files: int
    notes: list[str]  # to read before uploading; "unverified" = without a source


@dataclass(frozen=True)
class Rules:
    """The file rules of one benchmark; `submissions.toml` explains the fields."""

    kind: str  # one of `KINDS`
    training: tuple[str, ...]
    test: tuple[str, ...]
    disparity: str
    seconds: str = ""
    seconds_before: str = ""
    holes: bool = True
    notes: Sequence[str] = ()
    size: str = "H"  # size of Middlebury's images: F, H or Q


@functools.cache
def load_rules(kind: str) -> Rules:
    """Load the rules of one of `KINDS`."""
    text = resources.files("pamcli.evaluation").joinpath("submissions.toml").read_text(encoding="utf-8")
    given = tomllib.loads(text)[kind]
    numbered = tuple(f"{index:06}_10" for index in range(given.pop("numbered", 0)))
    training, test = (tuple(given.pop(part, "").split()) for part in ("training", "test"))
    return Rules(kind, training, numbered + test, **given)


def submit(settings: SubmitSettings, listener: Reporter) -> Submission:
    """Write the archive for a benchmark server; raise as `evaluate_disparity`."""
    check_new_file(settings.output, ".zip", overwrite=settings.overwrite)
    check_network_files([settings.output], settings.weights)
    sets = open_data_sets(settings.data)
    rules, seconds = plan_submission(sets), settings.prediction_seconds
    if seconds is not None and not rules.seconds:
        raise UsageError("`prediction_seconds` applies only to archives for Middlebury and ETH3D")
    if settings.predictions is not None and rules.seconds and seconds is None:
        message = f"a submission to {rules.kind} contains the run time, which result files do not contain"
        raise UsageError(message, "give the seconds per pair with `prediction_seconds`")
    method = load_method(settings, listener, extras=False, seconds=seconds)

    def results() -> Iterator[tuple[str, Estimate]]:
        for source in sets:
            method.open_set(source)
            for index, name in enumerate(source.names):
                if found := method.run(source.load(index), bar.watch):
                    yield name, found
                bar.advance()

    with listener.progress("pairs", sum(map(len, sets))) as bar:
        return write_submission(settings.output, rules, results())


def plan_submission(sets: Sequence[Source]) -> Rules:
    """Return the archive rules for these data sets; raise UsageError or InputError if they fit none."""
    specs = [source.spec for source in sets if source.spec]
    kinds = sorted({spec.info.name for spec in specs})
    if len(kinds) != 1 or kinds[0] not in KINDS:
        message = f"cannot submit results on {', '.join(kinds)}"
        raise UsageError(message, f"give one data set of {', '.join(KINDS)}")
    (kind,) = kinds
    # The training pairs of KITTI 2015 have the same names as its test pairs.
    if kind.startswith("kitti") and any(spec.split != "testing" for spec in specs):
        raise UsageError(f"{kind} accepts results on its testing pairs only", f"give {kind}/testing:PATH")
    rules = load_rules(kind)
    names = [name for source in sets for name in source.names]
    check_complete(rules, names)
    if kind != "middlebury":
        return rules
    tops = {name.rpartition("/")[0] for name in names}
    if not tops <= {f"{part}{size}" for part in ("training", "test") for size in "FHQ"}:
        raise UsageError(
            "a submission to Middlebury requires the pairs of its version 3 evaluation",
            "give the folder MiddEval3, which contains trainingF, testF and so on",
        )
    size, *others = sorted({top[-1] for top in tops})
    if others:
        message = f"a submission must have images of one size, got {', '.join((size, *others))}"
        raise UsageError(message, "choose one with ?size=")
    return replace(rules, size=size)


def check_complete(rules: Rules, names: Iterable[str]) -> None:
    """Raise InputError if an archive of these samples is incomplete, naming the first missing ones."""
    given = [name.rpartition("/")[2] for name in names]
    if repeated := sorted({name for name in given if given.count(name) > 1}):
        raise InputError(f"two images for one file of a {rules.kind} submission: {join_names(repeated)}")
    if unknown := [name for name in given if name not in {*rules.training, *rules.test}]:
        images = pluralize(len(unknown), "image")
        raise InputError(f"{images} not part of {rules.kind}: {join_names(unknown)}")
    # Training scenes alone if allowed and no test scene is given, else all scenes.
    alone = rules.training and not {*given} & {*rules.test}
    wanted = rules.training if alone else (*rules.training, *rules.test)
    if missing := [name for name in wanted if name not in {*given}]:
        images = pluralize(len(missing), "image")
        raise InputError(f"incomplete for {rules.kind}: {images} missing: {join_names(missing)}")


def write_submission(path: Path, rules: Rules, results: Iterable[tuple[str, Estimate]]) -> Submission:
    """Write an archive of (sample, estimate), read it back, and only then move it into place."""
    written: list[str] = []
    files: list[str] = []
    saturated = 0
    with replace_atomically(path) as temporary:
        with zipfile.ZipFile(temporary, "x") as archive:
            for sample, found in results:
                name = sample.rpartition("/")[2]
                if name in written or name not in {*rules.training, *rules.test}:
                    check_complete(rules, [*written, name])
                written.append(name)
                seconds = found.seconds or math.nan
                _check(sample, found.disparity, seconds, rules)
                encoded = encode_disparity(found.disparity, Path(rules.disparity).suffix)
                saturated += encoded.saturated
                contents = {rules.disparity: encoded.data}
                if rules.seconds:
                    contents[rules.seconds] = f"{rules.seconds_before}{seconds:.6g}".encode()
                part = "training" if name in rules.training else "test"
                for template, data in contents.items():
                    info = zipfile.ZipInfo(template.format(part=part, name=name, size=rules.size), _EPOCH)
                    info.create_system = 3  # Unix, on every system
                    info.external_attr = 0o644 << 16
                    is_png = template.endswith(".png")  # compressed already
                    info.compress_type = zipfile.ZIP_STORED if is_png else zipfile.ZIP_DEFLATED
                    archive.writestr(info, data, compresslevel=6)
                    files.append(info.filename)
        check_complete(rules, written)
        with zipfile.ZipFile(temporary) as archive:
            if archive.testzip() is not None or archive.namelist() != files:
                raise InputError(f"{path} was damaged while it was written", "check the disk")
    alone = f"only the {len(rules.training)} training scenes, not ranked in the table of the test set"
    clipped = f"{saturated} pixels exceed 255.996 px, the largest disparity that the files can store"
    notes = [clipped] * bool(saturated)
    notes += [alone] * bool(rules.training and not {*written} & {*rules.test})
    return Submission(rules.kind, len(written), len(files), [*notes, *rules.notes])


def _check(name: str, disparity: NDArray[np.floating], seconds: float, rules: Rules) -> None:
    """Raise InputError if the server would reject the result or score it as worthless."""
    known = disparity[np.isfinite(disparity)]
    if known.size == 0:
        raise InputError(f"{name} has no estimate at any pixel")
    low, high, width = float(known.min()), float(known.max()), disparity.shape[1]
    missing = pluralize(disparity.size - known.size, "pixel")
    problem: tuple[str, str | None]
    if not rules.holes and known.size < disparity.size:
        problem = f": {missing} without an estimate, but the file must be dense", "fill the holes first"
    elif low < 0:
        problem = f" contains a negative disparity, {low:g} px", "left disparities must be positive"
    elif high > width:
        problem = f" contains a disparity of {high:g} px, but the image is only {width} px wide", None
    elif high < 1:
        hint = "disparities must be in pixels, not divided by the width or by 256"
        problem = f": the largest disparity is {high:g} px", hint
    elif rules.seconds and not (math.isfinite(seconds) and seconds > 0):
        problem = f": the run time must be above 0 s, got {seconds:g} s", None
    else:
        return
    raise InputError(name + problem[0], problem[1])
