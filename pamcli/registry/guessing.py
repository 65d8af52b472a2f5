"""What names and shapes of a network's inputs and outputs show of how it is fed and read. No torch here."""

import re
from typing import Any

from pamcli.errors import ModelError
from pamcli.registry.families import shown_by
from pamcli.registry.interface import Interface, Port

SAFE_MULTIPLE = 32
"""Sides of pictures for a network that takes any: what most networks' sides are multiples of."""


def guessed(interface: Interface, scale: int | None) -> dict[str, Any]:
    """Values of a description: task, inputs, outputs, layout, size; what shapes do not show is left out.

    interface: outputs with the shapes of a run. scale: of the first output to the first input, where it is
    larger. Raises ModelError: no stereo network that can be told by its shapes.
    """
    values = shown_by(interface)
    values["multiple"] = SAFE_MULTIPLE if values["size"] == "free" else 1
    pictures = [port for port in interface.inputs if port.picture is not None]
    channels = [port.picture[0] for port in pictures if port.picture is not None]
    if len(interface.inputs) == 1 and channels in ([6], [2]):
        values["inputs"] = {pictures[0].name: "left+right"}
    elif len(interface.inputs) == 2 and channels in ([3, 3], [1, 1]):
        values["inputs"] = dict(zip(_left_first(pictures), ("left", "right"), strict=True))
    else:
        raise ModelError(
            f"a stereo network takes two pictures, or both in the channels of one, this one {interface}",
            "--set inputs='{NAME = \"left\", ...}' says what each is given: pam guide own-network",
        )
    if channels[0] in (1, 2):
        values["channels"] = "grey"
    made = [port for port in interface.outputs if _area(port)]
    if not made:
        raise ModelError(
            f"no output looks like a disparity or a picture: {interface}", "pam guide own-network"
        )
    large = [port for port in made if _channels(port) in (3, 6)]
    if scale is not None and scale > 1 and large:
        values |= {"task": "superres", "scale": scale}
        if _channels(large[0]) == 6:
            values["outputs"] = {large[0].name: "left+right"}
        else:
            values["outputs"] = dict(zip(_left_first(large[:2]), ("left", "right"), strict=False))
        return values
    last = max(reversed(made), key=_area)
    named = [port for port in made if "disp" in port.name.lower() and _area(port) == _area(last)]
    chosen = named[-1] if named else last
    values |= {"task": "disparity", "outputs": {chosen.name: "disparity"}}
    for port in made:
        if "conf" in port.name.lower() and port.name != chosen.name and _channels(port) == 1:
            values["outputs"][port.name] = "confidence"
    return values


def columns_of(port: Port) -> int:
    """Columns of a map or a picture."""
    if port.picture is not None:
        return port.picture[2] or 0
    return port.shape[-1] or 0 if port.shape else 0


def _channels(port: Port) -> int | None:
    return port.picture[0] if port.picture is not None else 1


def _area(port: Port) -> int:
    """Pixels of a map; 0 for what is none."""
    if port.picture is not None:
        return (port.picture[1] or 0) * (port.picture[2] or 0)
    if len(port.shape) in (2, 3):
        return (port.shape[-2] or 0) * (port.shape[-1] or 0)
    return 0


def _left_first(ports: list[Port]) -> list[str]:
    """Names of two ports, that of the left view first, as they stand where the names do not tell."""
    names = [port.name for port in ports]
    if len(names) == 2 and (_of_right(names[0]) or _of_left(names[1])):
        return names[::-1]
    return names


def _of_left(name: str) -> bool:
    return re.search(r"left|(^|[_.])l($|[_.0-9])|reference", name.lower()) is not None


def _of_right(name: str) -> bool:
    return re.search(r"right|(^|[_.])r($|[_.0-9])", name.lower()) is not None
