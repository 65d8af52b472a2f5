"""MPO, JPS and videos on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import photo_files as photos
import pytest
import stereo_files as made
from pam_program import names, pam, refuse, refuse_all, succeed
from PIL import Image

from pamcli.imaging.disparity_files import read_disparity

pytestmark = pytest.mark.usefixtures("remembering_networks")


@pytest.fixture
def camera(small_pair: Path) -> dict[str, bytes]:
    """The pair as DSC1.MPO and, cross-eyed, dsc2.jps in camera/, and as lossless l.png and r.png."""
    left, right = (made.jpeg(np.asarray(Image.open(name))) for name in ("left.png", "right.png"))
    for name, data in (("l.jpg", left), ("r.jpg", right)):
        Path(name).write_bytes(data)
    Path("camera").mkdir()
    Path("camera/DSC1.MPO").write_bytes(made.mpo(left, right))
    both = np.concatenate([np.asarray(Image.open(name)) for name in ("right.png", "left.png")], axis=1)
    Path("camera/dsc2.jps").write_bytes(made.jps(made.jpeg(both)))
    succeed("disparity", "l.jpg", "r.jpg", "-o", "d.npy")
    return {"left": left, "right": right}


def test_one_mpo_is_a_pair(camera: dict[str, bytes]) -> None:
    assert pam("disparity", "camera/DSC1.MPO", "-o", "p.npy").lines == ["p.npy"]
    assert Path("p.npy").read_bytes() == Path("d.npy").read_bytes()
    succeed("disparity", "camera/DSC1.MPO", "--packed", "rl", "-o", "x.npy")
    assert Path("x.npy").read_bytes() != Path("d.npy").read_bytes()


def test_a_folder_of_both_kinds_in_any_case(camera: dict[str, bytes]) -> None:
    run = pam("disparity", "camera", "-o", "out/", "--format", "npy")
    assert (run.code, run.lines) == (0, ["out/DSC1.npy", "out/dsc2.npy"])
    assert Path("out/DSC1.npy").read_bytes() == Path("d.npy").read_bytes()
    assert np.abs(np.load("out/dsc2.npy") - np.load("d.npy")).max() < 3
    run = succeed("superres", "camera/DSC1.MPO", "camera/dsc2.jps", "--scale", "2", "-o", "x2/")
    assert names("x2") == [
        f"camera/{name}_{side}.png" for name in ("DSC1", "dsc2") for side in ("left", "right")
    ]


def test_what_is_no_pair(camera: dict[str, bytes]) -> None:
    for folder, data in (("plain/a.jpg", camera["left"]), ("films/my clip.MKV", b"")):
        Path(folder).parent.mkdir()
        Path(folder).write_bytes(data)
    Path("film.png").write_bytes(b"\0\0\0\x18ftypisom\0\0\0\0")
    table = """
        3 camera/DSC1.MPO r.jpg -o x.pfm | holds both views | alone
        2 plain -o o/ | no image in plain states that it holds both views | --packed lr
        3 l.jpg --packed auto -o x.pfm | does not state | --packed lr
        2 l.jpg -o x.pfm | left and a right image
        3 films films -o out | my clip.MKV is a video | ffmpeg -i
        3 films --packed auto -o out | my clip.MKV is a video | ffmpeg -i
        3 film.png right.png -o x.pfm | film.png is a video | ffmpeg
    """
    refuse_all(table, "disparity")


def test_a_video_on_stdin_is_refused_without_a_line_that_cannot_work(here: Path) -> None:
    run = pam("disparity", "--packed", "lr", "-", "-o", "x.pfm", stdin=b"\0\0\0\x18ftypisom\0\0\0\0")
    refuse(run, 3, "standard input is a video", "pass the file name instead of -")
    assert "ffmpeg" not in run.stderr


def test_a_spatial_photo_becomes_metres_in_one_command(pair: Path) -> None:
    pytest.importorskip("pillow_heif", reason="pillow-heif is not installed (pip install 'pamcli[heif]')")
    views = [np.asarray(Image.open(f"{side}.png")) for side in ("left", "right")]
    Path("photos").mkdir()
    cameras = [photos.camera(100 / 96, 0.5, 0.5, (move, 0, 0)) for move in (0, 200_000)]
    Path("photos/IMG_1.HEIC").write_bytes(photos.spatial(photos.heic(*views), cameras))
    Path("photos/IMG_2.HEIC").write_bytes(photos.spatial(photos.heic(*views), [[], []]))
    options = ["--focal", "100", "--baseline", "0.2", "--depth", "d.tif"]
    succeed("disparity", "left.png", "right.png", *options)
    expected = read_disparity(Path("d.tif"))
    run = pam("disparity", "photos", "--depth", "out/")
    assert (run.code, run.lines) == (6, ["out/IMG_1_depth.tif"])
    assert "IMG_2.HEIC does not state its calibration" in run.stderr
    assert np.nanmedian(np.abs(read_disparity(Path("out/IMG_1_depth.tif")) / expected - 1)) < 0.01
    trimesh = pytest.importorskip("trimesh", reason="trimesh is not installed (pip install 'pamcli[test]')")
    succeed("disparity", "photos/IMG_1.HEIC", "--mesh", "room.glb")
    (mesh,) = trimesh.load("room.glb").geometry.values()
    assert np.median(np.abs(mesh.vertices[:, 2])) == pytest.approx(np.nanmedian(expected), rel=0.1)  # m
    succeed("disparity", "photos/IMG_2.HEIC", "--depth", "f.tif", *options[:4])
    table = """
        3 photos/IMG_1.HEIC right.png -o x.pfm | holds both views
        2 left.png --packed lr --depth x.tif | --calibration
    """
    refuse_all(table, "disparity")


def test_a_vr180_photo_is_matched_as_rectilinear_views(pair: Path) -> None:
    files = [
        made.jpeg(np.asarray(Image.open(f"{side}.png").resize((128, 128)))) for side in ("left", "right")
    ]
    Path("walk.vr.jpg").write_bytes(photos.vr180(*files, (128, 128), parts=2))
    succeed("disparity", "walk.vr.jpg", "-o", "ninety.npy", "--page", "page.html")
    assert np.load("ninety.npy").shape == (82, 82)  # 128 px / pi * 2 tan(45 degrees)
    succeed("disparity walk.vr.jpg -o sixty.npy --vr180 60 --baseline 65mm --depth d.tif")
    known = np.isfinite(read_disparity(Path("d.tif")))
    depth = 128 / np.pi * 0.065 / np.load("sixty.npy")
    np.testing.assert_allclose(read_disparity(Path("d.tif"))[known], depth[known], rtol=1e-4)
    table = """
        3 --depth x.tif | baseline
        2 --vr180 170 -o x.pfm | --vr180 | 150
    """
    refuse_all(table, "disparity walk.vr.jpg")
