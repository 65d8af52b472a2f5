"""Archives for the servers of the stereo benchmarks; each result is checked as a server would first.

| kind       | files in the archive                                                           | count    |
| ---------- | ------------------------------------------------------------------------------ | -------- |
| kitti2012  | `000000_10.png` ... `000194_10.png`, at the top                                | 195      |
| kitti2015  | `disp_0/000000_10.png` ... `disp_0/000199_10.png`                              | 200      |
| middlebury | `trainingS/SCENE/disp0PAM.pfm`, `trainingS/SCENE/timePAM.txt`, same in `testS` | 30 or 60 |
| eth3d      | `low_res_two_view/SCENE.pfm`, `low_res_two_view/SCENE.txt`                     | 54 or 94 |

S is F, H or Q, the size of the pictures. Middlebury and ETH3D take the training scenes alone, or those and
the test scenes. Middlebury's sparse results (`disp0PAM_s.pfm`) are not made here, only its dense ones.

Sources: the readme files of KITTI's two development kits; Middlebury's upload-format page; the kit of the
Robust Vision Challenge. What is in none of them is said in the notes of a `Submission`, marked "unverified".
"""

import functools
import math
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.methods import FilesMethod, Method, find_disparities, load_disparity
from pamcli.files.atomic import replacing
from pamcli.files.finding import counted, listed
from pamcli.imaging.disparity_files import encode_disparity

KINDS = ("kitti2012", "kitti2015", "middlebury", "eth3d")

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say: one submission, one archive, byte for byte


@dataclass(frozen=True)
class Prediction:
    """The result for one picture."""

    name: str
    """Name of the sample; its last part is the file's or the scene's name in the archive."""
    disparity: NDArray[np.float32]
    """(H, W), pixels, NaN or inf = no estimate, of the size of the picture."""
    seconds: float = math.nan
    """How long the network took; Middlebury and ETH3D ask for it."""


@dataclass(frozen=True)
class Submission:
    """An archive that was written, read back, and found complete."""

    kind: str
    pictures: int
    files: int
    notes: tuple[str, ...]
    """What to know before it is uploaded, a sentence each; "unverified" where a rule rests on memory."""


@dataclass(frozen=True)
class Rules:
    """What one benchmark wants, file by file; the fields are explained in `submissions.toml`."""

    training: tuple[str, ...]
    test: tuple[str, ...]
    disparity: str
    seconds: str = ""
    seconds_before: str = ""
    holes: bool = True
    notes: tuple[str, ...] = ()


@functools.cache
def rules_of(kind: str) -> Rules:
    """Of one of `KINDS`. Raises UsageError: no such kind."""
    if kind not in KINDS:
        raise UsageError(f"no submission is known for {kind!r}", f"take {', '.join(KINDS)}")
    text = resources.files("pamcli.evaluation").joinpath("submissions.toml").read_text(encoding="utf-8")
    given = tomllib.loads(text)[kind]
    numbered = tuple(f"{index:06}_10" for index in range(given.pop("numbered", 0)))
    training, test = (tuple(given.pop(part, "").split()) for part in ("training", "test"))
    return Rules(training, numbered + test, notes=tuple(given.pop("notes", ())), **given)


@dataclass(frozen=True)
class Planned:
    """Which benchmark's archive data sets make."""

    kind: str
    """One of `KINDS`."""
    size: str = "H"
    """Middlebury's: F, H or Q."""

    @property
    def states_seconds(self) -> bool:
        """The archive states the runtime of each picture."""
        return bool(rules_of(self.kind).seconds)


def plan_submission(sets: Sequence[Source]) -> Planned:
    """The archive that these sets make. Raises UsageError, InputError: none, or an incomplete one."""
    specs = [source.spec for source in sets if source.spec]
    kinds = {spec.info.name for spec in specs}
    if len(kinds) != 1 or not kinds <= set(KINDS):
        given = ", ".join(sorted(kinds))
        raise UsageError(f"no benchmark takes an archive of {given}", f"known: {', '.join(KINDS)}")
    (kind,) = kinds
    # The training pairs of KITTI 2015 have the names of the test pairs: complete, and worthless.
    if kind.startswith("kitti") and any(spec.split != "testing" for spec in specs):
        raise UsageError(f"{kind} takes results of its testing pairs alone", f"give {kind}/testing:PATH")
    names = [name for source in sets for name in source.names]
    require_complete(kind, names)
    if kind != "middlebury":
        return Planned(kind)
    tops = {name.rpartition("/")[0] for name in names}
    if not tops <= {f"{part}{size}" for part in ("training", "test") for size in "FHQ"}:
        raise UsageError(
            "a submission to Middlebury needs the pairs of its version 3 evaluation",
            "give the folder MiddEval3, which holds trainingF, testF and so on",
        )
    sizes = sorted({top[-1] for top in tops})
    if len(sizes) > 1:
        raise UsageError(f"one submission of several sizes: {', '.join(sizes)}", "choose one with ?size=")
    return Planned(kind, sizes[0])


def require_complete(kind: str, names: Iterable[str]) -> None:
    """Raise InputError where an archive of these samples would be refused, naming the first that are missing.

    kind: one of `KINDS`. names: of the samples; the last part of each counts ("testing/000000_10"). To be
    asked before the network runs for an hour. Raises UsageError: no such kind.
    """
    rules = rules_of(kind)
    given = [name.rpartition("/")[2] for name in names]
    if repeated := sorted({name for name in given if given.count(name) > 1}):
        raise InputError(f"two pictures for one file of a {kind} submission: {listed(repeated)}")
    if strange := [name for name in given if name not in {*rules.training, *rules.test}]:
        raise InputError(f"{counted(len(strange), 'picture')} not of {kind}: {listed(strange)}")
    # Training alone where that may stand alone and no name is of the test set, else everything.
    alone = rules.training and not set(given) & set(rules.test)
    wanted = rules.training if alone else (*rules.training, *rules.test)
    if missing := [name for name in wanted if name not in set(given)]:
        raise InputError(
            f"incomplete for {kind}: {counted(len(missing), 'picture')} missing: {listed(missing)}"
        )


def submit(
    file: Path,
    planned: Planned,
    sets: Sequence[Source],
    method: Method,
    *,
    seconds: float | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Submission:
    """The archive of a method's results. seconds: for a pair, of files. Raises as `write_submission`."""
    predictions = (each for source in sets for each in _predictions(source, method, seconds, advance))
    return write_submission(file, planned.kind, predictions, size=planned.size)


def _predictions(
    source: Source, method: Method, stated: float | None, advance: Callable[[], None]
) -> Iterator[Prediction]:
    files = find_disparities(method.folder, source.names) if isinstance(method, FilesMethod) else {}
    for index in range(len(source)):
        sample = source.load(index)
        if isinstance(method, FilesMethod):
            disparity = load_disparity(files[sample.name], sample.name, sample.left.shape, method.scale)
            yield Prediction(sample.name, disparity, stated or math.nan)
        else:
            found = method.disparities_of(sample.left, sample.right)
            yield Prediction(sample.name, found.disparity, found.seconds or math.nan)
        advance()


def write_submission(
    path: Path, kind: str, predictions: Iterable[Prediction], *, size: str = "H"
) -> Submission:
    """Write an archive for one of `KINDS`, read it back, and only then put it in its place.

    predictions: one for each picture, in any order; taken one at a time, so that a generator which runs a
    network need not hold them all. size: Middlebury's "F", "H" or "Q".
    Raises InputError: incomplete, out of range, no runtime where one is asked for. OutputError: cannot be
    written. UsageError: no such kind. No file is left then, and one that stood at `path` stays as it was.
    """
    rules = rules_of(kind)
    written: list[str] = []
    files: list[str] = []
    saturated = 0
    with replacing(path) as temporary:
        with zipfile.ZipFile(temporary, "x") as archive:
            for prediction in predictions:
                name = prediction.name.rpartition("/")[2]
                if name in written or name not in {*rules.training, *rules.test}:
                    require_complete(kind, [*written, name])
                written.append(name)
                _check(prediction, rules)
                encoded = encode_disparity(prediction.disparity, Path(rules.disparity).suffix)
                saturated += encoded.saturated
                contents = {rules.disparity: encoded.data}
                if rules.seconds:
                    contents[rules.seconds] = f"{rules.seconds_before}{prediction.seconds:.6g}".encode()
                part = "training" if name in rules.training else "test"
                for template, data in contents.items():
                    info = zipfile.ZipInfo(template.format(part=part, name=name, size=size), _EPOCH)
                    info.create_system = 3  # Unix, wherever it was written
                    info.external_attr = 0o644 << 16
                    compressed = not template.endswith(".png")
                    info.compress_type = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
                    archive.writestr(info, data, compresslevel=6)
                    files.append(info.filename)
        require_complete(kind, written)
        with zipfile.ZipFile(temporary) as archive:
            if archive.testzip() is not None or archive.namelist() != files:
                raise InputError(f"{path} reads back damaged", "is the disk sound?")
    notes = list(rules.notes)
    if rules.training and not set(written) & set(rules.test):
        notes.insert(0, f"only the {len(rules.training)} training scenes: not for the table of the test set")
    if saturated:
        notes.insert(0, f"{saturated} pixels lie beyond 255.996 px, the largest that the files hold")
    return Submission(kind, len(written), len(files), tuple(notes))


def _check(prediction: Prediction, rules: Rules) -> None:
    """Raise InputError where the server would refuse the result, or score it as worthless."""
    name, disparity = prediction.name, prediction.disparity
    known = disparity[np.isfinite(disparity)]
    if known.size == 0:
        raise InputError(f"{name} has no estimate at all")
    if not rules.holes and known.size < disparity.size:
        raise InputError(
            f"{name}: {disparity.size - known.size} pixels have no estimate, and a dense file must have all",
            "fill the holes first",
        )
    low, high, width = float(known.min()), float(known.max()), disparity.shape[1]
    if low < 0:
        raise InputError(f"{name} holds a negative disparity, {low:g} px", "left disparities are positive")
    if high > width:
        raise InputError(f"{name} holds a disparity of {high:g} px in a picture {width} px wide")
    if high < 1:
        raise InputError(
            f"{name}: the largest disparity is {high:g} px", "is it divided by the width, or by 256?"
        )
    if rules.seconds and not (math.isfinite(prediction.seconds) and prediction.seconds > 0):
        raise InputError(f"{name}: a runtime of {prediction.seconds:g} s, where the server wants one above 0")
