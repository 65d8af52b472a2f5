"""Render stereo pairs of the worlds of SuperTuxKart with OpenGL, with dense disparity of both views.

    apt-get install supertuxkart-data libegl1 libgl1-mesa-dri
    python -m pip install moderngl
    python scripts/training/render_worlds.py --photos FOLDER --count 2000 -o FOLDER

Writes FOLDER/{left,right,disparity,right_disparity}/NUMBER.png, as `render_rooms.py` does. Each number seeds
its pair; a second call renders the missing ones, and calls with different `--first` may run side by side.
It runs on the CPU (Mesa's llvmpipe) and requires neither Blender nor a display.

--photos is searched for photographs, which become textures and reflections. --furniture holds the `.sh3f`
libraries of the Debian package `sweethome3d-furniture`; without it, all vehicles and furniture are built of
simple shapes.

The scenes are race tracks with cars, posts, windows and objects near the camera. Each pair has some of the
faults of real images in `FAULTS`. The ground truth of glass and water is their own surface. A pair is kept
only if both disparity maps agree with each other and with the images.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from random import Random

import numpy as np
from render_rooms import LARGEST, Rgb, Values, develop, find_fault, list_files, make_parser, parse, write_pair

from pamcli.errors import PamError

if find_spec("moderngl") is None:
    sys.exit("error: the Python package moderngl is missing: python -m pip install moderngl")
sys.path += [str(Path(__file__).parent / name) for name in ("rooms", "worlds")]
from composition import World
from libraries import list_models
from photons import count_photons
from renderer import Renderer
from tracks import Game

GAME = Path("/usr/share/games/supertuxkart/data")
ATTEMPTS = 30  # views to try for one pair
ROUNDS = 16  # pairs of each track before the first track follows again
NEAREST = 0.1  # m, before which nothing is rendered
CLEARANCE = 0.3  # m, least depth of the nearest 2 % of the pixels
EXPOSURES = 8  # poses of a camera that moves
FAULTS = {  # probability of each fault
    "reflections": 0.5,
    "panes": 0.3,
    "plain": 0.3,
    "night": 0.2,
    "photons": 0.2,
    "motion": 0.15,
    "water": 0.2,
    "wide": 0.25,
}


def main() -> None:
    """Render the missing pairs, track by track."""
    options = parse_options()
    numbers = range(options.first, options.first + options.count)
    missing = [
        each for each in numbers if not all(path.exists() for path in list_files(options.output, each))
    ]
    print(f"{len(numbers) - len(missing)} of {len(numbers)} pairs exist", flush=True)
    os.environ.setdefault("LP_NUM_THREADS", "0")  # one thread
    try:
        render_missing(missing, options)
    except PamError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def parse_options() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = make_parser(__doc__, photos_required=True)
    parser.add_argument(
        "--game", type=Path, default=GAME, help=f"folder of the game's data [default: {GAME}]"
    )
    parser.add_argument(
        "--faults", help=f"comma-separated faults of all pairs, of {', '.join(FAULTS)} [default: at random]"
    )
    options = parse(parser)
    libraries = sorted(options.furniture.glob("*.sh3f")) if options.furniture else []
    options.furniture = [model for path in libraries for model in list_models(path)]
    if options.faults is not None:
        options.faults = frozenset(options.faults.split(",")) - {"none"}
        if unknown := options.faults - set(FAULTS):
            parser.error(f"--faults has {', '.join(sorted(unknown))}, expected some of {', '.join(FAULTS)}")
    if not any(options.game.glob("tracks/*/quads.xml")):
        parser.error(f"--game {options.game} has no tracks: apt-get install supertuxkart-data")
    return options


def render_missing(missing: list[int], options: argparse.Namespace) -> None:
    """Render pairs and write those that pass the checks; print a line for each."""
    game, renderer = Game(options.game), Renderer(options.width, options.height)
    count = len(game.tracks)

    def find_track(number: int) -> tuple[int, int]:
        return number // (ROUNDS * count), number % count

    kept, begun = 0, time.monotonic()
    for (turn, track), numbers in groupby(sorted(missing, key=find_track), find_track):
        rng = Random(f"world {turn} {track}")
        world = World(renderer, game, game.tracks[track], options.photos, options.furniture, rng)
        for number in numbers:
            reason: str | None = "no useful view"
            for attempt in range(ATTEMPTS):
                seed = Random(f"pair {number} {attempt}")
                faults = options.faults
                if faults is None:
                    faults = frozenset(name for name, share in FAULTS.items() if seed.random() < share)
                pair = render_pair(world, seed, faults)
                reason = reason if pair is None else find_fault(*pair)
                if pair is not None and reason is None:
                    break
            if pair is None or reason is not None:
                print(f"{number:05d} not kept: {reason}", flush=True)
                continue
            write_pair(options.output, number, pair[:2], pair[2:])
            kept += 1
            low, high = np.percentile(pair[2], (2, 98))
            seconds = (time.monotonic() - begun) / kept
            names = ", ".join(sorted(faults)) or "no faults"
            print(f"{number:05d} {low:.1f} to {high:.1f} px, {seconds:.1f} s per pair, {names}", flush=True)


def render_pair(world: World, rng: Random, faults: frozenset[str]) -> tuple[Rgb, Rgb, Values, Values] | None:
    """Render both images and their disparities; None if the view is not useful."""
    pose, light, things = world.compose(rng, faults)
    depth = world.renderer.measure_depth(pose, things, NEAREST)
    near = float(np.percentile(depth, 2))
    if near < CLEARANCE or float(np.median(depth)) > 400:
        return None
    low, high = (0.16, 0.36) if "wide" in faults else (0.01, 0.22)
    disparity = world.renderer.width * math.exp(rng.uniform(math.log(low), math.log(high)))
    baseline = min(disparity * near, 0.98 * LARGEST * float(depth.min())) / pose.focal
    views, disparities = [], []
    length = near * math.exp(rng.uniform(math.log(0.005), math.log(0.05)))
    motion = length * np.array([rng.gauss(0, 1) for _ in range(3)])
    for eye in (pose, pose.shift(baseline)):
        times = np.linspace(-1, 1, EXPOSURES) if "motion" in faults else np.zeros(1)
        poses = [eye.shift(*time * motion) for time in times]
        views.append(world.renderer.render(poses, things, NEAREST, light))
        depth = world.renderer.measure_depth(eye, things, NEAREST)
        disparities.append((pose.focal * baseline / depth).clip(1 / 256).astype(np.float32))
    if "photons" in faults:
        photons = math.exp(rng.uniform(math.log(3), math.log(60)))
        noise = np.random.default_rng(rng.randrange(1 << 32))
        views = [count_photons(noise, view, photons) for view in views]
    left, right = develop(views[0], views[1], rng.randrange(1 << 32))
    return left, right, disparities[0], disparities[1]


if __name__ == "__main__":
    main()
