"""Read video frames by number, and write videos, with PyAV, which the extra `video` installs."""

from __future__ import annotations

import errno
import itertools
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import DiskFullError, InputError, OutputError, import_extra
from pamcli.files.atomic import replace_atomically
from pamcli.files.paths import check_regular, quote
from pamcli.imaging.disparity_encoding import PNG_UNITS_PER_PIXEL, decode_levels
from pamcli.imaging.images import RgbImage, to_uint8
from pamcli.imaging.raster import DEFAULT_MAX_PIXELS, check_size, report_damage

Read = TypeVar("Read")

DISPARITY_SCALE = "DISPARITY_SCALE"  # metadata key of a disparity video: grey levels per pixel of disparity
DECODED_ON = 100  # largest number of frames decoded to reach a frame, instead of seeking a key frame
_CLOCK = re.compile(r"\d+:\d+:\d+(\.\d+)?")
# Other formats of FFmpeg are lists, scripts and addresses of further files.
_FORMATS = "mov,mp4,matroska,webm,avi,mpeg,mpegts,mpegvideo,asf,h264,hevc,ogg,flv,mxf"
_SHORT = 1.0  # s, by which frames may end before the duration in the header, as sound may be longer
QUALITY = "16"  # H.264's constant rate factor, at which differences are hardly visible
_BT709 = 1  # the colour space that players assume at current sizes
_LOSSLESS = {
    # channels, bits: pixel format in numpy, pixel format in the file
    (1, 8): ("gray", "gray"),
    (1, 16): ("gray16le", "gray16le"),
    (3, 8): ("rgb24", "bgr0"),
    (3, 16): ("rgb48le", "gbrp16le"),
}


class Video:
    """A video file, read frame by frame in constant memory."""

    is_readable_to_end = True
    """False once `stamps` found that the file cannot be read beyond the last of them."""

    def __init__(self, path: Path) -> None:
        """Open a video. Raises UsageError if PyAV is missing, and InputError if the file is unreadable."""
        self.path, self.library = path, import_extra("av")
        self._decoding = threading.Lock()
        self._open()

    def _open(self) -> None:
        with report_damage(quote(self.path), "cannot be read as a video"):
            self.container = self._open_container()
            self.stream = self.container.streams.best("video")
            if self.stream is None:
                raise InputError(f"{quote(self.path)} has no video stream, only sound or text")
            coder = self.stream.codec_context
            if coder is None:
                raise InputError(f"{quote(self.path)} is damaged, or FFmpeg does not support its codec")
            self.size = coder.width, coder.height
            self._check_single_view()
            coder.options = {"max_pixels": str(DEFAULT_MAX_PIXELS)}
            self.stream.thread_type = "AUTO"
        self._frames: Iterator[Any] = iter(())
        self._at: int | None = None
        self._frame: Any = None

    def _check_single_view(self) -> None:
        """Raise InputError if streams of one size, as 3-D cameras write them, may be different views."""
        thumbnail = self.library.stream.Disposition.attached_pic
        coders = [
            each.codec_context for each in self.container.streams.video if each.disposition != thumbnail
        ]
        sizes = [(each.width, each.height) for each in coders if each is not None]
        if (count := sizes.count(self.size)) > 1:
            name, views = shlex.quote(str(self.path)), ("left", "right")
            parts = [f"-map 0:v:{number} -c copy {view}.mkv" for number, view in enumerate(views)]
            raise InputError(
                f"{quote(self.path)} holds {count} video streams of {self.size[0]}x{self.size[1]} px",
                f"write each view to a file of its own: ffmpeg -i {name} {' '.join(parts)}",
            )

    def _open_container(self) -> Any:
        """Open exactly this file: "concat:", "http:" and references to other files are not followed."""
        check_regular(self.path)
        options = {"protocol_whitelist": "file", "format_whitelist": _FORMATS}
        name = f"file:{self.path}"
        return self.library.open(name, container_options=options, metadata_errors="replace")

    @cached_property
    def stamps(self) -> NDArray[np.int64]:
        """Times of the frames, (N,), in `time_base`, ascending, up to where the file cannot be read.

        Raises InputError if there are none.
        """
        found: list[Any] = []
        with (
            report_damage(quote(self.path), "cannot be read as a video"),
            self._open_container() as container,
        ):
            try:
                for packet in container.demux(container.streams[self.stream.index]):
                    if packet.size and not packet.is_discard:
                        found.append(packet.pts)
            except (self.library.FFmpegError, OSError):
                if not found:
                    raise
                self.is_readable_to_end = False
        if not found:
            raise InputError(f"{quote(self.path)} contains no frame")
        if None in found:
            name = shlex.quote(str(self.path))
            reason = f"the frames of {quote(self.path)} have no time stamps"
            raise InputError(reason, f"convert it: ffmpeg -i {name} -c:v ffv1 converted.mkv")
        return np.unique(np.array(found, np.int64))

    @property
    def times(self) -> NDArray[np.float64]:
        """Time of each frame, (N,), in seconds after the first one."""
        return np.asarray((self.stamps - self.stamps[0]) * float(self.stream.time_base))

    @property
    def missing(self) -> float:
        """Seconds by which the frames end before the duration in the header; 0 if unknown or small."""
        kind = self.container.format.name
        if "matroska" in kind:
            text = self.stream.metadata.get("DURATION", "")
            parts = text.split(":") if _CLOCK.fullmatch(text) else ["0"] * 3
            duration = sum(float(part) * unit for part, unit in zip(parts, (3600, 60, 1), strict=True))
        elif kind == "avi":
            duration = float(self.stream.frames / (self.stream.average_rate or 1))
        else:
            return 0.0
        missing = duration - float(self.stamps[-1] * self.stream.time_base)
        return missing if missing > _SHORT else 0.0

    def frame(self, number: int, *, max_pixels: int | None = None) -> RgbImage:
        """Decode frame `number` (from 0, in display order) to 8 bits, or 16 if it has more."""
        return self._decode(number, max_pixels, convert_frame)

    def small(self, number: int, longer_side: int) -> NDArray[np.uint8]:
        """Decode a frame as a grey image (H, W) of at most this side (px). Raises the errors of `frame`."""

        def convert(frame: Any) -> NDArray[np.uint8]:
            shrunk = min(1.0, longer_side / max(frame.width, frame.height))
            sides = {side: max(1, round(shrunk * getattr(frame, side))) for side in ("width", "height")}
            grey = frame.reformat(**sides, format="gray", interpolation="AREA").to_ndarray()
            return np.ascontiguousarray(np.rot90(grey, round(frame.rotation / 90)))

        return self._decode(number, DEFAULT_MAX_PIXELS, convert)

    def check_disparities(self) -> None:
        """Raise InputError if this is not a disparity video written by pam."""
        stored = self.stream.codec_context.pix_fmt, self.container.metadata.get(DISPARITY_SCALE)
        if stored != ("gray16le", str(PNG_UNITS_PER_PIXEL)):
            reason = f"{quote(self.path)} is not a disparity video written by pam"
            raise InputError(reason, "pass the disparity video itself, not its colour map")

    def disparity(self, number: int, *, max_pixels: int | None = None) -> NDArray[np.float32]:
        """Decode a frame of a disparity video: (H, W), px, NaN = unknown. Raises the errors of `frame`."""
        return self._decode(number, max_pixels, lambda frame: decode_levels(frame.to_ndarray()))

    def _decode(self, number: int, max_pixels: int | None, read: Callable[[Any], Read]) -> Read:
        name = f"{quote(self.path)}, frame {number}"
        check_size(*self.size, name, max_pixels)
        with report_damage(name, "cannot be decoded"), self._decoding:
            try:
                frame = self._find_frame(number)
                check_size(frame.width, frame.height, name, max_pixels)  # frames may differ in size
                return read(frame)
            except InputError:
                raise
            except Exception:  # of the decoder, whose position is then unknown
                self._at = None
                raise

    def _find_frame(self, number: int) -> Any:
        wanted = int(self.stamps[number])
        if self._at == number:
            return self._frame
        if self._at is None or not self._at < number <= self._at + DECODED_ON:
            self._seek(wanted)
        for frame in self._frames:
            if frame.pts is not None and frame.pts >= wanted:
                self._at, self._frame = number, frame
                if frame.pts == wanted and not frame.is_corrupt:
                    return frame
                break
        self._at = None
        raise InputError(f"{quote(self.path)}, frame {number} cannot be decoded: the file is damaged there")

    def _seek(self, stamp: int) -> None:
        """Seek the last key frame before a time stamp, or the beginning."""
        if stamp > self.stamps[0]:
            try:
                self.container.seek(stamp, stream=self.stream)
                frames = self.container.decode(self.stream)
                first = next(frames, None)
            except self.library.FFmpegError:
                first = None
            if first is not None and first.pts is not None and first.pts <= stamp:
                self._frames = itertools.chain([first], frames)
                return
        self.container.close()
        self._open()
        self._frames = self.container.decode(self.stream)


class Videos(dict[Path, Video]):
    """Videos kept open while their frames are processed; another process opens them again."""

    def __init__(self) -> None:
        super().__init__()
        self._opening = threading.Lock()

    def __missing__(self, path: Path) -> Video:
        """Open a video at its first access. Raises the errors of `Video`."""
        with self._opening:
            if path not in self:
                self[path] = Video(path)
        return self[path]

    def __reduce__(self) -> tuple[type[Videos], tuple[()]]:
        return Videos, ()


def convert_frame(frame: Any) -> RgbImage:
    """Convert a decoded frame to an upright image of 8 bits, or 16 if it has more."""
    deep = max(part.bits for part in frame.format.components) > 8
    pixels = frame.to_ndarray(format="rgb48le" if deep else "rgb24")
    return RgbImage(np.ascontiguousarray(np.rot90(pixels, round(frame.rotation / 90))))


def write_video(
    path: Path,
    frames: Iterable[tuple[Fraction, np.ndarray]],
    *,
    rate: Fraction,
    unit: Fraction,
    notes: Mapping[str, str],
) -> int:
    """Write frames (time in s, samples (H, W, C)) as a video, whole or not at all; return their number.

    `.mkv` keeps every bit, `.mp4` has 8 bits. `rate` is in frames per second, `unit` of time stamps in s.
    """
    lossless, first = path.suffix.lower() == ".mkv", ""
    with replace_atomically(path) as temporary:
        container = "matroska" if lossless else "mp4"
        how: dict[str, Any] = {"rate": rate, "unit": unit, "notes": notes, "lossless": lossless}
        with VideoWriter(str(temporary), container, str(path), **how) as writer:
            for seconds, samples in frames:
                height, width, channels = samples.shape
                kind = f"{width}x{height} {'grey' if channels == 1 else 'colour'}"
                kind = f"{kind} with {8 * samples.itemsize} bits"
                if kind != (first := first or kind):
                    reason = f"{path}: frame {writer.count} is {kind} but earlier ones {first}"
                    hint = "write the results into a folder"
                    raise InputError(f"{reason}: all frames of a video must have the same format", hint)
                writer.write(seconds, samples)
            if not writer.count:
                raise InputError(f"{path} would contain no frame")
    return writer.count


@dataclass
class VideoWriter:
    """Writes the frames of one or several video streams into one file; a context that completes it."""

    place: str  # file or address
    kind: str  # FFmpeg's format
    name: str  # in messages
    _: KW_ONLY
    rate: Fraction
    unit: Fraction
    notes: Mapping[str, str]
    lossless: bool
    live: bool = False  # True to encode without delay

    def __post_init__(self) -> None:
        """Open the file. Raises OutputError."""
        self.library, self.count = import_extra("av"), 0
        self.streams: list[Any] = []
        with self._report_errors():
            self.container = self.library.open(self.place, "w", format=self.kind)
        self.container.metadata.update(self.notes)

    def write(self, seconds: Fraction, *samples: np.ndarray) -> None:
        """Write a frame of each stream, (H, W, C), always of the same formats. Raises OutputError."""
        with self._report_errors():
            self.streams = self.streams or [self._add_stream(each) for each in samples]
            for stream, each in zip(self.streams, samples, strict=True):
                frame = self._convert_frame(each, stream.pix_fmt)
                frame.pts, frame.time_base = round(seconds / self.unit), self.unit
                self.container.mux(stream.encode(frame))
            self.count += 1

    def _add_stream(self, samples: np.ndarray) -> Any:
        height, width, channels = samples.shape
        stream = self.container.add_stream("ffv1" if self.lossless else "libx264", rate=self.rate)
        stream.height, stream.width = height, width
        stream.time_base = stream.codec_context.time_base = self.unit
        if self.lossless:
            stream.pix_fmt = _LOSSLESS[channels, 8 * samples.itemsize][1]
            stream.options = {"level": "3", "slicecrc": "1"}
        else:
            even = height % 2 == 0 and width % 2 == 0  # required by subsampled colours
            stream.pix_fmt, stream.options = "yuv420p" if even else "yuv444p", {"crf": QUALITY}
            context = stream.codec_context
            context.colorspace = context.color_primaries = context.color_trc = context.color_range = _BT709
        if self.live:
            key_frames = str(2 * round(self.rate))  # every so many frames
            stream.options |= {"preset": "veryfast", "tune": "zerolatency", "g": key_frames}
        return stream

    def _convert_frame(self, samples: np.ndarray, stored: str) -> Any:
        samples = samples if self.lossless else to_uint8(samples)
        given, _ = _LOSSLESS[samples.shape[2], 8 * samples.itemsize]
        pixels = np.ascontiguousarray(samples[..., 0] if samples.shape[2] == 1 else samples)
        frame = self.library.VideoFrame.from_ndarray(pixels, format=given)
        ranges = {"dst_colorspace": "ITU709", "src_color_range": "JPEG", "dst_color_range": "MPEG"}
        return frame.reformat(format=stored, **({} if self.lossless else ranges))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._report_errors(), self.container:
            for stream in self.streams if kind is None or self.live else ():
                self.container.mux(stream.encode())

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        try:
            yield
        except self.library.FFmpegError as error:
            kind = DiskFullError if error.errno == errno.ENOSPC else OutputError
            raise kind(f"cannot write {self.name}: {error.strerror or error}") from None
