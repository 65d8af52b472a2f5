"""How is the value of an option read from its text? Each function raises UsageError naming the option."""

import math
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pamcli.errors import InputError, UsageError
from pamcli.files.units import EXAMPLE, parse_length
from pamcli.registry.architectures import SCALES

UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
LARGEST_RANGE = 1e6
"""Pixels; beyond it colours and their rounding say nothing."""


def name(text: str, option: str) -> str:
    """Anything but nothing."""
    if not text:
        raise UsageError(f"{option} is empty", "an unset variable of the shell, perhaps?")
    return text


def path(text: str, option: str) -> Path:
    """Read the path of a file or folder."""
    return Path(name(text, option))


def setting(text: str, option: str) -> tuple[str, str]:
    """Key and value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{option} {text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def method(text: str, option: str) -> tuple[str, str]:
    """Name and what it is, from NAME=WHAT; WHAT alone names itself."""
    if found := re.fullmatch(r"([\w .+-]+)=(.+)", text):
        return found[1], found[2]
    return Path(text.removeprefix("files:")).name if text.startswith("files:") else Path(text).stem, text


def number(text: str, option: str, *, above: float = -math.inf) -> float:
    """A finite number above a limit."""
    with suppress(ValueError):
        if math.isfinite(value := float(text)) and value > above:
            return value
    raise UsageError(f"{option} {text} is no number" + (f" above {above:g}" if math.isfinite(above) else ""))


def above_zero(text: str, option: str) -> float:
    """A finite number above 0."""
    return number(text, option, above=0)


def number_or_none(text: str, option: str) -> int | None:
    """A positive whole number, or None for "none"."""
    if text == "none":
        return None
    # No number of pixels has more digits than that, and Python refuses to convert thousands of them.
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) > 0:
        return int(text)
    raise UsageError(f"{option} {text!r} is neither a positive whole number nor none")


def _or(word: str, parse: Callable[[str, str], Any], value: str | None) -> Callable[[str, str], Any]:
    """What takes a word, which stands for a value, or what else is read."""
    return lambda text, option: value if text == word else parse(text, option)


prior = _or("stored", number_or_none, "stored")
"""A maximum disparity, px, as `StereoMatcher.load` takes it."""


def _match_size(text: str, option: str) -> float:
    with suppress(ValueError):
        if (value := float(text)) > 0:
            return value
    hint = "auto, a factor as 0.5, or a width in pixels as 1500"
    raise UsageError(f"{option} {text!r} is no size to match pictures at", hint)


match_size = _or("auto", _match_size, "auto")
"""`match_size` of `StereoMatcher.load`, which checks its range."""


def _count(text: str, option: str) -> int:
    if text.isascii() and text.isdigit() and int(text[:9]) > 0 and len(text) < 4:
        return int(text)
    raise UsageError(f"{option} {text!r} is no number of processes", "a whole number from 1 to 999, or auto")


workers = _or("auto", _count, "auto")
"""A number of processes."""


def _two(
    mark: str, what: str, hint: str, fit: Callable[[int, int], bool], digits: int = 5
) -> Callable[[str, str], tuple[int, int]]:
    """What reads whole numbers of so many digits at most, with a mark between them. fit: together."""

    def parse(text: str, option: str) -> tuple[int, int]:
        found = re.fullmatch(f"([0-9]{{1,{digits}}}){mark}([0-9]{{1,{digits}}})", text, re.IGNORECASE)
        if found is None or not fit(int(found[1]), int(found[2])):
            raise UsageError(f"{option} {text!r} is no {what}", hint)
        return int(found[1]), int(found[2])

    return parse


def _sides(least: int) -> Callable[[str, str], tuple[int, int]]:
    hint = f"WIDTHxHEIGHT in pixels, {least} to 65535 each, as in 512x256"
    return _two("x", "size", hint, lambda *size: least <= min(size) <= max(size) <= 65535)


picture_size = _sides(16)
"""Width and height from WxH."""


def crop_size(text: str, option: str) -> tuple[int, int]:
    """Read the width and height of a crop from WIDTHxHEIGHT."""
    return _sides(1)(text, option)


def _export_size(text: str, option: str) -> tuple[int, int]:
    width, height = picture_size(text, option)
    if height > width:  # as it was written before
        hint = f"{height}x{width} is {height} px wide; pictures that are higher than wide take dynamic"
        raise UsageError(f"{option} {text}: sizes are WIDTHxHEIGHT, no longer rows x columns", hint)
    return width, height


export_size = _or("dynamic", _export_size, None)
"""Width and height from WIDTHxHEIGHT; None for "dynamic"."""

board = _two("x", "board", "COLUMNSxROWS, as in 9x6", lambda *size: min(size) >= 2, 3)
"""Columns and rows."""

_INDEX = "with an index that counts from 0, --shard $((INDEX + 1))/N"
shard = _two("/", "share of a batch: I/N with I from 1 to N", _INDEX, lambda one, all: 1 <= one <= all, 9)
"""A share I/N of all pairs."""


cameras = _two(":", "pair of cameras", "write LEFT:RIGHT, as in 0:1", lambda left, right: left != right, 3)
"""Numbers of the left and the right camera."""


def memory_size(text: str, option: str) -> int:
    """Bytes, of a number without an exponent."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+) ?([a-z]+)", text.strip().lower(), re.ASCII)
    factor = {unit.lower(): factor for unit, factor in UNITS.items()}.get(found[2] if found else "")
    if found and factor and 0 < float(found[1]) < 1e9 and (size := int(float(found[1]) * factor)):
        return size
    raise UsageError(f"{option} {text!r} is no size", f"a number and {', '.join(UNITS)}, as in 4GB")


def length(text: str | float, option: str) -> float:
    """Metres above 0, from a number with its unit, or metres."""
    try:
        metres = parse_length(text, option)
    except InputError as error:
        raise UsageError(error.message, error.hint) from error
    if not 0 < metres < 1e9:
        raise UsageError(f"{option} {text!r} is not a length above 0", EXAMPLE)
    return metres


def point(text: str, option: str) -> tuple[float, float]:
    """x and y of a pixel, from X,Y."""
    with suppress(ValueError):
        x, y = map(float, text.split(","))
        if math.isfinite(x) and math.isfinite(y):
            return x, y
    raise UsageError(f"{option} {text!r} is not a point", "X,Y in pixels, as in 489.4,265.2")


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


def _frames(text: str, option: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        return int(text)
    raise UsageError(f"{option} {text!r} is no number of frames", "a whole number, or auto")


offset = _or("auto", _frames, "auto")
"""Frames that one video is behind another one."""


def scale(text: str, option: str) -> float:
    """Read an enlargement of both sides: a whole number where it is one."""
    with suppress(ValueError):
        if 1 < (times := float(text)) <= max(SCALES):
            return int(times) if times == int(times) else times
    raise UsageError(f"{option} {text} is none: a number above 1, up to {max(SCALES)}")


def _range(text: str, option: str) -> tuple[float, float]:
    with suppress(ValueError):
        low, high = map(float, text.split(":"))
        if -LARGEST_RANGE <= low < high <= LARGEST_RANGE:
            return low, high
    raise UsageError(f"{option} {text!r} is no range", "write MIN:MAX in pixels, as in 0:192, or shared")


color_range = _or("shared", _range, "shared")
"""Disparities between which colours run, px."""
