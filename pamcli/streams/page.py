"""Serve the page of a live run to browsers on this computer."""

from __future__ import annotations

import io
import json
import secrets
import threading
from collections import OrderedDict
from typing import BinaryIO

from pamcli.streams.live import LiveFrame
from pamcli.streams.statistics import format_statistics
from pamcli.viewing.page import describe_result, render_page
from pamcli.viewing.server import PageServer

WAITING = 1.0
"""Seconds for which a browser waits for the next result."""
MOST_PIXELS = 1_000_000
"""Pixels of a result on the page; of larger ones every second, third ... pixel and row is sent."""
KEPT = 2
"""Results that were sent last and can be saved as a page."""


class _Json(io.BytesIO):
    content_type = "application/json"


class LivePage:
    """Serves the newest result to browsers that know the token in the address; a context that ends it.

    A result is encoded only if a browser asks for it.
    """

    def __init__(self, title: str, port: int) -> None:
        """Open the port. Raises UsageError if it is taken."""
        self.title, token = title, secrets.token_urlsafe(16)
        self.prefix = f"{token}/"
        self.server = PageServer(self._read, self.prefix, port)
        self.address = self.server.address
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.1,), name="page")
        self._newest: LiveFrame | None = None
        self._closed = False
        self._sent: OrderedDict[int, tuple[LiveFrame, str]] = OrderedDict()
        """The results that were sent last, with their JSON."""
        self._changed = threading.Condition()
        self._encoding = threading.Lock()

    def __enter__(self) -> LivePage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    def show(self, frame: LiveFrame) -> None:
        """Show a result."""
        with self._changed:
            self._newest = frame
            self._changed.notify_all()

    def _read(self, path: str) -> BinaryIO:
        """Return the page, a result as JSON, or a saved page. Raises FileNotFoundError, ValueError."""
        if not secrets.compare_digest(path[: len(self.prefix)].encode(), self.prefix.encode()):
            raise FileNotFoundError(path)
        what, _, number = path[len(self.prefix) :].partition("/")
        if what == "frame":
            return self._wait_for(int(number))
        frame = self._newest if what == "" else None
        if what == "snapshot" and int(number) in self._sent:
            frame = self._sent[int(number)][0]
        if frame is None:
            raise FileNotFoundError(path)
        has_scale = frame.calibration is not None and frame.calibration.baseline
        calibration = frame.calibration if has_scale else None
        options = {"confidence": frame.confidence, "calibration": calibration}
        return io.BytesIO(render_page(self.title, frame.left, frame.disparity, **options, live=not what))  # type: ignore[arg-type]

    def _wait_for(self, seen: int) -> BinaryIO:
        """Return the next result after number `seen`, or its age only if there is none yet."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (self._newest is not None and self._newest.number != seen), WAITING
            )
            frame = self._newest
        if frame is None or self._closed:
            raise FileNotFoundError("no result")
        facts = {"number": frame.number, "age": frame.age}
        if frame.number == seen:
            return _Json(json.dumps(facts).encode())
        with self._encoding:
            if frame.number not in self._sent:
                self._sent[frame.number] = frame, self._encode(frame)
                while len(self._sent) > KEPT:
                    self._sent.popitem(last=False)
            text = self._sent[frame.number][1]
        return _Json((text[:-1] + ", " + json.dumps(facts)[1:]).encode())

    def _encode(self, frame: LiveFrame) -> str:
        options = {"confidence": frame.confidence, "calibration": frame.calibration}
        described = describe_result(frame.left, frame.disparity, most_pixels=MOST_PIXELS, level=1, **options)  # type: ignore[arg-type]
        return json.dumps(described | {"speed": format_statistics(frame.statistics)})
