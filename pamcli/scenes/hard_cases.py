"""Define hard cases for matchers and the share of scenes with each of them. Does not import torch."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields

from numpy.random import Generator

from pamcli.validation import Share, validate_fields

CASES: Mapping[str, str] = {
    "tunnels": "tunnels with lamps",
    "corridors": "corridors",
    "walls": "rooms with uniform walls behind and beside objects",
    "floors": "floors and roads without texture",
    "glossy": "reflecting surfaces and panes of glass",
    "twigs": "twigs that are 1 or 2 px thick",
    "wires": "wires across the image",
    "fences": "fences, railings and nets",
    "foliage": "bushes with single leaves",
    "dark": "too little light: noisy, often brightened",
    "flares": "a sun that dazzles the cameras, with lens flares",
    "rain": "streaks of rain, different in the two images",
}
"""Description of every case by name; a scene has at most one of the first three, but any of the others."""

EXCLUSIVE = 3


@validate_fields
@dataclass(frozen=True)
class HardCases:
    """Share of the scenes with each of `CASES`. Raises UsageError if a share is not in [0, 1]."""

    tunnels: Share = 0.0
    corridors: Share = 0.0
    walls: Share = 0.0
    floors: Share = 0.0
    glossy: Share = 0.0
    twigs: Share = 0.0
    wires: Share = 0.0
    fences: Share = 0.0
    foliage: Share = 0.0
    dark: Share = 0.0
    flares: Share = 0.0
    rain: Share = 0.0

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
