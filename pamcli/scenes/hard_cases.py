"""Define hard cases for matchers and the share of scenes with each of them. Does not import torch."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Annotated, get_type_hints

from numpy.random import Generator

from pamcli.validation import Share, validate_fields

EXCLUSIVE = 3


@validate_fields
@dataclass(frozen=True)
class HardCases:
    """Share of the scenes with each case, described beside it. Raises UsageError if one is not in [0, 1].

    A scene has at most one of the first three cases, but any of the others.
    """

    tunnels: Annotated[Share, "tunnels with lamps"] = 0.0
    corridors: Annotated[Share, "corridors"] = 0.0
    walls: Annotated[Share, "rooms with uniform walls behind and beside objects"] = 0.0
    floors: Annotated[Share, "floors and roads without texture"] = 0.0
    glossy: Annotated[Share, "reflecting surfaces and panes of glass"] = 0.0
    twigs: Annotated[Share, "twigs that are 1 or 2 px thick"] = 0.0
    wires: Annotated[Share, "wires across the image"] = 0.0
    fences: Annotated[Share, "fences, railings and nets"] = 0.0
    foliage: Annotated[Share, "bushes with single leaves"] = 0.0
    dark: Annotated[Share, "too little light: noisy, often brightened"] = 0.0
    flares: Annotated[Share, "a sun that dazzles the cameras, with lens flares"] = 0.0
    rain: Annotated[Share, "streaks of rain, different in the two images"] = 0.0

    def draw_cases(self, rng: Generator) -> frozenset[str]:
        """Draw the cases of one scene. If the first three sum to more than 1, they share the scenes."""
        shares: tuple[float, ...] = astuple(self)
        names = [each.name for each in fields(self)]
        chance = rng.random(len(shares))
        found = {name for name, share, u in zip(names, shares, chance, strict=True) if u < share}
        found -= {*names[:EXCLUSIVE]}
        place = chance[0] * max(1.0, sum(shares[:EXCLUSIVE]))
        for name, share in zip(names[:EXCLUSIVE], shares, strict=False):
            if 0 <= place < share:
                found.add(name)
            place -= share
        return frozenset(found)


NONE = HardCases()
_HINTS = get_type_hints(HardCases, include_extras=True)
CASES: Mapping[str, str] = {name: hint.__metadata__[-1] for name, hint in _HINTS.items()}
"""Description of every case by name."""
