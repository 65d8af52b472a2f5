"""Procedural scenes as a data set: listed, drawn, previewed, verified and measured like any other."""

from __future__ import annotations

import io
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pamcli.data.open import open_data
from pamcli.data.sources.procedural import CHECK_SERIES, LENGTH, Scenes
from pamcli.data.verify import verify
from pamcli.errors import InputError


def photos(folder: Path) -> Path:
    """A folder with a photograph and, deeper, a cut-out and a note."""
    rng = np.random.default_rng(0)
    (folder / "below").mkdir(parents=True)
    Image.fromarray(rng.integers(0, 256, (40, 50, 3), np.uint8)).save(folder / "photo.jpg")
    opaque = rng.integers(0, 256, (30, 20, 4), np.uint8)
    opaque[..., 3] = 255 * (np.hypot(*np.mgrid[-15:15, -10:10]) < 9)
    Image.fromarray(opaque).save(folder / "below/cut.png")
    (folder / "below/README.txt").write_text("no picture")
    return folder


def opened(data: str) -> Scenes:
    source = open_data(data)
    assert isinstance(source, Scenes)
    return source


def test_a_scene_is_always_the_same_whoever_draws_it() -> None:
    source = opened("procedural")
    assert len(source) == len(source.names) == len(set(source.names)) == LENGTH
    assert source.absent + source.unpaired == ()
    sample, copy = source.load(3), pickle.loads(pickle.dumps(opened("procedural?first=5")))
    assert copy.names == source.names[:5]
    again = copy.load(3)
    assert sample.name == again.name == source.names[3] == "000003"
    assert sample.left.shape == sample.right.shape == (256, 512, 3)
    assert sample.left.dtype == np.uint8
    assert np.isfinite(sample.disparity).all()
    for part in ("left", "right", "disparity", "right_disparity", "visible"):
        assert getattr(sample, part).tobytes() == getattr(again, part).tobytes()


def test_training_draws_other_scenes_of_any_size(tmp_path: Path) -> None:
    source, textured = opened("procedural"), opened(f"procedural:{photos(tmp_path)}")
    drawn = source.render(7, 3, 32, 64)
    assert drawn.left.shape == (32, 64, 3)
    for other in (source.render(CHECK_SERIES, 3, 32, 64), textured.render(7, 3, 32, 64)):
        assert drawn.left.tobytes() != other.left.tobytes()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_links_are_followed_and_a_circle_of_them_ends(tmp_path: Path) -> None:
    photos(tmp_path / "elsewhere")
    (tmp_path / "set").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "set/linked")
    os.symlink(tmp_path / "set", tmp_path / "set/circle")
    source = opened(f"procedural:{tmp_path / 'set'}")
    assert sum(len(files.parts) for files in source.files) == 2


@pytest.mark.parametrize("what", ["nothing", "a note", "an icon"])
def test_a_folder_without_a_texture_is_an_error(tmp_path: Path, what: str) -> None:
    if what == "a note":
        (tmp_path / "note.txt").write_text("no picture")
    if what == "an icon":
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "icon.png")
    with pytest.raises(InputError, match="has no image") as caught:
        open_data(f"procedural:{tmp_path}")
    assert caught.value.exit_code == 3


def truncated(folder: Path) -> Path:
    """A folder whose one image breaks off in the middle."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    path = folder / "broken.png"
    path.write_bytes(buffer.getvalue()[:4000])
    return path


def test_verify_reads_every_texture_once(tmp_path: Path) -> None:
    source = opened(f"procedural:{photos(tmp_path / 'sound')}?first=3")
    assert verify(source) == []
    truncated(tmp_path / "sound")
    source = opened(f"procedural:{tmp_path / 'sound'}?first=2")
    (finding,) = verify(source)
    assert finding.severity == "damage"
    assert "broken.png is damaged" in finding.message
    with pytest.raises(InputError, match=r"broken\.png is damaged"):
        list(map(opened(f"procedural:{tmp_path / 'sound'}").load, range(20)))
    assert verify(opened("procedural")) == []
