"""Pages: `pam disparity --page` writes them, `pam view` shows them."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from headless_browser import PAGE_READY, seen_by_browser
from pam_program import names, pam, refuse, refuse_all, succeed, unchanged

pytestmark = pytest.mark.usefixtures("remembering_networks")


def facts_of(page: str) -> dict[str, object]:
    found = re.search(r'id="facts">(.*?)</script>', Path(page).read_text())
    return dict(json.loads(found[1]))


def test_a_page_beside_the_disparity(pair: Path) -> None:
    Path("in").mkdir()
    shutil.copy("left.png", "in/left.png")
    run = pam("disparity in/left.png", str(Path("right.png").absolute()), "-o", "d.npy", "--page", "d.html")
    assert (run.code, run.lines) == (0, ["d.npy", "d.html"])
    assert "<title>left.png, right.png</title>" in Path("d.html").read_text()  # without folders
    facts = facts_of("d.html")
    assert (facts["width"], facts["height"], facts["confidence"]) == (96, 64, True)
    assert facts["middle"] == pytest.approx(float(np.median(np.load("d.npy"))), abs=1e-3)
    with unchanged():
        refuse(pam("disparity", "left.png", "right.png", "--page", "d.html"), 2, "d.html", "--overwrite")
        refuse(pam("disparity", "left.png", "right.png", "--page", "d.htm"), 2, ".html")


POINTED = """
for (let n = 0; n < 10000 && !document.body.dataset.ready; n++) await new Promise((go) => setTimeout(go, 20));
const area = $("compare"), box = area.getBoundingClientRect();
return { texts: [[40, 20], [70, 50]].map(([x, y]) => {
  const clientX = box.left + ((x + 0.5) / facts.width) * box.width;
  const clientY = box.top + ((y + 0.5) / facts.height) * box.height;
  area.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY }));
  return $("pixel").textContent;
}) };
"""


def test_under_the_pointer_is_the_depth_of_the_calibration(pair: Path) -> None:
    """A calibration of another image size is scaled for the page as for the depth."""
    Path("calib.txt").write_text(
        "cam0=[600 0 96; 0 600 64; 0 0 1]\ncam1=[600 0 100; 0 600 64; 0 0 1]\ndoffs=4\nbaseline=200\n"
        "width=192\nheight=128\n"
    )
    files = ["--calibration", "calib.txt", "--depth", "depth.npy", "--page", "d.html"]
    succeed("disparity", "left.png", "right.png", *files)
    depth = np.load("depth.npy")
    texts = seen_by_browser(Path("d.html").read_bytes(), POINTED, Path.cwd())["texts"]
    for text, (x, y) in zip(texts, [(40, 20), (70, 50)], strict=True):
        found = re.match(rf"x {x}, y {y} · disparity ([\d.]+) px · depth ([\d.]+) m", text)
        assert found is not None, text
        assert float(found[2]) == pytest.approx(depth[y, x], rel=2e-3)
        assert float(found[2]) == pytest.approx(300 * 0.2 / (float(found[1]) + 2), rel=2e-3)


def test_a_batch_has_an_index(pair: Path) -> None:
    Path("pairs.tsv").write_text("left.png\tright.png\nright.png\tleft.png\n")
    run = succeed("disparity", "--pairs", "pairs.tsv", "--page", "pages/")
    assert names("pages") == ["index.html", "left.html", "right.html"]
    text = Path("pages/index.html").read_text()
    assert re.findall(r'href="(.*?)"', text) == ["left.html", "right.html"]
    # A page that is gone is made again, and the index lists both.
    Path("pages/left.html").unlink()
    run = pam("disparity", "--pairs", "pairs.tsv", "--page", "pages/", "--skip-existing")
    assert run.complaints[-1] == "1 ok, 1 skipped"
    assert re.findall(r'href="(.*?)"', Path("pages/index.html").read_text()) == ["left.html", "right.html"]


def test_an_index_overwrites_nothing(pair: Path) -> None:
    Path("pairs.tsv").write_text("left.png\tright.png\n")
    Path("pages").mkdir()
    Path("pages/index.html").write_text("mine")
    Path("index.png").write_bytes(Path("left.png").read_bytes())
    Path("named.tsv").write_text("index.png\tright.png\n")
    with unchanged():
        run = pam("disparity", "--pairs", "pairs.tsv", "--page", "pages/")
        refuse(run, 2, "pages/index.html", "not an index")
        refuse(pam("disparity", "--pairs", "named.tsv", "--page", "new/"), 2, "both a page and the index")


# --- pam view -----------------------------------------------------------------------------------------------


CAMERA = "cam0=[100 0 48; 0 100 32; 0 0 1]\ncam1=[100 0 48; 0 100 32; 0 0 1]\ndoffs=0\nbaseline=200\n"


def test_a_disparity_map_becomes_a_page_with_depth(pair: Path) -> None:
    np.save("d.npy", np.full((64, 96), 4, np.float32))
    np.save("c.npy", np.full((64, 96), 0.5, np.float32))
    Path("calib.txt").write_text(CAMERA)
    words = "view d.npy left.png --confidence c.npy --calibration calib.txt --no-browser"
    command = [sys.executable, "-m", "pamcli", *words.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        address = program.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=60) as answer:
            page = answer.read()
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130
        assert program.stderr.read() == "pam: press Ctrl-C to stop\n"
    assert b"<title>d.npy, left.png</title>" in page
    facts = "return { camera: facts.camera, confidence: facts.confidence, depths: facts.depths };"
    seen = seen_by_browser(page, f"{PAGE_READY} {facts}", pair)
    assert (seen["confidence"], seen["requested"]) == (True, [])
    assert seen["depths"] == pytest.approx([5, 5])  # m: 100 px * 0.2 m / 4 px


def test_bad_input_is_one_line(pair: Path) -> None:
    np.save("d.npy", np.ones((10, 20), np.float32))
    Path("empty", "folder.html").mkdir(parents=True)
    Path("d.html").write_text("page")
    Path("photo.jpg").write_bytes(Path("left.png").read_bytes())
    refuse_all(
        """
        2 d.npy | the left image of the disparity map d.npy is required | pam view disp.pfm left.png
        3 left.png | left.png has 3 channels, but a disparity map has one
        2 photo.jpg | pam view shows pages (.html) and disparity maps (.pfm,
        3 d.npy left.png | left.png is 96x64 but d.npy is 20x10
        2 d.html left.png | cannot use both | drop the image
        2 empty | contains no page | --page
        3 left.jpeg | left.jpeg
        2 left.png --focal 300 | requires
        """,
        "view",
    )
