"""A page in a headless Chromium: what a script that runs in it finds out, and what the page asks for."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
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
PATIENCE = 300
"""Seconds after which a browser that hangs is killed."""


def seen_by_browser(page: bytes, probe: str, folder: Path) -> Any:
    """What `probe` returns, the body of an async function that runs in the page once it is loaded.

    Skips the test where there is no browser. To the object comes `requested`: addresses that the page asked
    for, its own and data: excluded.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser on PATH: none of {', '.join(BROWSERS)}")
    file = folder / "page.html"
    file.write_bytes(page)
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
            return _Session(out, back).visit(file.as_uri(), probe)
    finally:
        watchdog.cancel()
        running.kill()
        running.wait()
        shutil.rmtree(profile, ignore_errors=True)


class _Session:
    """Chrome's DevTools protocol over a pair of pipes."""

    def __init__(self, out: Any, back: Any) -> None:
        self.out, self.back = out, back
        self.count = 0
        self.events: list[dict[str, Any]] = []
        self.target: dict[str, str] = {}

    def visit(self, address: str, probe: str) -> Any:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.target = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())
        expression = f"(async () => {{ {probe} }})()"
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        asked = [event["params"]["request"]["url"] for event in sent]
        requested = [each for each in asked if each != address and not each.startswith("data:")]
        return {**answer["result"]["value"], "requested": requested}

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
