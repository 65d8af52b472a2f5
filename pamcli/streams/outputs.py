"""Write live results: a recording, frames in a folder or on stdout, a colour map as a stream or video."""

from __future__ import annotations

import logging
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pamcli.batch.colors import DEFAULT_RANGE, PERCENTILES
from pamcli.batch.video_results import describe_levels
from pamcli.errors import UsageError, import_extra
from pamcli.files.atomic import check_writable, write_atomically
from pamcli.files.outputs import Encoded, check_new_file
from pamcli.files.paths import quote
from pamcli.imaging.colormap import colorize
from pamcli.imaging.disparity_encoding import (
    PNG_UNITS_PER_METRE,
    PNG_UNITS_PER_PIXEL,
    encode_depth,
    encode_disparity,
    to_levels,
)
from pamcli.imaging.images import RgbImage, encode_image, to_uint8
from pamcli.imaging.videos import VideoWriter
from pamcli.settings.live import LiveSettings
from pamcli.streams.live import LiveFrame

LOG = logging.getLogger("pamcli")
MILLISECOND = Fraction(1, 1000)
NOMINAL_RATE = Fraction(30)
"""Frames per second that a recording states; the time stamps are those of the frames."""
FORMATS = {"udp": "mpegts", "srt": "mpegts", "tcp": "mpegts", "http": "mpegts", "rtmp": "flv", "rtsp": "rtsp"}
ADAPTION = 0.1
"""Weight of a new frame in the range of the colours."""
STDOUT = "-"


class _Video:
    """A video that grows with the results; another file begins where their size changes."""

    def __init__(self, place: str, *, lossless: bool, notes: dict[str, str]) -> None:
        self.place, self.lossless, self.notes = place, lossless, notes
        self.writer: VideoWriter | None = None
        self.shapes: tuple[tuple[int, ...], ...] = ()
        self.parts = 0
        self.begin, self.last = 0.0, -1

    def write(self, captured: float, *samples: np.ndarray) -> None:
        """Add a frame of each stream. captured: s. Raises OutputError."""
        shapes = tuple(each.shape for each in samples)
        if self.writer is None or shapes != self.shapes:
            self.close()
            self._open(shapes, captured)
        assert self.writer is not None
        self.last = max(self.last + 1, round((captured - self.begin) / MILLISECOND))
        self.writer.write(self.last * MILLISECOND, *samples)

    def _open(self, shapes: tuple[tuple[int, ...], ...], captured: float) -> None:
        self.parts += 1
        place, scheme = self.place, self.place.partition("://")[0]
        if "://" in place:
            kind = FORMATS.get(scheme, "mpegts")
        else:
            path = Path(place)
            kind = "matroska" if path.suffix.lower() == ".mkv" else "mp4"
            if self.parts > 1:
                place = str(path.with_stem(f"{path.stem}-{self.parts}"))
                LOG.warning(f"the image size changed: {quote(place)} continues {quote(self.place)}")
        options = {"rate": NOMINAL_RATE, "unit": MILLISECOND, "notes": self.notes, "lossless": self.lossless}
        writer = VideoWriter(place, kind, place, live=not self.lossless, **options)  # type: ignore[arg-type]
        self.writer = writer.__enter__()
        self.shapes, self.begin, self.last = shapes, captured, -1

    def close(self) -> None:
        """Complete the file. Raises OutputError."""
        if self.writer is not None:
            writer, self.writer = self.writer, None
            writer.__exit__(None, None, None)


class LiveOutputs:
    """The results that settings request, written one after the other; a context that completes the files."""

    def __init__(self, settings: LiveSettings, write_bytes: Callable[[bytes], None]) -> None:
        """Check the places. write_bytes: to stdout. Raises UsageError, OutputError."""
        self.settings, self.write_bytes = settings, write_bytes
        self.is_warned = False
        self.range: tuple[float, float] | None = None
        self.videos: dict[str, _Video] = {}
        output, overwrite = settings.output, settings.overwrite
        self.folder = Path(output) if output not in (None, STDOUT) else None
        if self.folder is not None:
            check_writable(self.folder / "000000.png")
            if self.folder.is_dir() and any(self.folder.iterdir()) and not overwrite:
                raise UsageError(
                    f"the folder {quote(self.folder)} is not empty", "use `overwrite` or another one"
                )
        kind = "depth" if settings.depth else "disparity"
        if settings.record is not None:
            check_new_file(settings.record, ".mkv", overwrite=overwrite, option="`record`")
            settings.record.parent.mkdir(parents=True, exist_ok=True)
            self.videos["record"] = _Video(str(settings.record), lossless=True, notes=describe_levels(kind))
        if settings.color_map is not None:
            place = str(settings.color_map)
            if "://" not in place:
                check_new_file(Path(place), ".mkv", ".mp4", overwrite=overwrite, option="`color_map`")
                Path(place).parent.mkdir(parents=True, exist_ok=True)
            self.videos["color_map"] = _Video(place, lossless=place.lower().endswith(".mkv"), notes={})
        if self.videos:
            import_extra("av")

    def __enter__(self) -> LiveOutputs:
        return self

    def __exit__(self, *_: object) -> None:
        for video in self.videos.values():
            video.close()

    def write(self, frame: LiveFrame) -> None:
        """Write a result to all places. Raises OutputError."""
        settings = self.settings
        values = frame.depth if settings.depth else frame.disparity
        assert values is not None
        units = PNG_UNITS_PER_METRE if settings.depth else PNG_UNITS_PER_PIXEL
        levels, _ = to_levels(values, units, keep_far=not settings.depth)
        if (video := self.videos.get("record")) is not None:
            images = np.concatenate([to_uint8(frame.left), to_uint8(frame.right)], axis=1)
            video.write(frame.captured, images, levels[..., None])
        if (video := self.videos.get("color_map")) is not None:
            video.write(frame.captured, self._colorize(frame))
        if settings.output == STDOUT and settings.format == "mjpeg":
            self.write_bytes(encode_image(RgbImage(self._colorize(frame)), ".jpg", name="the colour map"))
        elif settings.output == STDOUT:
            self.write_bytes(levels.tobytes())
        elif self.folder is not None:
            suffix = f".{settings.format or 'png'}"
            encode: Any = encode_depth if settings.depth else encode_disparity
            encoded: Encoded = encode(values, suffix)
            if encoded.warnings and not self.is_warned:
                LOG.warning(f"frame {frame.number}: {encoded.warnings[0]} (reported once)")
                self.is_warned = True
            write_atomically(self.folder / f"{frame.number:06d}{suffix}", encoded.data)

    def _colorize(self, frame: LiveFrame) -> np.ndarray:
        """Return the colours in the given range, or one that follows the scene slowly."""
        given = self.settings.range
        if isinstance(given, tuple):
            return colorize(frame.disparity, *given)
        known = frame.disparity[np.isfinite(frame.disparity)]
        if known.size:
            low, high = np.percentile(known, PERCENTILES).tolist()
            old = self.range or (low, high)
            self.range = tuple(
                before + ADAPTION * (now - before) for before, now in zip(old, (low, high), strict=True)
            )
        return colorize(frame.disparity, *(self.range or DEFAULT_RANGE))
