"""A page in a headless Chromium: what a script that runs in it finds out, and what the page asks for."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--use-gl=angle",  # WebGL in software
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--window-size=1400,900",
    "--remote-debugging-pipe",
)
PAGE_READY = "while (!document.body.dataset.ready) await new Promise((go) => setTimeout(go, 20));"
"""Waits in the page of a pair until it is drawn."""
PATIENCE = 300
"""Seconds after which a browser that hangs is killed."""


def seen_by_browser(page: bytes, probe: str, folder: Path) -> Any:
    """What `probe` returns, the body of an async function that runs in the page once it is loaded.

    Skips the test where there is no browser. To the object comes `requested`: addresses that the page asked
    for, its own and data: excluded.
    """
    with browsing(page, folder) as browser:
        return {**browser.evaluate(probe), "requested": browser.requested()}


@contextmanager
def browsing(page: bytes | str, folder: Path, *, phone: bool = False, width: int = 1400) -> Iterator[Browser]:
    """The page, loaded in a browser that obeys: with touches and 390 x 844 px as a phone, or as wide as said.

    It is given whole, or by its address.

    Skips the test where there is no browser.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser on PATH: none of {', '.join(BROWSERS)}")
    address = page
    if isinstance(page, bytes):
        (folder / "page.html").write_bytes(page)
        address = (folder / "page.html").as_uri()
    profile = tempfile.mkdtemp(dir="/tmp")  # a test's own TMPDIR is too long a path for the browser's socket
    read_end, to_browser = os.pipe()
    from_browser, write_end = os.pipe()

    def pipes_in_place() -> None:
        """The browser takes commands from descriptor 3 and answers on 4, each message ended by NUL."""
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_end, write_end)]
        for end, place in zip(ends, (3, 4), strict=True):
            os.dup2(end, place)

    running = subprocess.Popen(
        [browser, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
        env={**os.environ, "TMPDIR": profile},
        pass_fds=(3, 4),
        preexec_fn=pipes_in_place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_end)
    os.close(write_end)
    watchdog = threading.Timer(PATIENCE, running.kill)
    watchdog.start()
    try:
        with open(to_browser, "wb", buffering=0) as out, open(from_browser, "rb") as back:
            found = Browser(out, back)
            found.visit(address, phone, width)
            yield found
    finally:
        watchdog.cancel()
        running.kill()
        running.wait()
        shutil.rmtree(profile, ignore_errors=True)


class Browser:
    """Chrome's DevTools protocol over a pair of pipes."""

    def __init__(self, out: Any, back: Any) -> None:
        self.out, self.back = out, back
        self.count = 0
        self.events: list[dict[str, Any]] = []
        self.target: dict[str, str] = {}
        self.address = ""

    def visit(self, address: str, phone: bool, width: int) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.target = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")
        width, height = (390, 844) if phone else (width, 900)
        screen = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone, maxTouchPoints=5 if phone else 1)
        self.address = address
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())

    def evaluate(self, probe: str) -> Any:
        """What the body of an async function returns that runs in the page."""
        expression = f"(async () => {{ {probe} }})()"
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def box(self, name: str) -> tuple[float, float, float, float]:
        """Where an element stands, scrolled into sight: left, top, width, height in CSS pixels."""
        left, top, width, height = self.evaluate(
            f'const it = document.getElementById("{name}"); it.scrollIntoView({{ block: "center" }});'
            "const box = it.getBoundingClientRect(); return [box.left, box.top, box.width, box.height];"
        )
        return left, top, width, height

    def requested(self) -> list[str]:
        """Addresses that the page asked for, its own and data: excluded."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        asked = [event["params"]["request"]["url"] for event in sent]
        return [each for each in asked if each != self.address and not each.startswith("data:")]

    def fingers(self, *steps: list[tuple[float, float]]) -> None:
        """Touch where the first step says, a place (x, y) a finger, move to the others, and let go."""
        for kind, step in [
            *zip(["touchStart", *["touchMove"] * len(steps)], steps, strict=False),
            ("touchEnd", []),
        ]:
            points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(step)]
            self.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    def press(self, key: str, count: int = 1, shift: bool = False) -> None:
        """Press a key as often as said."""
        for _ in range(count):
            for kind in ("keyDown", "keyUp"):
                text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
                self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 * shift, **text)

    def call(self, method: str, **parameters: Any) -> Any:
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters, **self.target}
        self.out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def message(self) -> Any:
        text = bytearray()
        while (byte := self.back.read(1)) != b"\0":
            assert byte, "the browser is gone"
            text += byte
        return json.loads(text)
