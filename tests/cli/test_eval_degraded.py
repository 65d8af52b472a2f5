"""pam eval superres --degrade: images as cameras give them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import eval_trees
import numpy as np
import pytest
from pam_program import pam

from pamcli.data.source import Sample
from pamcli.evaluation.opencv_methods import DenoisedBicubic
from pamcli.evaluation.superres import Superres
from pamcli.evaluation.superres_metrics import measure_upscaled
from pamcli.imaging.degradation import Degradation

KITTI = "kitti2015:kitti"


@pytest.fixture(autouse=True)
def kitti(here: Path) -> Path:
    eval_trees.kitti2015(here / "kitti")
    return here / "kitti"


def measured(*arguments: str) -> dict[str, Any]:
    run = pam("eval", "superres", "--data", KITTI, "--baseline-only", "--json", *arguments)
    assert run.code == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def left(found: dict[str, Any]) -> dict[str, float]:
    return {row["method"]: row["left psnr"] for row in found["summary"]}


def test_noise_costs_and_is_the_same_in_every_run() -> None:
    clean, noisy = measured(), measured("--degrade", "noise=25")
    assert "degraded_by" not in clean
    assert noisy["degraded_by"] == "noise=25"
    assert left(noisy)["bicubic"] < left(clean)["bicubic"] - 0.3
    assert left(noisy)["denoised, bicubic"] != left(noisy)["bicubic"]
    assert left(measured("--degrade", "noise=25")) == left(noisy)


def test_denoising_brings_some_of_it_back_where_there_is_no_texture() -> None:
    ramp = np.tile(np.linspace(40, 200, 512, dtype=np.uint8)[:, None], (64, 1, 3)).reshape(64, 512, 3)
    camera = Degradation(noise=10)
    task = Superres(4, camera)
    pair = task.make_case(Sample("ramp", ramp, ramp, None))
    made = pair.bicubic(), DenoisedBicubic(camera).run(pair)
    noisy, denoised = (measure_upscaled(pair, each.left, each.right)["left"]["psnr"] for each in made)
    assert denoised > noisy + 2


def test_a_network_stands_beside_both() -> None:
    run = pam("eval superres --degrade jpeg=60 --right-view right --data", f"{KITTI}?first=1")
    assert run.code == 0, run.stderr
    assert [line.split("  ")[0] for line in run.lines[2:5]] == [
        "bicubic",
        "denoised, bicubic",
        "passrnet2-x4",
    ]
    assert "degraded by jpeg=60" in run.stdout.decode()
