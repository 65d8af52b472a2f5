"""Convert the text of an option to its value, and define the types of options that use it.

A parser takes a text and the option's name in messages, and raises UsageError that names the option.
"""

import math
import re
from collections.abc import Callable, Mapping
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


def _make_parser(
    what: str, convert: Callable[[str], Any], words: Mapping[str, str | None] = {}, hint: str | None = None
) -> Parser:
    """Return a parser: `convert` raises ValueError unless the text is `what`; `words` stand for values."""

    def parse(text: str, option: str) -> Any:
        if text in words:
            return words[text]
        with suppress(ValueError):
            return convert(text)
        raise _make_error(option, what, repr(text), hint)

    return parse


def _require(is_valid: bool) -> None:
    if not is_valid:
        raise ValueError


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


DEFAULT_FORMS: dict[Any, Form] = {
    int: Form("N"),
    float: Form("X", lambda text, option: parse_number(text, option, above=0)),
    str: Form("TEXT"),
    Path: Form("PATH", parse_path),
}
"""Forms of options whose types have none of their own."""


def _parse_method(text: str, option: str) -> tuple[str, str]:
    """Split NAME=WHAT; WHAT alone names itself."""
    if found := re.fullmatch(r"([\w .+-]+)=(.+)", text):
        return found[1], found[2]
    return Path(text.removeprefix("files:")).name if text.startswith("files:") else Path(text).stem, text


def _convert_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    _require(bool(equals and key.strip()))
    return key.strip(), value.strip()


def _convert_whole(text: str, digits: int = 19) -> int:
    # Python refuses to convert thousands of digits.
    _require(re.fullmatch(f"[0-9]{{1,{digits}}}", text) is not None and int(text) > 0)
    return int(text)


def _convert_above_zero(text: str) -> float:
    _require((value := float(text)) > 0)
    return value


def _convert_frames(text: str) -> int:
    _require(re.fullmatch(r"[+-]?[0-9]{1,9}", text) is not None)
    return int(text)


def _convert_pair(mark: str, is_valid: Callable[[int, int], bool], digits: int = 5) -> Callable[[str], Any]:
    """Return a converter of two whole numbers with a mark between them."""

    def convert(text: str) -> tuple[int, int]:
        found = re.fullmatch(f"([0-9]{{1,{digits}}}){mark}([0-9]{{1,{digits}}})", text, re.IGNORECASE)
        _require(found is not None and is_valid(int(found[1]), int(found[2])))
        assert found is not None
        return int(found[1]), int(found[2])

    return convert


def _make_size_parser(least: int, words: Mapping[str, None] = {}) -> Parser:
    what = f"WIDTHxHEIGHT in px, {least} to 65535 each, such as 512x256"
    convert = _convert_pair("x", lambda *size: least <= min(size) <= max(size) <= 65535)
    return _make_parser(what, convert, words)


parse_image_size = _make_size_parser(16)
"""Width and height of an image, px."""


def _convert_memory_size(text: str) -> int:
    found = re.fullmatch(r"([0-9]*\.?[0-9]+) ?([a-z]+)", text.strip().lower(), re.ASCII)
    factor = {unit.lower(): factor for unit, factor in MEMORY_UNITS.items()}.get(found[2] if found else "", 0)
    amount = float(found[1]) if found else 0.0
    _require(amount < 1e9 and amount * factor >= 1)
    return int(amount * factor)


def parse_length(text: str | float, option: str) -> float:
    """Return m above 0, from a number with its unit, or m."""
    try:
        metres = units.parse_length(text, option)
    except InputError as error:
        raise UsageError(error.message, error.hint) from error
    if not 0 < metres < 1e9:
        raise UsageError(f"{option} {text!r} is not a length above 0", units.EXAMPLE)
    return metres


def _convert_point(text: str) -> tuple[float, float]:
    x, y = map(float, text.split(","))
    _require(math.isfinite(x) and math.isfinite(y))
    return x, y


def _parse_known_length(text: str, option: str) -> tuple[Any, float]:
    def convert(places: str) -> Any:
        x1, y1, x2, y2 = map(float, places.split(","))
        _require(all(map(math.isfinite, (x1, y1, x2, y2))) and (x1, y1) != (x2, y2))
        return (x1, y1), (x2, y2)

    places, _, metres = text.partition("=")
    with suppress(ValueError):
        return convert(places), parse_length(metres, option)
    raise _make_error(option, "X1,Y1,X2,Y2=LENGTH in px, such as 312,240,508,251=1.20m", repr(text))


def _convert_range(text: str) -> tuple[float, float]:
    low, high = map(float, text.split(":"))
    _require(-LARGEST_RANGE <= low < high <= LARGEST_RANGE)
    return low, high


def _convert_scale(text: str) -> float:
    times = float(text)
    _require(1 < times <= max(SCALES))
    return int(times) if times == int(times) else times


def _check_max_disparity(value: object, option: str) -> None:
    whole = isinstance(value, Integral) and 1 <= int(value) <= LARGEST_DISPARITY
    if value != "stored" and not whole:
        raise _make_error(option, f"a whole number from 1 to {LARGEST_DISPARITY}, none or stored", value)


def _check_shard(share: tuple[int, int], option: str) -> None:
    if not 1 <= share[0] <= share[1]:
        raise UsageError(f"{option} must be (I, N) with I from 1 to N, got {share}")


def _check_memory_size(value: Any, option: str) -> None:
    if not isinstance(value, int) or value < 1:
        raise _make_error(option, "a number of bytes, or a text such as 4GB", value)


def _check_regions(regions: Any, option: str) -> None:
    for each in regions:
        known = isinstance(each, tuple | list) and len(each) in (2, 4)
        if not known or not all(isinstance(number, int | float) and abs(number) < 1e9 for number in each):
            raise _make_error(option, _REGION, each)
        if min(each[2:], default=1) <= 0:
            raise _make_error(option, "at least 1 px wide and high", each)


def _check_recording(place: str | Path, option: str) -> None:
    if Path(place).suffix.lower() != RERUN_SUFFIX or "{}" in str(place):
        raise _make_error(option, f"one file for all pairs that ends with {RERUN_SUFFIX}", place)


def _check_device(device: str, option: str) -> None:
    """Raise UsageError for an unknown device, without asking PyTorch which there are."""
    if not re.fullmatch(r"auto|cpu|(cuda|tensorrt)(:[0-9]+)?|mps|openvino|coreml", str(device)):
        raise UsageError(f"unknown {option} {device!r}", "expected one of auto, cpu, cuda, cuda:N, mps")


_WHOLE = "a positive whole number or none"
_COUNT = "a whole number from 1 to 999, or auto"
_FRAMES = "a whole number of frames, or auto"
_FACTOR = "auto, a factor such as 0.5, or a width in px such as 1500"
_MEMORY = f"a number and {', '.join(MEMORY_UNITS)}, such as 4GB"
_REGION = "X,Y or X,Y,WIDTH,HEIGHT in px, such as 320,240"
_AUTO = {"auto": "auto"}
_parse_whole = _make_parser(_WHOLE, _convert_whole, {"none": None})
_parse_disparity = _make_parser(_WHOLE, _convert_whole, {"none": None, "stored": "stored"})
_parse_count = _make_parser(_COUNT, lambda text: _convert_whole(text, 3), _AUTO)
_parse_frames = _make_parser(_FRAMES, _convert_frames, _AUTO)
_parse_factor = _make_parser(_FACTOR, _convert_above_zero, _AUTO)
_parse_scale = _make_parser(f"a number above 1, at most {max(SCALES)}", _convert_scale)
_parse_memory = _make_parser(_MEMORY, _convert_memory_size)
_parse_region = _make_parser(_REGION, lambda text: tuple(map(float, text.split(","))))
_parse_point = _make_parser("X,Y in px, such as 489.4,265.2", _convert_point)
_parse_range = _make_parser("MIN:MAX in px, such as 0:192, or shared", _convert_range, {"shared": "shared"})
_parse_board = _make_parser("COLUMNSxROWS, such as 9x6", _convert_pair("x", lambda *size: min(size) >= 2, 3))
_parse_cameras = _make_parser(
    "LEFT:RIGHT, such as 0:1", _convert_pair(":", lambda left, right: left != right, 3)
)
_parse_shard = _make_parser(
    "I/N with I from 1 to N",
    _convert_pair("/", lambda part, count: 1 <= part <= count, 9),
    hint="with an index that counts from 0: --shard $((INDEX + 1))/N",
)

Name = Annotated[str, Form("NAME", parse_name)]
DataSet = Annotated[str, Form("DATA", complete="data")]
Weights = Annotated[str | Path, Form("NAME|PATH|hf:...", parse_name, complete="weights")]
DeviceName = Annotated[str, Form("DEVICE", check=_check_device)]
RecordingFile = Annotated[str | Path, Form("FILE.rrd", check=_check_recording)]
AnyNumber = Annotated[float, Form("N", parse_number)]
CountOrNone = Annotated[int, Form("N|none", _parse_whole)]
CountOrAuto = Annotated[int | Literal["auto"], Form("N|auto", _parse_count)]
FrameOffset = Annotated[int | Literal["auto"], Form("N|auto", _parse_frames)]
MaxDisparity = Annotated[int | Literal["stored"], Form("N|none", _parse_disparity, _check_max_disparity)]
"""A maximum disparity, px, as in `StereoMatcher.load`."""
MatchingResolution = Annotated[MatchSize, Form("auto|N", _parse_factor, check_match_size)]
Scale = Annotated[float, Form("N", _parse_scale)]
"""An upscaling factor, int where it is whole."""
MemorySize = Annotated[int, Form("SIZE", _parse_memory, _check_memory_size)]
"""Bytes."""
Metres = Annotated[float, Form("LENGTH", parse_length, parse_length)]
Length = Annotated[float | str, Form("LENGTH", parse_length, parse_length)]
"""Metres; Python functions also accept a text."""
KnownLength = Annotated[Any, Form("X1,Y1,X2,Y2=1.20m", _parse_known_length)]
"""Two pixels and the distance between them, m."""
PointOrBox = Annotated[tuple[float, ...], Form("X,Y[,WIDTH,HEIGHT]", _parse_region, _check_regions)]
Point = Annotated[tuple[float, float], Form("X,Y", _parse_point)]
ColorRange = Annotated[tuple[float, float] | Literal["shared"], Form("MIN:MAX|shared", _parse_range)]
"""Disparities at both ends of the colour scale, px."""
ImageSize = Annotated[tuple[int, int], Form("WIDTHxHEIGHT", parse_image_size)]
CropSize = Annotated[tuple[int, int], Form("WIDTHxHEIGHT", _make_size_parser(1))]
ExportSize = Annotated[
    tuple[int, int], Form("WIDTHxHEIGHT|dynamic", _make_size_parser(16, {"dynamic": None}))
]
"""Width and height, px; None for "dynamic"."""
BoardSize = Annotated[tuple[int, int], Form("COLUMNSxROWS", _parse_board)]
Cameras = Annotated[tuple[int, int], Form("L:R", _parse_cameras)]
"""Numbers of the left and the right camera."""
Shard = Annotated[tuple[int, int], Form("I/N", _parse_shard, _check_shard)]
KeyValue = Annotated[tuple[str, str], Form("KEY=VALUE", _make_parser("KEY=VALUE", _convert_setting))]
Method = Annotated[tuple[str, str], Form("[NAME=]WHAT", _parse_method)]
