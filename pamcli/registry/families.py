"""Recognise networks by their inputs and outputs: published families (`families.toml`), or a guess. No torch.

Only the interface is recognised, not the network itself: `pam weights describe` tests every description on
the sample pair.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pamcli.errors import ModelError
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.description import Description


@dataclass(frozen=True)
class Port:
    """An input or an output."""

    name: str
    shape: tuple[int | None, ...]  # sides, None if free; () if unknown
    type: str = "tensor(float)"

    @property
    def image_shape(self) -> tuple[int | None, int | None, int | None] | None:
        """Channels, height, width of a 1 x C x H x W or 1 x H x W x C port, otherwise None."""
        if len(self.shape) != 4:
            return None
        _, first, second, last = self.shape
        return (last, first, second) if self.channels_last else (first, second, last)

    @property
    def channels(self) -> int | None:
        """Number of image channels; 1 for ports that are not images."""
        return 1 if self.image_shape is None else self.image_shape[0]

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of an image or map; 0 where free or for other ports."""
        sides = self.shape[-2:] if len(self.shape) in (2, 3) else (0, 0)
        rows, columns = sides if self.image_shape is None else self.image_shape[1:]
        return rows or 0, columns or 0

    @property
    def channels_last(self) -> bool:
        few = (1, 2, 3, 4, 6)
        return len(self.shape) == 4 and self.shape[3] in few and self.shape[1] not in few

    def __str__(self) -> str:
        return f"{self.name} ({' x '.join('?' if side is None else str(side) for side in self.shape)})"


@dataclass(frozen=True)
class Interface:
    """The inputs and outputs of a network."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}"


def _fits(family: Mapping[str, Any], interface: Interface) -> bool:
    """Return True if an interface has the channels and names of a family in `families.toml`."""
    for key, ports in (("input_names", interface.inputs), ("output_names", interface.outputs)):
        if key in family and [port.name for port in ports] != family[key]:
            return False
    expected = family.get("channels", ())
    for counts, ports in zip(expected, (interface.inputs, interface.outputs), strict=False):
        both = list(zip(counts, (port.channels for port in ports), strict=False))
        if len(counts) != len(ports) or any(count not in (-1, found) for count, found in both):
            return False
    first, last = interface.outputs[0], interface.outputs[-1]
    if family.get("quarter") and "init" not in first.name:
        quarter = first.image_shape and last.image_shape and 0 < 4 * first.sides[0] == last.sides[0]
        return bool(quarter and first.channels == last.channels == 1)
    return first.name.startswith(family.get("first_output", ""))


_TEXT = resources.files("pamcli.registry").joinpath("families.toml").read_text(encoding="utf-8")
FAMILIES: list[dict[str, Any]] = tomllib.loads(_TEXT)["family"]


def recognise(
    interface: Interface, network: str, *, initial: str = "", scale: int | None = None
) -> Description | None:
    """Describe a network of a known family; return None for unknown families or if the scale is unknown."""
    # `initial`: file of the initial-flow network, if needed. `scale`: upscaling factor, if known.
    if any("features_left" in port.name for port in interface.inputs):
        raise ModelError(
            f"{network} is the second part of a Fast-FoundationStereo", "export the network as a single file"
        )
    family = next((each for each in FAMILIES if _fits(each, interface)), None)
    if family is None:
        return None
    contents = family.get("inputs", ["left", "right"]), family.get("outputs", ["disparity"])
    if "flow/2" in contents[0] and not initial:
        hint = "pam weights describe NET.onnx --set initial=FIRST.onnx -o NET.toml, then --weights NET.toml"
        raise ModelError(f"{network} needs an initial flow, which another file computes", hint)
    names = [[port.name for port in ports] for ports in (interface.inputs, interface.outputs)]
    superres, own = "left+right" in contents[1], dict(family.get("values", {}))
    if own.pop("imagenet", False):
        own |= {"mean": IMAGE_MEAN, "deviation": IMAGE_STD}
    values = {
        **read_layout(interface),
        **own,
        "task": "superres" if superres else "disparity",
        "network": network,
        "family": family["name"],
        "initial": initial if "flow/2" in contents[0] else "",
        "inputs": dict(zip(names[0], contents[0], strict=True)),
        "outputs": {
            name: content for name, content in zip(names[1], contents[1], strict=False) if content != "unused"
        },
    }
    if superres:
        height, upscaled = interface.inputs[0].sides[0], interface.outputs[0].sides[0]
        values["scale"] = scale or (height and upscaled // height)
        if not 2 <= values["scale"] <= 16:  # a side is free, or the output is not larger
            return None
    if values["size"] != "free":
        values["multiple"] = 1
    return Description(**values)


def read_layout(interface: Interface) -> dict[str, Any]:
    images = [port for port in interface.inputs if port.image_shape is not None]
    if not images:
        return {"size": "free"}
    largest = max(images, key=lambda port: port.sides)
    return {
        "layout": "channels last" if largest.channels_last else "channels first",
        "size": "{1}x{0}".format(*largest.sides) if all(largest.sides) else "free",
    }


LEFT, RIGHT = re.compile(r"left|(^|[_.])l($|[_.0-9])|reference"), re.compile(r"right|(^|[_.])r($|[_.0-9])")
"""Patterns in input or output names that indicate one image."""
SAFE_MULTIPLE = 32  # multiple of input sides that suits most networks without a fixed size


def guess_values(interface: Interface, scale: int | None) -> dict[str, Any]:
    """Guess description values from the shapes of a run: task, inputs, outputs, layout, size, channels."""
    values = read_layout(interface)
    values["multiple"] = SAFE_MULTIPLE if values["size"] == "free" else 1
    images = [port for port in interface.inputs if port.image_shape is not None]
    channels = [port.channels for port in images]
    if len(interface.inputs) == 1 and channels in ([6], [2]):
        values["inputs"] = {images[0].name: "left+right"}
    elif len(interface.inputs) == 2 and channels in ([3, 3], [1, 1]):
        values["inputs"] = dict(zip(_order_ports(images), ("left", "right"), strict=True))
    else:
        raise ModelError(
            f"the inputs must be two images, or one with both in its channels, got {interface}",
            "specify the inputs: --set inputs='{NAME = \"left\", ...}' (pam guide own-network)",
        )
    if channels[0] in (1, 2):
        values["channels"] = "grey"
    made = [port for port in interface.outputs if math.prod(port.sides)]
    if not made:
        raise ModelError(
            f"an output must be a disparity map or an image, got {interface}", "pam guide own-network"
        )
    large = [port for port in made if port.channels in (3, 6)]
    if scale is not None and scale > 1 and large:
        values |= {"task": "superres", "scale": scale}
        if large[0].channels == 6:
            values["outputs"] = {large[0].name: "left+right"}
        else:
            values["outputs"] = dict(zip(_order_ports(large[:2]), ("left", "right"), strict=False))
        return values
    most = max(math.prod(port.sides) for port in made)
    largest = [port for port in made if math.prod(port.sides) == most]
    chosen = [*largest, *(port for port in largest if "disp" in port.name.lower())][-1]
    values |= {"task": "disparity", "outputs": {chosen.name: "disparity"}}
    for port in made:
        if "conf" in port.name.lower() and port.name != chosen.name and port.channels == 1:
            values["outputs"][port.name] = "confidence"
    return values


def _order_ports(ports: list[Port]) -> list[str]:
    """Return the names of two ports, left image first; keep their order if the names are ambiguous."""
    names = [port.name for port in ports]
    if len(names) == 2 and (RIGHT.search(names[0].lower()) or LEFT.search(names[1].lower())):
        return names[::-1]
    return names
