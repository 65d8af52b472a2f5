"""Guess a network's description from the names and shapes of its inputs and outputs. No torch here."""

import math
import re
from typing import Any

from pamcli.errors import ModelError
from pamcli.registry.families import read_layout
from pamcli.registry.interface import Interface, Port

LEFT, RIGHT = re.compile(r"left|(^|[_.])l($|[_.0-9])|reference"), re.compile(r"right|(^|[_.])r($|[_.0-9])")
"""Patterns in input or output names that indicate one image."""
SAFE_MULTIPLE = 32
"""Multiple of input sides that suits most networks without a fixed size."""


def guess_values(interface: Interface, scale: int | None) -> dict[str, Any]:
    """Guess description values: task, inputs, outputs, layout, size; omit what shapes do not show.

    `interface`: outputs have the shapes of a run. `scale`: ratio of first output to first input, if larger.
    Raises ModelError: the shapes are not those of a stereo network.
    """
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
