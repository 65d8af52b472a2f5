"""What to type where the names of two cameras' pictures pair none of them."""

import glob
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from pamcli.files.paths import natural_key

DIGITS = "0123456789"


def suggest_pairing(lefts: Iterable[Path], rights: Iterable[Path]) -> str:
    """A hint for two sets of pictures without a name in common: the words to type instead.

    Templates, where more than half of the names agree but for what all of a side share; else, for as many
    pictures on both sides, a line of the shell (bash, zsh) that lists them side by side. `pam` pairs nothing
    by position itself: one picture dropped by a camera would exchange all that follow.
    """
    left, right = (_Side(sorted(map(str, side))) for side in (lefts, rights))
    if len(left.files) == len(right.files) == 1:
        return f"name both pictures: {shlex.quote(left.files[0])} {shlex.quote(right.files[0])}"
    if 2 * len(left.texts & right.texts) > max(len(left.texts), len(right.texts)):
        return f"use templates: {left.template} {right.template}"
    if len(left.files) == len(right.files) and left.listing and right.listing:
        return (
            f"for cameras that count differently: paste {left.listing} {right.listing} >pairs.txt, see that "
            "each of its lines is a pair, and give `pairs` pairs.txt instead of both views"
        )
    return (
        "for names that differ use templates such as 'lefts/{}_L.png' 'rights/{}_R.png', or a list, "
        "left<TAB>right a line: `pairs` pairs.txt"
    )


@dataclass(frozen=True)
class _Side:
    files: list[str]
    """Sorted, as a shell sorts them."""

    @cached_property
    def ends(self) -> tuple[str, str]:
        """What all names begin and end with; numbers stay whole, and so do suffixes."""
        before = _beginning(self.files).rstrip(DIGITS)
        behind = _beginning([file[len(before) :][::-1] for file in self.files])[::-1]
        return before, behind.lstrip(DIGITS) if "." in behind else ""

    @property
    def texts(self) -> set[str]:
        """What stands between."""
        before, behind = self.ends
        return {file[len(before) : len(file) - len(behind)] for file in self.files}

    @property
    def template(self) -> str:
        """The names as a template, with {} in between, as it is typed."""
        return shlex.quote("{}".join(self.ends))

    @property
    def listing(self) -> str | None:
        """Words of a shell that stand for a list of these files, by their numbers; None: there are none."""
        found = glob.glob("*".join(map(glob.escape, self.ends)))
        if sorted(found) != self.files:
            return None
        pattern = "*".join(shlex.quote(end) if end else "" for end in self.ends)
        by_number = "" if sorted(self.files, key=natural_key) == self.files else " | sort -V"
        return f"<(printf '%s\\n' {pattern}{by_number})"


def _beginning(texts: list[str]) -> str:
    """What all of them begin with: so much the first and the last of them share, once they are sorted."""
    both = zip(min(texts), max(texts), strict=False)
    return "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], both))
