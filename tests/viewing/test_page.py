"""The page of a pair, as a browser shows it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from headless_browser import seen_by_browser

from pamcli.calibration.geometry import Calibration
from pamcli.viewing import page as pages
from pamcli.viewing.page import render_page

HEIGHT, WIDTH = 30, 40
NASTY = "</script><b>&\"'{{ 7*7 }}.png"
FOCAL, BASELINE, OFFSET = 50.0, 0.2, 3.0


def scene() -> SimpleNamespace:
    """A near red square before a far blue wall; the right columns are unknown, the upper rows doubtful."""
    rng = np.random.default_rng(0)
    disparity = np.full((HEIGHT, WIDTH), 2.0, np.float32) + rng.random((HEIGHT, WIDTH), np.float32) / 5
    disparity[10:20, 10:25] += 2
    disparity[:, 36:] = np.nan
    left = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    left[..., 2] = 200
    left[10:20, 10:25] = (220, 20, 20)
    confidence = np.ones((HEIGHT, WIDTH), np.float32)
    confidence[:10] = np.linspace(0, 0.5, WIDTH)
    return SimpleNamespace(left=left, disparity=disparity, confidence=confidence)


def point(disparity: float, x: int, y: int) -> list[float]:
    """X, Y and Z of a pixel, by the matrix Q that a calibration hands to other programs."""
    calibration = Calibration(FOCAL, BASELINE, OFFSET).for_size(WIDTH, HEIGHT)
    across, down, ahead, weight = calibration.reprojection() @ [x, y, disparity, 1]
    return [across / weight, down / weight, ahead / weight]


PROBE = """
const wait = async (done) => {
  for (let n = 0; n < 10000 && !done(); n++) await new Promise((go) => setTimeout(go, 20));
};
await wait(() => document.body.dataset.ready);
const planes = await unpack();
const seen = { disparity: Array.from(planes.disparity, (v) => (v === v ? v : null)), title: document.title };
seen.confidence = planes.confidence && Array.from(planes.confidence);
const area = $("compare");
const read = (x, y) => {
  const box = area.getBoundingClientRect();
  const clientX = box.left + ((x + 0.5) / facts.width) * box.width;
  const clientY = box.top + ((y + 0.5) / facts.height) * box.height;
  area.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY }));
  return $("pixel").textContent;
};
seen.read = [[3, 4], [12, 15], [38, 2], [35, 29]].map(([x, y]) => read(x, y));
const pixels = (canvas) => {
  const sheet = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
  sheet.drawImage(canvas, 0, 0);
  return sheet.getImageData(0, 0, canvas.width, canvas.height).data;
};
const map = () => {
  const data = pixels($("map"));
  const at = (x, y) => Array.from(data.slice(4 * (y * facts.width + x)).slice(0, 3));
  return [at(3, 4), at(12, 15), at(38, 2)];
};
seen.map = map();
const change = (id, value) => {
  $(id).value = value;
  $(id).dispatchEvent(new Event("input"));
};
change("plane", "confidence");
seen.mapOfConfidence = map();
change("plane", "depth");
seen.mapOfDepth = map();
seen.ends = [$("low").textContent, $("high").textContent];
change("split", 0.25);
seen.clip = getComputedStyle($("map")).clipPath;
seen.clipped = $("map").getBoundingClientRect().width / 4;
const frame = () => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
const cloud = async () => {
  await frame();
  const data = pixels($("cloud"));
  const found = { red: 0, blue: 0, redAt: 0, blueAt: 0 };
  const width = $("cloud").width;
  for (let i = 0; i < data.length; i += 4) {
    const x = (i / 4) % width / width;
    if (data[i] > 150 && data[i + 2] < 90) { found.red++; found.redAt += x; }
    if (data[i + 2] > 150 && data[i] < 90) { found.blue++; found.blueAt += x; }
  }
  found.redAt /= found.red || 1;
  found.blueAt /= found.blue || 1;
  found.area = data.length / 4;
  return found;
};
const key = (name, count = 1) => {
  for (; count--; ) $("cloud").dispatchEvent(new KeyboardEvent("keydown", { key: name }));
};
seen.points = $("points").textContent;
seen.cloud = { start: await cloud() };
change("size", 4);
seen.cloud.large = await cloud();
change("size", 1.4);
key("ArrowLeft", 12);
seen.cloud.turned = await cloud();
$("reset").click();
key("-", 10);
seen.cloud.far = await cloud();
$("reset").click();
seen.cloud.reset = await cloud();
change("cut", 0.6);
seen.cloud.sure = await cloud();
seen.cut = $("cut-value").textContent;
seen.refused = [];
addEventListener("securitypolicyviolation", (event) => seen.refused.push(event.blockedURI));
new Image().src = "http://127.0.0.1:9/outside.png";
await wait(() => seen.refused.length);
return seen;
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    data = render_page(NASTY, **vars(scene()), calibration=Calibration(FOCAL, BASELINE, OFFSET))
    return seen_by_browser(data, PROBE, tmp_path_factory.mktemp("browser"))


def test_every_disparity_and_confidence_arrives(seen: dict[str, Any]) -> None:
    given = scene()
    arrived = np.array(seen["disparity"], float).reshape(HEIGHT, WIDTH)
    assert np.array_equal(np.isnan(arrived), np.isnan(given.disparity))
    assert np.nanmax(np.abs(arrived - given.disparity)) <= pages.FINEST_STEP / 2 + 1e-6
    assert np.abs(np.array(seen["confidence"]) / 255 - given.confidence.ravel()).max() <= 0.5 / 255 + 1e-6


def test_the_pixel_under_the_pointer(seen: dict[str, Any]) -> None:
    given = scene()
    for text, (x, y) in zip(seen["read"], [(3, 4), (12, 15), (38, 2), (35, 29)], strict=True):
        disparity, confidence = given.disparity[y, x], given.confidence[y, x]
        found = re.fullmatch(
            rf"x {x}, y {y} · (?:unknown|disparity ([\d.]+) px · depth ([\d.]+) m "
            r"\(± ([\d.]+) m for 1 px of disparity\) · X (-?[\d.]+), Y (-?[\d.]+), Z ([\d.]+) m)"
            r" · confidence ([\d.]+)",
            text,
        )
        assert found is not None, text
        assert (found[1] is None) == np.isnan(disparity)
        assert float(found[7]) == pytest.approx(confidence, abs=0.008)
        if found[1]:
            assert float(found[1]) == pytest.approx(disparity, abs=0.014)
            assert float(found[2]) == pytest.approx(FOCAL * BASELINE / (disparity + OFFSET), rel=4e-3)
            # Numbers of three and more digits; the page's disparity is a step of 1/64 px off at most.
            cloud = point(float(disparity), x, y)
            assert [float(found[at]) for at in (4, 5, 6)] == pytest.approx(cloud, rel=4e-3, abs=2e-3)
            assert float(found[3]) == pytest.approx(float(found[6]) ** 2 / (FOCAL * BASELINE), rel=1e-3)


def test_colours_and_the_slider(seen: dict[str, Any]) -> None:
    far, near, unknown = (np.array(color) for color in seen["map"])
    assert near.sum() > far.sum() > unknown.sum() == 0
    doubtful, sure, _ = (np.array(color) for color in seen["mapOfConfidence"])
    assert sure.sum() > doubtful.sum()
    far, near, unknown = (np.array(color) for color in seen["mapOfDepth"])
    assert near.sum() > far.sum() > unknown.sum() == 0
    depth = FOCAL * BASELINE / (scene().disparity + OFFSET)
    for text, percentile in zip(seen["ends"], (99, 1), strict=True):
        assert text.endswith(" m")
        assert float(text[:-2]) == pytest.approx(np.nanpercentile(depth, percentile), abs=6e-4)
    assert seen["clip"] == f"inset(0px 0px 0px {seen['clipped']:g}px)" or "25%" in seen["clip"], seen["clip"]


def test_the_cloud_draws_turns_and_is_cut(seen: dict[str, Any]) -> None:
    cloud = seen["cloud"]
    assert seen["points"] == "1,080 points."
    start = cloud["start"]
    assert start["red"] > 0.02 * start["area"]
    assert start["blue"] > 0.1 * start["area"]
    assert cloud["reset"] == start
    assert cloud["large"]["red"] > 1.3 * start["red"]
    assert cloud["far"]["red"] < 0.5 * start["red"]
    # Turning shows how far the square stands before the wall.
    apart, turned = start["redAt"] - start["blueAt"], cloud["turned"]["redAt"] - cloud["turned"]["blueAt"]
    assert abs(turned - apart) > 0.1
    assert seen["cut"] == "0.60"
    assert cloud["sure"]["red"] == start["red"]
    assert 0.3 * start["blue"] < cloud["sure"]["blue"] < 0.85 * start["blue"]


def test_it_loads_nothing_and_may_not(seen: dict[str, Any]) -> None:
    assert [each for each in seen["requested"] if each not in seen["refused"]] == []
    assert seen["refused"] == ["http://127.0.0.1:9/outside.png"]
    assert seen["title"] == NASTY


def test_without_calibration_and_confidence(tmp_path: Path) -> None:
    given = scene()
    data = render_page("plain", given.left.astype(np.uint16) * 257, given.disparity - 8)
    assert b"Without a calibration" in data
    assert b'<option value="depth">' not in data
    seen = seen_by_browser(data, PROBE.partition("const pixels")[0] + "return seen;", tmp_path)
    arrived = np.array(seen["disparity"], float).reshape(HEIGHT, WIDTH)
    assert np.nanmax(np.abs(arrived - (given.disparity - 8))) <= pages.FINEST_STEP / 2 + 1e-6
    assert re.fullmatch(r"x 3, y 4 · disparity -[56]\.\d\d px", seen["read"][0])


def test_a_large_image_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    given = scene()
    monkeypatch.setattr(pages, "MOST_PIXELS", HEIGHT * WIDTH // 8)
    text = render_page("large", **vars(given)).decode()
    assert '"stride": 3' in text
    assert f'"width": {-(-WIDTH // 3)}' in text
    assert "every 3 pixels of every 3 rows" in text
    assert f"{WIDTH}x{HEIGHT} px" in text


def test_a_full_hd_page_stays_below_10_megabytes() -> None:
    rng = np.random.default_rng(0)
    size = 1080, 1920
    left = np.kron(rng.integers(0, 256, (270, 480, 3), np.uint8), np.ones((4, 4, 1), np.uint8))
    left = np.clip(left + rng.normal(0, 6, left.shape), 0, 255).astype(np.uint8)  # with the noise of a camera
    smooth = np.kron(rng.random((27, 48), np.float32) * 150, np.ones((40, 40), np.float32))
    noisy = (smooth + rng.normal(0, 0.2, size)).astype(np.float32)
    assert len(render_page("full", left, noisy, confidence=rng.random(size, np.float32))) < 10e6


def test_nothing_known_is_a_page_too() -> None:
    given = scene()
    assert b"0.0 to 1.0 px" in render_page("none", given.left, np.full_like(given.disparity, np.nan))
