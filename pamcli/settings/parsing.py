"""Convert the text of an option to its value, and define the types of options that use it.

Each function takes a text and the option's name in messages, and raises UsageError that names the option.
"""

import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, Literal

from pamcli.errors import InputError, UsageError
from pamcli.files import units
from pamcli.files.suffixes import RERUN_SUFFIX
from pamcli.registry.architectures import SCALES
from pamcli.registry.resolution import MatchSize, check_match_size

MEMORY_UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
LARGEST_RANGE = 1e6
"""Pixels; beyond it colours and their rounding mean nothing."""
LARGEST_DISPARITY = 200_000
"""Pixels; beyond the largest images."""
Parser = Callable[[str, str], Any]


@dataclass(frozen=True)
class Form:
    """The text form of an option's value: part of its type."""

    metavar: str | None
    parse: Parser | None = None
    check: Callable[[Any, str], object] | None = None
    """Raises UsageError for a wrong value, given the option's name."""
    complete: str | None = None
    """Kind of shell completion."""


def _make_error(option: str, what: str, text: object, hint: str | None = None) -> UsageError:
    return UsageError(f"{option} must be {what}, got {text}", hint)


def parse_name(text: str, option: str) -> str:
    """Return the text. Raises UsageError if it is empty."""
    if not text:
        raise UsageError(f"{option} is empty", "check that the shell variable is set")
    return text


def parse_path(text: str, option: str) -> Path:
    """Return the path of a file or folder; an empty one would be the current folder."""
    return Path(parse_name(text, option))


def parse_number(text: str, option: str, *, above: float = -math.inf) -> float:
    """Return a finite number above a limit."""
    with suppress(ValueError):
        if math.isfinite(value := float(text)) and value > above:
            return value
    raise _make_error(option, "a number" + (f" above {above:g}" if math.isfinite(above) else ""), text)


def _parse_above_zero(text: str, option: str) -> float:
    return parse_number(text, option, above=0)


DEFAULT_FORMS: dict[Any, Form] = {
    int: Form("N"),
    float: Form("X", _parse_above_zero),
    str: Form("TEXT"),
    Path: Form("PATH", parse_path),
}
"""Forms of options whose types have none of their own."""


def _parse_setting(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise _make_error(option, "KEY=VALUE", repr(text))
    return key.strip(), value.strip()


def _parse_method(text: str, option: str) -> tuple[str, str]:
    """Split NAME=WHAT; WHAT alone names itself."""
    if found := re.fullmatch(r"([\w .+-]+)=(.+)", text):
        return found[1], found[2]
    return Path(text.removeprefix("files:")).name if text.startswith("files:") else Path(text).stem, text


def _parse_number_or_none(text: str, option: str) -> int | None:
    if text == "none":
        return None
    # Python refuses to convert thousands of digits.
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) > 0:
        return int(text)
    raise _make_error(option, "a positive whole number or none", repr(text))


def _allow_word(word: str, parse: Parser, value: str | None) -> Parser:
    """Return a parser that also accepts a word, which stands for a value."""
    return lambda text, option: value if text == word else parse(text, option)


def _check_max_disparity(value: object, option: str) -> None:
    whole = isinstance(value, Integral) and 1 <= int(value) <= LARGEST_DISPARITY
    if value != "stored" and not whole:
        raise _make_error(option, f"a whole number from 1 to {LARGEST_DISPARITY}, none or stored", value)


def _parse_match_size(text: str, option: str) -> float:
    with suppress(ValueError):
        if (value := float(text)) > 0:
            return value
    raise _make_error(option, "auto, a factor such as 0.5, or a width in px such as 1500", repr(text))


def _parse_count(text: str, option: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 4 and int(text) > 0:
        return int(text)
    raise _make_error(option, "a whole number from 1 to 999, or auto", repr(text))


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


def _parse_export_size(text: str, option: str) -> tuple[int, int]:
    width, height = parse_image_size(text, option)
    if height > width:  # as it was written before
        hint = f"{height}x{width} is {height} px wide; for images higher than wide use dynamic"
        raise UsageError(f"{option} {text}: sizes are WIDTHxHEIGHT, no longer rows x columns", hint)
    return width, height


_parse_shard = _make_pair_parser(
    "/",
    "I/N with I from 1 to N",
    lambda part, count: 1 <= part <= count,
    9,
    "with an index that counts from 0: --shard $((INDEX + 1))/N",
)


def _check_shard(share: tuple[int, int], option: str) -> None:
    if not 1 <= share[0] <= share[1]:
        raise UsageError(f"{option} must be (I, N) with I from 1 to N, got {share}")


def _parse_memory_size(text: str, option: str) -> int:
    found = re.fullmatch(r"([0-9]*\.?[0-9]+) ?([a-z]+)", text.strip().lower(), re.ASCII)
    factor = {unit.lower(): factor for unit, factor in MEMORY_UNITS.items()}.get(found[2] if found else "")
    if found and factor and 0 < float(found[1]) < 1e9 and (size := int(float(found[1]) * factor)):
        return size
    raise _make_error(option, f"a number and {', '.join(MEMORY_UNITS)}, such as 4GB", repr(text))


def _check_memory_size(value: Any, option: str) -> None:
    if not isinstance(value, int) or value < 1:
        raise _make_error(option, "a number of bytes, or a text such as 4GB", value)


def parse_length(text: str | float, option: str) -> float:
    """Return m above 0, from a number with its unit, or m."""
    try:
        metres = units.parse_length(text, option)
    except InputError as error:
        raise UsageError(error.message, error.hint) from error
    if not 0 < metres < 1e9:
        raise UsageError(f"{option} {text!r} is not a length above 0", units.EXAMPLE)
    return metres


def _parse_point(text: str, option: str) -> tuple[float, float]:
    with suppress(ValueError):
        x, y = map(float, text.split(","))
        if math.isfinite(x) and math.isfinite(y):
            return x, y
    raise _make_error(option, "X,Y in px, such as 489.4,265.2", repr(text))


def _parse_region(text: str, option: str) -> tuple[float, ...]:
    with suppress(ValueError):
        return tuple(map(float, text.split(",")))
    raise _make_error(option, _REGION, repr(text))


_REGION = "X,Y or X,Y,WIDTH,HEIGHT in px, such as 320,240"


def _check_regions(regions: Any, option: str) -> None:
    for each in regions:
        known = isinstance(each, tuple | list) and len(each) in (2, 4)
        if not known or not all(isinstance(number, int | float) and abs(number) < 1e9 for number in each):
            raise _make_error(option, _REGION, each)
        if min(each[2:], default=1) <= 0:
            raise _make_error(option, "at least 1 px wide and high", each)


def _parse_known_length(text: str, option: str) -> tuple[Any, float]:
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


def _parse_scale(text: str, option: str) -> float:
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


def _check_recording(place: str | Path, option: str) -> None:
    if Path(place).suffix.lower() != RERUN_SUFFIX or "{}" in str(place):
        raise _make_error(option, f"one file for all pairs that ends with {RERUN_SUFFIX}", place)


def _check_device(device: str, option: str) -> None:
    """Raise UsageError for an unknown device, without asking PyTorch which there are."""
    if not re.fullmatch(r"auto|cpu|(cuda|tensorrt)(:[0-9]+)?|mps|openvino|coreml", str(device)):
        raise UsageError(f"unknown {option} {device!r}", "expected one of auto, cpu, cuda, cuda:N, mps")


Name = Annotated[str, Form("NAME", parse_name)]
DataSet = Annotated[str, Form("DATA", complete="data")]
Weights = Annotated[str | Path, Form("NAME|PATH|hf:...", parse_name, complete="weights")]
DeviceName = Annotated[str, Form("DEVICE", check=_check_device)]
RecordingFile = Annotated[str | Path, Form("FILE.rrd", check=_check_recording)]
AnyNumber = Annotated[float, Form("N", parse_number)]
CountOrNone = Annotated[int, Form("N|none", _parse_number_or_none)]
CountOrAuto = Annotated[int | Literal["auto"], Form("N|auto", _allow_word("auto", _parse_count, "auto"))]
FrameOffset = Annotated[int | Literal["auto"], Form("N|auto", _allow_word("auto", _parse_frames, "auto"))]
MaxDisparity = Annotated[
    int | Literal["stored"],
    Form("N|none", _allow_word("stored", _parse_number_or_none, "stored"), _check_max_disparity),
]
"""A maximum disparity, px, as in `StereoMatcher.load`."""
MatchingResolution = Annotated[
    MatchSize, Form("auto|N", _allow_word("auto", _parse_match_size, "auto"), check_match_size)
]
Scale = Annotated[float, Form("N", _parse_scale)]
"""An upscaling factor, int where it is whole."""
MemorySize = Annotated[int, Form("SIZE", _parse_memory_size, _check_memory_size)]
"""Bytes."""
Metres = Annotated[float, Form("LENGTH", parse_length, parse_length)]
Length = Annotated[float | str, Form("LENGTH", parse_length, parse_length)]
"""Metres; Python functions also accept a text."""
KnownLength = Annotated[Any, Form("X1,Y1,X2,Y2=1.20m", _parse_known_length)]
"""Two pixels and the distance between them, m."""
PointOrBox = Annotated[tuple[float, ...], Form("X,Y[,WIDTH,HEIGHT]", _parse_region, _check_regions)]
Point = Annotated[tuple[float, float], Form("X,Y", _parse_point)]
ColorRange = Annotated[
    tuple[float, float] | Literal["shared"],
    Form("MIN:MAX|shared", _allow_word("shared", _parse_range, "shared")),
]
"""Disparities at both ends of the colour scale, px."""
ImageSize = Annotated[tuple[int, int], Form("WIDTHxHEIGHT", parse_image_size)]
CropSize = Annotated[tuple[int, int], Form("WIDTHxHEIGHT", _make_size_parser(1))]
ExportSize = Annotated[
    tuple[int, int], Form("WIDTHxHEIGHT|dynamic", _allow_word("dynamic", _parse_export_size, None))
]
"""Width and height, px; None for "dynamic"."""
BoardSize = Annotated[
    tuple[int, int],
    Form(
        "COLUMNSxROWS", _make_pair_parser("x", "COLUMNSxROWS, such as 9x6", lambda *size: min(size) >= 2, 3)
    ),
]
Cameras = Annotated[
    tuple[int, int],
    Form("L:R", _make_pair_parser(":", "LEFT:RIGHT, such as 0:1", lambda left, right: left != right, 3)),
]
"""Numbers of the left and the right camera."""
Shard = Annotated[tuple[int, int], Form("I/N", _parse_shard, _check_shard)]
KeyValue = Annotated[tuple[str, str], Form("KEY=VALUE", _parse_setting)]
Method = Annotated[tuple[str, str], Form("[NAME=]WHAT", _parse_method)]
