"""Write videos atomically: `.mkv`, lossless in FFV1, or `.mp4`, in H.264 for viewing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pamcli.errors import InputError, OutputError, import_extra
from pamcli.files.atomic import replace_atomically
from pamcli.imaging.images import to_uint8

QUALITY = "16"  # H.264's constant rate factor, at which differences are hardly visible
_BT709 = 1  # the colour space that players assume at current sizes
_LOSSLESS = {
    # channels, bits: pixel format in numpy, pixel format in the file
    (1, 8): ("gray", "gray"),
    (1, 16): ("gray16le", "gray16le"),
    (3, 8): ("rgb24", "bgr0"),
    (3, 16): ("rgb48le", "gbrp16le"),
}


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
    library = import_extra("av")
    lossless, count, shape = path.suffix.lower() == ".mkv", 0, None
    try:
        with (
            replace_atomically(path) as temporary,
            library.open(str(temporary), "w", format="matroska" if lossless else "mp4") as container,
        ):
            container.metadata.update(notes)
            for seconds, samples in frames:
                if shape is None:
                    stream = _add_stream(container, samples, lossless, rate, unit)
                    shape = samples.shape, samples.dtype
                elif shape != (samples.shape, samples.dtype):
                    raise InputError(
                        f"{path}: frame {count} is {_describe(samples.shape, samples.dtype)} but earlier "
                        f"ones {_describe(*shape)}: all frames of a video must have the same format",
                        "write the results into a folder",
                    )
                frame = _convert_frame(library, samples, stream.pix_fmt, lossless)
                frame.pts, frame.time_base = round(seconds / unit), unit
                container.mux(stream.encode(frame))
                count += 1
            if shape is None:
                raise InputError(f"{path} would contain no frame")
            container.mux(stream.encode())
    except library.FFmpegError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None
    return count


def _describe(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    channels = "grey" if shape[2] == 1 else "colour"
    return f"{shape[1]}x{shape[0]} {channels} with {8 * dtype.itemsize} bits"


def _add_stream(container: Any, samples: np.ndarray, lossless: bool, rate: Fraction, unit: Fraction) -> Any:
    height, width, channels = samples.shape
    stream = container.add_stream("ffv1" if lossless else "libx264", rate=rate)
    stream.height, stream.width = height, width
    stream.time_base = stream.codec_context.time_base = unit
    if lossless:
        stream.pix_fmt = _LOSSLESS[channels, 8 * samples.itemsize][1]
        stream.options = {"level": "3", "slicecrc": "1"}
    else:
        even = height % 2 == 0 and width % 2 == 0  # required by subsampled colours
        stream.pix_fmt, stream.options = "yuv420p" if even else "yuv444p", {"crf": QUALITY}
        context = stream.codec_context
        context.colorspace = context.color_primaries = context.color_trc = context.color_range = _BT709
    return stream


def _convert_frame(library: Any, samples: np.ndarray, stored: str, lossless: bool) -> Any:
    height, width, channels = samples.shape
    samples = samples if lossless else to_uint8(samples)
    given, _ = _LOSSLESS[channels, 8 * samples.itemsize]
    pixels = np.ascontiguousarray(samples.reshape(height, width) if channels == 1 else samples)
    frame = library.VideoFrame.from_ndarray(pixels, format=given)
    if lossless:
        return frame.reformat(format=stored)
    return frame.reformat(
        format=stored, dst_colorspace="ITU709", src_color_range="JPEG", dst_color_range="MPEG"
    )
