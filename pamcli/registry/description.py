"""Describe the inputs and outputs of a foreign network, stored as TOML. No torch here.

Each description file is one `Description`; the guide's page own-network explains the keys.
"""

import json
import math
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from pamcli.errors import ModelError, UsageError
from pamcli.files.json_files import Text
from pamcli.files.safe_reading import LARGEST_SETTINGS, parse_toml, read_text
from pamcli.registry.architectures import Architecture, Task
from pamcli.validation import describe_first_error, parse_record, validate_fields

SUFFIX = ".toml"
FREE = "free"
LARGEST_SIZE = 1 << 26  # maximum number of input pixels

Given = Literal["left", "right", "left+right", "right+left", "left/2", "right/2", "flow/2"]
"""Content of an input. left+right: both images, concatenated along channels. /2: at half size, interpolated.
flow/2: the result of the network `initial` on the halved images."""
Held = Literal["disparity", "right disparity", "confidence", "left", "right", "left+right", "unused"]
"""Content of an output. left, right: the upscaled images of super-resolution."""

Three = tuple[float, float, float]
Side = Annotated[int, Field(ge=0, le=65535)]


@validate_fields
class Description:
    """The interface of a foreign network; raises UsageError for inconsistent values."""

    task: Task
    inputs: dict[str, Given]
    """Content of each input, by name."""
    outputs: dict[str, Held]
    """Content of each output, by name."""
    network: Text = ""
    """File of the network, next to the description; empty = `network_from` builds it."""
    family: str = ""
    """Published network with the same interface, for people only."""
    layout: Literal["channels first", "channels last"] = "channels first"
    """Axis order of the inputs; that of the outputs is detected."""
    channels: Literal["RGB", "BGR", "grey"] = "RGB"
    white: Literal[1, 255] = 1
    """Value of white; black is 0."""
    mean: Three = (0.0, 0.0, 0.0)
    """Subtracted from the channels, in their order, in units of `white`."""
    deviation: Three = (1.0, 1.0, 1.0)
    """Divisor of the channels after subtraction."""
    size: Annotated[str, Field(pattern=r"^(free|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$")] = FREE
    """Input size as ROWSxCOLUMNS, as in 384x1248; free = any."""
    multiple: Annotated[int, Field(ge=1, le=1024)] = 1
    """Input sides must be multiples of this."""
    padding: Literal["top right", "centre", "bottom right"] = "top right"
    """Position of the padding of smaller images, which repeats their edge pixels."""
    larger: Literal["tiles", "reduce"] = "tiles"
    """Treatment of images larger than `size`."""
    overlap: tuple[Side, Side] | None = None
    """Minimum overlap of neighbouring tiles, rows and columns; None = half a tile, at most 128 and 512."""
    resolution: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Matching: side of the output disparity relative to the image."""
    sign: Literal[1, -1] = 1
    """Matching: -1 if the network returns the position in the right image minus that in the left image."""
    unit: Literal["pixels", "output pixels", "width"] = "pixels"
    """Matching: px of the image, px of the output (which may be smaller), or fractions of the width."""
    scale: Annotated[int, Field(ge=2, le=16)] | None = None
    """Super-resolution: upscaling factor."""
    initial: Text = ""
    """File of the network that estimates the initial flow, for an input flow/2."""

    def __post_init__(self) -> None:
        given: set[str] = {*self.inputs.values()}
        held: list[str] = [*self.outputs.values()]
        both = {"left+right"} & given or {"right+left"} & given or {"left", "right"} <= given
        if not both:
            raise UsageError("inputs must be given both views: left and right, or left+right")
        if ("flow/2" in given) != bool(self.initial):
            raise UsageError("an input flow/2 and the file initial that finds it belong together")
        if self.task == "disparity":
            wrong = "disparity" not in held
            known = {"disparity", "right disparity", "confidence", "unused"}
        else:
            wrong = not ({"left", "right"} <= {*held} or "left+right" in held)
            known = {"left", "right", "left+right", "unused"}
        if wrong or not known >= {*held}:
            what = "disparity" if self.task == "disparity" else "left and right, or left+right"
            raise UsageError(f"outputs of {self.task} hold {what}, not {', '.join(held) or 'nothing'}")
        if any(held.count(each) > 1 for each in known - {"unused"}):
            raise UsageError("two of the outputs hold the same")
        if self.task == "superres" and self.channels == "grey":
            raise UsageError("channels grey is for matching: larger pictures have three")
        if min(self.deviation) <= 0:
            raise UsageError("deviation must be above 0")
        if (self.task == "superres") != (self.scale is not None):
            raise UsageError("a scale belongs to superres, and each of its networks has one")
        if self.fixed_size is not None and any(side % self.multiple for side in self.fixed_size):
            raise UsageError(f"size {self.size} is not a multiple of {self.multiple}")
        if self.fixed_size is None and self.larger == "reduce":
            raise UsageError("larger reduce needs a size")
        if math.prod(self.fixed_size or ()) > LARGEST_SIZE:
            raise UsageError(f"size {self.size} has more than {LARGEST_SIZE:,} pixels")
        if any(
            2 * most > side for most, side in zip(self.overlap or (), self.fixed_size or (), strict=False)
        ):
            raise UsageError("overlap is more than half of size")

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """Rows and columns of the input; None = any."""
        if self.size == FREE:
            return None
        rows, columns = map(int, self.size.split("x"))
        return rows, columns

    @property
    def shared(self) -> tuple[int, int]:
        """Rows and columns that neighbouring tiles share."""
        assert self.fixed_size is not None
        return self.overlap or (min(128, self.fixed_size[0] // 2), min(512, self.fixed_size[1] // 2))

    @property
    def architecture(self) -> str:
        """Name for people."""
        return self.family or "foreign network"

    @property
    def max_disparity(self) -> None:
        """Always None: foreign networks have no adjustable maximum."""

    @property
    def row(self) -> Architecture:
        """Architecture row with the properties that pam needs of any network."""
        return Architecture(
            name=self.architecture,
            task=self.task,
            network="",
            memory=(0.0, 0.0),
            parts=(),
            match_size="auto" if self.larger == "reduce" else 1.0,
        )

    def with_values(self, **values: Any) -> "Description":
        """Return a copy with changed values; raise UsageError for invalid ones."""
        return replace(self, **values)  # type: ignore[type-var]


EXPLAINED = {
    "network": "beside this file",
    "family": "recognised by its inputs and outputs",
    "inputs": "left, right, left+right (in the channels), left/2 (half the size), flow/2",
    "outputs": "disparity, right disparity, confidence; left, right, left+right; unused",
    "channels": "RGB, BGR or grey",
    "white": "a white pixel is 1 or 255; mean and deviation are in the same units",
    "size": "rows x columns, or free",
    "multiple": "sides are multiples of this",
    "padding": "top right, centre or bottom right: where smaller pictures grow",
    "larger": "tiles or reduce: what happens to pictures that do not fit",
    "overlap": "rows and columns that tiles share",
    "resolution": "size of the disparity in parts of the pictures'",
    "sign": "-1 where left x + value = right x",
    "unit": "pixels, output pixels, or width (shares of it)",
}
"""Comments on each key in a description file."""


def to_toml(described: Description) -> str:
    """Format a description as TOML, without the values that equal their defaults."""
    lines = ["# How pam feeds and reads a network: pam disparity --weights THIS_FILE (pam guide own-network)"]
    shown = {"task", "inputs", "outputs", "channels", "white", "size", "multiple"}
    shown |= {"sign"} if described.task == "disparity" else set()
    for each in ("network", *(each.name for each in fields(described))):  # type: ignore[arg-type]
        value = getattr(described, each)
        if each == "network" and lines[1:]:
            continue
        default = Description.__dataclass_fields__[each].default  # type: ignore[attr-defined]
        if each in shown or value != default:
            comment = f"  # {EXPLAINED[each]}" if each in EXPLAINED else ""
            lines.append(f"{each} = {as_setting(value)}{comment}")
    return "\n".join(line for line in lines if line != 'network = ""') + "\n"


def as_setting(value: Any) -> str:
    """Format a value as in a description file, and as `with_settings` parses it."""
    if isinstance(value, dict):
        pairs = (f"{as_setting(key)} = {as_setting(each)}" for key, each in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(as_setting, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # JSON strings and numbers are valid TOML


def read_description(path: Path) -> Description:
    """Read a description file and resolve `network` and `initial` to paths.

    Raises ModelError: unreadable, not TOML, unknown keys, or invalid values.
    """
    hint = "pam weights describe NET.onnx -o NET.toml writes one"
    text = read_text(path, LARGEST_SETTINGS, ModelError, hint)
    try:
        made = parse_record(Description, json.dumps(parse_toml(text)))
    except ValidationError as error:
        raise ModelError(
            f"{path}: {describe_first_error(error, Description)}", "pam guide own-network"
        ) from None
    except UsageError as error:
        raise ModelError(f"{path}: {error.message}", "pam guide own-network") from None
    except (ValueError, TypeError) as error:
        raise ModelError(f"{path} is no description of a network: {error}", hint) from None
    beside = {
        key: str(path.parent / getattr(made, key)) for key in ("network", "initial") if getattr(made, key)
    }
    return made.with_values(**beside)


def with_settings(described: Description, settings: dict[str, str]) -> Description:
    """Return a copy with values given as text, KEY and VALUE, as in a file.

    Quotation marks are optional. Raises UsageError: unknown key or invalid value.
    """
    table = {**asdict(described), **{key: _value(text) for key, text in settings.items()}}  # type: ignore[call-overload]
    try:
        return parse_record(Description, json.dumps(table))
    except ValidationError as error:
        raise UsageError(describe_first_error(error, Description), "pam guide own-network") from None


def _value(text: str) -> Any:
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text
