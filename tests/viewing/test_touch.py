"""The page of a pair under fingers and keys, and on narrow screens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from headless_browser import PAGE_READY, Browser, browsing

from pamcli.calibration.geometry import Calibration
from pamcli.viewing.page import render_page

HEIGHT, WIDTH = 30, 40
PIXELS = """
  await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
  const from = $("cloud"), sheet = new OffscreenCanvas(from.width, from.height).getContext("2d");
  sheet.drawImage(from, 0, 0);
  const { data } = sheet.getImageData(0, 0, from.width, from.height);
"""
RED = f"""{PIXELS}
  const found = [];
  for (let i = 0; i < data.length; i += 4)
    if (data[i] > 150 && data[i + 2] < 90) found.push([i / 4 % from.width, Math.floor(i / 4 / from.width)]);
  const mean = [0, 1].map((axis) => found.reduce((sum, at) => sum + at[axis], 0) / found.length);
  const moment = (a, b) => found.reduce((sum, at) => sum + (at[a] - mean[a]) * (at[b] - mean[b]), 0);
  return {{ count: found.length, angle: Math.atan2(2 * moment(0, 1), moment(0, 0) - moment(1, 1)) / 2 }};
"""
"""Pixels of the cloud that are red, and the direction in which they are longest, radians."""


def page() -> bytes:
    """A long red bar before a blue wall."""
    disparity = np.full((HEIGHT, WIDTH), 2.0, np.float32)
    left = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    left[..., 2] = 200
    disparity[12:16, 8:32], left[12:16, 8:32] = 3, (220, 20, 20)
    confidence = np.ones_like(disparity)
    return render_page("bar", left, disparity, confidence=confidence, calibration=Calibration(50, 0.2))


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(page(), tmp_path_factory.mktemp("phone"), phone=True) as browser:
        browser.evaluate(PAGE_READY)
        yield browser


def at_pixel(browser: Browser, x: int, y: int) -> tuple[float, float]:
    """Where the middle of a pixel of the image is on the screen."""
    left, top, width, height = browser.box("compare")
    return left + (x + 0.5) / WIDTH * width, top + (y + 0.5) / HEIGHT * height


def text(browser: Browser, name: str) -> str:
    return str(browser.evaluate(f'return $("{name}").textContent;'))


def test_a_tap_reads_the_pixel(phone: Browser) -> None:
    for x, y, disparity in [(10, 13, "3.00"), (35, 5, "2.00")]:
        phone.fingers([at_pixel(phone, x, y)])
        assert text(phone, "pixel").startswith(f"x {x}, y {y} · disparity {disparity} px")


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
    assert phone.evaluate(RED)["count"] < 0.95 * start["count"]  # seen from the side
    phone.evaluate('$("reset").click()')


def test_nothing_is_wider_than_a_phone(phone: Browser) -> None:
    assert phone.evaluate("return document.documentElement.scrollWidth") <= 390


def test_nothing_is_wider_than_a_small_phone(tmp_path: Path) -> None:
    with browsing(page(), tmp_path, width=320) as browser:
        browser.evaluate(PAGE_READY)
        assert browser.evaluate("return document.documentElement.scrollWidth - innerWidth") <= 0
