"""Lengths with their units: the one parser of every option, column and Python call."""

import math
import re

from pamcli.errors import InputError

LENGTHS = {
    **dict.fromkeys(("um", "micrometer", "micrometre"), 1e-6),
    **dict.fromkeys(("mm", "millimeter", "millimetre"), 1e-3),
    **dict.fromkeys(("cm", "centimeter", "centimetre"), 1e-2),
    **dict.fromkeys(("m", "meter", "metre"), 1.0),
    **dict.fromkeys(("km", "kilometer", "kilometre"), 1e3),
    **dict.fromkeys(("in", "inch", "inche"), 0.0254),
    **dict.fromkeys(("ft", "foot", "feet"), 0.3048),
}
"""Metres in each unit; a plural s is removed before the lookup."""
EXAMPLE = "a number and its unit (mm, cm, m, in), such as 25mm; without a unit it means metres"


def parse_length(value: str | float, name: str) -> float:
    """Return metres from "25mm", "0.193 m", a unit alone (one of it) or a bare number (metres)."""
    try:
        if isinstance(value, str):
            found = re.fullmatch(r"([-+.\d]*(?:e[-+]?\d+)?) ?([a-z]*)", value[:99].strip().lower(), re.ASCII)
            if found is None or not (found[1] or found[2]):
                raise ValueError
            unit = LENGTHS[found[2].removesuffix("s")] if found[2] else 1.0
            metres = float(found[1] or 1) * unit
        else:
            metres = float(value)
        if math.isfinite(metres) and not isinstance(value, bool):
            return metres
    except (TypeError, ValueError, KeyError):
        pass
    raise InputError(f"{name} {str(value)[:60]!r} is not a length", EXAMPLE)
