"""`pam` with a made-up network that is there at once, for tests of the process: signals, pipes, terminals.

Where HOLD names a pipe, the network waits until it is written to and closed: a test that opens it for writing
goes on when the network has begun. With SLOW in the environment it tells, for half a second, that half of a
pair's rows are done, as of one that takes long.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from pamcli.cli import console, main


@dataclass(frozen=True)
class Result:
    disparity: np.ndarray
    matched_size: None = None

    def disparity_where(self, **conditions: object) -> np.ndarray:
        return self.disparity


class StereoMatcher:
    max_disparity, match_size, foreign = None, 1, None
    compute = SimpleNamespace(
        device="cpu", precision="fp32", describe=lambda: {"device": "cpu", "precision": "fp32"}
    )

    @classmethod
    def load(cls, *arguments: object, **options: object) -> StereoMatcher:
        return cls()

    def departure(self, *size: int) -> None:
        return None

    def __call__(self, left: np.ndarray, right: np.ndarray, **options: Any) -> Result:
        if "HOLD" in os.environ:
            with open(os.environ["HOLD"]) as gate:
                gate.read()
        if "SLOW" in os.environ and options["progress"] is not None:
            console.SLOW = 0
            for _ in range(5):
                options["progress"](0.5)
                time.sleep(0.1)
        return Result(left.mean(axis=2, dtype=np.float32) / 8)


module = ModuleType("pamcli.inference.matcher")
module.StereoMatcher = StereoMatcher  # type: ignore[attr-defined]
sys.modules["pamcli.inference.matcher"] = module
main()
