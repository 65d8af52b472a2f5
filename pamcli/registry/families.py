"""Recognise published networks by their inputs and outputs, one row each. No torch here.

Preprocessing follows the authors' own programs. Only the interface is recognised, not the network itself:
`pam weights describe` tests every description on the sample pair.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pamcli.errors import ModelError
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.description import Description
from pamcli.registry.interface import Interface

Values = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """A family of networks with the same interface."""

    name: str
    fits: Callable[[Interface], bool]
    values: Mapping[str, Any]
    """Description values that the interface does not show."""
    inputs: tuple[str, ...] = ("left", "right")
    """Contents of the inputs, in order."""
    outputs: tuple[str, ...] = ("disparity",)
    """Contents of the outputs, in order; further outputs are unused."""


def _has_names(interface: Interface, inputs: set[str], outputs: set[str]) -> bool:
    names = [{port.name for port in ports} for ports in (interface.inputs, interface.outputs)]
    return names == [inputs, outputs]


def _has_two_images(interface: Interface) -> bool:
    """Return True if there are two image inputs."""
    return [port.channels for port in interface.inputs] == [3, 3]


def _is_flow_of_two_images(interface: Interface) -> bool:
    return _has_two_images(interface) and [port.channels for port in interface.outputs] == [2]


def _left_right_to(output: str) -> Callable[[Interface], bool]:
    return lambda i: _has_two_images(i) and _has_names(i, {"left", "right"}, {output})


def _is_raft(interface: Interface) -> bool:
    """Return True if the outputs are a two-channel flow at reduced size and a full-size disparity."""
    if not _has_two_images(interface) or len(interface.outputs) != 2:
        return False
    return interface.outputs[0].channels == 2 or _has_names(
        interface, {"left", "right"}, {"disparity", "upscaled_disparity"}
    )


def _is_igev(interface: Interface) -> bool:
    """Return True if the outputs are an initial disparity at reduced size and a full-size disparity."""
    if not _has_two_images(interface) or len(interface.outputs) != 2:
        return False
    first, last = interface.outputs
    quarter = first.image_shape and last.image_shape and 0 < 4 * first.sides[0] == last.sides[0]
    return "init" in first.name or bool(quarter and first.channels == last.channels == 1)


def _is_side_by_side(interface: Interface) -> bool:
    """Return True if one input and one output each hold two images in their channels."""
    channels = [[port.channels for port in ports] for ports in (interface.inputs, interface.outputs)]
    return channels == [[6], [6]]


def _hitnet(channels: int) -> Callable[[Interface], bool]:
    def fits(interface: Interface) -> bool:
        if [port.channels for port in interface.inputs] != [channels]:
            return False
        return interface.outputs[0].name.startswith("reference_output_disparity")

    return fits


IN_255 = {"white": 255, "multiple": 32}
CENTRED = {**IN_255, "padding": "centre"}
CRESTEREO = {"white": 255, "channels": "BGR", "multiple": 32}

FAMILIES = (
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
    Family("CREStereo", _is_flow_of_two_images, CRESTEREO),
    Family("RAFT-Stereo", _is_raft, {**CENTRED, "sign": -1}, outputs=("unused", "disparity")),
    Family("IGEV", _is_igev, CENTRED, outputs=("unused", "disparity")),
    Family("HITNet", _hitnet(6), {"multiple": 64}, ("left+right",), ("disparity", "right disparity")),
    Family("HITNet", _hitnet(2), {"multiple": 64, "channels": "grey"}, ("left+right",), ("disparity",)),
    Family(
        "StereoNet",
        lambda i: _has_two_images(i) and _has_names(i, {"input.1", "input.83"}, {i.outputs[0].name}),
        {"mean": IMAGE_MEAN, "deviation": IMAGE_STD, "multiple": 16, "padding": "bottom right"},
    ),
    Family("FoundationStereo", _left_right_to("disp"), CENTRED),
    Family("Lite Any Stereo", _left_right_to("disparity"), CENTRED),
    Family("NAFSSR or CVHSSR", _is_side_by_side, {}, ("left+right",), ("left+right",)),
)
"""The first matching family is used."""


def recognise(
    interface: Interface, network: str, *, initial: str = "", scale: int | None = None
) -> Description | None:
    """Describe a network of a known family; return None for unknown families or if the scale is unknown.

    `network`: its file. `initial`: file of the initial-flow network, if the family needs one. `scale`:
    upscaling factor, if known. Raises ModelError: one part of a network whose other part is missing.
    """
    if any("features_left" in port.name for port in interface.inputs):
        raise ModelError(
            f"{network} is the second part of a Fast-FoundationStereo", "export the network as a single file"
        )
    family = next((each for each in FAMILIES if each.fits(interface)), None)
    if family is None:
        return None
    if "flow/2" in family.inputs and not initial:
        raise ModelError(
            f"{network} needs an initial flow, which another file computes",
            "pam weights describe NET.onnx --set initial=FIRST.onnx -o NET.toml, then --weights NET.toml",
        )
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


def read_layout(interface: Interface) -> Values:
    """Return layout and size as shown by the shape of the largest input."""
    images = [port for port in interface.inputs if port.image_shape is not None]
    if not images:
        return {"size": "free"}
    largest = max(images, key=lambda port: port.sides)
    return {
        "layout": "channels last" if largest.channels_last else "channels first",
        "size": "{1}x{0}".format(*largest.sides) if all(largest.sides) else "free",
    }
