"""A folder with a small pair, and networks that are loaded once for all tests."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import eval_trees
import numpy as np
import pytest
from PIL import Image
from video_files import write_video

from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.networks.passrnet import PASSRnet
from pamcli.networks.passrnet2 import PASSRnet2

KINDS: tuple[Any, ...] = (PASMnet, PASMnet2, PASSRnet, PASSRnet2)
SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is also that of temporary files: what stays behind is seen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def views() -> tuple[np.ndarray, np.ndarray]:
    """A pair of 96 x 64 pixels with disparities from about 10 to 30 px."""
    pictures = [Image.open(SAMPLE / f"{side}.png").convert("RGB") for side in ("left", "right")]
    left, right = (np.asarray(picture.crop((300, 200, 396, 264))) for picture in pictures)
    return left, right


@pytest.fixture
def pair(here: Path, views: tuple[np.ndarray, np.ndarray]) -> Path:
    """left.png and right.png in the current folder."""
    for view, name in zip(views, ("left.png", "right.png"), strict=True):
        Image.fromarray(view).save(name)
    return here


@pytest.fixture
def small_pair(pair: Path) -> Path:
    """The middle of the pair, 48 x 32 pixels: super-resolution takes its time."""
    for name in ("left.png", "right.png"):
        Image.open(name).crop((24, 16, 72, 48)).save(name)
    return pair


@pytest.fixture(scope="session")
def load_once() -> Callable[[Path], object]:
    from pamcli.registry.load import load_network

    return functools.cache(load_network)


@pytest.fixture(scope="session")
def prepare_once() -> Callable[..., Any]:
    """Prepare each network once per precision, which copies it."""
    originals = {kind: kind.prepare for kind in KINDS}
    return functools.cache(lambda network, dtype: originals[type(network)](network, dtype))


@pytest.fixture(scope="session", autouse=True)
def build_commands_once() -> Iterator[None]:
    """Keep the commands that are built anew for each run of a program."""
    from pamcli.cli import groups

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "make_command", functools.cache(groups.make_command))
        yield


@pytest.fixture
def networks(
    load_once: Callable[[Path], object], prepare_once: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep networks loaded between tests, without a GPU, without bf16, and without upscaling first."""
    import torch

    from pamcli.inference import device
    from pamcli.registry.resolution import EFFORTS

    monkeypatch.setitem(EFFORTS, "normal", replace(EFFORTS["normal"], most=1.0))  # 4 times faster
    monkeypatch.setattr(device, "cpu_has_bf16", lambda: False)
    monkeypatch.setattr("pamcli.registry.load.load_network", load_once)
    for kind in KINDS:
        monkeypatch.setattr(kind, "prepare", prepare_once)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture(scope="session")
def match_and_upscale_once() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compute what a network makes of a pair once; later calls return copies, without progress."""
    from pamcli.inference.model import TorchModel

    results: dict[Any, dict[str, np.ndarray]] = {}

    def remember(run: Callable[..., dict[str, np.ndarray]]) -> Callable[..., dict[str, np.ndarray]]:
        def call(
            model: TorchModel, left: np.ndarray, right: np.ndarray, progress: Any = None, **options: Any
        ) -> dict[str, np.ndarray]:
            images = [(each.tobytes(), each.shape, each.dtype) for each in (left, right)]
            key = (run, model.network, *images, *sorted(options.items()))
            if key not in results:
                results[key] = run(model, left, right, progress, **options)
            return {name: values.copy() for name, values in results[key].items()}

        return call

    return remember(TorchModel.match), remember(TorchModel.upscale)


@pytest.fixture
def remembering_networks(
    networks: None,
    match_and_upscale_once: tuple[Callable[..., Any], Callable[..., Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Made-up networks that compute each result once, for tests of files, tables and reports."""
    from pamcli.inference.model import TorchModel

    match, upscale = match_and_upscale_once
    monkeypatch.setattr(TorchModel, "match", match)
    monkeypatch.setattr(TorchModel, "upscale", upscale)


@pytest.fixture
def kitti(here: Path) -> Path:
    eval_trees.kitti2015(here / "kitti")
    return here / "kitti"


@pytest.fixture
def mine(here: Path) -> Path:
    eval_trees.pairs(here / "mine")
    return here / "mine"


@pytest.fixture
def made(here: Path, kitti: Path) -> dict[str, np.ndarray]:
    """The folder made/ with a wrong disparity for each pair, as PFM, and what they hold."""
    (here / "made").mkdir()
    held = {}
    for sample in eval_trees.crops():
        held[sample.name] = np.nan_to_num(sample.disparity, nan=7.0) + np.float32(3.5)
        held[sample.name][5:9, 40:] = np.nan
        eval_trees.write_disparity(f"made/{sample.name}.pfm", held[sample.name])
    return held


@pytest.fixture
def clips(here: Path, views: tuple[np.ndarray, np.ndarray]) -> list[list[np.ndarray]]:
    """left.mkv, right.mkv and both.mkv: what two cameras see that move down; lossless, 10 frames a second."""
    pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")
    shown = [[view[top : top + 48, :64] for top in range(6)] for view in views]
    write_video(here / "left.mkv", shown[0])
    write_video(here / "right.mkv", shown[1])
    write_video(here / "both.mkv", [np.concatenate(pair, 1) for pair in zip(*shown, strict=True)])
    return shown
