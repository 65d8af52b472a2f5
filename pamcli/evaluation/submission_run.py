"""A benchmark's archive of a method's results on its data sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pamcli.data.source import Source
from pamcli.errors import UsageError
from pamcli.evaluation.methods import FilesMethod, Method
from pamcli.evaluation.predictions import find_disparities, load_disparity
from pamcli.evaluation.submissions import (
    KINDS,
    Prediction,
    Submission,
    require_complete,
    write_submission,
)


@dataclass(frozen=True)
class Planned:
    """Which benchmark's archive data sets make."""

    kind: str
    """One of `submissions.KINDS`."""
    size: str
    """Middlebury's: F, H or Q."""

    @property
    def states_seconds(self) -> bool:
        """The archive states the runtime of each picture."""
        return self.kind in ("middlebury", "eth3d")


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
        return Planned(kind, "H")
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


def submit(
    file: Path,
    planned: Planned,
    sets: Sequence[Source],
    method: Method,
    *,
    seconds: float | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Submission:
    """Write and verify the archive. seconds: for a pair, of files. Raises as `write_submission`."""
    predictions = (each for source in sets for each in _predictions(source, method, seconds, advance))
    return write_submission(file, planned.kind, predictions, size=planned.size)


def _predictions(
    source: Source, method: Method, stated: float | None, advance: Callable[[], None]
) -> Iterator[Prediction]:
    files = find_disparities(method.folder, source.names) if isinstance(method, FilesMethod) else {}
    for index in range(len(source)):
        sample = source.load(index)
        shape = (int(sample.left.shape[0]), int(sample.left.shape[1]))
        if isinstance(method, FilesMethod):
            disparity = load_disparity(files[sample.name], sample.name, shape, method.scale)
            seconds = stated or math.nan
        else:
            found = method.disparities_of(sample.left, sample.right)
            disparity, seconds = found.disparity, found.seconds or math.nan
        yield Prediction(sample.name, disparity, seconds, shape)
        advance()
