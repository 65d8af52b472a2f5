"""A batch of 50 pairs, three of them bad, stopped in the middle and started again."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from pam_program import files, forked, gate, pam
from PIL import Image

from pamcli.inference.matcher import StereoMatcher

BATCH = [
    "disparity",
    "l/",
    "r/",
    "--device",
    "cpu",
    "--precision",
    "fp32",
    "--color-map",
    "{out}/colors/",
    "-o",
    "{out}/",
]
BAD = {"pair07": "right", "pair23": "left", "pair41": "right"}

pytestmark = pytest.mark.usefixtures("networks")


def batch(out: str) -> list[str]:
    return [word.replace("{out}", out) for word in BATCH]


@pytest.fixture
def fifty_pairs(views: tuple[np.ndarray, np.ndarray]) -> None:
    """50 pairs of 32 x 24 px in l/ and r/: one truncated, one of two sizes, one no image at all."""
    for folder, view in zip("lr", views, strict=True):
        Path(folder).mkdir()
        for number in range(50):
            x, y = number % 10 * 5, number // 10 * 8
            Image.fromarray(view[y : y + 24, x : x + 32]).save(f"{folder}/pair{number:02}.png")
    cut = Path("r/pair07.png")
    cut.write_bytes(cut.read_bytes()[:-200])
    Path("l/pair23.png").write_text("not a picture")
    Image.fromarray(views[1][:24, :30]).save("r/pair41.png")


@pytest.mark.usefixtures("fifty_pairs")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_a_batch_that_is_killed_goes_on_where_it_stopped(number: signal.Signals) -> None:
    whole = pam(*batch("whole"))
    assert whole.code == 6
    assert len(whole.lines) == 2 * 47
    expected = files(Path("whole"))
    assert len([name for name in expected if name.startswith("pair")]) == 47

    with gate(StereoMatcher, "__call__", 20), forked(*batch("out")) as running:
        assert running.stdout is not None
        for _ in range(16):
            assert running.stdout.readline().startswith(b"out/")
        with open("gate", "wb"):
            running.send_signal(number)
        assert running.wait() == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    left = {name: data for name, data in files(Path("out")).items() if not unfinished(name)}
    assert 16 <= len([data for data in left.values() if data is not None]) < 2 * 47
    assert left.items() <= expected.items()  # what there is, is whole
    if number == signal.SIGTERM:
        assert [name for name in files(Path("out")) if unfinished(name)] == []

    run = pam(*batch("out"), "--skip-existing", "--jsonl")
    assert run.code == 6
    outcomes = {Path(record["left"]).stem: record for record in run.records}
    assert len(outcomes) == 50
    done = {stem for stem, record in outcomes.items() if record["status"] in ("ok", "skipped")}
    assert outcomes.keys() - done == BAD.keys()
    skipped = [stem for stem, record in outcomes.items() if record["status"] == "skipped"]
    assert 8 <= len(skipped) < 47
    assert {stem: outcomes[stem]["code"] for stem in BAD} == dict.fromkeys(BAD, 3)
    assert "r/pair07.png is damaged or truncated" in outcomes["pair07"]["error"]
    assert "l/pair23.png is not an image" in outcomes["pair23"]["error"]
    assert "both images of a rectified pair must have the same size" in outcomes["pair41"]["error"]
    assert {name: data for name, data in files(Path("out")).items() if not unfinished(name)} == expected


def unfinished(name: str) -> bool:
    """Whether this is what a killed process may leave: a hidden file that no run takes for a result."""
    return re.fullmatch(r"\.pam-[a-z0-9_]+\.tmp", os.path.basename(name)) is not None
