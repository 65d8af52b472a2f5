"""Matchers and upscalers in programs: arguments, pickles, threads."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from sample_cut import Cut

from pamcli.errors import DeviceError, UsageError
from pamcli.inference import matcher as matchers
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_disparity": 10**9}, "`min_disparity` must be from -100000 to 100000"),
        ({"min_disparity": 2.5}, "`min_disparity` must be a whole number"),
        ({"max_disparity": float("nan")}, "`max_disparity` must be finite"),
        ({"max_disparity": 63.5}, "`max_disparity` must be a whole number from 1"),
        ({"max_memory": -1}, "`max_memory` must be a number of bytes"),
        ({"device": None}, "unknown device None"),
        ({"weights": None}, "`weights` must be a name or a path, got None"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        StereoMatcher.load(**{"weights": "pasmnet", "device": "cpu", **arguments})


@pytest.mark.parametrize("scale", [1, "x"])
def test_a_wrong_scale_is_refused(scale: Any) -> None:
    with pytest.raises(UsageError, match="scale"):
        StereoUpscaler.load("passrnet-x2", device="cpu", scale=scale)


def test_too_large_images_are_a_device_error(
    matcher: StereoMatcher, small: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(matchers, "stretch_levels", fail)
    with pytest.raises(DeviceError, match="not enough memory for a pair of 90x61"):
        matcher(small.left, small.right)


def test_a_matcher_keeps_its_arguments_in_a_pickle() -> None:
    loaded = StereoMatcher.load("pasmnet", device="cpu", max_disparity=64, match_size=2)
    matcher = pickle.loads(pickle.dumps(loaded))
    assert (matcher.spec, matcher.max_disparity, matcher.match_size) == (loaded.spec, 64, 2)


def test_an_upscaler_keeps_its_arguments_in_a_pickle() -> None:
    upscaler = pickle.loads(pickle.dumps(StereoUpscaler.load("passrnet-x2", device="cpu", ensemble=True)))
    assert (upscaler.scale, upscaler.ensemble) == (2, True)


def test_a_matcher_of_a_model_cannot_be_pickled(matcher: StereoMatcher) -> None:
    with pytest.raises(TypeError, match="only a StereoMatcher of"):
        pickle.dumps(StereoMatcher(matcher.model))


def test_threads_that_share_a_matcher_get_equal_results(small: Cut) -> None:
    matcher = StereoMatcher.load("pasmnet2", device="cpu", precision="bf16", match_size=1)
    expected = matcher(small.left, small.right).disparity
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(matcher(small.left, small.right).disparity))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(np.array_equal(each, expected) for each in found)


@pytest.mark.skipif(sys.platform != "linux", reason="threads of other systems do not spin")
def test_torch_before_pam_is_said_once() -> None:
    program = "import torch, pamcli; [pamcli.StereoUpscaler.load('passrnet-x2', device='cpu') for _ in 'ab']"
    kept = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    run = subprocess.run(
        [sys.executable, "-c", program], env=kept, capture_output=True, text=True, check=True
    )
    assert run.stderr.count("PyTorch was imported before pamcli") == 1
