"""Describe inputs and outputs of a foreign network, as TOML (guide page own-network). No torch here."""

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

InputContent = Literal["left", "right", "left+right", "right+left", "left/2", "right/2", "flow/2"]
"""Contents of an input. left+right: both images, concatenated along channels. /2: at half size, interpolated.
flow/2: the result of the network `initial` on the halved images."""
OutputContent = Literal["disparity", "right disparity", "confidence", "left", "right", "left+right", "unused"]
"""Content of an output. left, right: the upscaled images of super-resolution."""

Three = tuple[float, float, float]


@validate_fields
class Description:
    """The interface of a foreign network; raises UsageError for inconsistent values."""

    task: Task
    inputs: dict[str, InputContent]  # content of each input, by name
    outputs: dict[str, OutputContent]  # content of each output, by name
    network: Text = ""  # file of the network, next to the description; empty = `network_from` builds it
    family: str = ""  # published network with the same interface, for people only
    layout: Literal["channels first", "channels last"] = "channels first"  # of the inputs
    channels: Literal["RGB", "BGR", "grey"] = "RGB"
    white: Literal[1, 255] = 1  # value of white; black is 0
    mean: Three = (0.0, 0.0, 0.0)  # subtracted from the channels, in units of `white`
    deviation: Three = (1.0, 1.0, 1.0)  # divisor of the channels after subtraction
    # input size as WIDTHxHEIGHT, as in 1248x384; free = any
    size: Annotated[str, Field(pattern=r"^(free|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$")] = FREE
    multiple: Annotated[int, Field(ge=1, le=1024)] = 1  # input sides must be multiples of this
    padding: Literal["top right", "centre", "bottom right"] = "top right"  # of smaller images, by their edges
    larger: Literal["tiles", "reduce"] = "tiles"  # treatment of images larger than `size`
    overlap: Annotated[str, Field(pattern=r"^[0-9]{1,5}x[0-9]{1,5}$")] | None = None
    """Minimum overlap of neighbouring tiles as WIDTHxHEIGHT; None = half a tile, at most 512x128."""
    resolution: Annotated[float, Field(gt=0, le=1)] = 1.0  # matching: output side relative to the image
    sign: Literal[1, -1] = 1  # matching: -1 if the network returns right x minus left x
    unit: Literal["pixels", "output pixels", "width"] = "pixels"  # matching: px of image or output, or widths
    scale: Annotated[int, Field(ge=2, le=16)] | None = None  # super-resolution: upscaling factor
    initial: Text = ""  # file of the network that estimates the initial flow, for an input flow/2

    def __post_init__(self) -> None:
        inputs: set[str] = {*self.inputs.values()}
        outputs: list[str] = [*self.outputs.values()]
        if not ({"left+right", "right+left"} & inputs or {"left", "right"} <= inputs):
            raise UsageError("inputs must include both images: left and right, or left+right")
        if ("flow/2" in inputs) != bool(self.initial):
            raise UsageError("an input flow/2 requires the file `initial`, and vice versa")
        if self.task == "disparity":
            required, is_complete = "disparity", "disparity" in outputs
            known = {"disparity", "right disparity", "confidence", "unused"}
        else:
            required = "left and right, or left+right"
            is_complete = {"left", "right"} <= {*outputs} or "left+right" in outputs
            known = {"left", "right", "left+right", "unused"}
        if not is_complete or not known >= {*outputs}:
            listed = ", ".join(outputs) or "none"
            raise UsageError(f"outputs of {self.task} must include {required}, got {listed}")
        if any(outputs.count(each) > 1 for each in known - {"unused"}):
            raise UsageError("two outputs must not have the same content")
        if self.task == "superres" and self.channels == "grey":
            raise UsageError("channels of superres must be RGB or BGR, got grey")
        if min(self.deviation) <= 0:
            raise UsageError("deviation must be above 0")
        if (self.task == "superres") != (self.scale is not None):
            raise UsageError("superres requires a scale; disparity must not have one")
        size = self.fixed_size
        if size is None:
            if self.larger == "reduce":
                raise UsageError("larger = reduce requires a fixed size")
            return
        if any(side % self.multiple for side in size):
            raise UsageError(f"size {self.size} must be a multiple of {self.multiple}")
        if math.prod(size) > LARGEST_SIZE:
            raise UsageError(f"size {self.size} has more than {LARGEST_SIZE:,} pixels")
        if any(2 * overlap > side for overlap, side in zip(self.tile_overlap, size, strict=True)):
            raise UsageError(f"overlap {self.overlap} must be at most half of size {self.size}")

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """Height and width of the input; None = any."""
        return None if self.size == FREE else _parse_sides(self.size)

    @property
    def tile_overlap(self) -> tuple[int, int]:
        if self.fixed_size is None:
            return 0, 0
        height, width = self.fixed_size
        if self.overlap is not None:
            return _parse_sides(self.overlap)
        return min(128, height // 2), min(512, width // 2)

    @property
    def architecture(self) -> str:
        return self.family or "foreign network"

    @property
    def max_disparity(self) -> None:
        """Always None: foreign networks have no adjustable maximum."""

    @property
    def row(self) -> Architecture:
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


def _parse_sides(text: str) -> tuple[int, int]:
    width, height = map(int, text.split("x"))
    return height, width


COMMENTS = {  # comments on the keys in a description file
    "network": "next to this file",
    "family": "recognised by its inputs and outputs",
    "inputs": "left, right, left+right (joined channels), left/2 (half the size), flow/2",
    "outputs": "disparity, right disparity, confidence; left, right, left+right; unused",
    "channels": "RGB, BGR or grey",
    "white": "value of a white pixel, 1 or 255; unit of mean and deviation",
    "size": "WIDTHxHEIGHT, or free",
    "multiple": "sides are padded to a multiple of this",
    "padding": "top right, centre or bottom right",
    "larger": "for images above size: tiles or reduce",
    "overlap": "WIDTHxHEIGHT shared by tiles",
    "resolution": "size of the disparity map relative to the image",
    "sign": "-1 if left x + value = right x",
    "unit": "pixels, output pixels, or width (fractions of it)",
}


def to_toml(description: Description) -> str:
    """Format a description as TOML, without the values that equal their defaults."""
    lines = ["# Inputs and outputs of a network: pam disparity --weights THIS_FILE (pam guide own-network)"]
    always = {"task", "inputs", "outputs", "channels", "white", "size", "multiple"}
    always |= {"sign"} if description.task == "disparity" else set()
    names = [each.name for each in fields(description)]  # type: ignore[arg-type]
    for name in sorted(names, key=lambda name: name != "network"):
        value = getattr(description, name)
        if name in always or value != Description.__dataclass_fields__[name].default:  # type: ignore[attr-defined]
            comment = f"  # {COMMENTS[name]}" if name in COMMENTS else ""
            lines.append(f"{name} = {format_setting(value)}{comment}")
    return "\n".join(lines) + "\n"


def format_setting(value: Any) -> str:
    """Format a value as in a description file, and as `apply_settings` parses it."""
    if isinstance(value, dict):
        pairs = (f"{format_setting(key)} = {format_setting(each)}" for key, each in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(format_setting, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # JSON strings and numbers are valid TOML


def read_description(path: Path) -> Description:
    """Read a description file and resolve `network` and `initial` to paths; raise ModelError."""
    hint, guide = "create one: pam weights describe NET.onnx -o NET.toml", "pam guide own-network"
    text = read_text(path, LARGEST_SETTINGS, ModelError, hint)
    try:
        description = parse_record(Description, json.dumps(parse_toml(text)))
    except ValidationError as error:
        raise ModelError(f"{path}: {describe_first_error(error, Description)}", guide) from None
    except UsageError as error:
        raise ModelError(f"{path}: {error.message}", error.hint or guide) from None
    except (ValueError, TypeError) as error:
        raise ModelError(f"{path} is not a description of a network: {error}", hint) from None
    files = {key: getattr(description, key) for key in ("network", "initial")}
    return description.with_values(**{key: str(path.parent / file) for key, file in files.items() if file})


def apply_settings(description: Description, settings: dict[str, str]) -> Description:
    """Return a copy with values given as text, KEY and VALUE, as in a file; quotation marks are optional."""
    values = {key: _parse_value(text) for key, text in settings.items()}
    try:
        return parse_record(Description, json.dumps({**asdict(description), **values}))  # type: ignore[call-overload]
    except ValidationError as error:
        raise UsageError(describe_first_error(error, Description), "pam guide own-network") from None


def _parse_value(text: str) -> Any:
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text
