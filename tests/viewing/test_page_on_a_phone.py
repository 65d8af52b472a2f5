"""Tests of the page of a pair on a phone: measuring, by touch and keyboard, and the cloud under fingers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from headless_browser import PAGE_READY, Browser, browsing
from numpy.typing import NDArray

from pamcli.calibration.geometry import Calibration
from pamcli.viewing.page import render_page

HEIGHT, WIDTH = 30, 40
CALIBRATION = Calibration(50, 0.2, 3).for_size(WIDTH, HEIGHT)
Points = NDArray[np.float64]


def disparities() -> NDArray[np.float32]:
    """A slanted ground and a box on it, in the steps of a page; the right columns are unknown."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    disparity = 2 + rows / 16 + columns / 64
    disparity[10:20, 10:25] += 2
    disparity[:, 36:] = np.nan
    return disparity.astype(np.float32)


DISPARITY = disparities()
RED = """
  await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
  const from = $("cloud"), sheet = new OffscreenCanvas(from.width, from.height).getContext("2d");
  sheet.drawImage(from, 0, 0);
  const { data } = sheet.getImageData(0, 0, from.width, from.height), found = [];
  for (let i = 0; i < data.length; i += 4)
    if (data[i] > 150 && data[i + 2] < 90) found.push([i / 4 % from.width, Math.floor(i / 4 / from.width)]);
  const mean = [0, 1].map((axis) => found.reduce((sum, at) => sum + at[axis], 0) / found.length);
  const moment = (a, b) => found.reduce((sum, at) => sum + (at[a] - mean[a]) * (at[b] - mean[b]), 0);
  return { count: found.length, angle: Math.atan2(2 * moment(0, 1), moment(0, 0) - moment(1, 1)) / 2 };
"""
"""Pixels of the cloud that are red, and the direction in which they are longest, radians."""


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    left = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    left[13:17, 10:25] = (220, 20, 20)  # a long bar on the box
    data = render_page("ground", left, DISPARITY, calibration=CALIBRATION)
    with browsing(data, tmp_path_factory.mktemp("phone"), phone=True) as browser:
        browser.evaluate(PAGE_READY)
        yield browser


def choose(browser: Browser, select: str, value: str) -> None:
    browser.evaluate(f'$("{select}").value = "{value}"; $("{select}").dispatchEvent(new Event("input"));')


def tap(browser: Browser, *places: tuple[int, int]) -> str:
    """Tap pixels (x, y) of the image; what is measured then."""
    for x, y in places:
        left, top, width, height = browser.box("compare")
        browser.fingers([(left + (x + 0.5) / WIDTH * width, top + (y + 0.5) / HEIGHT * height)])
    return measured(browser)


def measured(browser: Browser) -> str:
    return str(browser.evaluate('return $("measured").textContent;'))


def points(places: list[tuple[int, int]], change: Points) -> Points:
    """(N, 3) metres, of pixels (x, y) whose disparities are `change` (N,) pixels off."""
    d = [float(DISPARITY[y, x]) + off for (x, y), off in zip(places, change, strict=True)]
    homogeneous = [[x, y, each, 1] for (x, y), each in zip(places, d, strict=True)]
    found = np.array(homogeneous) @ CALIBRATION.reprojection().T
    return np.asarray(found[:, :3] / found[:, 3:])


def expected(places: list[tuple[int, int]], measure: Callable[[Points], float]) -> tuple[float, float]:
    """A measure, and its deviation where each disparity deviates by 1 px on its own: drawn, not derived."""
    draws = np.random.default_rng(0).normal(0, 0.01, (4000, len(places)))
    spread = np.std([measure(points(places, draw)) for draw in draws]) / 0.01
    return measure(points(places, np.zeros(len(places)))), float(spread)


def distance(found: Points) -> float:
    return float(np.linalg.norm(found[0] - found[1]))


def height(found: Points) -> float:
    """Find how far the fourth point is from the plane z = a x + b y + c of the others; above: the camera."""
    a, b, c = np.linalg.solve(np.c_[found[:3, :2], np.ones(3)], found[:3, 2])
    x, y, z = found[3]
    return float((a * x + b * y + c - z) / np.sqrt(a * a + b * b + 1) * np.sign(c))


def numbers(text: str, pattern: str) -> list[float]:
    found = re.fullmatch(pattern, text)
    assert found is not None, text
    return [float(each) for each in found.groups()]


def test_the_distance_of_two_points(phone: Browser) -> None:
    choose(phone, "tool", "distance")
    assert tap(phone, (12, 12)) == "1 of 2 points set: click or tap the image."
    text = tap(phone, (30, 25))
    found = numbers(text, r"distance ([\d.]+) m \(± ([\d.]+) m for 1 px of disparity at each point\)")
    value, error = expected([(12, 12), (30, 25)], distance)
    assert found[0] == pytest.approx(value, rel=2e-3)
    assert found[1] == pytest.approx(error, rel=0.05)
    assert phone.evaluate('return document.querySelectorAll(".point").length') == 2
    assert tap(phone, (38, 3)) == "No depth is known at x 38, y 3: choose another point."
    assert tap(phone, (5, 5)).startswith("1 of 2")  # the third one begins anew


@pytest.mark.parametrize(("top", "side"), [((15, 15), "above"), ((5, 5), "below")])
def test_the_height_above_three_points(phone: Browser, top: tuple[int, int], side: str) -> None:
    ground = [(3, 25), (32, 27), (30, 5)]
    if side == "below":  # the box's front is the plane, the ground lies behind it
        ground = [(12, 12), (22, 12), (12, 18)]
    choose(phone, "tool", "height")
    tap(phone, *ground, (20, 2))
    text = tap(phone, top)  # one more point, the plane stays
    pattern = rf"height ([\d.]+) m {side} the plane \(± ([\d.]+) m for 1 px of disparity at each point\)"
    value, error = expected([*ground, top], height)
    found = numbers(text, pattern)
    assert found[0] == pytest.approx(abs(value), rel=2e-3)
    assert (value > 0) == (side == "above")
    assert found[1] == pytest.approx(error, rel=0.05)


def test_no_plane_goes_through_a_line(phone: Browser) -> None:
    choose(phone, "tool", "height")
    text = tap(phone, (3, 5), (3, 5), (20, 20), (15, 15))
    assert text == "The first three points are on one line, so they define no plane."
    phone.evaluate('$("clear").click()')
    assert measured(phone).startswith("0 of 4")


def test_a_profile_along_a_line(phone: Browser) -> None:
    choose(phone, "tool", "profile")
    text = tap(phone, (2, 15), (38, 15))
    row = DISPARITY[15, 2:39]
    low, high = numbers(text, r"disparity along 36\.0 px: ([\d.]+) to ([\d.]+) px; unknown at 3 of 37 pixels")
    assert (low, high) == pytest.approx((np.nanmin(row), np.nanmax(row)), abs=6e-3)
    drawn = phone.evaluate('return $("profile").querySelector("path").getAttribute("d");')
    across, down = np.array(re.findall(r"[ML]([\d.e-]+) ([\d.e-]+)", drawn), float).T
    assert across == pytest.approx(np.arange(34) / 36, abs=1e-6)
    assert np.nanmax(row) - down * np.ptp(row[:34]) == pytest.approx(row[:34], abs=1e-3)
    choose(phone, "plane", "depth")
    low, high = numbers(measured(phone), r"depth along 36\.0 px: ([\d.]+) to ([\d.]+) m; unknown .*")
    depth = CALIBRATION.depth(row)
    assert (low, high) == pytest.approx((np.nanmin(depth), np.nanmax(depth)), abs=1e-3)
    choose(phone, "plane", "disparity")
    # A finger on the profile reads the image there.
    left, top, width, tall = phone.box("profile")
    phone.fingers([(left + width * 10 / 36, top + tall / 2)])
    assert str(phone.evaluate('return $("pixel").textContent;')).startswith("x 12, y 15 · ")


def test_keys_read_and_measure(phone: Browser) -> None:
    choose(phone, "tool", "distance")
    tap(phone, (0, 0))
    phone.evaluate('$("compare").focus();')
    phone.press("Escape")
    assert measured(phone).startswith("0 of 2")
    phone.press("ArrowRight", 2, shift=True)
    phone.press("ArrowDown", 3)
    phone.press("ArrowLeft")
    assert str(phone.evaluate('return $("pixel").textContent;')).startswith("x 19, y 3 · ")
    phone.press("Enter")
    phone.press("ArrowUp", 9)
    assert str(phone.evaluate('return $("pixel").textContent;')).startswith("x 19, y 0 · ")
    phone.press("Enter")
    value, _ = expected([(19, 3), (19, 0)], distance)
    assert float(measured(phone).split()[1]) == pytest.approx(value, rel=2e-3)


def test_fingers_turn_and_zoom_the_cloud(phone: Browser) -> None:
    left, top, width, height = phone.box("cloud")
    x, y, reach = left + width / 2, top + height / 2, min(width, height) / 6

    def two(radius: float, degrees: float) -> list[tuple[float, float]]:
        turn = math.radians(degrees)
        across, down = radius * math.cos(turn), radius * math.sin(turn)
        return [(x - across, y - down), (x + across, y + down)]

    start = phone.evaluate(RED)
    phone.fingers(*(two(reach * (1 + step / 10), 0) for step in range(6)))
    near = phone.evaluate(RED)
    assert near["count"] > 1.5 * start["count"]
    assert near["angle"] == pytest.approx(start["angle"], abs=0.03)
    phone.fingers(*(two(reach, 3 * step) for step in range(11)))
    turned = phone.evaluate(RED)
    assert turned["angle"] - near["angle"] == pytest.approx(math.radians(30), abs=0.05)
    phone.evaluate('$("reset").click()')
    assert phone.evaluate(RED) == start
    phone.fingers([(x, y)], [(x + 60, y)], [(x + 120, y)])
    assert phone.evaluate(RED) != start  # seen from the side
    phone.evaluate('$("reset").click()')


@pytest.mark.parametrize("width", [390, 320])
def test_nothing_is_wider_than_a_phone(phone: Browser, width: int) -> None:
    screen = {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    phone.call("Emulation.setDeviceMetricsOverride", **screen)
    assert phone.evaluate("return [innerWidth, document.documentElement.scrollWidth]") == [width, width]


def test_without_a_calibration_only_the_profile_is_offered() -> None:
    page = render_page("plain", np.zeros((HEIGHT, WIDTH, 3), np.uint8), DISPARITY).decode()
    assert '<option value="profile">' in page
    assert '<option value="distance">' not in page
