"""`pam` with a made-up network that is there at once, for tests of the process: signals, pipes, terminals.

Where HOLD names a pipe, the network waits until it is written to and closed: a test that opens it for writing
goes on when the network has begun. With SLOW in the environment it tells, for half a second, that half of a
pair's rows are done, as of one that takes long. EVERY: the seconds between two lines where there is no bar.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np

from pamcli.cli import console as shown
from pamcli.cli import main


@dataclass(frozen=True)
class Result:
    disparity: np.ndarray
    matched_size: None = None
    confidence: None = None

    def disparity_where(self, **conditions: object) -> np.ndarray:
        return self.disparity


class Network:
    model = SimpleNamespace(runtime_note=None)
    compute = SimpleNamespace(
        device="cpu", precision="fp32", describe=lambda: {"device": "cpu", "precision": "fp32"}
    )

    @classmethod
    def from_settings(cls, *arguments: object) -> Self:
        return cls()

    def adaptation_note(self, *size: int) -> None:
        return None


def be_slow(progress: Callable[[float], None] | None) -> None:
    if "SLOW" in os.environ and progress is not None:
        shown.SLOW = 0
        for _ in range(5):
            progress(0.5)
            time.sleep(0.1)


class StereoMatcher(Network):
    max_disparity, match_size = None, 1

    def find_fault(self, *views: np.ndarray) -> None:
        return None

    def __call__(self, left: np.ndarray, right: np.ndarray, **options: Any) -> Result:
        if "HOLD" in os.environ:
            with open(os.environ["HOLD"]) as gate:
                gate.read()
        be_slow(options.get("progress"))
        return Result(left.mean(axis=2, dtype=np.float32) / 8)


class StereoUpscaler(Network):
    scale = 2

    def upscaled_size(self, height: int, width: int) -> tuple[int, int]:
        return 2 * height, 2 * width

    def upscale_left(self, left: np.ndarray, right: np.ndarray, **options: Any) -> np.ndarray:
        be_slow(options.get("progress"))
        return left.repeat(2, axis=0).repeat(2, axis=1)


def replace_networks() -> None:
    """Let commands of this process, which ends with one, load the made-up network."""
    shown.EVERY = float(os.environ.get("EVERY", shown.EVERY))
    for name, network in (("matcher", StereoMatcher), ("upscaler", StereoUpscaler)):
        module = ModuleType(f"pamcli.inference.{name}")
        setattr(module, network.__name__, network)
        sys.modules[module.__name__] = module


if __name__ == "__main__":
    replace_networks()
    main()
