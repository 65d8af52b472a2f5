"""--weights of networks that are not pam's own: as ONNX Runtime runs them in ten lines, of any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import foreign_networks as made
import numpy as np
import pytest
from pam_program import pam
from PIL import Image

for package in ("onnx", "onnxruntime"):
    pytest.importorskip(package, reason=f"{package} is not installed (pip install 'pamcli[onnx]')")


SIZE = (64, 96)
"""Rows and columns of the pair, and of networks of one size."""
ODD = (50, 77)
"""Rows and columns of pictures that are multiples of nothing."""

DISPARITY = ["disparity", "left.png", "right.png", "-o", "x.npy", "--overwrite", "--device", "cpu"]
SUPERRES = ["superres", "left.png", "right.png", "-o", "x.tif", "--output-right", "y.tif", "--overwrite"]


def session_of(path: Path) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, given)


def padded(view: np.ndarray, size: tuple[int, int], place: str) -> tuple[np.ndarray, slice, slice]:
    """A view (C, H, W) in `size`, its edges repeated, and where its pixels are in it."""
    rows, columns = size[0] - view.shape[1], size[1] - view.shape[2]
    above = {"centre": rows // 2, "top right": rows, "bottom right": 0}[place]
    before = columns // 2 if place == "centre" else 0
    grown = np.pad(view, ((0, 0), (above, rows - above), (before, columns - before)), mode="edge")
    return grown, slice(above, above + view.shape[1]), slice(before, before + view.shape[2])


def halved(view: np.ndarray) -> np.ndarray:
    import torch

    half = [side // 2 for side in view.shape[1:]]
    return torch.nn.functional.interpolate(
        torch.from_numpy(view.copy())[None], half, mode="bilinear", align_corners=True
    ).numpy()


@dataclass(frozen=True)
class Case:
    """A family: a network of its form, and what a script would do with it."""

    family: str
    make: Callable[[Path, tuple[int, int] | None], Path]
    feed: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]
    """Inputs, of padded views (3, H, W) in 0 to 255."""
    read: Callable[[list[np.ndarray]], np.ndarray]
    place: str
    multiple: int
    only_fixed: bool = False

    def script(self, path: Path, size: tuple[int, int] | None) -> np.ndarray:
        """The disparity, without pam."""
        views = [
            np.asarray(Image.open(f"{side}.png"), np.float32).transpose(2, 0, 1) for side in ("left", "right")
        ]
        shape = views[0].shape[1:]
        full = size or tuple(-(-side // self.multiple) * self.multiple for side in shape)
        (left, rows, columns), (right, *_) = (padded(view, full, self.place) for view in views)
        return self.read(session_of(path)(self.feed(left, right)))[rows, columns]


def left_right(left: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
    return {"left": left[None], "right": right[None]}


MEAN, STD = (np.float32(each).reshape(3, 1, 1) for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def grey(left: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
    weights = np.float32([0.299, 0.587, 0.114]).reshape(3, 1, 1)
    return {"input": np.stack([(weights * view).sum(0) / 255 for view in (left, right)])[None]}


CASES = [
    Case("FoundationStereo", lambda path, size: made.two_views(path, size, output="disp"),
         left_right, lambda found: found[0][0, 0], "centre", 32),
    Case("Lite Any Stereo", lambda path, size: made.two_views(path, size, output="disparity"),
         left_right, lambda found: found[0][0, 0], "centre", 32),
    Case("RAFT-Stereo",
         lambda path, size: made.coarse_and_fine(
             path, size, outputs=("disparity", "upscaled_disparity"), coarse=2),
         left_right, lambda found: -found[1][0, 0], "centre", 32),
    Case("IGEV",
         lambda path, size: made.coarse_and_fine(path, size, outputs=("init_disp", "disp"), coarse=1),
         left_right, lambda found: found[1][0, 0], "centre", 32),
    Case("CREStereo", lambda path, size: made.crestereo(path, size or SIZE),
         lambda left, right: {
             "init_left": halved(left[::-1]), "init_right": halved(right[::-1]),
             "next_left": left[None, ::-1], "next_right": right[None, ::-1]},
         lambda found: found[0][0, 0], "top right", 32, only_fixed=True),
    Case("CREStereo", lambda path, size: made.two_views(path, size, output="output", channels=2),
         lambda left, right: left_right(left[::-1], right[::-1]),
         lambda found: found[0][0, 0], "top right", 32),
    Case("HITNet", made.hitnet, lambda left, right: {"input": np.concatenate([left, right])[None] / 255},
         lambda found: found[0][0, :, :, 0], "top right", 64),
    Case("HITNet", lambda path, size: made.hitnet(path, size, channels=2), grey,
         lambda found: found[0][0, :, :, 0], "top right", 64),
    Case("StereoNet",
         lambda path, size: made.two_views(path, size, names=("input.1", "input.83"), output="disp"),
         lambda left, right: {
             "input.1": (left / 255 - MEAN)[None] / STD, "input.83": (right / 255 - MEAN)[None] / STD},
         lambda found: found[0][0, 0], "bottom right", 16),
]  # fmt: skip


@pytest.mark.parametrize("fixed", [False, True], ids=["free", "fixed"])
@pytest.mark.parametrize("size", [SIZE, ODD], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_a_known_network_finds_what_a_script_does(
    pair: Path, case: Case, size: tuple[int, int], fixed: bool
) -> None:
    if case.only_fixed and not fixed:
        pytest.skip("its second size is half of the first, which a file states only for one size")
    for side in ("left", "right"):
        Image.open(f"{side}.png").crop((0, 0, size[1], size[0])).save(f"{side}.png")
    network = case.make(Path("net.onnx"), SIZE if fixed else None)
    run = pam(*DISPARITY, "--weights", network)
    assert run.code == 0, run.stderr
    assert f"net.onnx runs in ONNX Runtime on cpu ({case.family})" in run.stderr
    expected = case.script(network, SIZE if fixed else None)
    assert expected.shape == size
    assert np.std(expected) > 0.01
    assert np.abs(np.load("x.npy") - expected).max() < 1e-4
