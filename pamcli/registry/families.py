"""Recognise networks by their inputs and outputs: published families, one row each, or a guess. No torch.

Preprocessing follows the authors' own programs. Only the interface is recognised, not the network itself:
`pam weights describe` tests every description on the sample pair.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Family:
    """A family of networks with the same interface."""

    name: str
    fits: Callable[[Interface], bool]
    values: Mapping[str, Any]  # description values that the interface does not show
    inputs: tuple[str, ...] = ("left", "right")  # contents of the inputs, in order
    outputs: tuple[str, ...] = ("disparity",)  # contents of the outputs, in order; further outputs are unused


def _channels(interface: Interface) -> list[list[int | None]]:
    return [[port.channels for port in ports] for ports in (interface.inputs, interface.outputs)]


def _has_images_named(interface: Interface, inputs: set[str], outputs: set[str]) -> bool:
    """Return True if there are two image inputs, and inputs and outputs have these names."""
    names = [{port.name for port in ports} for ports in (interface.inputs, interface.outputs)]
    return _channels(interface)[0] == [3, 3] and names == [inputs, outputs]


def _is_raft(interface: Interface) -> bool:
    """Return True if the outputs are a two-channel flow at reduced size and a full-size disparity."""
    inputs, outputs = _channels(interface)
    return (inputs == [3, 3] and len(outputs) == 2 and outputs[0] == 2) or _has_images_named(
        interface, {"left", "right"}, {"disparity", "upscaled_disparity"}
    )


def _is_igev(interface: Interface) -> bool:
    """Return True if the outputs are an initial disparity at reduced size and a full-size disparity."""
    if _channels(interface)[0] != [3, 3] or len(interface.outputs) != 2:
        return False
    first, last = interface.outputs
    quarter = first.image_shape and last.image_shape and 0 < 4 * first.sides[0] == last.sides[0]
    return "init" in first.name or bool(quarter and first.channels == last.channels == 1)


def _hitnet(channels: int) -> Callable[[Interface], bool]:
    name = "reference_output_disparity"
    return lambda i: _channels(i)[0] == [channels] and i.outputs[0].name.startswith(name)


IN_255 = {"white": 255, "multiple": 32}
CENTRED = {**IN_255, "padding": "centre"}
CRESTEREO = {"white": 255, "channels": "BGR", "multiple": 32}

FAMILIES = (  # the first matching family is used
    Family(
        "CREStereo",
        lambda i: [port.name for port in i.inputs] == ["init_left", "init_right", "next_left", "next_right"],
        CRESTEREO,
        inputs=("left/2", "right/2", "left", "right"),
    ),
    Family(
        "CREStereo",
        lambda i: [port.name for port in i.inputs] == ["left", "right", "flow_init"],
        CRESTEREO,
        inputs=("left", "right", "flow/2"),
    ),
    Family("CREStereo", lambda i: _channels(i) == [[3, 3], [2]], CRESTEREO),
    Family("RAFT-Stereo", _is_raft, {**CENTRED, "sign": -1}, outputs=("unused", "disparity")),
    Family("IGEV", _is_igev, CENTRED, outputs=("unused", "disparity")),
    Family("HITNet", _hitnet(6), {"multiple": 64}, ("left+right",), ("disparity", "right disparity")),
    Family("HITNet", _hitnet(2), {"multiple": 64, "channels": "grey"}, ("left+right",), ("disparity",)),
    Family(
        "StereoNet",
        lambda i: _has_images_named(i, {"input.1", "input.83"}, {i.outputs[0].name}),
        {"mean": IMAGE_MEAN, "deviation": IMAGE_STD, "multiple": 16, "padding": "bottom right"},
    ),
    Family("FoundationStereo", lambda i: _has_images_named(i, {"left", "right"}, {"disp"}), CENTRED),
    Family("Lite Any Stereo", lambda i: _has_images_named(i, {"left", "right"}, {"disparity"}), CENTRED),
    Family("NAFSSR or CVHSSR", lambda i: _channels(i) == [[6], [6]], {}, ("left+right",), ("left+right",)),
)


def recognise(
    interface: Interface, network: str, *, initial: str = "", scale: int | None = None
) -> Description | None:
    """Describe a network of a known family; return None for unknown families or if the scale is unknown."""
    # `initial`: file of the initial-flow network, if needed. `scale`: upscaling factor, if known.
    if any("features_left" in port.name for port in interface.inputs):
        raise ModelError(
            f"{network} is the second part of a Fast-FoundationStereo", "export the network as a single file"
        )
    family = next((each for each in FAMILIES if each.fits(interface)), None)
    if family is None:
        return None
    if "flow/2" in family.inputs and not initial:
        hint = "pam weights describe NET.onnx --set initial=FIRST.onnx -o NET.toml, then --weights NET.toml"
        raise ModelError(f"{network} needs an initial flow, which another file computes", hint)
    names = [[port.name for port in ports] for ports in (interface.inputs, interface.outputs)]
    superres = "left+right" in family.outputs
    values = {
        **read_layout(interface),
        **family.values,
        "task": "superres" if superres else "disparity",
        "network": network,
        "family": family.name,
        "initial": initial if "flow/2" in family.inputs else "",
        "inputs": dict(zip(names[0], family.inputs, strict=True)),
        "outputs": {
            name: content
            for name, content in zip(names[1], family.outputs, strict=False)
            if content != "unused"
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
