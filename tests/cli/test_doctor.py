"""`pam doctor`: a line for each finding about a pair and its calibration, the system, and the GPU."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import photo_files
import pytest
from pam_program import pam, refuse, refuse_all, succeed
from PIL import Image
from simulated_rigs import WALL, make_rig, photograph_room

import pamcli
from pamcli.calibration.files import encode_rig
from pamcli.calibration.rig import Rig
from pamcli.errors import ModelError
from pamcli.inference import gpu_check, system_checks
from pamcli.inference.gpu_check import Row
from pamcli.registry.architectures import ARCHITECTURES

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
PAIR = ("left.png", "right.png", "--calibration", "rig.yaml")


@pytest.fixture(scope="module")
def rig() -> Rig:
    return make_rig(4, size=(400, 250))


@pytest.fixture(scope="module")
def views(rig: Rig) -> tuple[np.ndarray, np.ndarray]:
    return photograph_room(rig)


@pytest.fixture
def taken(here: Path, rig: Rig, views: tuple[np.ndarray, np.ndarray]) -> Path:
    for name, view in zip(("left.png", "right.png"), views, strict=True):
        Image.fromarray(view).save(here / name)
    (here / "rig.yaml").write_bytes(encode_rig(rig, {}))
    return here


def test_a_right_calibration_ends_with_0(taken: Path) -> None:
    run = succeed("doctor", *PAIR)
    verdicts = ["ok    size", "ok    rows", "ok    left and right", "look  baseline"]
    assert [line.split(": ")[0] for line in run.lines] == verdicts
    assert run.lines[-1].endswith("state --known-length")


def test_what_is_wrong_ends_with_3(taken: Path, rig: Rig) -> None:
    run = pam("doctor", "right.png", "left.png", "--calibration", "rig.yaml")
    assert run.code == 3
    assert run.lines[-1].startswith("WRONG left and right: ")
    assert run.lines[-1].endswith(" -> swap the two images")
    run = pam("doctor", *PAIR, "--baseline", "120", "--json")
    assert run.code == 3
    (found,) = run.records
    assert found["ok"] is False
    assert found["findings"][-1]["do"].endswith("--baseline 120mm")
    ends = np.array([[0.5, -0.3, WALL], [1.2, 0.1, WALL]])
    pixels = ",".join(f"{value:.1f}" for value in rig.left.project(ends).ravel())
    metres = float(np.linalg.norm(ends[0] - ends[1]))
    run = pam("doctor", *PAIR, "--known-length", f"{pixels}={200 * metres:.1f}cm")
    assert run.code == 3
    assert "distances are 0.5" in run.lines[-1]
    assert "--baseline 0.1" in run.lines[-1]


def test_refusals(taken: Path) -> None:
    Image.new("RGB", (64, 48)).save("small.png")
    table = """
        2 left.png | expected a left and a right image, got 1 | --packed
        2 left.png right.png --packed lr | expected one image, got 2
        2 --calibration rig.yaml | --calibration requires an image pair | LEFT RIGHT
        2 left.png right.png --baseline 1 | --baseline requires --calibration
        2 left.png right.png --gpu-check | cannot use both --gpu-check and images
        2 left.png right.png --calibration rig.yaml --known-length 1,2,3=4m | X1,Y1,X2,Y2=LENGTH | '1,2,3=4m'
        2 left.png right.png --calibration rig.yaml --known-length 1,2,1,2=4m | --known-length | X1,Y1,X2,Y2
        2 left.png right.png --calibration rig.yaml --known-length 1,2,3,4=4x | '4x' is not a length
        3 left.png right.png --calibration none.yaml | none.yaml
        3 left.png small.png --calibration rig.yaml | small.png
        3 left.png none.png --calibration rig.yaml | none.png
    """
    refuse_all(table, "doctor")


def test_a_photo_is_checked_with_the_calibration_that_it_states(here: Path) -> None:
    pytest.importorskip("pillow_heif", reason="pillow-heif is not installed (pip install 'pamcli[heif]')")
    views = [np.asarray(Image.open(SAMPLE / f"{side}.png").convert("RGB")) for side in ("left", "right")]
    views = [view[100:260, 160:400] for view in views]
    cameras = [photo_files.camera(1.2, 0.5, 0.5, (0, 0, 0)), photo_files.camera(1.2, 0.5, 0.5, (19200, 0, 0))]
    Path("IMG_1.HEIC").write_bytes(photo_files.spatial(photo_files.heic(*views), cameras))
    run = succeed("doctor", "IMG_1.HEIC")
    verdicts = ["ok    size", "ok    rows", "ok    left and right"]
    assert [line.split(": ")[0] for line in run.lines][:3] == verdicts
    assert "19.2 mm" in run.stdout.decode()


def test_an_image_with_both_views_is_checked(taken: Path, views: tuple[np.ndarray, np.ndarray]) -> None:
    Image.fromarray(np.concatenate(views[::-1], axis=1)).save("crossed.png")
    run = pam("doctor", "crossed.png", "--packed", "lr")
    assert run.code == 3, run.stderr
    assert any(line.startswith("WRONG") and "uncalibrated" in line for line in run.lines), run.lines


def test_doctor_tells_what_is_there_and_tries_it() -> None:
    run = succeed("doctor", "--json")
    (found,) = run.records
    assert found["ok"] is True
    assert found["pam"].startswith(f"{pamcli.__version__}, Python 3.")
    assert found["packages"]["torch"][0].isdigit()
    assert found["weights"]["pasmnet"].startswith("ok, ")
    assert ".webp" in found["images"]
    assert "a pair with 8 px of disparity matched to 0." in found["self-test"]
    assert {"vectors", "bf16", "fp32", "cores"} == set(found["processor"])
    lines = pam("doctor").lines
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [*system_checks.PARTS]


def test_doctor_names_what_is_wrong_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*arguments: object, **options: object) -> None:
        raise ModelError("pasmnet is damaged")

    monkeypatch.setattr(system_checks, "locate", damaged)
    run = pam("doctor", "--json")
    assert run.code == 4
    (found,) = run.records
    assert (found["ok"], found["weights"]) == (False, "FAILED: pasmnet is damaged")
    assert found["images"].startswith(".png")


# --- pam doctor --gpu-check ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("networks")
def test_the_cpu_half_where_there_is_no_gpu(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two architectures run on pieces of the sample pair that are as small as they may be."""
    quick = {name: ARCHITECTURES[name] for name in ("pasmnet2", "passrnet")}
    monkeypatch.setattr(gpu_check, "ARCHITECTURES", quick)
    monkeypatch.setattr(gpu_check, "MATCHED", (slice(100, 132), slice(100, 164)))
    monkeypatch.setattr(gpu_check, "UPSCALED", (slice(200, 208), slice(200, 208)))
    run = succeed("doctor", "--gpu-check")
    assert run.complaints == ["PyTorch finds no GPU, so only the CPU is checked"]
    rows = [line.strip("| ").split(" | ") for line in run.lines if line.startswith("| pas")]
    assert [row[0] for row in rows[::3]] == ["pasmnet2", "passrnet-x2", "passrnet-x4"]
    assert rows[0][4:6] == ["0 px", "0 px"]
    assert {row[-1] for row in rows if row[2] == "fp32"} == {"ok"}


def test_what_is_wrong_decides_the_exit_code(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        Row("pasmnet2", "cpu", "fp32", "ok", 100.0, 0.0, 0.0, "px"),
        Row("pasmnet2", "cuda", "fp32", "WRONG", 9.6, 0.5, 3.0, "px", 2 * 10**9),
    ]
    monkeypatch.setattr(gpu_check, "check_networks", lambda: iter(made))
    monkeypatch.setattr(gpu_check, "list_gpus", lambda: ["cuda"])
    run = pam("doctor", "--gpu-check")
    assert run.code == 5
    assert run.lines[-1] == "| pasmnet2 | cuda | fp32 | 10 | 0.5 px | 3 px | 2.00 GB | WRONG |"
    assert run.stderr == ""
    (found,) = pam("doctor", "--gpu-check", "--json").records
    assert found["ok"] is False
    assert found["rows"][1]["mean"] == 0.5


# --- pairs of unusual cameras -------------------------------------------------------------------------------


VIEWS = ["left.png", "right.png"]


def sample() -> list[np.ndarray]:
    return [np.asarray(Image.open(SAMPLE / f"{side}.png").convert("RGB")) for side in ("left", "right")]


def put(left: np.ndarray, right: np.ndarray) -> None:
    for name, view in (("left.png", left), ("right.png", right)):
        cv2.imwrite(name, view[..., ::-1] if view.ndim == 3 else view)


@pytest.mark.usefixtures("networks")
def test_16_bits_of_low_contrast_are_stretched_and_announced(here: Path) -> None:
    grey = [cv2.cvtColor(view[150:214, 200:320], cv2.COLOR_RGB2GRAY).astype(np.uint16) for view in sample()]
    raw = [51240 + view for view in grey]  # as of a thermal camera
    raw[0][0, 0] = 65535  # a hot pixel
    low, high = np.percentile(np.concatenate([view.ravel() for view in raw]), (0.1, 99.9))
    put(*raw)
    run = pam("disparity", *VIEWS, "-o", "raw.npy")
    assert f"levels {low:.0f} to {high:.0f} become 0 to 65535" in run.stderr
    put(*[((view - low) / (high - low) * 65535).clip(0, 65535).astype(np.uint16) for view in raw])
    assert pam("disparity", *VIEWS, "-o", "stretched.npy").complaints == []
    off = np.abs(np.load("raw.npy") - np.load("stretched.npy"))
    assert np.quantile(off, 0.95) < 0.5


@pytest.mark.usefixtures("networks")
def test_cameras_above_each_other(here: Path) -> None:
    left, right = (view[150:230, 200:320] for view in sample())
    put(left, right)
    succeed("disparity", *VIEWS, "-o", "flat.npy")
    put(*(np.rot90(view, -1) for view in (left, right)))
    for command, result in (("disparity", "x.npy"), ("superres", "x.png")):
        refuse(pam(command, *VIEWS, "-o", result), 3, "one camera is above", "--vertical")
    doctor = pam("doctor", "left.png", "right.png")
    assert doctor.code == 3
    assert "use --vertical" in doctor.stdout.decode()
    succeed("disparity", *VIEWS, "--vertical", "-o", "upright.npy", "--visible", "v.png")
    np.testing.assert_allclose(np.load("upright.npy"), np.rot90(np.load("flat.npy"), -1), atol=1e-3)
    assert cv2.imread("v.png").shape[:2] == (120, 80)
    succeed("superres", *VIEWS, "--vertical", "--scale", "2", "-o", "x.png")
    assert cv2.imread("x.png").shape[:2] == (240, 160)


@pytest.mark.usefixtures("networks")
def test_every_command_has_the_same_diagnosis(here: Path) -> None:
    left, right = sample()
    put(left[150:270, 300:500], right[150:270, 210:410])  # behind the stereo window
    run = pam("disparity", *VIEWS, "-o", "a.npy", "--jsonl", "--quiet")
    (warning,) = run.records[0]["warnings"]
    shifted = r"(the pair is shifted: \d+ % of the matches have disparities below 0 px)"
    found = re.match(f"{shifted}: use --min-disparity (-\\d+)", warning)
    assert found, warning
    said, lowest = found.groups()
    assert run.complaints == [f"warning: left.png: {warning}"]
    assert f"{said} -> use --min-disparity {lowest}" in pam("doctor", *VIEWS).stdout.decode()
    assert pam("disparity", *VIEWS, "-o", "b.npy", "--min-disparity", lowest).complaints == []
    put(left[100:220, 300:500], right[94:214, 300:500])  # a small crop, its right image 6 px lower
    said = "px lower in the right image, so the pair is not rectified"
    runs = pam("disparity -o c.npy", *VIEWS), pam("superres --scale 2 -q -o c.png", *VIEWS)
    assert all(len(run.complaints) == 1 and said in run.stderr for run in runs)
    assert "the right image is 6." in pam("doctor", *VIEWS).stdout.decode()
