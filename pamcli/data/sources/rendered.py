"""Declare rendered data sets whose files match path patterns; for photographed ones see `patterned`."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.geometry import Calibration
from pamcli.data.listing import (
    Part,
    Patterns,
    make_truth_parts,
    read_levels,
    read_mask,
    read_positive_disparity,
    read_scaled_disparity,
)
from pamcli.data.source import Key
from pamcli.errors import InputError, UsageError, suggest_extra
from pamcli.files.paths import check_regular, quote
from pamcli.files.safe_reading import parse_json, read_text
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image
from pamcli.imaging.raster import DEFAULT_MAX_PIXELS, check_size


def _disparity_of_depth(depth: NDArray[np.generic], calibration: Calibration) -> NDArray[np.float32]:
    """Convert depth in metres (0 or NaN = unknown) to disparity in pixels."""
    metres = depth.astype(np.float32)
    with np.errstate(divide="ignore"):
        disparity = np.float32(calibration.focal_length * calibration.baseline) / metres
    disparity -= np.float32(calibration.offset)
    return np.where(metres > 0, disparity, np.float32(np.nan))


CARLA = Patterns(
    "trainingF/*/im0.png",
    "trainingF/*/im1.png",
    # The sign differs between the views.
    make_truth_parts(read_positive_disparity, "trainingF/{0}/disp0GT.pfm", "trainingF/{0}/disp1GT.pfm"),
    tops=("carla-highres",),
).row(
    "carla",
    "CARLA high-resolution virtual stereo (HR-VS, from the authors of HSMNet)",
    ("train",),
    (
        "carla-highres/trainingF/SCENE/im0.png",
        "carla-highres/trainingF/SCENE/im1.png",
        "carla-highres/trainingF/SCENE/disp0GT.pfm, disp1GT.pfm",
    ),
    unverified="the top folders",
)

# Authors' README and dataset.py: 16-bit PNG ground truth, 32 levels per px.
CRESTEREO = Patterns(
    "{part}/**/*_left.jpg",
    "{part}/**/*_right.jpg",
    make_truth_parts(
        partial(read_scaled_disparity, levels_per_pixel=32),
        "{0}/{1}/{2}_left.disp.png",
        "{0}/{1}/{2}_right.disp.png",
    ),
    tops=("CREStereo", "crestereo", "stereo_trainset/crestereo"),
).row(
    "crestereo",
    "CREStereo's rendered pairs",
    ("train",),
    ("tree/0_left.jpg", "tree/0_right.jpg", "tree/0_left.disp.png, 0_right.disp.png"),
    (Key("part", "one of the four sets", ("all", "tree", "shapenet", "reflective", "hole"), "all"),),
    scene="(.+)",
)

_SETTINGS = "_camera_settings.json"
_FARTHEST = 65535  # 6.55 m; also used for all greater depths
_DEPTHS = (
    ("left", "disparity", "ground truth (.left.depth.png)"),
    ("right", "right_disparity", "right ground truth (.right.depth.png)"),
)


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


# NVIDIA's readme: depth in steps of 0.1 mm, a baseline of 6 cm, focal length in a JSON file.
FALLINGTHINGS = Patterns(
    r"{part}/**/*.left.(?:png|jpg)",
    r"{part}/**/*.right.(?:png|jpg)",
    (
        *(
            Part(name, called, partial(_read_depth_png, camera=camera), f"{{0}}/{{1}}/{{2}}.{side}.depth.png")
            for camera, (side, name, called) in enumerate(_DEPTHS)
        ),
        Part(
            "calibration",
            f"focal length, needed for ground truth ({_SETTINGS})",
            partial(_read_focal_length, camera=0),
            "{0}/{1}/" + _SETTINGS,
        ),
    ),
    tops=("fat", "FallingThings", "data"),
).row(
    "fallingthings",
    "Falling Things (NVIDIA)",
    ("train",),
    (
        "single/002_master_chef_can_16k/kitchen_0/000000.left.jpg  (or mixed/kitchen_0/...)",
        "single/002_master_chef_can_16k/kitchen_0/000000.right.jpg",
        "single/002_master_chef_can_16k/kitchen_0/000000.left.depth.png, 000000.right.depth.png",
        "single/002_master_chef_can_16k/kitchen_0/_camera_settings.json",
    ),
    (Key("part", "one object or several", ("all", "single", "mixed"), "all"),),
)


def _read_channels(path: Path, red: float, green: float, blue: float) -> NDArray[np.float32]:
    """Return disparity spread over the channels of an 8-bit PNG, given the px per level of each channel."""
    pixels = read_image(path).pixels
    if pixels.dtype != np.uint8:
        raise InputError(f"{quote(path)} must have 8 bits per channel, but has 16")
    return np.asarray(pixels.astype(np.float64) @ np.array([red, green, blue]), np.float32)


def _read_visible(occlusions: Path) -> NDArray[np.bool_] | None:
    """Return the visible pixels, or None if the out-of-frame mask is missing."""
    out_of_frame = occlusions.parents[2] / "outofframe" / occlusions.parent.name / occlusions.name
    if not out_of_frame.is_file():
        return None
    hidden, beyond = read_mask(occlusions), read_mask(out_of_frame)
    if hidden.shape != beyond.shape:
        raise InputError(f"{quote(occlusions)} and {quote(out_of_frame)} differ in size")
    return ~(hidden | beyond)


# README of the training archive: disparity is spread over the channels of an 8-bit PNG, 4 R + G / 64 + B /
# 16384 px. Two masks are nonzero where a pixel is not visible in the right image: `occlusions` (hidden) and
# `outofframe` (beyond its border).
SINTEL = Patterns(
    "training/{pass}_left/*/*.png",
    "training/{pass}_right/*/*.png",
    (
        Part(
            "disparity",
            "ground truth (disparities)",
            partial(_read_channels, red=4, green=1 / 64, blue=1 / 16384),
            "training/disparities/{0}/{1}.png",
        ),
        Part("visible", "occluded pixels (occlusions)", _read_visible, "training/occlusions/{0}/{1}.png"),
        Part("outofframe", "pixels out of frame (outofframe)", None, "training/outofframe/{0}/{1}.png"),
    ),
    tops=("Sintel", "MPI-Sintel-stereo-training"),
).row(
    "sintel",
    "MPI Sintel stereo",
    ("training",),
    (
        "training/final_left/alley_1/frame_0001.png",
        "training/final_right/alley_1/frame_0001.png",
        "training/disparities/alley_1/frame_0001.png",
        "training/occlusions/alley_1/frame_0001.png",
        "training/outofframe/alley_1/frame_0001.png",
    ),
    (Key("pass", "rendered without or with blur and haze", ("clean", "final"), "final"),),
)


def _read_hdf5(path: Path) -> NDArray[np.float32]:
    """Return the array "disparity" of an HDF5 file (.dsp5): (H, W), px, NaN = unknown.

    Raises InputError if the file is damaged; UsageError if the package h5py is not installed.
    """
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


def _spring_truth(path: Path) -> dict[str, Any]:
    fine = _read_hdf5(path)
    # As in the publisher's loader, every second value in both directions belongs to a pixel of the images.
    return {"disparity": np.ascontiguousarray(fine[::2, ::2]), "fine": fine}


def _spring_right_truth(path: Path) -> NDArray[np.float32]:
    return np.ascontiguousarray(_read_hdf5(path)[::2, ::2])


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


# Publisher's loader and evaluation: ground truth in HDF5 on a grid twice as fine, in px of the images.
SPRING = Patterns(
    "{split}/*/frame_left/frame_left_*.png",
    "{split}/*/frame_right/frame_right_*.png",
    (
        Part(
            "disparity",
            "ground truth (disp1_left)",
            _spring_truth,
            "train/{0}/disp1_left/disp1_left_{1}.dsp5",
        ),
        Part(
            "right_disparity",
            "right ground truth (disp1_right)",
            _spring_right_truth,
            "train/{0}/disp1_right/disp1_right_{1}.dsp5",
        ),
        Part(
            "visible",
            "matched pixels (matchmap_disp1_left)",
            _spring_visible,
            "train/{0}/maps/matchmap_disp1_left/matchmap_disp1_left_{1}.png",
        ),
        Part(
            "masks",
            "details (detailmap_disp1_left)",
            _spring_masks,
            "train/{0}/maps/detailmap_disp1_left/detailmap_disp1_left_{1}.png",
        ),
    ),
    tops=("spring", "Spring"),
    labelled="train",
).row(
    "spring",
    "Spring, frames of an animated film, ground truth on a grid twice as fine",
    ("train", "test"),
    (
        "train/0001/frame_left/frame_left_0001.png",
        "train/0001/frame_right/frame_right_0001.png",
        "train/0001/disp1_left/disp1_left_0001.dsp5, .../disp1_right_0001.dsp5",
        "train/0001/maps/matchmap_disp1_left/matchmap_disp1_left_0001.png",
        "train/0001/maps/detailmap_disp1_left/..., skymap_left/...",
    ),
)

_TARTANAIR = Calibration(focal_length=320.0, baseline=0.25)


def _read_depth_npy(path: Path) -> NDArray[np.float32]:
    return _disparity_of_depth(read_disparity(path), _TARTANAIR)


# Layout of the archives; depth in metres, fx 320 px, a baseline of 25 cm.
TARTANAIR = Patterns(
    r"**/{level}/(P\d+)/image_left/*_left.png",
    r"**/{level}/(P\d+)/image_right/*_right.png",
    tuple(
        Part(
            name,
            f"{called} (depth_{side})",
            _read_depth_npy,
            f"./{{0}}/{{1}}/{{2}}/depth_{side}/{{3}}_{side}_depth.npy",
        )
        for name, called, side in (
            ("disparity", "ground truth", "left"),
            ("right_disparity", "right ground truth", "right"),
        )
    ),
    tops=("TartanAir", "tartanair"),
    calibration=_TARTANAIR,
).row(
    "tartanair",
    "TartanAir, flights through rendered places",
    ("train",),
    (
        "abandonedfactory/Easy/P000/image_left/000000_left.png",
        "abandonedfactory/Easy/P000/image_right/000000_right.png",
        "abandonedfactory/Easy/P000/depth_left/000000_left_depth.npy, .../000000_right_depth.npy",
    ),
    (Key("level", "how fast the camera moves", ("all", "Easy", "Hard"), "all"),),
    scene="([^/]+)/.+",
)


def _read_base_255(path: Path) -> NDArray[np.float32]:
    """Return disparity stored in thousandths of a pixel as three digits in base 255; 0 is unknown."""
    disparity = _read_channels(path, 65.025, 0.255, 0.001)
    return np.where(disparity > 0, disparity, np.float32(np.nan))


# From the authors' Utils.py and vis_dataset.py.
FOUNDATIONSTEREO = Patterns(
    "**/dataset/data/left/rgb/*.(?:jpg|png)",
    "**/dataset/data/right/rgb/*.(?:jpg|png)",
    make_truth_parts(_read_base_255, "./{0}/dataset/data/left/disparity/{1}.png", ""),
    tops=("FSD", "FoundationStereo"),
).row(
    "foundationstereo",
    "FoundationStereo's rendered pairs (FSD)",
    ("train",),
    (
        "manipulation_v5_realistic_kitchen_2500_1/dataset/data/left/rgb/0000.jpg",
        "manipulation_v5_realistic_kitchen_2500_1/dataset/data/right/rgb/0000.jpg",
        "manipulation_v5_realistic_kitchen_2500_1/dataset/data/left/disparity/0000.png",
    ),
    unverified="whether a disparity of 0 is unknown",
)

_VIRTUALKITTI2 = Calibration(focal_length=725.0087, baseline=0.532725)


def _read_centimetres(path: Path) -> NDArray[np.float32]:
    """Return depth in centimetres as disparity; 655.35 m and beyond (sky) is unknown."""
    levels = read_levels(path).astype(np.float32)
    metres = np.where(levels < 65535, levels / np.float32(100), np.float32(np.nan))
    return _disparity_of_depth(metres, _VIRTUALKITTI2)


def _depth_part(name: str, called: str, camera: int) -> Part:
    """Return the depth part; archives may be unpacked into folders of their own or into one folder."""
    file = f"{{0}}/{{1}}/frames/depth/Camera_{camera}/depth_{{2}}.png"
    places = f"vkitti_2.0.3_depth/{file}|../vkitti_2.0.3_depth/{file}|{file}"
    return Part(name, f"{called} (depth of Camera_{camera})", _read_centimetres, places)


VIRTUALKITTI2 = Patterns(
    "(Scene.+)/{variation}/frames/rgb/Camera_0/rgb_*.(?:jpg|png)",
    "(Scene.+)/{variation}/frames/rgb/Camera_1/rgb_*.(?:jpg|png)",
    (_depth_part("disparity", "ground truth", 0), _depth_part("right_disparity", "right ground truth", 1)),
    tops=("vkitti_2.0.3_rgb",),
    calibration=_VIRTUALKITTI2,
).row(
    "virtualkitti2",
    "Virtual KITTI 2",
    ("train",),
    (
        "Scene01/clone/frames/rgb/Camera_0/rgb_00000.jpg",
        "Scene01/clone/frames/rgb/Camera_1/rgb_00000.jpg",
        "Scene01/clone/frames/depth/Camera_0/depth_00000.png",
    ),
    (
        Key(
            "variation",
            "weather, light or turn of the camera",
            (
                *("all", "clone", "fog", "morning", "overcast", "rain", "sunset"),
                *("15-deg-left", "15-deg-right", "30-deg-left", "30-deg-right"),
            ),
            "all",
        ),
    ),
    unverified="the README of the archives",
    scene="([^/]+)/.+",
)
