"""Read cameras, network streams and videos, each in a thread that reconnects after an interruption."""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pamcli.errors import InputError, UsageError, import_extra
from pamcli.files.paths import check_regular, join_names, quote
from pamcli.imaging.raster import DEFAULT_MAX_PIXELS
from pamcli.imaging.videos import convert_frame
from pamcli.settings.live import LiveSettings
from pamcli.streams.pairing import Clock, Frame, FramePairing

LOG = logging.getLogger("pamcli")
DEVICE_FORMATS = {"linux": "v4l2", "darwin": "avfoundation", "win32": "dshow"}
_DEVICE = re.compile(r"(v4l2|avfoundation|dshow):(.+)", re.DOTALL)
_UNTIMED = re.compile(r"m?p?jpeg|image2|h264|hevc|m4v|rawvideo")
"""Formats without time stamps, for which FFmpeg invents a frame rate."""
OPENING, STALLED = 10.0, 5.0  # s without an answer, and without data, after which a stream is opened again
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0  # s between attempts, doubled after each
STEADY = 10  # frames after which a stream counts as restored, and the next wait begins small
REFRESHED = 2.0  # s, the longest time without a key frame for which frames after a loss count as damaged
WAITED, PAUSED = 0.25, 5.0  # frame intervals: after shorter and longer waits, a frame may be an old one
SHORTEST_PAUSE, SKIPPING = 0.5, 1.0  # s; the second is the longest time in which such frames are skipped
PATIENCE = 1.0  # s in which a reader must end; one that is blocked does not, and owns only its frames
NETWORK_OPTIONS = {"fflags": "nobuffer", "probesize": "500000", "analyzeduration": "500000"}


@dataclass(frozen=True)
class Address:
    """The place of a source, and how FFmpeg opens it."""

    name: str
    kind: Literal["camera", "stream", "video"]
    file: str
    format: str | None = None
    options: dict[str, str] = field(default_factory=dict)


def hide_password(name: object) -> str:
    """Return an address without the user name and password in it."""
    return re.sub(r"//[^/@]*@", "//", str(name))


def parse_address(name: str, settings: LiveSettings) -> Address:
    """Return how to open a source. Raises InputError for a file that is not a video."""
    device = _DEVICE.fullmatch(name)
    if device or name.startswith("/dev/") or name.isdigit():
        kind = device[1] if device else DEVICE_FORMATS.get(sys.platform, "v4l2")
        place = device[2] if device else f"/dev/video{name}" if name.isdigit() and kind == "v4l2" else name
        size, rate, pixels = settings.camera_size, settings.camera_fps, settings.camera_format
        values = {
            "video_size": size and "{}x{}".format(*size),
            "framerate": rate and f"{rate:g}",
            "input_format" if kind == "v4l2" else "pixel_format": pixels,
        }
        given = {key: value for key, value in values.items() if value}
        return Address(name, "camera", place, kind, given)
    if "://" in name:
        transport = {"rtsp_transport": "tcp"} if name.startswith("rtsp") else {}
        return Address(hide_password(name), "stream", name, None, NETWORK_OPTIONS | transport)
    check_regular(Path(name))
    return Address(name, "video", f"file:{os.path.abspath(name)}", None, {"protocol_whitelist": "file"})


class Source(threading.Thread):
    """A thread that adds the frames of one source to a `FramePairing`, and opens it again when it fails.

    It may block in FFmpeg when the program ends, so it owns nothing but frames.
    clock: None for a stream whose time stamps have an origin of their own.
    """

    def __init__(
        self,
        side: int,
        label: str,
        address: Address,
        clock: Clock | None,
        pairing: FramePairing,
        settings: LiveSettings,
    ) -> None:
        super().__init__(name=f"read {label}", daemon=True)
        self.side, self.label, self.address, self.clock = side, label, address, clock
        self.pairing, self.realtime = pairing, settings.realtime
        self.offset = side * settings.offset / 1000  # s, that is subtracted from the stamps
        self.library = import_extra("av")
        self.stopped = threading.Event()
        self.failure: InputError | None = None
        """The reason why the source could not be opened at first."""
        self.count = self.damaged = self.interruptions = 0
        self.size: tuple[int, int] | None = None
        self.heard = 0.0
        """When the last data arrived, s of time.monotonic()."""

    def run(self) -> None:
        wait, failed_at, address = FIRST_WAIT, 0.0, self.address
        how = {"format": address.format, "options": address.options, "timeout": (OPENING, STALLED)}
        while not self.stopped.is_set():
            before = self.count
            try:
                with self.library.open(address.file, **how) as container:
                    for frame in self._decode(container):
                        self.pairing.add(self.side, frame)
                        if failed_at:
                            LOG.info(f"{self.label}: restored after {time.monotonic() - failed_at:.0f} s")
                            failed_at = 0.0
                        if self.stopped.is_set():
                            return
                reason = "it ended"
            except (self.library.FFmpegError, OSError, IndexError, InputError) as error:
                reason = self._explain(error)
            if address.kind == "video" and self.count:
                if reason != "it ended":
                    LOG.warning(f"{self.label}: cannot be read beyond frame {self.count - 1}: {reason}")
                break
            if not self.count:
                hint = self._list_modes() if address.kind == "camera" else None
                self.failure = InputError(f"cannot open {quote(address.name)}: {reason}", hint)
                break
            if self.stopped.is_set():
                return
            if self.count - before >= STEADY:
                wait = FIRST_WAIT
            self.interruptions += not failed_at
            failed_at = failed_at or time.monotonic()
            LOG.warning(f"{self.label}: {reason}; next attempt in {wait:g} s")
            self.stopped.wait(wait)
            wait = min(2 * wait, LONGEST_WAIT)
        self.pairing.end(self.side)

    def _explain(self, error: Exception) -> str:
        is_silent = self.count and time.monotonic() - self.heard > STALLED
        if is_silent or isinstance(error, self.library.error.ExitError):
            return f"no data for {STALLED if self.count else OPENING:g} s"
        if isinstance(error, IndexError):
            return "it has no video stream"
        if getattr(error, "errno", None) == errno.EIO and self.address.kind == "stream":
            return "the connection was lost"
        text = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error)
        return f"{text[:1].lower()}{text[1:]}"

    def _decode(self, container: Any) -> Iterator[Frame]:
        """Yield the frames of an open source, at their time for a video in real time."""
        stream = container.streams.video[0]
        stream.thread_type = "SLICE"  # threads per frame would delay each of them
        stream.codec_context.options = {"max_pixels": str(DEFAULT_MAX_PIXELS)}
        decoder = None  # of images that do not depend on others, and are decoded only if they are used
        if stream.codec_context.name == "mjpeg" and self.address.kind != "video":
            decoder = self.library.CodecContext.create("mjpeg", "r")
            decoder.thread_type, decoder.options = "SLICE", stream.codec_context.options
        broken_until = 0.0
        is_timed, first = not _UNTIMED.match(container.format.name), None
        is_stream, began = self.address.kind == "stream", time.monotonic()
        must_wait, late_since = is_stream, None
        clock = self.clock or Clock()  # the time stamps of a new connection may begin anew
        for packet, waited in _demux(container, stream):
            arrived = self.heard = time.monotonic()
            # What arrived during a pause of the network or of this thread seems newer than it is.
            interval = self.pairing.interval
            if WAITED * interval <= waited <= max(PAUSED * interval, SHORTEST_PAUSE):
                late_since = None
            elif late_since is None:
                late_since = arrived
            try:
                images = packet.decode() if decoder is None else [packet] if packet.size else []
            except self.library.error.InvalidDataError:
                self.damaged += 1
                continue
            if packet.is_corrupt:
                broken_until = arrived + REFRESHED
            for image in images:
                if (decoder or image.key_frame) and not packet.is_corrupt:
                    broken_until = 0.0
                if image.is_corrupt or arrived < broken_until:
                    self.damaged += 1
                    continue
                if must_wait and late_since is not None and arrived - late_since < SKIPPING:
                    continue
                stamp = float(image.pts * image.time_base) if is_timed and image.pts is not None else None
                if self.address.kind != "video":
                    stamp = clock.convert(stamp, arrived)
                    captured = stamp
                else:
                    stamp = stamp if stamp is not None else self.count / 25
                    first = stamp if first is None else first
                    stamp, captured = stamp - first, arrived
                    if self.realtime:
                        captured = began + stamp
                        if self.stopped.wait(max(0.0, captured - time.monotonic())):
                            return
                memory = packet.size if decoder else 3 * image.width * image.height
                read = partial(self._read, image, decoder)
                yield Frame(read, memory, self.count, stamp - self.offset, captured)
                self.count += 1
                must_wait = is_stream and not is_timed

    def _read(self, image: Any, decoder: Any) -> np.ndarray | None:
        """Convert an image, or decode a packet; return None if it is damaged."""
        if decoder is not None:
            try:
                images = decoder.decode(image)
            except self.library.error.InvalidDataError:
                images = []
            if not images or images[0].is_corrupt:
                self.damaged += 1
                return None
            image = images[0]
        size = image.width, image.height
        if self.size not in (None, size):
            old, new = ("{}x{}".format(*each) for each in (self.size, size))
            LOG.warning(f"{self.label}: the image size changed from {old} to {new} px")
        self.size = size
        return convert_frame(image).pixels

    def _list_modes(self) -> str | None:
        """Return the modes that a camera offers, as a hint, if its options may be wrong."""
        if not self.address.options or not os.path.exists(self.address.file):
            return None
        logging_ = self.library.logging
        before = logging_.get_level()
        logging_.set_level(logging_.INFO)
        try:
            with logging_.Capture() as lines:
                try:
                    options = {"list_formats": "all"} if self.address.format == "v4l2" else {}
                    self.library.open(self.address.file, format=self.address.format, options=options).close()
                except (self.library.FFmpegError, OSError):
                    pass  # it lists the modes, then reports an error
        finally:
            logging_.set_level(before)
        modes = [" ".join(line.split()) for _, _, line in lines if re.search(r"\d+x\d+", line)]
        return f"the camera offers {'; '.join(modes)}" if modes else None


def _demux(container: Any, stream: Any) -> Iterator[tuple[Any, float]]:
    """Yield the packets of a stream, and how long each was waited for, s."""
    asked = time.monotonic()
    for packet in container.demux(stream):
        yield packet, time.monotonic() - asked
        asked = time.monotonic()


class Capture:
    """The sources of the settings, being read; a context that ends their threads."""

    def __init__(self, settings: LiveSettings) -> None:
        """Prepare the sources. Raises UsageError, InputError for an input that is not a video."""
        addresses = [parse_address(str(each), settings) for each in settings.inputs]
        kinds = {each.kind for each in addresses}
        if "video" in kinds and len(kinds) > 1:
            raise InputError(
                "a video cannot be paired with a camera or stream", "give two videos, or two live sources"
            )
        for name in ("realtime", "camera_size", "camera_fps", "camera_format"):
            kind = "video" if name == "realtime" else "camera"
            if settings.is_set(name) and kind not in kinds:
                names = join_names(each.name for each in addresses)
                raise UsageError(f"`{name}` requires a {kind}, got {names}", f"drop `{name}`")
        tolerance = None if settings.tolerance is None else settings.tolerance / 1000
        self.pairing = FramePairing(
            len(addresses), tolerance, keeps_all=kinds == {"video"} and not settings.realtime
        )
        shares_clock = settings.clock == "stamps" or (settings.clock == "auto" and "stream" not in kinds)
        clock = Clock() if shares_clock else None
        labels = ["left", "right"] if len(addresses) > 1 else ["source"]
        self.sources = [
            Source(side, f"{labels[side]} ({quote(each.name)})", each, clock, self.pairing, settings)
            for side, each in enumerate(addresses)
        ]

    def __enter__(self) -> Capture:
        for each in self.sources:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.sources:
            each.stopped.set()
        self.pairing.close()
        last = time.monotonic() + PATIENCE
        for each in self.sources:
            each.join(max(0.0, last - time.monotonic()))

    def take(self, timeout: float) -> tuple[Frame, ...] | None:
        """Return the next pair of frames, or None without one. Raises EOFError, or why a source failed."""
        try:
            return self.pairing.take(timeout)
        except EOFError:
            for each in self.sources:
                if each.failure is not None:
                    raise each.failure from None
            raise
