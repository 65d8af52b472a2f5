"""MPO, JPS and videos on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import stereo_files as made
from pam_program import names, pam, refuse, unchanged
from PIL import Image

pytestmark = pytest.mark.usefixtures("networks")


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
    assert pam("disparity", "l.jpg", "r.jpg", "-o", "d.npy").code == 0
    return {"left": left, "right": right}


def test_one_mpo_is_a_pair(camera: dict[str, bytes]) -> None:
    assert pam("disparity", "camera/DSC1.MPO", "-o", "p.npy").lines == ["p.npy"]
    assert Path("p.npy").read_bytes() == Path("d.npy").read_bytes()
    assert pam("disparity", "camera/DSC1.MPO", "--packed", "rl", "-o", "x.npy").code == 0
    assert Path("x.npy").read_bytes() != Path("d.npy").read_bytes()


def test_a_folder_of_both_kinds_in_any_case(camera: dict[str, bytes]) -> None:
    run = pam("disparity", "camera", "-o", "out/", "--format", "npy")
    assert (run.code, run.lines) == (0, ["out/DSC1.npy", "out/dsc2.npy"])
    assert Path("out/DSC1.npy").read_bytes() == Path("d.npy").read_bytes()
    assert np.abs(np.load("out/dsc2.npy") - np.load("d.npy")).max() < 3
    run = pam("superres", "camera/DSC1.MPO", "camera/dsc2.jps", "--scale", "2", "-o", "x2/")
    assert run.code == 0
    assert names("x2") == [
        f"camera/{name}_{side}.png" for name in ("DSC1", "dsc2") for side in ("left", "right")
    ]


def test_other_pictures_of_the_folder_are_not_dropped_in_silence(camera: dict[str, bytes]) -> None:
    Path("camera/DSC1.JPG").write_bytes(camera["left"])
    with unchanged():
        refuse(pam("disparity", "camera", "-o", "out/"), 2, "camera/DSC1.JPG", "--skip-unpaired")
    run = pam("disparity", "camera", "-o", "out/", "--skip-unpaired")
    assert run.code == 0
    assert run.complaints[0] == "warning: camera/DSC1.JPG has no partner and is left out"


def test_a_stereo_file_is_no_view(camera: dict[str, bytes]) -> None:
    with unchanged():
        refuse(pam("disparity", "camera/DSC1.MPO", "r.jpg", "-o", "x.pfm"), 3, "holds both views", "alone")
    Path("plain").mkdir()
    Path("plain/a.jpg").write_bytes(camera["left"])
    with unchanged():
        refuse(pam("disparity", "plain", "-o", "o/"), 2, "plain says that it holds both views", "--packed lr")
        refuse(
            pam("disparity", "l.jpg", "--packed", "auto", "-o", "x.pfm"), 3, "does not state", "--packed lr"
        )


def test_a_video_on_stdin_is_refused_without_a_line_that_cannot_work(here: Path) -> None:
    run = pam("disparity", "--packed", "lr", "-", "-o", "x.pfm", stdin=b"\0\0\0\x18ftypisom\0\0\0\0")
    refuse(run, 3, "standard input is a video", "name its file instead of -")
    assert "ffmpeg" not in run.stderr


@pytest.mark.parametrize("name", ["clip.mp4", "my clip.MKV"])
def test_videos_in_place_of_pictures_are_refused_with_the_line_that_makes_them(pair: Path, name: str) -> None:
    Path(name).write_bytes(b"\0\0\0\x18ftypisom\0\0\0\0")
    Path("films").mkdir()
    Path("films", name).write_bytes(b"")
    with unchanged():
        refuse(pam("disparity", "films", "films", "-o", "out"), 3, f"{name} is a video", "ffmpeg -i")
        refuse(
            pam("disparity", "films", "--packed", "auto", "-o", "out"), 3, f"{name} is a video", "ffmpeg -i"
        )
    Path(name).rename("left.png")
    refuse(pam("disparity", "left.png", "right.png", "-o", "x.pfm"), 3, "left.png is a video", "ffmpeg")
