"""Read data sets whose files match the path patterns of `data_sets.toml`."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.geometry import Calibration
from pamcli.data.listing import (
    Listed,
    Part,
    pair_files,
    read_levels,
    read_mask,
    read_positive_disparity,
    read_rectified_calibration,
    read_scaled_disparity,
)
from pamcli.data.source import DATA_SETS, make_info
from pamcli.errors import InputError, UsageError, suggest_extra
from pamcli.files.paths import check_regular, list_entries, quote, walk_folders
from pamcli.files.safe_reading import parse_json, read_text
from pamcli.files.suffixes import IMAGE_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image
from pamcli.imaging.raster import DEFAULT_MAX_PIXELS, check_size

_SETTINGS = "_camera_settings.json"
_FARTHEST = 65535  # level of all greater depths too
_CALIBRATIONS = {"tartanair": Calibration(320.0, 0.25), "virtualkitti2": Calibration(725.0087, 0.532725)}


def _disparity_of_depth(depth: NDArray[np.generic], calibration: Calibration) -> NDArray[np.float32]:
    """Convert depth in metres (0 or NaN = unknown) to disparity in pixels."""
    metres = depth.astype(np.float32)
    with np.errstate(divide="ignore"):
        disparity = np.float32(calibration.focal_length * calibration.baseline) / metres
    disparity -= np.float32(calibration.offset)
    return np.where(metres > 0, disparity, np.float32(np.nan))


def _read_focal_length(path: Path, camera: int) -> Calibration:
    try:
        settings = parse_json(read_text(path))["camera_settings"][camera]["intrinsic_settings"]
        return Calibration(float(settings["fx"]), 0.06)
    except (ValueError, LookupError, TypeError, InputError):
        raise InputError(f"{quote(path)} does not contain fx of camera {camera}") from None


def _read_depth_png(path: Path, camera: int) -> NDArray[np.float32] | None:
    """Return depth in steps of 0.1 mm as disparity; None if the focal length is unknown."""
    settings = path.with_name(_SETTINGS)
    if not settings.is_file():
        return None
    levels = read_levels(path).astype(np.float32)
    metres = np.where(levels < _FARTHEST, levels * np.float32(1e-4), np.float32(np.nan))
    return _disparity_of_depth(metres, _read_focal_length(settings, camera))


def _read_centimetres(path: Path) -> NDArray[np.float32]:
    """Return depth in centimetres as disparity; 655.35 m and beyond (sky) is unknown."""
    levels = read_levels(path).astype(np.float32)
    metres = np.where(levels < _FARTHEST, levels / np.float32(100), np.float32(np.nan))
    return _disparity_of_depth(metres, _CALIBRATIONS["virtualkitti2"])


def _read_depth_npy(path: Path) -> NDArray[np.float32]:
    return _disparity_of_depth(read_disparity(path), _CALIBRATIONS["tartanair"])


def _read_channels(path: Path, red: float, green: float, blue: float) -> NDArray[np.float32]:
    """Return disparity spread over the channels of an 8-bit PNG, given the px per level of each channel."""
    pixels = read_image(path).pixels
    if pixels.dtype != np.uint8:
        raise InputError(f"{quote(path)} must have 8 bits per channel, but has 16")
    return np.asarray(pixels.astype(np.float64) @ np.array([red, green, blue]), np.float32)


def _read_base_255(path: Path) -> NDArray[np.float32]:
    """Return disparity stored in thousandths of a pixel as three digits in base 255; 0 is unknown."""
    disparity = _read_channels(path, 65.025, 0.255, 0.001)
    return np.where(disparity > 0, disparity, np.float32(np.nan))


def _read_visible(occlusions: Path) -> NDArray[np.bool_] | None:
    """Return the visible pixels, or None if the out-of-frame mask is missing."""
    out_of_frame = occlusions.parents[2] / "outofframe" / occlusions.parent.name / occlusions.name
    if not out_of_frame.is_file():
        return None
    hidden, beyond = read_mask(occlusions), read_mask(out_of_frame)
    if hidden.shape != beyond.shape:
        raise InputError(f"{quote(occlusions)} and {quote(out_of_frame)} differ in size")
    return ~(hidden | beyond)


def _read_hdf5(path: Path) -> NDArray[np.float32]:
    """Return the array "disparity" of an HDF5 file (.dsp5): (H, W), px, NaN = unknown."""
    try:
        import h5py
    except ImportError:
        message = f"reading {quote(path)} requires the package h5py"
        raise UsageError(message, suggest_extra("hdf5")) from None
    check_regular(path)
    try:
        with h5py.File(path, "r") as file:
            stored = file["disparity"]
            if len(stored.shape) != 2:
                raise InputError(
                    f"{quote(path)}: a disparity map must have 2 dimensions, got {len(stored.shape)}"
                )
            check_size(stored.shape[1], stored.shape[0], quote(path), DEFAULT_MAX_PIXELS)
            values = np.asarray(stored, np.float32)
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise InputError(f"{quote(path)} is damaged or contains no disparity map: {error}") from None
    return np.where(np.isfinite(values), values, np.float32(np.nan))


def _read_spring(path: Path, name: str) -> dict[str, Any]:
    fine = _read_hdf5(path)
    # As in the publisher's loader, every second value in both directions belongs to a pixel of the images.
    halved = np.ascontiguousarray(fine[::2, ::2])
    return {"disparity": halved, "fine": fine} if name == "disparity" else {name: halved}


def _spring_visible(path: Path) -> NDArray[np.bool_]:
    colours = read_image(path).pixels
    return np.asarray((colours[..., :2] == 0).all(axis=2))


def _spring_masks(path: Path) -> dict[str, Any]:
    """Return the detail masks, and the sky masks if available, halved by majority."""
    detail = read_mask(path)
    masks = {"high-detail": detail, "low-detail": ~detail}
    sky = path.parents[1] / "skymap_left" / path.name.replace("detailmap_disp1", "skymap")
    if sky.is_file():
        large = read_mask(sky)
        height, width = large.shape[0] // 2, large.shape[1] // 2
        above = large[: 2 * height, : 2 * width].reshape(height, 2, width, 2).mean(axis=(1, 3)) >= 0.5
        masks |= {"sky": above, "not-sky": ~above}
    return {"masks": masks}


def _read_booster(path: Path) -> NDArray[np.float32]:
    disparity = read_disparity(path)
    return np.where(disparity == 0, np.float32(np.nan), disparity)


def _read_materials(path: Path) -> dict[str, Any]:
    levels = read_levels(path)
    return {"masks": {f"class-{number}": levels == number for number in range(4)}}


def _read_known_pixels(path: Path) -> NDArray[np.bool_]:
    """Return a mask (H, W) of the pixels with a known disparity."""
    return np.asarray(np.isfinite(read_disparity(path)))


_READERS: dict[str, Any] = {
    "": None,
    "32 levels": partial(read_scaled_disparity, levels_per_pixel=32),
    "100 levels": partial(read_scaled_disparity, levels_per_pixel=100),
    "base-255": _read_base_255,
    "booster": _read_booster,
    "calibration": read_rectified_calibration,
    "cameras 0 1": partial(read_rectified_calibration, cameras=(0, 1)),
    "cameras 2 3": partial(read_rectified_calibration, cameras=(2, 3)),
    "disparity": read_disparity,
    "drivingstereo full": partial(read_scaled_disparity, levels_per_pixel=128),
    "drivingstereo half": partial(read_scaled_disparity, levels_per_pixel=256),
    "fallingthings 0": partial(_read_depth_png, camera=0),
    "fallingthings 1": partial(_read_depth_png, camera=1),
    "focal length": partial(_read_focal_length, camera=0),
    "known": _read_known_pixels,
    "mask": read_mask,
    "mask 255": partial(read_mask, white=255),
    "materials": _read_materials,
    "positive": read_positive_disparity,
    "sintel": partial(_read_channels, red=4, green=1 / 64, blue=1 / 16384),
    "sintel-visible": _read_visible,
    "spring": partial(_read_spring, name="disparity"),
    "spring-right": partial(_read_spring, name="right_disparity"),
    "spring-visible": _spring_visible,
    "spring-masks": _spring_masks,
    "tartanair": _read_depth_npy,
    "virtualkitti2": _read_centimetres,
}


def _open_source(name: str, root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    """Return the pairs below a folder, for the chosen values of the keys."""
    source = _open_layout(name, DATA_SETS[name], root, split, keys)
    other = DATA_SETS[name].get("otherwise")
    if other and not len(source) and not source.unpaired:
        return _open_layout(name, DATA_SETS[name] | other, root, split, keys)
    return source


def _open_layout(
    data: str, layout: Mapping[str, Any], root: Path, split: str, keys: Mapping[str, str]
) -> Listed:
    chosen = {"split": split, "image": "|".join(IMAGE_SUFFIXES)}
    sets = {}
    for key in ROWS[data].keys:
        chosen[key.name] = value = keys.get(key.name, key.default or "")
        if key.choices[0] == "all":
            sets[key.name] = key.choices[1:] if value == "all" else (value,)
    filled = chosen | {name: f"({'|'.join(values)})" for name, values in sets.items()}
    for key, patterns in layout.get("values", {}).get(split, {}).items():
        filled[key] = patterns[chosen[key]]
    left, right = (layout[view].format(**filled) for view in ("left", "right"))
    tops = (root, *map(root.joinpath, layout["tops"]))
    home = next((top for top in tops if any(_match_entries({(): top}, left.partition("/")[0]))), root)
    lefts, rights = _match_pattern(home, left), _match_pattern(home, right)
    parts = []
    places: dict[str, dict[str, Path]] = {}
    template = layout.get("name", "{}")
    names = {texts: template.format("/".join(filter(None, texts))) for texts in {**lefts, **rights}}
    for part, reader, file, title in layout.get("parts", ()):
        if part != "calibration" and layout.get("labelled", split) != split:
            continue
        parts.append(Part(part, title, _READERS[reader.format(**chosen)]))
        for texts, name in names.items():
            files = map(home.joinpath, file.format(*texts, **chosen).split("|"))
            places.setdefault(part, {})[name] = next(filter(Path.is_file, files), home)
    absent = []
    for name, values in sets.items():
        if layout["left"].startswith(f"{{{name}}}"):
            absent += [f"no {name} {value}" for value in values if not (home / value).is_dir()]
    by_name = [{names[texts]: path for texts, path in found.items()} for found in (lefts, rights)]
    source = pair_files(by_name[0], by_name[1], parts, places, absent, _CALIBRATIONS.get(data))
    sizes = layout.get("sizes", {})
    source.downscaling = sizes.get(chosen.get("size", ""), 1)
    source.full_size = bool(sizes) and source.downscaling == 1
    return source


def _match_pattern(home: Path, pattern: str) -> dict[tuple[str, ...], Path]:
    """Return the paths that match a pattern, by the texts of its groups."""
    found: dict[tuple[str, ...], Path] = {(): home}
    for part in pattern.split("/"):
        found = dict(_match_entries(found, part))
    return found


def _match_entries(
    folders: Mapping[tuple[str, ...], Path], part: str
) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield the entries of some folders that match one part of a pattern, sorted by name."""
    if part.startswith("["):  # a folder that may be absent
        for texts, folder in folders.items():
            inner = folder / part[1:-1]
            yield texts, inner if inner.is_dir() else folder
        return
    rule = re.compile(re.sub(r"\.(?!\+)", r"\.", part).replace("*", "(.+)"), re.IGNORECASE)
    for texts, folder in folders.items():
        if part == "**":
            yield from (((*texts, below), path) for below, path, _ in walk_folders(folder, 3))
            continue
        for name, _ in sorted(list_entries(folder)):
            if match := rule.fullmatch(name):
                yield (*texts, *match.groups()), folder / name


ROWS = {
    name: make_info(name, partial(_open_source, name)) for name, row in DATA_SETS.items() if "left" in row
}
