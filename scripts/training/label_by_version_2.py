"""Label pairs as `pam dataset label --mirrored` does, with version 2 of PASMnet 2 from the history.

    python scripts/training/label_by_version_2.py PAIRS LABELLED

PAIRS has directories `left` and `right` with equal names. Version 2 is larger, and independent of later
versions: labels that the trained network must agree with are missing where it errs (README.md). Resumes where
it stopped. Requires a full clone, with the history.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.open import open_data
from pamcli.errors import InputError
from pamcli.training.labels import label_pairs, select_pairs_to_label

COMMIT = "b6df427"
REPOSITORY = Path(__file__).resolve().parents[2]
ASKED = """
import sys, numpy
from pamcli.inference.matcher import StereoMatcher
matcher = StereoMatcher.load("weights/pasmnet2.safetensors")
for enlarge in sys.stdin:
    pair = numpy.load("pair.npz")
    matcher.enlarge = float(enlarge)
    found = matcher(pair["left"], pair["right"], extras={"visible"}).disparity_where(visible=True)
    numpy.save("found.npy", found)
    print("found", flush=True)
"""


@dataclass
class Version2:
    """A program of the old commit, as a matcher; both write into its folder."""

    folder: Path
    program: subprocess.Popen[str]
    match_size: float = 1.0

    def __call__(self, left: NDArray[np.uint8], right: NDArray[np.uint8], **_: Any) -> Version2:
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        np.savez(self.folder / "pair.npz", left=left, right=right)
        print(self.match_size, file=self.program.stdin, flush=True)
        if self.program.stdout.readline() != "found\n":
            sys.exit(f"version 2 ended with code {self.program.wait()}")
        return self

    def disparity_where(self, visible: bool) -> NDArray[np.float32]:
        """Disparity (H, W) of the pair that was given last, pixels, NaN where the right view sees nothing."""
        assert visible
        found: NDArray[np.float32] = np.load(self.folder / "found.npy")
        return found


@contextmanager
def version_2() -> Iterator[Version2]:
    """Check out the old commit, and run its matcher for as long as it is needed."""
    git = ["git", "-C", str(REPOSITORY), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*git, "add", "--quiet", "--detach", folder, COMMIT], check=True)
        try:
            command = [sys.executable, "-c", ASKED]
            pipe = subprocess.PIPE
            with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True) as program:
                yield Version2(Path(folder), program)
        finally:
            subprocess.run([*git, "remove", "--force", folder], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("labelled", type=Path)
    asked = parser.parse_args()
    source = open_data(f"pairs:{asked.pairs}").without_truth()
    wanted = select_pairs_to_label(source, asked.labelled, mirrored=True, overwrite=False)
    with version_2() as matcher:
        matching: Any = matcher
        for name, share in label_pairs(matching, source, wanted, asked.labelled):
            said = share if isinstance(share, InputError) else f"{share:.0%} of the pixels have a label"
            print(f"{name}: {said}", flush=True)


if __name__ == "__main__":
    main()
