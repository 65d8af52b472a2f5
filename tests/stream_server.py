"""Streams on the loopback address as cameras send them (HTTP, UDP, RTSP), with all that goes wrong there."""

from __future__ import annotations

import importlib
import io
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
from PIL import Image

BITS, BLOCK = 16, 8


def mark(number: int, width: int = 128, height: int = 96, shade: int = 90) -> np.ndarray:
    """Return an image (H, W, 3) whose upper rows show a number as black and white blocks."""
    image = np.full((height, width, 3), shade, np.uint8)
    for bit in range(BITS):
        image[:BLOCK, bit * BLOCK : (bit + 1) * BLOCK] = 255 * (number >> bit & 1)
    return image


def read_mark(image: np.ndarray) -> int:
    """Return the number that `mark` put into an image."""
    row = image[BLOCK // 2, BLOCK // 2 : BITS * BLOCK : BLOCK, 1]
    return sum(int(level > 127) << bit for bit, level in enumerate(row))


class StreamServer:
    """One camera: serves frames in real time to each client, from the number that the clock says.

    `stall` and `disconnect` interrupt it; `damage`: one of so many writes is lost; `backlog` is the number of
    late frames that are sent at once after a stall.
    """

    def __init__(
        self,
        kind: str = "mjpeg",
        *,
        rate: float = 30.0,
        start: float | None = None,
        paint: Callable[[int, tuple[int, int]], np.ndarray] | None = None,
        size: tuple[int, int] = (128, 96),
        damage: int = 0,
        backlog: int = 0,
        encode_once: bool = False,
    ) -> None:
        self.kind, self.rate, self.damage = kind, rate, damage
        self.start = time.monotonic() if start is None else start
        self.paint = paint or (lambda number, size: mark(number, *size))
        self.size, self.encode_once, self.backlog = size, encode_once, backlog
        self.stalled_until = 0.0
        self.generation = 0
        self.closed = False
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(0.1)  # closing it would not wake a thread that waits
        scheme = kind if kind in ("udp", "rtsp") else "http"
        self.port = self.socket.getsockname()[1]
        self.address = f"{scheme}://127.0.0.1:{self.port}/"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def stall(self, seconds: float) -> None:
        self.stalled_until = time.monotonic() + seconds

    def disconnect(self) -> None:
        self.generation += 1

    def __enter__(self) -> StreamServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        self.thread.join()
        self.socket.close()

    def _serve(self) -> None:
        while not self.closed:
            with suppress(OSError):
                if self.kind == "udp":
                    with socket.socket(type=socket.SOCK_DGRAM) as client:
                        client.connect(("127.0.0.1", self.port))
                        self._send_mpeg(client)
                    continue
                client, _ = self.socket.accept()
                client.settimeout(5)
                with client:
                    if self.kind == "rtsp":
                        _answer_rtsp(client)
                        self._send_mpeg(_Rtp(client))
                    else:
                        client.recv(4096)
                        (self._send_jpegs if self.kind == "mjpeg" else self._send_mpeg)(client)
            time.sleep(0.01)

    def _frames(self) -> Any:
        """Yield the number of each frame when it is due."""
        generation = self.generation
        number = int((time.monotonic() - self.start) * self.rate) + 1
        while not self.closed and generation == self.generation:
            due = self.start + number / self.rate
            time.sleep(max(0.0, due - time.monotonic(), self.stalled_until - time.monotonic()))
            newest = int((time.monotonic() - self.start) * self.rate)
            held = self.backlog if time.monotonic() < self.stalled_until + 1 else 0
            number = max(number, newest - held)
            yield number
            number += 1

    def _send_jpegs(self, client: socket.socket) -> None:
        client.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n\r\n")
        data = b""
        for number in self._frames():
            if not (data and self.encode_once):
                buffer = io.BytesIO()
                Image.fromarray(self.paint(number, self.size)).save(buffer, "JPEG", quality=90)
                data = buffer.getvalue()
            client.sendall(b"--b\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(data))
            client.sendall(data + b"\r\n")

    def _send_mpeg(self, client: Any) -> None:
        av = importlib.import_module("av")
        if self.kind == "mpegts":
            client.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\n\r\n")
        raw = _Leaky(client, self.damage)
        with av.open(raw, "w", format="mpegts", options={"flush_packets": "1"}, buffer_size=1316) as output:
            stream = output.add_stream("mpeg2video", rate=round(self.rate))
            stream.width, stream.height, stream.pix_fmt = *self.size, "yuv420p"
            stream.codec_context.time_base = Fraction(1, round(self.rate))
            stream.options = {"g": "5", "qscale": "2", "b": "8000000"}
            first = int((time.monotonic() - self.start) * self.rate)
            for number in self._frames():
                if raw.is_broken or self.size != (stream.width, stream.height):
                    return
                frame = av.VideoFrame.from_ndarray(self.paint(number, self.size), format="rgb24")
                frame.pts, frame.time_base = number - first, Fraction(1, round(self.rate))
                for packet in stream.encode(frame):
                    output.mux(packet)


def _answer_rtsp(client: socket.socket) -> None:
    """Answer the requests of an RTSP client up to PLAY: MPEG-TS in RTP over the same connection."""
    answers = {
        "DESCRIBE": ("Content-Type: application/sdp", "v=0\r\nm=video 0 RTP/AVP 33\r\na=control:0\r\n"),
        "SETUP": ("Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nSession: 1", ""),
    }
    lines = client.makefile("r", newline="\r\n")
    method = ""
    while method != "PLAY":
        method = lines.readline().partition(" ")[0]
        fields = [*iter(lambda: lines.readline().strip(), "")]
        number = next((each for each in fields if each.startswith("CSeq")), "")
        header, body = answers.get(method, ("Session: 1", ""))
        answer = f"RTSP/1.0 200 OK\r\n{number}\r\n{header}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        client.sendall(answer.encode())


class _Rtp:
    """Sends MPEG-TS as RTP packets within an RTSP connection."""

    def __init__(self, client: socket.socket) -> None:
        self.client, self.count = client, 0

    def sendall(self, data: bytes) -> None:
        stamp = int(90_000 * time.monotonic()) & 0xFFFFFFFF
        packet = struct.pack(">BBHII", 128, 33, self.count & 0xFFFF, stamp, 1) + data
        self.client.sendall(struct.pack(">BBH", 36, 0, len(packet)) + packet)
        self.count += 1


class _Leaky:
    """A file that loses every n-th write, as UDP loses packets, and everything once the client has left."""

    def __init__(self, client: socket.socket, every: int) -> None:
        self.client, self.every, self.count, self.is_broken = client, every, 0, False

    def write(self, data: Any) -> int:
        self.count += 1
        if not self.is_broken and (not self.every or self.count % self.every or self.count < 50):
            try:
                self.client.sendall(bytes(data))
            except OSError:
                self.is_broken = True
        return len(data)
