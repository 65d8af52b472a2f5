"""Damage to values, as of JSON, that keeps them values: other kinds, other sizes, things gone or twice."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 3, 10**18, -(10**18), 0.5, -0.0, float("nan"), float("inf")),
    *("", "0", "2", "x" * 5000, "\ud800", "a\n\x1b[2Jb", [], [None], {}, {"": 0}, [[[]]], [1, 2], ["a", "b"]),
]


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything in a value."""
    yield above
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*above, key))


def damaged(value: Any, seed: int) -> Any:
    """The value with one thing in it, or two, gone, doubled, or replaced by an odd one."""
    draw = random.Random(seed)
    root = [copy.deepcopy(value)]
    for _ in range(draw.choice((1, 1, 1, 2))):
        *way, last = draw.choice([(0, *place) for place in places(root[0])])
        holder: Any = root
        for key in way:
            holder = holder[key]
        what = draw.randrange(8)
        if what == 0 and holder is not root:
            del holder[last]
        elif what == 1 and isinstance(holder[last], list) and holder[last]:
            holder[last].append(copy.deepcopy(draw.choice(holder[last])))
        elif what == 2 and isinstance(holder[last], int | float) and not isinstance(holder[last], bool):
            holder[last] += draw.choice((-1, 1, 2, 1000, 10**12))
        else:
            holder[last] = copy.deepcopy(draw.choice(ODD))
    return root[0]
