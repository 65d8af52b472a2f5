"""Objects that one can see through: slats, rings with spokes, nets, plants and thin rods.

Each function builds a random object that stands on z = 0 around the origin; lengths are metres.
"""

from __future__ import annotations

import math
from random import Random

import numpy as np
from shapes import Points, Shape


def build_slats(rng: Random) -> Shape:
    """Build a row of slats: a fence, a railing, a blind or a grille."""
    shape, length, height = Shape(), rng.uniform(0.5, 3.5), rng.uniform(0.5, 1.9)
    step = rng.uniform(0.03, 0.16)
    wide, thick = step * rng.uniform(0.12, 0.75), rng.uniform(0.004, 0.03)
    lying, round_ = rng.random() < 0.35, rng.random() < 0.4
    end, across = (height, length) if lying else (length, height)
    for number in range(int(end / step)):
        place = (number + 0.5) * step
        if round_:
            ends = np.array([(place, 0, 0), (place, 0, across * rng.uniform(0.99, 1))])
            shape.add_tube(ends[:, (2, 1, 0)] if lying else ends, wide / 3, "slat")
        elif lying:
            shape.add_box((0, 0, place), (across, thick, place + wide), "slat")
        else:
            shape.add_box((place, 0, 0), (place + wide, thick, across), "slat")
    for share in (0.1, 0.9) if rng.random() < 0.8 else ():
        low = np.array((share * length, thick, 0) if lying else (0, thick, share * height))
        side = (0.04, 0.03, height) if lying else (length, 0.03, 0.04)
        shape.add_box(low, low + side, "rail")
    shape.points = [points - (length / 2, 0, 0) for points in shape.points]
    return shape


def build_wheel(rng: Random) -> Shape:
    """Build a ring with spokes, standing upright, or bare rings."""
    shape, radius, tube = Shape(), rng.uniform(0.15, 0.4), rng.uniform(0.005, 0.03)
    angles = np.linspace(0, 2 * math.pi, 48, endpoint=False)
    circle = np.stack([np.cos(angles), 0 * angles, np.sin(angles)], axis=1)
    centre = np.array([0, 0, radius + tube])
    shape.add_tube(centre + radius * circle, tube, "ring", closed=True)
    spokes = rng.choice((0, 5, 12, 20, 32))
    for number in range(spokes):
        angle = number * 2 * math.pi / spokes
        tip = centre + radius * np.array([math.cos(angle), 0, math.sin(angle)])
        shape.add_tube(
            [centre + np.array([0, 0.03 * (-1) ** number, 0]), tip],
            rng.uniform(0.5, 2) * 0.002 + tube / 12,
            "spoke",
            sides=6,
        )
    if not spokes:
        for share in (0.55, 0.75):
            shape.add_tube(
                centre + share * radius * circle + (0, rng.uniform(-0.2, 0.2), 0), tube, "spoke", closed=True
            )
    return shape


def build_net(rng: Random) -> Shape:
    """Build a net that sags: wires in two directions, upright or diagonal, between two posts or free."""
    shape, length, height = Shape(), rng.uniform(0.6, 3), rng.uniform(0.5, 1.8)
    step, wire, sag = rng.uniform(0.03, 0.12), rng.uniform(0.0015, 0.005), rng.uniform(0, 0.15)
    phase, slope = rng.uniform(0, 6), rng.choice((0.0, 1.0))

    def bend(x: Points, z: Points) -> Points:
        return np.stack([x, sag * np.sin(2.5 * x + phase) * np.cos(2 * z), z], axis=1)

    share = np.linspace(0, 1, 12)
    for x in np.arange(-slope * height, length, step):
        up = np.clip(x + slope * height * share, 0, length)
        inside = (x + slope * height * share >= 0) & (x + slope * height * share <= length)
        if inside.sum() >= 2:
            shape.add_tube(bend(up[inside] - length / 2, height * share[inside]), wire, "wire", sides=5)
            if slope:
                shape.add_tube(bend(length / 2 - up[inside], height * share[inside]), wire, "wire", sides=5)
    for z in () if slope else np.arange(0, height, step):
        shape.add_tube(bend(length * (share - 0.5), np.full(12, z)), wire, "wire", sides=5)
    if rng.random() < 0.7:
        for x in (-length / 2, length / 2):
            shape.add_tube([(x, 0, 0), (x, 0, height + 0.05)], 0.02, "rail")
    return shape


def build_plant(rng: Random, potted: float = 0.5) -> Shape:
    """Build a plant with bent stems and pointed leaves, or bare twigs; `potted`: probability of a pot."""
    shape, height = Shape(), rng.uniform(0.4, 1.6)
    leafy, big = rng.random() < 0.75, rng.uniform(0.03, 0.16)
    base = 0.0
    if rng.random() < potted:
        base, radius = rng.uniform(0.12, 0.35), rng.uniform(0.08, 0.2)
        shape.add_turned(
            [(0, 0), (0.75 * radius, 0), (radius, base), (0.9 * radius, base), (0, 0.9 * base)], "pot"
        )

    def grow(start: Points, heading: Points, length: float, thick: float, order: int) -> None:
        path = [start]
        for _ in range(6):
            heading = heading + np.array([rng.gauss(0, 0.2), rng.gauss(0, 0.2), rng.gauss(0.02, 0.12)])
            heading /= np.linalg.norm(heading)
            path.append(path[-1] + heading * length / 6)
            if order and rng.random() < 0.7:
                side = heading + np.array([rng.gauss(0, 0.7), rng.gauss(0, 0.7), rng.gauss(0.2, 0.4)])
                grow(
                    path[-1],
                    side / np.linalg.norm(side),
                    length * rng.uniform(0.3, 0.7),
                    thick * 0.6,
                    order - 1,
                )
            if leafy and order < 2:
                add_leaf(path[-1], heading)
        shape.add_tube(path, thick, "stem", sides=6)

    def add_leaf(at: Points, heading: Points) -> None:
        out = heading + np.array([rng.gauss(0, 0.8), rng.gauss(0, 0.8), rng.gauss(0, 0.5)])
        out *= big * rng.uniform(0.6, 1.3) / np.linalg.norm(out)
        side = np.cross(out, [rng.gauss(0, 0.4), rng.gauss(0, 0.4), 1]) * rng.uniform(0.2, 0.45)
        droop = np.array([0, 0, -0.15 * big])
        points = [at, at + 0.4 * out + side, at + out + droop, at + 0.4 * out - side]
        shape.add(points, [(0, 1, 2), (0, 2, 3)], "leaf")

    for _ in range(rng.randint(2, 6)):
        heading = np.array([rng.gauss(0, 0.35), rng.gauss(0, 0.35), 1.0])
        grow(np.array([0, 0, base * 0.9]), heading, height, rng.uniform(0.003, 0.012), 2)
    return shape


def build_rods(rng: Random) -> Shape:
    """Build thin rods and cables that lean in all directions."""
    shape = Shape()
    for number in range(rng.randint(1, 5)):
        foot = np.array([rng.gauss(0, 0.25), rng.gauss(0, 0.15), 0])
        top = foot + np.array([rng.gauss(0, 0.3), rng.gauss(0, 0.2), rng.uniform(0.6, 2.2)])
        path = foot + np.linspace(0, 1, 10)[:, None] * (top - foot)
        if rng.random() < 0.4:
            path += 0.1 * np.sin(np.linspace(0, math.pi, 10))[:, None] * (rng.gauss(0, 1), rng.gauss(0, 1), 0)
        shape.add_tube(path, math.exp(rng.uniform(math.log(0.0015), math.log(0.025))), f"rod {number % 2}")
    return shape
