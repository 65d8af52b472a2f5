"""Suggest what to type if the images of two cameras cannot be paired by name."""

import glob
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from os.path import commonprefix
from pathlib import Path

from pamcli.files.paths import natural_key

DIGITS = "0123456789"


def suggest_pairing(lefts: Iterable[Path], rights: Iterable[Path]) -> str:
    """Return a hint for two sets of images without a common name: the words to type instead.

    `pam` itself never pairs by position: after one image dropped by a camera, all pairs would be wrong.
    """
    left, right = (_Side(sorted(map(str, side))) for side in (lefts, rights))
    if len(left.files) == len(right.files) == 1:
        return f"name both images: {shlex.quote(left.files[0])} {shlex.quote(right.files[0])}"
    if 2 * len(left.texts & right.texts) > max(len(left.texts), len(right.texts)):
        return f"use templates: {left.template} {right.template}"
    if len(left.files) == len(right.files) and left.listing and right.listing:
        return (
            f"if the cameras count differently: paste {left.listing} {right.listing} >pairs.txt, check that "
            "each line is a pair, and use `pairs` pairs.txt instead of both views"
        )
    return (
        "use templates such as 'lefts/{}_L.png' 'rights/{}_R.png', or a list with left<TAB>right per line: "
        "`pairs` pairs.txt"
    )


@dataclass(frozen=True)
class _Side:
    files: list[str]  # sorted, as a shell sorts them

    @cached_property
    def ends(self) -> tuple[str, str]:
        """Common beginning and end of all names; numbers and suffixes stay whole."""
        before = commonprefix(self.files).rstrip(DIGITS)  # noqa: RUF071 - of text, not of folders
        reversed_rest = [file[len(before) :][::-1] for file in self.files]
        behind = commonprefix(reversed_rest)[::-1]  # noqa: RUF071
        return before, behind.lstrip(DIGITS) if "." in behind else ""

    @property
    def texts(self) -> set[str]:
        before, behind = self.ends
        return {file[len(before) : len(file) - len(behind)] for file in self.files}

    @property
    def template(self) -> str:
        return shlex.quote("{}".join(self.ends))

    @property
    def listing(self) -> str | None:
        """Shell words that list these files by number, or None if there are none."""
        if sorted(glob.glob("*".join(map(glob.escape, self.ends)))) != self.files:
            return None
        pattern = "*".join(shlex.quote(end) if end else "" for end in self.ends)
        by_number = "" if sorted(self.files, key=natural_key) == self.files else " | sort -V"
        return f"<(printf '%s\\n' {pattern}{by_number})"
