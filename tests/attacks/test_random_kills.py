"""A batch that is stopped at random moments, again and again: in the end nothing differs.

`pytest tests/attacks/test_random_kills.py --kills 100` stops it so often. It runs in a fork of this process,
where libraries and networks are loaded already: moments are spent on the work.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from pam_program import digest, forked, pam
from PIL import Image

from pamcli.registry.load import load_network

SIGNALS = [signal.SIGKILL] * 6 + [signal.SIGTERM, signal.SIGINT]
ENDS = (0, 130, 143, -signal.SIGKILL, -signal.SIGTERM)  # the last, where a process does not listen yet
SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
PAIRS = 3

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the data set of small pairs mine/, and networks that are loaded once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pamcli.registry.load.load_network", functools.cache(load_network))
    for side in ("left", "right"):
        Path("mine", side).mkdir(parents=True)
        view = Image.open(SAMPLE / f"{side}.png").convert("RGB")
        for number in range(PAIRS):
            x = 300 + 8 * number
            view.crop((x, 200, x + 48, 232)).save(f"mine/{side}/{number}.png")


def stopped(command: list[str], number: signal.Signals | None, after: float) -> int:
    """Run `pam` in a fork, and send it a signal after some seconds; its exit code, or -signal."""
    with forked(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        if number is not None:
            time.sleep(after)
            running.send_signal(number)
        return running.wait()


def seconds_of(command: list[str]) -> float:
    began = time.monotonic()
    assert stopped(command, None, 0) == 0
    return time.monotonic() - began


def results(folder: str) -> dict[str, str]:
    """Digests of what is no unfinished file of a killed process."""
    found = {path.name: digest(path.read_bytes()) for path in Path(folder).iterdir()}
    return {name: data for name, data in found.items() if not name.startswith(".pam-")}


def test_a_batch(request: pytest.FixtureRequest) -> None:
    whole, parted = (
        ["disparity", "mine/left", "mine/right", "--device", "cpu", "-o", out, "--color-map", out]
        for out in ("whole/", "out/")
    )
    assert pam(*whole).code == 0
    most = seconds_of([*whole, "--overwrite"])
    expected = results("whole")
    assert len(expected) == 2 * PAIRS
    draw, kills, wanted = random.Random(1), 0, request.config.getoption("--kills")
    while kills < wanted:
        shutil.rmtree("out", ignore_errors=True)
        while True:
            number = draw.choice(SIGNALS) if kills < wanted else None
            code = stopped([*parted, "--skip-existing"], number, most * draw.random())
            assert code in ENDS, (code, number, kills)
            if Path("out").exists():
                assert results("out").items() <= expected.items(), kills
            if code == 0:
                break
            kills += 1
        assert results("out") == expected, kills
