"""Values of options, read from their texts; each raises UsageError, which names the option."""

import math
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pamcli.errors import UsageError, did_you_mean
from pamcli.registry.architectures import SCALES

UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
LENGTHS = {"mm": 1e-3, "cm": 1e-2, "m": 1.0, "in": 0.0254}
LARGEST_RANGE = 1e6
"""Pixels; beyond it colours and their rounding say nothing."""


def empty(option: str) -> UsageError:
    """What to raise where a name is empty."""
    return UsageError(f"{option} is empty", "an unset variable of the shell, perhaps?")


def name(text: str, option: str) -> str:
    """Anything but nothing."""
    if not text:
        raise empty(option)
    return text


def path(text: str, option: str) -> Path:
    """Read the path of a file or folder."""
    return Path(name(text, option))


def above_zero(text: str, option: str) -> float:
    """A finite number above 0."""
    return number(text, option, above=0)


def number(text: str, option: str, *, above: float = -math.inf) -> float:
    """A finite number above a limit."""
    with suppress(ValueError):
        if math.isfinite(value := float(text)) and value > above:
            return value
    raise UsageError(f"{option} {text} is no number" + (f" above {above:g}" if math.isfinite(above) else ""))


def number_or_none(text: str, option: str) -> int | None:
    """A positive whole number, or None for "none"."""
    if text == "none":
        return None
    # No number of pixels has more digits than that, and Python refuses to convert thousands of them.
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) > 0:
        return int(text)
    raise UsageError(f"{option} {text!r} is neither a positive whole number nor none")


def prior(text: str, option: str) -> int | Literal["stored"] | None:
    """A maximum disparity, px, as `StereoMatcher.load` takes it."""
    return "stored" if text == "stored" else number_or_none(text, option)


def setting(text: str, option: str) -> tuple[str, str]:
    """Key and value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{option} {text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def one_of(*known: str) -> Callable[[str, str], str]:
    """What takes one of these names, and refuses any other."""

    def parse(text: str, option: str) -> str:
        if text not in known:
            hint = f"{did_you_mean(text, known)}known: {', '.join(known)}"
            raise UsageError(f"{option} {text!r} is not known", hint)
        return text

    return parse


def match_size(text: str, option: str) -> float | Literal["auto"]:
    """`match_size` of `StereoMatcher.load`, which checks its range."""
    if text == "auto":
        return "auto"
    with suppress(ValueError):
        if (value := float(text)) > 0:
            return value
    hint = "auto, a factor as 0.5, or a width in pixels as 1500"
    raise UsageError(f"{option} {text!r} is no size to match pictures at", hint)


def _two_numbers(
    text: str, option: str, mark: str, what: str, hint: str, fit: Callable[[int, int], bool], digits: int = 5
) -> tuple[int, int]:
    """Whole numbers of so many digits at most, with a mark between them. what: they are; fit: together."""
    found = re.fullmatch(f"([0-9]{{1,{digits}}}){mark}([0-9]{{1,{digits}}})", text, re.IGNORECASE)
    if found is None or not fit(int(found[1]), int(found[2])):
        raise UsageError(f"{option} {text!r} is no {what}", hint)
    return int(found[1]), int(found[2])


def rows_by_columns(text: str, option: str) -> tuple[int, int] | None:
    """Read a size in the order of tensors, rows x columns; None for "dynamic"."""
    if text == "dynamic":
        return None
    hint = "rows x columns from 16 on, as in 384x1248, or dynamic"
    return _two_numbers(text, option, "x", "size", hint, lambda *size: min(size) >= 16)


def memory_size(text: str, option: str) -> int:
    """Bytes."""
    units = {unit.lower(): size for unit, size in UNITS.items()}
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([a-z]{2,3})", text.strip().lower(), re.ASCII)
    if found is None or found[2] not in units or float(found[1]) == 0:
        raise UsageError(f"{option} {text!r} is no size", f"a number and {', '.join(UNITS)}, as in 4GB")
    return int(float(found[1]) * units[found[2]])


def crop(text: str, option: str) -> tuple[int, int]:
    """Rows and columns, as recipes have them, from WxH."""
    return picture_size(text, option, least=1)[::-1]


def picture_size(text: str, option: str, least: int = 16) -> tuple[int, int]:
    """Width and height from WxH."""
    hint = f"WIDTHxHEIGHT in pixels, {least} to 65535 each, as in 512x256"
    return _two_numbers(
        text, option, "x", "size", hint, lambda *size: least <= min(size) <= max(size) <= 65535
    )


def length(text: str, option: str) -> float:
    """Metres, from a number with its unit."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+(?:e-?[0-9]+)?) ?([a-z]+)", text.strip().lower())
    if found is None or found[2] not in LENGTHS or not 0 < float(found[1]) < 1e9:
        raise UsageError(f"{option} {text!r} is no length", "a number and mm, cm, m or in, as in 25mm")
    return float(found[1]) * LENGTHS[found[2]]


def known_length(text: str, option: str) -> tuple[tuple[tuple[float, float], tuple[float, float]], float]:
    """Two pixels and the metres between them, from X1,Y1,X2,Y2=LENGTH."""
    places, _, metres = text.partition("=")
    with suppress(ValueError):
        x1, y1, x2, y2 = map(float, places.split(","))
        if all(map(math.isfinite, (x1, y1, x2, y2))) and (x1, y1) != (x2, y2):
            return ((x1, y1), (x2, y2)), length(metres, option)
    raise UsageError(
        f"{option} {text!r} is no length between two pixels",
        "X1,Y1,X2,Y2=LENGTH in pixels, as in 312,240,508,251=1.20m",
    )


def board(text: str, option: str) -> tuple[int, int]:
    """Columns and rows."""
    hint = "COLUMNSxROWS, as in 9x6"
    return _two_numbers(text, option, "x", "board", hint, lambda *size: min(size) >= 2, digits=3)


def offset(text: str, option: str) -> int | Literal["auto"]:
    """Frames that one video is behind another one."""
    if text == "auto":
        return "auto"
    if re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        return int(text)
    raise UsageError(f"{option} {text!r} is no number of frames", "a whole number, or auto")


def shard(text: str, option: str) -> tuple[int, int]:
    """Read a share I/N of all pairs."""
    what = "share of a batch: I/N with I from 1 to N"
    hint = f"with an index that counts from 0, {option} $((INDEX + 1))/N"
    return _two_numbers(text, option, "/", what, hint, lambda one, all: 1 <= one <= all, digits=9)


def scale(text: str, option: str) -> float:
    """Read an enlargement of both sides: a whole number where it is one."""
    try:
        times = float(text)
    except ValueError:
        times = math.nan
    if not 1 < times <= max(SCALES):
        raise UsageError(f"{option} {text} is none: a number above 1, up to {max(SCALES)}")
    return int(times) if times == int(times) else times


def cameras(text: str, option: str) -> tuple[int, int]:
    """Numbers of the left and the right camera."""
    hint = "write LEFT:RIGHT, as in 0:1"
    return _two_numbers(text, option, ":", "pair of cameras", hint, lambda left, right: left != right, 2)


def color_range(text: str, option: str) -> tuple[float, float] | Literal["auto"]:
    """Disparities between which colours run, px."""
    if text == "auto":
        return "auto"
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        low = high = math.nan
    if not (-LARGEST_RANGE <= low < high <= LARGEST_RANGE):
        raise UsageError(f"{option} {text!r} is no range", "write MIN:MAX in pixels, as in 0:192, or auto")
    return low, high
