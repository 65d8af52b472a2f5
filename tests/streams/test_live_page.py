"""The page of a live run: what a browser shows, what it may ask for, and who may see it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from headless_browser import PAGE_READY, Browser, browsing

from pamcli.calibration.geometry import Calibration
from pamcli.streams.live import LiveFrame
from pamcli.streams.page import LivePage

FOCAL, BASELINE = 60.0, 0.1


def make_frame(number: int, *, width: int = 64, age: float = 0.0) -> LiveFrame:
    """Make a result whose disparity is 4 px plus a tenth of its number."""
    shape = 48, width
    left = np.full((*shape, 3), 10 * number % 250, np.uint8)
    disparity = np.full(shape, 4 + 0.1 * number, np.float32)
    disparity[:4] = np.nan
    confidence = np.full(shape, 0.95, np.float32)
    confidence[:24] = 0.3
    statistics = dict.fromkeys(("results", "dropped", "damaged", "interruptions"), 1)
    figures = {"results_per_s": 9.0, "latency_ms": 50.0, "latency_95_ms": 60.0, "skew_ms": 1.0}
    figures |= {"skew_drift_ms_per_min": None}
    calibration = Calibration(FOCAL, BASELINE).for_size(width, 48)
    captured = time.monotonic() - age
    times = time.time() - age, captured, 0.001, 0.05
    return LiveFrame(
        number, left, left, disparity, confidence, calibration, *times, (number, number), statistics | figures
    )


@contextmanager
def showing(*, every: float = 0.1) -> Iterator[tuple[LivePage, dict[str, Any]]]:
    """Serve results that follow each other until `state["running"]` is false."""
    state: dict[str, Any] = {"running": True, "width": 64, "number": 0, "closed": False}
    with LivePage("test", 0) as page:

        def produce() -> None:
            while not state["closed"]:
                if state["running"]:
                    page.show(make_frame(state["number"], width=state["width"]))
                    state["number"] += 1
                time.sleep(every)

        page.show(make_frame(0))
        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield page, state
        finally:
            state["closed"] = True
            thread.join()


def ask(address: str, path: str, host: str | None = None) -> tuple[int, str, bytes]:
    """Return the status, type and body of an answer; the path replaces that of the address."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.netloc, timeout=30)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.headers.get("Content-Type", ""), answer.read()


def test_only_who_knows_the_token_sees_anything() -> None:
    with showing() as (page, _):
        path = urlsplit(page.address).path
        token = path.strip("/")
        assert len(token) >= 20
        assert page.address.startswith("http://127.0.0.1:")
        assert ask(page.address, path)[0] == 200
        status, kind, body = ask(page.address, f"{path}frame/-1")
        assert (status, kind, b'"values"' in body) == (200, "application/json", True)
        for wrong in ("/", "/frame/-1", f"/{token[:-1]}/", f"/{token[:-1]}x/frame/-1", f"/{'a' * 22}/"):
            assert ask(page.address, wrong)[0] == 404, wrong
        for wrong in (f"{path}frame/x", f"{path}snapshot/999", f"{path}../secret", f"{path}frame"):
            assert ask(page.address, wrong)[0] == 404, wrong
        assert ask(page.address, path, host="elsewhere.example")[0] == 404


PROBE = """
const wait = (ms) => new Promise((go) => setTimeout(go, ms));
const until = async (test) => {
  for (let n = 0; n < 500 && !test(); n++) await wait(20);
  return test();
};
const number = () => Number($("age").textContent.match(/result (-?\\d+)/)?.[1] ?? -1);
const seen = {};
await until(() => number() >= 3);
const box = $("compare").getBoundingClientRect();
const at = (x, y) => ({ clientX: box.left + x * box.width, clientY: box.top + y * box.height });
const pixel = () => $("pixel").textContent.match(/disparity ([\\d.]+) px . depth ([\\d.]+) m/)?.slice(1);
$("compare").dispatchEvent(new PointerEvent("pointermove", at(0.5, 0.5)));
seen.pixel = pixel();
await until(() => pixel()[0] !== seen.pixel[0]);
seen.later = pixel();
$("tool").value = "distance";
$("tool").dispatchEvent(new Event("input"));
for (const x of [0.25, 0.75]) $("compare").dispatchEvent(new PointerEvent("click", at(x, 0.5)));
seen.measured = $("measured").textContent;
await until(() => $("measured").textContent !== seen.measured);
seen.measuredLater = $("measured").textContent;
seen.confident = $("confident").textContent;
seen.bars = $("histogram").querySelector("path").getAttribute("d").length;
seen.speed = $("speed").textContent;
$("pause").click();
await wait(400);
const paused = number();
await wait(400);
seen.paused = [number() - paused, $("age").textContent.slice(0, 6), $("pause").textContent];
seen.fits = document.documentElement.scrollWidth <= innerWidth;
const saved = await (await fetch($("snapshot").href)).text();
seen.saved = [saved.includes('id="cloud"'), $("snapshot").download === `live-${paused}.html`];
$("pause").click();
seen.continued = await until(() => number() > paused + 2);
return seen;
"""


def wait_for(browser: Browser, condition: str) -> None:
    """Wait until a condition holds in the page, which may load again meanwhile."""
    last = time.monotonic() + 60
    while time.monotonic() < last:
        with suppress(AssertionError):
            if browser.evaluate(f"return {condition};"):
                return
        time.sleep(0.05)
    raise TimeoutError(condition)


def test_a_browser_follows_and_shows_the_age(tmp_path: Path) -> None:
    with showing() as (page, state), browsing(page.address, tmp_path, phone=True) as browser:
        seen = browser.evaluate(PAGE_READY + PROBE)
        for disparity, depth in (seen["pixel"], seen["later"]):
            assert float(depth) == pytest.approx(FOCAL * BASELINE / float(disparity), rel=0.01)
        assert seen["measured"].startswith("distance ")
        assert seen["measuredLater"].startswith("distance ")
        assert seen["confident"] == "50 % of the pixels have a confidence of at least 0.9"
        assert seen["bars"] > 100
        assert "latency 50 ms" in seen["speed"]
        assert seen["paused"] == [0, "paused", "Continue"]
        assert seen["saved"] == [True, True]
        assert (seen["continued"], seen["fits"]) == (True, True)
        state["running"] = False
        wait_for(browser, '$("age").className === "old" && $("age").textContent.startsWith("no new image")')
        state.update(running=True, width=80)
        wait_for(browser, "document.body.dataset.ready && facts.width === 80 && !$('age').className")
        page.__exit__(None, None, None)
        wait_for(browser, '$("age").textContent.startsWith("pam has ended")')
        hosts = {urlsplit(each).netloc for each in browser.requested()}
        assert hosts == {urlsplit(page.address).netloc}


def test_the_age_is_that_of_the_image() -> None:
    with LivePage("test", 0) as page:
        page.show(make_frame(7, age=3.0))
        path = urlsplit(page.address).path
        for seen in (-1, 7):
            body = ask(page.address, f"{path}frame/{seen}")[2]
            assert b'"number": 7' in body
            age = float(body.rsplit(b'"age": ', 1)[1].rstrip(b"}"))
            assert 3 <= age < 10
