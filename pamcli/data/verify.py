"""Is a data set on disk whole and sound? Every file is read, every truth is tried on its pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pamcli.data.source import Source
from pamcli.errors import InputError


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be."""

    sample: str
    """Its name; "" = the whole set."""
    severity: Literal["damage", "incomplete"]
    """damage: figures computed on this would be wrong, or cannot be computed. incomplete: something is not
    there, the rest can be used."""
    message: str
    """One line."""


def verify(source: Source, progress: Callable[[int], None] | None = None) -> list[Finding]:
    """Read every sample of a source; what is wrong with it.

    Damage: a view without the other one, a file that cannot be read, sizes that differ, a truth that does
    not warp the right picture onto the left one (scaled, exchanged, turned over, of another pair).
    Incomplete: parts of the published tree that are absent. progress: called with the number of samples
    that are done. Findings come in the order of the set first, then of the samples.
    """
    findings = [Finding("", "incomplete", line) for line in source.absent]
    findings += [Finding("", "damage", line) for line in source.unpaired]
    for index, name in enumerate(source.names):
        try:
            wrong = source.check(index)
        except InputError as error:
            wrong = error.message
        if wrong:
            findings.append(Finding(name, "damage", wrong))
        if progress:
            progress(index + 1)
    return findings
