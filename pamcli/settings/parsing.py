"""Convert the text of an option to its value. Each function raises UsageError that names the option."""

import math
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pamcli.errors import InputError, UsageError
from pamcli.files import units
from pamcli.files.suffixes import RERUN_SUFFIX
from pamcli.registry.architectures import SCALES

MEMORY_UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
LARGEST_RANGE = 1e6
"""Pixels; beyond it colours and their rounding mean nothing."""


def _make_error(option: str, what: str, text: object, hint: str | None = None) -> UsageError:
    return UsageError(f"{option} must be {what}, got {text}", hint)


def parse_name(text: str, option: str) -> str:
    """Return the text. Raises UsageError if it is empty."""
    if not text:
        raise UsageError(f"{option} is empty", "check that the shell variable is set")
    return text


def parse_path(text: str, option: str) -> Path:
    """Return the path of a file or folder."""
    return Path(parse_name(text, option))


def check_recording(place: str | Path, option: str) -> None:
    """Raise UsageError unless the place is one file for the Rerun viewer."""
    if Path(place).suffix.lower() != RERUN_SUFFIX or "{}" in str(place):
        raise _make_error(option, f"one file for all pairs that ends with {RERUN_SUFFIX}", place)


def parse_setting(text: str, option: str) -> tuple[str, str]:
    """Split KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise _make_error(option, "KEY=VALUE", repr(text))
    return key.strip(), value.strip()


def parse_method(text: str, option: str) -> tuple[str, str]:
    """Split NAME=WHAT; WHAT alone names itself."""
    if found := re.fullmatch(r"([\w .+-]+)=(.+)", text):
        return found[1], found[2]
    return Path(text.removeprefix("files:")).name if text.startswith("files:") else Path(text).stem, text


def parse_number(text: str, option: str, *, above: float = -math.inf) -> float:
    """Return a finite number above a limit."""
    with suppress(ValueError):
        if math.isfinite(value := float(text)) and value > above:
            return value
    raise _make_error(option, "a number" + (f" above {above:g}" if math.isfinite(above) else ""), text)


def parse_above_zero(text: str, option: str) -> float:
    """Return a finite number above 0."""
    return parse_number(text, option, above=0)


def parse_number_or_none(text: str, option: str) -> int | None:
    """Return a positive whole number, or None for "none"."""
    if text == "none":
        return None
    # Python refuses to convert thousands of digits.
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) > 0:
        return int(text)
    raise _make_error(option, "a positive whole number or none", repr(text))


def _allow_word(word: str, parse: Callable[[str, str], Any], value: str | None) -> Callable[[str, str], Any]:
    """Return a parser that also accepts a word, which stands for a value."""
    return lambda text, option: value if text == word else parse(text, option)


parse_max_disparity = _allow_word("stored", parse_number_or_none, "stored")
"""A maximum disparity, px, as in `StereoMatcher.load`."""


def _parse_match_size(text: str, option: str) -> float:
    with suppress(ValueError):
        if (value := float(text)) > 0:
            return value
    raise _make_error(option, "auto, a factor such as 0.5, or a width in px such as 1500", repr(text))


parse_match_size = _allow_word("auto", _parse_match_size, "auto")
"""A matching resolution; `check_match_size` checks its range."""


def _parse_count(text: str, option: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 4 and int(text) > 0:
        return int(text)
    raise _make_error(option, "a whole number from 1 to 999, or auto", repr(text))


parse_workers = _allow_word("auto", _parse_count, "auto")
"""A number of processes."""


def _make_pair_parser(
    mark: str, what: str, is_valid: Callable[[int, int], bool], digits: int = 5, hint: str | None = None
) -> Callable[[str, str], tuple[int, int]]:
    """Return a parser of two whole numbers with a mark between them."""

    def parse(text: str, option: str) -> tuple[int, int]:
        found = re.fullmatch(f"([0-9]{{1,{digits}}}){mark}([0-9]{{1,{digits}}})", text, re.IGNORECASE)
        if found is None or not is_valid(int(found[1]), int(found[2])):
            raise _make_error(option, what, repr(text), hint)
        return int(found[1]), int(found[2])

    return parse


def _make_size_parser(least: int) -> Callable[[str, str], tuple[int, int]]:
    what = f"WIDTHxHEIGHT in px, {least} to 65535 each, such as 512x256"
    return _make_pair_parser("x", what, lambda *size: least <= min(size) <= max(size) <= 65535)


parse_image_size = _make_size_parser(16)
"""Width and height of an image, px."""
parse_crop_size = _make_size_parser(1)
"""Width and height of a crop, px."""


def _parse_export_size(text: str, option: str) -> tuple[int, int]:
    width, height = parse_image_size(text, option)
    if height > width:  # as it was written before
        hint = f"{height}x{width} is {height} px wide; for images higher than wide use dynamic"
        raise UsageError(f"{option} {text}: sizes are WIDTHxHEIGHT, no longer rows x columns", hint)
    return width, height


parse_export_size = _allow_word("dynamic", _parse_export_size, None)
"""Width and height, px; None for "dynamic"."""

parse_board = _make_pair_parser("x", "COLUMNSxROWS, such as 9x6", lambda *size: min(size) >= 2, 3)
"""Columns and rows."""

parse_shard = _make_pair_parser(
    "/",
    "I/N with I from 1 to N",
    lambda part, count: 1 <= part <= count,
    9,
    "with an index that counts from 0: --shard $((INDEX + 1))/N",
)
"""A share I/N of all pairs."""


parse_cameras = _make_pair_parser(":", "LEFT:RIGHT, such as 0:1", lambda left, right: left != right, 3)
"""Numbers of the left and the right camera."""


def parse_memory_size(text: str, option: str) -> int:
    """Return bytes from a number, without exponent, and its unit."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+) ?([a-z]+)", text.strip().lower(), re.ASCII)
    factor = {unit.lower(): factor for unit, factor in MEMORY_UNITS.items()}.get(found[2] if found else "")
    if found and factor and 0 < float(found[1]) < 1e9 and (size := int(float(found[1]) * factor)):
        return size
    raise _make_error(option, f"a number and {', '.join(MEMORY_UNITS)}, such as 4GB", repr(text))


def parse_length(text: str | float, option: str) -> float:
    """Return m above 0, from a number with its unit, or m."""
    try:
        metres = units.parse_length(text, option)
    except InputError as error:
        raise UsageError(error.message, error.hint) from error
    if not 0 < metres < 1e9:
        raise UsageError(f"{option} {text!r} is not a length above 0", units.EXAMPLE)
    return metres


def parse_point(text: str, option: str) -> tuple[float, float]:
    """Return x and y of a pixel, from X,Y."""
    with suppress(ValueError):
        x, y = map(float, text.split(","))
        if math.isfinite(x) and math.isfinite(y):
            return x, y
    raise _make_error(option, "X,Y in px, such as 489.4,265.2", repr(text))


def parse_known_length(
    text: str, option: str
) -> tuple[tuple[tuple[float, float], tuple[float, float]], float]:
    """Return two pixels and the distance between them, m, from X1,Y1,X2,Y2=LENGTH."""
    places, _, metres = text.partition("=")
    with suppress(ValueError):
        x1, y1, x2, y2 = map(float, places.split(","))
        if all(map(math.isfinite, (x1, y1, x2, y2))) and (x1, y1) != (x2, y2):
            return ((x1, y1), (x2, y2)), parse_length(metres, option)
    raise _make_error(option, "X1,Y1,X2,Y2=LENGTH in px, such as 312,240,508,251=1.20m", repr(text))


def _parse_frames(text: str, option: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        return int(text)
    raise _make_error(option, "a whole number of frames, or auto", repr(text))


parse_offset = _allow_word("auto", _parse_frames, "auto")
"""Frames by which one video is behind another one."""


def parse_scale(text: str, option: str) -> float:
    """Return an upscaling factor, as int where it is whole."""
    with suppress(ValueError):
        if 1 < (times := float(text)) <= max(SCALES):
            return int(times) if times == int(times) else times
    raise _make_error(option, f"a number above 1, at most {max(SCALES)}", text)


def _parse_range(text: str, option: str) -> tuple[float, float]:
    with suppress(ValueError):
        low, high = map(float, text.split(":"))
        if -LARGEST_RANGE <= low < high <= LARGEST_RANGE:
            return low, high
    raise _make_error(option, "MIN:MAX in px, such as 0:192, or shared", repr(text))


parse_color_range = _allow_word("shared", _parse_range, "shared")
"""Disparities at both ends of the colour scale, px."""
