"""Archives for the servers of the stereo benchmarks: written, then verified as a server would.

| kind       | files in the archive                                                           | count    |
| ---------- | ------------------------------------------------------------------------------ | -------- |
| kitti2012  | `000000_10.png` ... `000194_10.png`, at the top                                | 195      |
| kitti2015  | `disp_0/000000_10.png` ... `disp_0/000199_10.png`                              | 200      |
| middlebury | `trainingS/SCENE/disp0METHOD.pfm`, `.../timeMETHOD.txt`, the same in `testS`   | 30 or 60 |
| eth3d      | `low_res_two_view/SCENE.pfm`, `low_res_two_view/SCENE.txt`                     | 54 or 94 |

S is F, H or Q, the size of the pictures. Middlebury and ETH3D take the training scenes alone, or those and
the test scenes. Middlebury's sparse results (`disp0METHOD_s.pfm`) are not made here, only its dense ones.

Sources: the readme files of KITTI's two development kits; Middlebury's upload-format page; the kit of the
Robust Vision Challenge. What is in none of them is said in the notes of a `Submission`, marked "unverified".
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError, UsageError
from pamcli.evaluation.submission_files import check_disparity, check_seconds
from pamcli.files.atomic import replacing
from pamcli.files.finding import counted, listed, shown
from pamcli.imaging.disparity_files import encode_disparity

KINDS = ("kitti2012", "kitti2015", "middlebury", "eth3d")

_LARGEST_FILE = 1 << 29  # bytes: an end to what a crafted archive can unpack to
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
    picture_size: tuple[int, int] | None = None
    """(H, W) of the picture, to be checked; None = not known."""


@dataclass(frozen=True)
class Submission:
    """A verified archive."""

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

    def wanted(self, names: Iterable[str]) -> tuple[str, ...]:
        """Training alone where that may stand alone and no name is of the test set, else everything."""
        training_alone = self.training and not set(names) & set(self.test)
        return self.training if training_alone else (*self.training, *self.test)

    def paths(self, name: str, method: str, size: str) -> list[str]:
        """Of the files of a picture."""
        part = "training" if name in self.training else "test"
        templates = [self.disparity, self.seconds] if self.seconds else [self.disparity]
        return [text.format(part=part, name=name, method=method, size=size) for text in templates]


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


def require_complete(kind: str, names: Iterable[str]) -> None:
    """Raise InputError where an archive of these samples would be refused, naming the first that are missing.

    kind: one of `KINDS`. names: of the samples; the last part of each counts ("testing/000000_10"). To be
    asked before the network runs for an hour. Raises UsageError: no such kind.
    """
    rules = rules_of(kind)
    given = [_last(name) for name in names]
    if repeated := sorted({name for name in given if given.count(name) > 1}):
        raise InputError(f"two pictures for one file of a {kind} submission: {listed(repeated)}")
    if strange := [name for name in given if name not in {*rules.training, *rules.test}]:
        raise InputError(f"{counted(len(strange), 'picture')} not of {kind}: {listed(strange)}")
    _refuse_missing(kind, [name for name in rules.wanted(given) if name not in set(given)], "picture")


def write_submission(
    path: Path, kind: str, predictions: Iterable[Prediction], *, method: str = "PAM", size: str = "H"
) -> Submission:
    """Write an archive for one of `KINDS`, verify it, and only then put it in its place.

    predictions: one for each picture, in any order; taken one at a time, so that a generator which runs a
    network need not hold them all. method, size: Middlebury's names of the files and "F", "H" or "Q".
    Raises InputError: incomplete, another size than its picture, out of range, no runtime where one is
    asked for. OutputError: cannot be written. UsageError: no such kind, method or size. No file is left then,
    and one that stood at `path` before stays as it was.
    """
    rules = rules_of(kind)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", method) or method.endswith("_s"):
        raise UsageError(
            f"{method!r} cannot be the name of a method in file names",
            "take letters, digits, - and _, and not _s at the end, which marks sparse results",
        )
    if size not in ("F", "H", "Q"):
        raise UsageError(f"{size!r} is no size of Middlebury's pictures", "take F, H or Q")
    written: list[str] = []
    sizes: dict[str, tuple[int, int]] = {}
    saturated = 0
    with replacing(path) as temporary:
        with zipfile.ZipFile(temporary, "x") as archive:
            for prediction in predictions:
                name = _last(prediction.name)
                if name in written or name not in {*rules.training, *rules.test}:
                    require_complete(kind, [*written, name])
                written.append(name)
                if prediction.picture_size is not None:
                    sizes[name] = prediction.picture_size
                paths = rules.paths(name, method, size)
                encoded = encode_disparity(prediction.disparity, Path(paths[0]).suffix)
                saturated += encoded.saturated
                check_disparity(paths[0], encoded.data, sizes.get(name), holes=rules.holes)
                _add(archive, paths[0], encoded.data)
                if rules.seconds:
                    text = f"{rules.seconds_before}{prediction.seconds:.6g}"
                    check_seconds(paths[1], text.encode(), rules.seconds_before)
                    _add(archive, paths[1], text.encode())
        require_complete(kind, written)
        submission = verify_submission(temporary, kind, picture_sizes=sizes, shown_as=path)
    notes = submission.notes
    if saturated:
        notes = (f"{saturated} pixels lie beyond 255.996 px, the largest that the files hold", *notes)
    return Submission(kind, submission.pictures, submission.files, notes)


def verify_submission(
    path: Path,
    kind: str,
    *,
    picture_sizes: Mapping[str, tuple[int, int]] | None = None,
    shown_as: Path | None = None,
) -> Submission:
    """Check an archive as the server would: names, count, formats, sizes, ranges.

    kind: one of `KINDS`. picture_sizes: (H, W) by file or scene name ("000000_10", "Adirondack"); what is not
    in it is not checked. shown_as: what messages call the file, by default `path`.
    Raises InputError: damaged, incomplete (the first five missing files and their count), files that do not
    belong there, a wrong format or size, a disparity that is negative, NaN, wider than the picture, or below
    1 px everywhere; no runtime. UsageError: no such kind.
    """
    rules = rules_of(kind)
    label = shown(shown_as or path)
    sizes = picture_sizes or {}
    try:
        with zipfile.ZipFile(path) as archive:
            held = [info.filename for info in archive.infolist() if not info.is_dir()]
            wanted = _files(kind, rules, held)
            _check_names(kind, label, held, wanted)
            for file, name in wanted.items():
                if archive.getinfo(file).file_size > _LARGEST_FILE:
                    raise InputError(f"{label}: {file} is too large to be a disparity map")
                data = archive.read(file)
                where = f"{label}: {file}"
                if file.endswith(".txt"):
                    check_seconds(where, data, rules.seconds_before)
                else:
                    check_disparity(where, data, sizes.get(name), holes=rules.holes)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise InputError(f"{label} is no zip archive that can be read: {error}") from error
    except OSError as error:
        raise InputError(f"{label} cannot be read: {error.strerror or error}") from error
    pictures = set(wanted.values())
    notes = [*rules.notes]
    if rules.training and not pictures & set(rules.test):
        notes.insert(0, f"only the {len(rules.training)} training scenes: not for the table of the test set")
    if unchecked := len(pictures - set(sizes)):
        notes.append(f"the size of {unchecked} pictures is not known here and was not checked")
    return Submission(kind, len(pictures), len(wanted), tuple(notes))


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _files(kind: str, rules: Rules, held: Iterable[str]) -> dict[str, str]:
    """Every file that the archive should hold, with the name of its picture.

    Middlebury's method and size are those of the first disparity file; files of another are then extra.
    """
    method, size = "PAM", "H"
    if kind == "middlebury":
        names: list[str] = []
        for file in held:
            if found := re.fullmatch(r"(?:training|test)([FHQ])/([^/]+)/disp0([^/]+)(?<!_s)\.pfm", file):
                size, method = (found[1], found[3]) if not names else (size, method)
                names.append(found[2])
    else:
        names = [Path(file).stem for file in held]
    return {file: name for name in rules.wanted(names) for file in rules.paths(name, method, size)}


def _check_names(kind: str, label: str, held: list[str], wanted: Mapping[str, str]) -> None:
    missing = [file for file in wanted if file not in set(held)]
    extra = [file for file in held if file not in wanted]
    # The commonest fault by far: everything is there, one folder too deep, or not deep enough.
    if len(missing) == len(wanted) and extra:
        raise InputError(
            f"{label}: none of the {len(wanted)} files that {kind} wants, but {listed(extra)}",
            f"the first should be {next(iter(wanted))}",
        )
    _refuse_missing(kind, missing, "file", label)
    if extra:
        raise InputError(
            f"{label} holds {counted(len(extra), 'file')} that {kind} does not want: {listed(extra)}"
        )
    if repeated := sorted({file for file in held if held.count(file) > 1}):
        raise InputError(f"{label} holds more than once: {listed(repeated)}")


def _refuse_missing(kind: str, missing: list[str], what: str, label: str = "") -> None:
    if missing:
        where = f"{label} is incomplete" if label else f"incomplete for {kind}"
        raise InputError(f"{where}: {counted(len(missing), what)} missing: {listed(missing)}")


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3  # Unix, wherever it was written
    info.external_attr = 0o644 << 16
    info.compress_type = zipfile.ZIP_STORED if name.endswith(".png") else zipfile.ZIP_DEFLATED
    archive.writestr(info, data, compresslevel=6)
