"""Objects of rendered scenes: furniture and street objects.

Each function builds a random object that stands on z = 0 around the origin; lengths are metres.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import numpy as np
from see_through import build_net, build_plant, build_rods, build_slats, build_wheel
from shapes import Shape


def build_table(rng: Random) -> Shape:
    shape = Shape()
    x, y, height, leg = (
        rng.uniform(0.3, 1.0),
        rng.uniform(0.3, 0.6),
        rng.uniform(0.4, 0.8),
        rng.uniform(0.015, 0.05),
    )
    if rng.random() < 0.3:
        shape.add_turned([(0, height), (y, height), (y, height + 0.03), (0, height + 0.03)], "top")
        shape.add_turned([(0.3, 0), (0.3, 0.02), (leg, 0.05), (leg, height)], "leg")
        return shape
    shape.add_box((-x, -y, height), (x, y, height + rng.uniform(0.02, 0.06)), "top")
    for i in (-1, 1):
        for j in (-1, 1):
            end = np.array([i * (x - 2 * leg), j * (y - 2 * leg), 0])
            shape.add_tube([end, end * 0.95 + (0, 0, height)], leg, "leg")
    return shape


def build_chair(rng: Random) -> Shape:
    shape = Shape()
    half, seat, height, leg = (
        rng.uniform(0.18, 0.26),
        rng.uniform(0.4, 0.48),
        rng.uniform(0.8, 1.1),
        rng.uniform(0.01, 0.022),
    )
    shape.add_box((-half, -half, seat - 0.04), (half, half, seat), "top")
    for i in (-1, 1):
        shape.add_tube([(i * (half - leg), leg - half, 0), (i * (half - leg), leg - half, seat)], leg, "leg")
        shape.add_tube(
            [
                (i * (half - leg), half, 0),
                (i * (half - leg), half, seat),
                (i * (half - leg), half + 0.08, height),
            ],
            leg,
            "leg",
        )
    count = rng.randint(2, 7)
    for number in range(count):
        if count > 4:
            x = half * (2 * (number + 0.5) / count - 1)
            shape.add_tube([(x, half, seat), (x, half + 0.07, height - 0.03)], leg / 2, "leg")
        else:
            z = seat + (height - seat) * (number + 0.7) / count
            shape.add_box((-half, half + 0.04, z - 0.03), (half, half + 0.06, z + 0.03), "leg")
    shape.add_tube([(-half, half + 0.08, height), (half, half + 0.08, height)], leg, "leg")
    return shape


def build_shelf(rng: Random) -> Shape:
    """Build an open shelf with books and boxes."""
    shape = Shape()
    x, y, height, board = (
        rng.uniform(0.3, 0.7),
        rng.uniform(0.12, 0.2),
        rng.uniform(0.8, 2.1),
        rng.uniform(0.012, 0.03),
    )
    for i in (-1, 1):
        shape.add_box((i * x - board / 2, -y, 0), (i * x + board / 2, y, height), "top")
    levels = rng.randint(2, 6)
    for level in range(levels + 1):
        z = (height - board) * level / levels
        shape.add_box((board / 2 - x, -y, z), (x - board / 2, y, z + board), "top")
        place, room = 0.02 - x, height / levels
        while level < levels and place < x - 0.2 and rng.random() < 0.96:
            wide = rng.choice((rng.uniform(0.015, 0.05), rng.uniform(0.015, 0.05), rng.uniform(0.1, 0.2)))
            if rng.random() < 0.8:
                deep = rng.uniform(0, y)
                high = z + board + room * rng.uniform(0.4, 0.85)
                shape.add_box(
                    (place, -deep, z + board),
                    (place + wide, y, high),
                    rng.choice(("book", "book 2", "book 3")),
                )
            place += wide + 0.003
    return shape


def build_sofa(rng: Random) -> Shape:
    shape = Shape()
    x, y, seat, arm = (
        rng.uniform(0.4, 1.1),
        rng.uniform(0.38, 0.5),
        rng.uniform(0.35, 0.45),
        rng.uniform(0.1, 0.22),
    )
    shape.add_box((-x, -y, 0.08), (x, y, seat - 0.1), "cloth")
    count = max(1, round(x / 0.4))
    for number in range(count):
        left = -x + arm + (2 * x - 2 * arm) * number / count
        right = left + (2 * x - 2 * arm) / count - 0.01
        shape.add_box((left, -y, seat - 0.1), (right, y - 0.2, seat + 0.05), "cloth")
        shape.add_box((left, y - 0.35, seat + 0.05), (right, y - 0.15, seat + 0.45), "cloth 2")
    shape.add_box((-x, y - 0.18, seat - 0.1), (x, y, seat + 0.4), "cloth")
    for i in (-1, 1):
        shape.add_box(
            (i * x - arm * (i > 0), -y, seat - 0.1), (i * x + arm * (i < 0), y, seat + 0.2), "cloth"
        )
    return shape


def build_lamp(rng: Random) -> Shape:
    """Build a lamp whose shade is open at both ends, with pleats in half of the cases."""
    shape, height = Shape(), rng.uniform(0.35, 1.7)
    shade, low, high = rng.uniform(0.15, 0.35), rng.uniform(0.1, 0.25), rng.uniform(0.06, 0.18)
    shape.add_turned([(0, 0), (low, 0), (low, 0.02), (0.012, 0.04), (0.01, height)], "leg")
    shape.add_turned(
        [(low, height - shade), (high, height), (high - 0.004, height), (low - 0.004, height - shade)],
        "shade",
    )
    for number in range(rng.choice((0, 24))):
        angle = number * math.pi / 12
        ends = [
            (r * math.cos(angle), r * math.sin(angle), z) for r, z in ((low, height - shade), (high, height))
        ]
        shape.add_tube(ends, 0.003, "shade", sides=5)
    return shape


def build_bottle(rng: Random) -> Shape:
    """Build a bottle, vase, jar, cup or goblet with a wall of its own."""
    height, radius, neck = rng.uniform(0.12, 0.4), rng.uniform(0.03, 0.1), rng.uniform(0.2, 1.1)
    low, high = rng.uniform(0.3, 0.6) * height, rng.uniform(0.65, 0.8) * height
    outside = [(0, 0), (radius, 0), (radius, low), (radius * neck, high), (radius * neck, height)]
    if rng.random() < 0.25:
        outside = [
            (0, 0),
            (radius, 0),
            (radius, 0.01),
            (0.008, 0.02),
            (0.008, low),
            (radius, high),
            (radius * 0.9, height),
        ]
    shape = Shape()
    shape.add_turned([*outside, *((max(0, r - 0.004), max(z, 0.006)) for r, z in outside[::-1])], "bottle")
    return shape


def build_tree(rng: Random) -> Shape:
    """Build a tree: a trunk that carries plants as its crown."""
    shape, height = Shape(), rng.uniform(1.6, 3.5)
    lean = np.array([rng.gauss(0, 0.15), rng.gauss(0, 0.15), height])
    path = np.array([0 * lean, 0.5 * lean + (0.04, 0, 0), lean])
    shape.add_tube(path, rng.uniform(0.06, 0.16), "trunk", sides=12)
    plant = build_plant(rng, potted=0)
    for number in range(rng.randint(4, 6)):
        start = lean * (0.75 + 0.05 * number)
        shape.add_shape(plant, start, turn=rng.uniform(0, 6.3), scale=rng.uniform(1.2, 2.4))
    return shape


def build_crate(rng: Random) -> Shape:
    shape, (x, y, z) = Shape(), (rng.uniform(0.1, 0.4) for _ in range(3))
    shape.add_box((-x, -y, 0), (x, y, 2 * z), "crate")
    if rng.random() < 0.5:
        shape.add_box((-x - 0.01, -y - 0.01, z), (x + 0.01, y + 0.01, z + 0.06), "band")
    return shape


def build_post(rng: Random) -> Shape:
    """Build a bollard, a lamp post or a sign post."""
    shape, kind = Shape(), rng.choice(("bollard", "bollard", "lamp", "sign"))
    radius = rng.uniform(0.04, 0.13)
    if kind == "bollard":
        height = rng.uniform(0.6, 1.2)
        top = [(radius * math.cos(a), height + radius * math.sin(a)) for a in np.linspace(0, math.pi / 2, 6)]
        shape.add_turned([(0, 0), (1.3 * radius, 0), (1.3 * radius, 0.05), (radius, 0.06), *top], "post")
        shape.add_turned(
            [
                (radius, 0.7 * height),
                (radius + 0.004, 0.7 * height),
                (radius + 0.004, 0.85 * height),
                (radius, 0.85 * height),
            ],
            "band",
        )
    elif kind == "lamp":
        height, arm = rng.uniform(3, 7), rng.uniform(0.3, 1.4)
        shape.add_turned([(0, 0), (1.4 * radius, 0), (radius, 0.6), (0.6 * radius, height)], "post")
        shape.add_tube(
            [(0, 0, height - 0.02), (arm / 2, 0, height + 0.25), (arm, 0, height + 0.2)], 0.03, "post"
        )
        shape.add_box((arm - 0.1, -0.1, height + 0.1), (arm + 0.4, 0.1, height + 0.2), "shade")
    else:
        height, half = rng.uniform(1.8, 2.8), rng.uniform(0.2, 0.4)
        shape.add_tube([(0, 0, 0), (0, 0, height)], radius / 2, "post")
        if rng.random() < 0.5:
            shape.add_turned(
                [(0, -0.07), (half, -0.07), (half, -0.06), (0, -0.06)], "sign", (0, 0, height - half), "y"
            )
        else:
            shape.add_box((-half, -0.08, height - 1.4 * half), (half, -0.07, height), "sign")
    return shape


def build_car(rng: Random) -> Shape:
    """Build a car of two prisms with windows and wheels, as long as y."""
    shape, half, width = Shape(), rng.uniform(1.7, 2.5), rng.uniform(0.78, 0.95)
    sill, bonnet, roof = rng.uniform(0.2, 0.32), rng.uniform(0.75, 1.0), rng.uniform(1.35, 1.9)
    front, rear = rng.uniform(-0.55, -0.3) * half, rng.uniform(0.5, 0.95) * half
    body = [
        (-half, sill),
        (half, sill),
        (half, bonnet - 0.05),
        (half - 0.1, bonnet),
        (0.1 - half, bonnet - 0.1),
        (-half, bonnet - 0.25),
    ]
    shape.add_prism(body, -width, width, "paint")
    cabin = [
        (front - 0.5, bonnet - 0.08),
        (rear + 0.15, bonnet - 0.02),
        (rear - 0.1, roof),
        (front + 0.15, roof),
    ]
    shape.add_prism(cabin, 0.08 - width, width - 0.08, "dark glass")
    shape.add_prism(
        [
            (front + 0.05, roof - 0.03),
            (rear - 0.05, roof - 0.03),
            (rear - 0.12, roof + 0.02),
            (front + 0.17, roof + 0.02),
        ],
        0.06 - width,
        width - 0.06,
        "paint",
    )
    for share in (0.0, 0.45, 1.0):
        low, high = (
            a + share * (b - a) for a, b in ((front - 0.45, rear + 0.08), (front + 0.15, rear - 0.18))
        )
        side = [(low, bonnet - 0.05), (low + 0.08, bonnet - 0.05), (high + 0.08, roof), (high, roof)]
        shape.add_prism(side, 0.07 - width, width - 0.07, "paint")
    for y in (-0.62 * half, 0.62 * half):
        for x in (-width, width):
            profile = [
                (0, -0.1),
                (0.2, -0.1),
                (0.22, -0.08),
                (0.32, -0.1),
                (0.32, 0.1),
                (0.22, 0.08),
                (0.2, 0.1),
                (0, 0.1),
            ]
            shape.add_turned(profile, "tyre", (x, y, 0.32), "x")
    return shape


Builder = Callable[[Random], Shape]
FURNITURE: tuple[Builder, ...] = (
    *(build_table, build_chair, build_chair, build_shelf, build_sofa),
    *(build_lamp, build_bottle, build_crate, build_plant),
)
SEE_THROUGH: tuple[Builder, ...] = (build_slats, build_wheel, build_net, build_plant, build_rods, build_chair)
STREET: tuple[Builder, ...] = (
    build_post,
    build_post,
    build_post,
    build_car,
    build_tree,
    build_slats,
    build_net,
    build_crate,
)
