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

from pamcli.data.open import open_data, parse_data
from pamcli.data.sources.procedural import CHECK_SERIES, LENGTH, Scenes
from pamcli.data.verify import verify
from pamcli.errors import InputError, UsageError


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


def test_it_needs_no_folder_and_takes_keys_all_the_same() -> None:
    spec = parse_data("procedural?first=20&weight=0.5&size=960x512")
    assert (spec.path, spec.first, spec.weight, spec.keys) == (None, 20, 0.5, {"size": "960x512"})
    assert spec.label == "procedural"
    assert parse_data("procedural").path is None
    assert parse_data("procedural:photos?first=2").path == Path("photos")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("procedural:", "procedural alone"),
        ("procedural?size=1x1", "unknown size of procedural '1x1'"),
        ("procedural?frist=1", "did you mean first?"),
        ("kitti2015", "lacks a folder (give NAME:PATH, as in kitti2015:FOLDER)"),
        ("kitti2015?first=2", "does not begin with the name of a data set"),
    ],
)
def test_invalid_specifications_without_a_folder(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_data(text)
    assert message in str(caught.value)


def test_a_scene_is_always_the_same_whoever_draws_it() -> None:
    source = opened("procedural")
    assert len(source) == len(source.names) == len(set(source.names)) == LENGTH
    assert source.absent + source.unpaired == ()
    sample, again = source.load(3), pickle.loads(pickle.dumps(source.first(5))).load(3)
    assert sample.name == again.name == source.names[3] == "000003"
    assert sample.left.shape == sample.right.shape == (256, 512, 3)
    assert sample.left.dtype == np.uint8
    assert np.isfinite(sample.disparity).all()
    for part in ("left", "right", "disparity", "right_disparity", "visible"):
        assert getattr(sample, part).tobytes() == getattr(again, part).tobytes()
    assert source.load(4).left.tobytes() != sample.left.tobytes()


def test_training_draws_other_scenes_of_any_size() -> None:
    source = opened("procedural")
    drawn = source.render(7, 3, 32, 64)
    assert drawn.left.shape == (32, 64, 3)
    checked = source.render(CHECK_SERIES, 3, 32, 64)
    assert drawn.left.tobytes() != checked.left.tobytes()


def test_the_size_and_the_first_ones() -> None:
    source = opened("procedural?first=2&size=960x512")
    assert source.names == ("000000", "000001")
    assert source.load(0).left.shape == (512, 960, 3)


def test_images_of_a_folder_are_the_textures(tmp_path: Path) -> None:
    source = opened(f"procedural:{photos(tmp_path)}")
    named = {path for files in source.files for path in files.parts.values()}
    assert named == {tmp_path / "photo.jpg", tmp_path / "below/cut.png"}
    generated = opened("procedural").render(0, 0, 32, 64)
    assert source.render(0, 0, 32, 64).left.tobytes() != generated.left.tobytes()


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


def test_a_file_that_is_no_image_is_an_error_at_once(tmp_path: Path) -> None:
    (photos(tmp_path) / "below/no.png").write_bytes(b"text")
    with pytest.raises(InputError, match=r"no\.png is damaged"):
        open_data(f"procedural:{tmp_path}")


def truncated(folder: Path) -> Path:
    """A folder whose one image breaks off in the middle."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    path = folder / "broken.png"
    path.write_bytes(buffer.getvalue()[:4000])
    return path


def test_an_image_that_breaks_off_is_named_when_it_is_needed(tmp_path: Path) -> None:
    truncated(tmp_path)
    source = opened(f"procedural:{tmp_path}")
    with pytest.raises(InputError, match=r"broken\.png is damaged"):
        list(map(source.load, range(20)))


def test_verify_reads_every_texture_once(tmp_path: Path) -> None:
    source = opened(f"procedural:{photos(tmp_path / 'sound')}?first=3")
    assert verify(source) == []
    truncated(tmp_path / "sound")
    (finding,) = verify(opened(f"procedural:{tmp_path / 'sound'}?first=2"))
    assert finding.severity == "damage"
    assert "broken.png is damaged" in finding.message
    assert verify(opened("procedural")) == []
