"""Render stereo pairs of furnished rooms and streets with Blender, with dense disparity of both views.

    python scripts/training/render_rooms.py --photos FOLDER --furniture FOLDER --count 2000 -o FOLDER

Writes FOLDER/{left,right,disparity,right_disparity}/NUMBER.png, which `--data pairs:FOLDER` reads: 8-bit
images and 16-bit disparities (256 units per px, at most 255 px). Each number seeds its pair; a second call
renders the missing ones. The first call creates a virtual environment with Blender (bpy), which requires
Python 3.11.

The scenes hold what networks get wrong: slats, nets, rings, twigs, thin rods, even walls, gloss, windows,
mirrors, posts and cars, and objects near the camera. The ground truth of glass and mirrors is their own
surface, not what is seen in them. The sky is a dome a few hundred metres away.

--photos is searched for photographs, which become textures. --furniture holds the `.sh3f` libraries of the
Debian package `sweethome3d-furniture`; without it, all furniture is built of simple shapes. A pair is kept
only if both disparity maps agree with each other and with the images.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import PamError
from pamcli.files.atomic import report_write_errors, write_atomically
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.imaging.images import RgbImage, encode_image

Rgb = NDArray[np.uint8]
Values = NDArray[np.float32]
Mask = NDArray[np.bool_]

PACKAGES = ("bpy==4.2.0", "numpy<3")
PYTHON = "3.11"  # the version that bpy 4.2 is built for
BLENDER = Path(__file__).parent / "rooms" / "blender.py"
SIDES = ("left", "right", "disparity", "right_disparity")
PAIRS_PER_SCENE = 4
PHOTO_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
LARGEST = 255.0  # px, limit of 16-bit PNG files with 256 units per px
FAILURES = 3  # consecutive scenes without any pair that end the program
CONTRADICTION = 1.0  # px by which the other view may be farther than geometry allows
MOST_CONTRADICTIONS = 0.02  # fraction of the pixels; thin objects that miss all pixel centres of a view
LEAST_VISIBLE = 0.35  # fraction of the pixels
CONTRAST, FEWEST = 4, 500  # grey levels per px, and pixels of that contrast, to judge a pair by its images


def main() -> None:
    """Render the missing pairs, scene by scene."""
    parser = make_parser(__doc__)
    parser.add_argument("--samples", type=int, default=4, help="light paths per pixel [default: 4]")
    parser.add_argument("--threads", type=int, default=1, help="threads of Blender [default: 1]")
    parser.add_argument(
        "--environment", type=Path, help="folder of Blender's environment [default: inside -o]"
    )
    options = parse(parser, samples=1, threads=1)
    numbers = range(options.first, options.first + options.count)
    missing = [
        number for number in numbers if not all(path.exists() for path in list_files(options.output, number))
    ]
    print(f"{len(numbers) - len(missing)} of {len(numbers)} pairs exist", flush=True)
    if not missing:
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends Blender, too
    try:
        python = create_environment(options.environment or options.output / "environment")
        render_missing(python, missing, options)
    except PamError as error:
        sys.exit(f"error: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: cannot install {PACKAGES[0]}: the command ended with exit code {error.returncode}")
    except KeyboardInterrupt:
        sys.exit(130)


def make_parser(text: str, photos_required: bool = False) -> argparse.ArgumentParser:
    """Return a parser of the options of all renderers, described by `text`."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--count", type=int, required=True, help="number of pairs")
    add("--first", type=int, default=0, help="number of the first pair [default: 0]")
    add("--photos", type=Path, required=photos_required, help="folder of photographs, searched recursively")
    add("--furniture", type=Path, help="folder of .sh3f libraries")
    add("--size", default="640x384", help="WIDTHxHEIGHT of the images, px [default: 640x384]")
    add("-o", "--output", type=Path, required=True, help="folder for the pairs")
    return parser


def parse(parser: argparse.ArgumentParser, **least: int) -> argparse.Namespace:
    """Parse and check the command line: the photos as paths, the size as `width` and `height`.

    least: the smallest value of other options.
    """
    options = parser.parse_args()
    size = re.fullmatch(r"(\d+)x(\d+)", options.size)
    if size is None or min(int(size[1]), int(size[2])) < 64:
        parser.error(f"--size must be WIDTHxHEIGHT of at least 64x64 px, got {options.size}")
    options.width, options.height = int(size[1]), int(size[2])
    for name, smallest in {"count": 1, "first": 0, **least}.items():
        if getattr(options, name) < smallest:
            parser.error(f"--{name} must be at least {smallest}, got {getattr(options, name)}")
    photos = sorted(options.photos.rglob("*")) if options.photos else []
    photos = [path.resolve() for path in photos if path.suffix.lower() in PHOTO_SUFFIXES]
    if options.photos and not photos:
        parser.error(f"--photos {options.photos} has no .jpg, .png or .webp files")
    options.photos = photos
    if options.furniture is not None and not any(options.furniture.glob("*.sh3f")):
        parser.error(f"--furniture {options.furniture} has no .sh3f files")
    return options


def create_environment(folder: Path) -> Path:
    """Create the environment with Blender unless it is complete; return its interpreter."""
    python, complete = folder / "bin" / "python", folder / "complete"
    with report_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not complete.exists():
        own = "{}.{}".format(*sys.version_info) == PYTHON
        base = sys.executable if own else shutil.which(f"python{PYTHON}")
        if base is None:
            raise PamError(f"bpy requires Python {PYTHON}", f"install python{PYTHON}")
        print(f"installing {PACKAGES[0]} in {folder}", flush=True)
        subprocess.run([base, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True, stdout=sys.stderr)
        complete.touch()
    return python.absolute()


def render_missing(python: Path, missing: list[int], options: argparse.Namespace) -> None:
    """Render pairs and write those that pass the checks; print a line for each."""
    failures, kept, begun = 0, 0, time.monotonic()
    for scene, group in groupby(missing, lambda number: number // PAIRS_PER_SCENE):
        rendered = 0
        for number, file in render_scene(python, scene, list(group), options):
            rendered += 1
            with np.load(file) as views:
                left, right = develop(views["left"], views["right"], number)
                disparity, right_disparity = views["left_disparity"], views["right_disparity"]
            file.unlink()
            if fault := find_fault(left, right, disparity, right_disparity):
                print(f"{number:05d} not kept: {fault}", flush=True)
                continue
            write_pair(options.output, number, (left, right), (disparity, right_disparity))
            kept += 1
            low, high = np.percentile(disparity, (2, 98))
            seconds = (time.monotonic() - begun) / kept
            print(f"{number:05d} disparity {low:.1f} to {high:.1f} px, {seconds:.0f} s per pair", flush=True)
        failures = 0 if rendered else failures + 1
        if failures == FAILURES:
            raise PamError(f"Blender rendered nothing of {FAILURES} scenes in a row")


def render_scene(
    python: Path, scene: int, numbers: list[int], options: argparse.Namespace
) -> Iterator[tuple[int, Path]]:
    """Render pairs of one scene; yield the number of each and the file with its images and disparities."""
    with tempfile.TemporaryDirectory(prefix="rooms-") as folder:
        furniture = options.furniture and str(options.furniture.resolve())
        job = {"scene": scene, "pairs": numbers, "furniture": furniture, "folder": folder}
        job |= {name: getattr(options, name) for name in ("width", "height", "samples", "threads")}
        job["photos"] = list(map(str, options.photos))
        job["cache"] = str(python.parents[1] / "furniture")
        file, line = Path(folder, "job.json"), ""
        file.write_text(json.dumps(job), encoding="utf-8")
        with subprocess.Popen(
            [python, BLENDER, file],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as blender:
            assert blender.stdout is not None
            try:
                for text in blender.stdout:
                    line = text.strip() or line
                    if found := re.fullmatch(r"pair (\d+) (rendered|skipped)", line):
                        if found[2] == "rendered":
                            yield int(found[1]), Path(folder, f"{found[1]}.npz")
                        else:
                            print(
                                f"{int(found[1]):05d} not rendered: no useful view of the scene", flush=True
                            )
            except BaseException:
                blender.terminate()
                raise
        if blender.returncode:
            print(f"scene {scene}: Blender ended with exit code {blender.returncode}: {line}", flush=True)


def develop(left: Values, right: Values, seed: int) -> tuple[Rgb, Rgb]:
    """Convert linear colours (H, W, 3) of both views to 8-bit sRGB, as one camera with one exposure would."""
    rng = np.random.default_rng(seed)
    light = left.mean(axis=2)
    typical = float(np.sqrt(np.median(light) * light.mean()))
    exposure = rng.uniform(0.15, 0.4) / max(typical, 1e-6)
    soft = rng.random() < 0.5  # highlights saturate gradually

    def convert(linear: Values) -> Rgb:
        values = exposure * linear.clip(0)
        values = 1 - np.exp(-1.2 * values) if soft else values.clip(0, 1)
        curve = np.where(values <= 0.0031308, 12.92 * values, 1.055 * values ** (1 / 2.4) - 0.055)
        return np.asarray(np.rint(255 * curve.clip(0, 1)), dtype=np.uint8)

    return convert(left), convert(right)


def find_fault(left: Rgb, right: Rgb, disparity: Values, right_disparity: Values) -> str | None:
    """Return why a pair must not be kept, or None: images (H, W, 3), disparities (H, W) in px."""
    for name, image in (("left", left), ("right", right)):
        if not 15 < image.mean() < 240 or image.std() < 8:
            return f"the {name} image is blank: mean {image.mean():.0f}, standard deviation {image.std():.0f}"
    for name, values in (("left", disparity), ("right", right_disparity)):
        if not (np.isfinite(values).all() and values.min() > 0 and values.max() <= LARGEST):
            return f"the {name} disparity ranges from {values.min():.3g} to {values.max():.3g} px"
    mirrored = (right[:, ::-1], left[:, ::-1], right_disparity[:, ::-1], disparity[:, ::-1])
    pairs = {"left": (left, right, disparity, right_disparity), "right": mirrored}
    for name, (own, other, own_disparity, other_disparity) in pairs.items():
        visible, contradictory = compare_disparities(own_disparity, other_disparity)
        if contradictory.mean() > MOST_CONTRADICTIONS:
            return f"{contradictory.mean():.1%} of the {name} disparities contradict those of the other view"
        if visible.mean() < LEAST_VISIBLE:
            return f"only {visible.mean():.0%} of the {name} pixels are visible in both images"
        if shift := find_shift(own, other, own_disparity, visible):
            return f"the {name} disparities fit the images better with {shift:+d} px"
    return None


def compare_disparities(disparity: Values, right_disparity: Values) -> tuple[Mask, Mask]:
    """Return the left pixels (H, W) visible in both images, and those that contradict the right view.

    The right image shows, at the match of a left pixel, that point itself or something nearer. Anything
    farther contradicts it, except within a pixel, where thin objects and edges may fall between the samples.
    """
    width = disparity.shape[1]
    match = np.arange(width) - disparity
    inside = (match >= 0) & (match <= width - 1)
    floor = np.floor(match).astype(np.intp)
    around = [np.take_along_axis(right_disparity, (floor + by).clip(0, width - 1), 1) for by in (-1, 0, 1, 2)]
    visible = inside & (np.abs(np.subtract(around[1:3], disparity)).max(axis=0) <= CONTRADICTION)
    return visible, inside & (np.max(around, axis=0) < disparity - CONTRADICTION)


def find_shift(left: Rgb, right: Rgb, disparity: Values, visible: Mask) -> int:
    """Return the shift (px) of the disparities (H, W) that fits the images best on visible pixels.

    Only pixels with contrast along the row count; with few of them, the shift is 0. Differences are clipped,
    so that reflections, which move differently from their surface, do not decide.
    """
    levels, other = (view.mean(axis=2, dtype=np.float32) for view in (left, right))
    rows, columns = np.nonzero(visible & (np.abs(np.gradient(levels, axis=1)) > CONTRAST))
    if len(rows) < FEWEST:
        return 0
    width = levels.shape[1]

    def measure_difference(shift: int) -> float:
        match = (columns - disparity[rows, columns] - shift).clip(0, width - 1)
        values = np.interp(rows * width + match.astype(np.float64), np.arange(other.size), other.ravel())
        return float(np.minimum(np.abs(levels[rows, columns] - values), 4 * CONTRAST).mean())

    return min((0, -2, -1, 1, 2), key=measure_difference)


def list_files(folder: Path, number: int) -> list[Path]:
    """Return the files of a pair, in the order of `SIDES`."""
    return [folder / side / f"{number:05d}.png" for side in SIDES]


def write_pair(
    folder: Path, number: int, images: tuple[Rgb, Rgb], disparities: tuple[Values, Values]
) -> None:
    """Write the files of a pair, each of them at once."""
    files = list_files(folder, number)
    for path, image in zip(files[:2], images, strict=True):
        write_atomically(path, encode_image(RgbImage(image), ".png", name=str(path)))
    for path, disparity in zip(files[2:], disparities, strict=True):
        write_atomically(path, encode_disparity(disparity, ".png").data)


if __name__ == "__main__":
    main()
