"""Data sets whose files are found by patterns of their paths alone; see `pamcli.data.listing.Patterns`."""

import json
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.rectified import Calibration
from pamcli.data.decoding import (
    disparity_of_depth,
    read_levels,
    read_mask,
    read_positive_disparity,
    read_rectified_calibration,
    read_scaled_disparity,
)
from pamcli.data.listing import Part, Patterns, truths
from pamcli.data.source import Key
from pamcli.errors import InputError
from pamcli.files.finding import read_text, shown
from pamcli.files.suffixes import PICTURE_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_picture

_PICTURE = f"(?:{'|'.join(PICTURE_SUFFIXES)})"


def _zero_unknown(path: Path) -> NDArray[np.float32]:
    disparity: NDArray[np.float32] = read_disparity(path)
    return np.where(disparity == 0, np.float32(np.nan), disparity)


BOOSTER = Patterns(
    "{split}/balanced/*/camera_00/*.png",
    "{split}/balanced/*/camera_02/*.png",
    (
        *truths(_zero_unknown, "{split}/balanced/{0}/disp_00.npy", "{split}/balanced/{0}/disp_02.npy"),
        Part("visible", "visible pixels (mask_00.png)", read_mask, "{split}/balanced/{0}/mask_00.png"),
    ),
    tops=("booster_gt", "Booster", "booster"),
    labelled="train",
).row(
    "booster",
    "Booster, balanced stereo: transparent and mirroring things",
    ("train", "test"),
    (
        "train/balanced/Bathroom/camera_00/im0.png",
        "train/balanced/Bathroom/camera_02/im0.png",
        "train/balanced/Bathroom/disp_00.npy, disp_02.npy, mask_00.png",
    ),
    unverified="all of it",
)

CARLA = Patterns(
    "trainingF/*/im0.png",
    "trainingF/*/im1.png",
    # The sign differs between the views.
    truths(read_positive_disparity, "trainingF/{0}/disp0GT.pfm", "trainingF/{0}/disp1GT.pfm"),
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

# README and dataset.py of the authors: 16-bit PNG truth, 32 levels a pixel.
CRESTEREO = Patterns(
    "{part}/**/*_left.jpg",
    "{part}/**/*_right.jpg",
    truths(
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
)

# Grey pairs, PFM truth (+inf unknown), mask0nocc.png as in Middlebury. Either archive may have been unpacked
# on top of the other one.
ETH3D = Patterns(
    "two_view_{split}/*/im0.png",
    "two_view_{split}/*/im1.png",
    (
        Part(
            "disparity",
            "truth (two_view_training_gt)",
            read_positive_disparity,
            "two_view_training/{0}/disp0GT.pfm|two_view_training_gt/{0}/disp0GT.pfm",
        ),
        Part(
            "visible",
            "visible pixels (mask0nocc.png)",
            partial(read_mask, white=255),
            "two_view_training/{0}/mask0nocc.png|two_view_training_gt/{0}/mask0nocc.png",
        ),
        Part(
            "calibration",
            "calibration (calib.txt)",
            read_rectified_calibration,
            "two_view_{split}/{0}/calib.txt",
        ),
    ),
    tops=("ETH3D", "eth3d"),
    labelled="training",
).row(
    "eth3d",
    "ETH3D low-resolution two-view",
    ("training", "test"),
    (
        "two_view_training/delivery_area_1l/im0.png",
        "two_view_training/delivery_area_1l/im1.png",
        "two_view_training/delivery_area_1l/calib.txt",
        "two_view_training_gt/delivery_area_1l/disp0GT.pfm, mask0nocc.png",
        "two_view_test/lakeside_1l/im0.png, im1.png",
    ),
    unverified="the names of folders and files",
)

_SETTINGS = "_camera_settings.json"
_FARTHEST = 65535  # 6.55 m: whatever lies farther
_DEPTHS = (
    ("left", "disparity", "truth (.left.depth.png)"),
    ("right", "right_disparity", "right truth (.right.depth.png)"),
)


def _focal_length(path: Path, camera: int) -> Calibration:
    try:
        settings = json.loads(read_text(path))["camera_settings"][camera]["intrinsic_settings"]
        return Calibration(float(settings["fx"]), 0.06)
    except (ValueError, LookupError, TypeError, InputError):
        raise InputError(f"{shown(path)} has no fx of camera {camera}") from None


def _of_millimetres(path: Path, camera: int) -> NDArray[np.float32] | None:
    """Read depth in steps of 0.1 mm as disparity; None where the focal length is not known."""
    settings = path.with_name(_SETTINGS)
    if not settings.is_file():
        return None
    levels = read_levels(path).astype(np.float32)
    metres = np.where(levels < _FARTHEST, levels * np.float32(1e-4), np.float32(np.nan))
    return disparity_of_depth(metres, _focal_length(settings, camera))


# NVIDIA's readme: depth in steps of 0.1 mm, cameras 6 cm apart, focal length in a JSON.
FALLINGTHINGS = Patterns(
    r"{part}/**/*.left.(?:png|jpg)",
    r"{part}/**/*.right.(?:png|jpg)",
    (
        *(
            Part(name, called, partial(_of_millimetres, camera=camera), f"{{0}}/{{1}}/{{2}}.{side}.depth.png")
            for camera, (side, name, called) in enumerate(_DEPTHS)
        ),
        Part(
            "calibration",
            f"focal length, hence no truth ({_SETTINGS})",
            partial(_focal_length, camera=0),
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

HOLOPIX50K = Patterns(
    f"{{split}}/left/(.+?)(?:_left)?{_PICTURE}",
    f"{{split}}/right/(.+?)(?:_right)?{_PICTURE}",
    tops=("Holopix50k",),
).row(
    "holopix50k",
    "Holopix50k, pictures of phones with two cameras; no truth",
    ("train", "val", "test"),
    ("train/left/NAME_left.jpg", "train/right/NAME_right.jpg"),
    unverified="the names of the pictures",
)

# The publisher's README says 100 levels a pixel, 0 = unknown; other code divides by 1024 or 256. train is
# split into part1, part2 ...
INSTEREO2K = Patterns(
    "{split}/**/left.png",
    "{split}/**/right.png",
    truths(
        partial(read_scaled_disparity, levels_per_pixel=100),
        "{split}/{0}/left_disp.png",
        "{split}/{0}/right_disp.png",
    ),
    tops=("InStereo2k", "InStereo2K"),
).row(
    "instereo2k",
    "InStereo2K, indoor scenes",
    ("train", "test"),
    (
        "train/part1/000000/left.png",
        "train/part1/000000/right.png",
        "train/part1/000000/left_disp.png, right_disp.png",
    ),
    unverified="the names of folders and files",
)


def _of_three_channels(path: Path) -> NDArray[np.float32]:
    pixels = read_picture(path).pixels
    if pixels.dtype != np.uint8:
        raise InputError(f"{shown(path)} is no disparity of Sintel: it has 16 bits a channel, not 8")
    return pixels.astype(np.float32) @ np.array([4, 1 / 64, 1 / 16384], np.float32)


def _not_hidden(occlusions: Path) -> NDArray[np.bool_] | None:
    """None where what lies out of the frame is not known."""
    out_of_frame = occlusions.parents[2] / "outofframe" / occlusions.parent.name / occlusions.name
    return ~(read_mask(occlusions) | read_mask(out_of_frame)) if out_of_frame.is_file() else None


# README of the training archive. Disparity is spread over the channels of an 8-bit PNG: 4 R + G / 64 + B /
# 16384 pixels. Two masks, not 0 where the right view does not see a pixel: `occlusions` (hidden) and
# `outofframe` (beyond its border).
SINTEL = Patterns(
    "training/{pass}_left/*/*.png",
    "training/{pass}_right/*/*.png",
    (
        Part("disparity", "truth (disparities)", _of_three_channels, "training/disparities/{0}/{1}.png"),
        Part("visible", "occluded pixels (occlusions)", _not_hidden, "training/occlusions/{0}/{1}.png"),
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

_VIRTUALKITTI2 = Calibration(focal_length=725.0087, baseline=0.532725)


def _of_centimetres(path: Path) -> NDArray[np.float32]:
    """Read depth in centimetres as disparity; 655.35 m and beyond (sky) is unknown."""
    levels = read_levels(path).astype(np.float32)
    metres = np.where(levels < 65535, levels / np.float32(100), np.float32(np.nan))
    return disparity_of_depth(metres, _VIRTUALKITTI2)


def _depth_of(name: str, called: str, camera: int) -> Part:
    """Each archive has been unpacked into a folder of its own name, or all of them into one."""
    file = f"{{0}}/{{1}}/frames/depth/Camera_{camera}/depth_{{2}}.png"
    places = f"vkitti_2.0.3_depth/{file}|../vkitti_2.0.3_depth/{file}|{file}"
    return Part(name, f"{called} (depth of Camera_{camera})", _of_centimetres, places)


VIRTUALKITTI2 = Patterns(
    "(Scene.+)/{variation}/frames/rgb/Camera_0/rgb_*.(?:jpg|png)",
    "(Scene.+)/{variation}/frames/rgb/Camera_1/rgb_*.(?:jpg|png)",
    (_depth_of("disparity", "truth", 0), _depth_of("right_disparity", "right truth", 1)),
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
    unverified="all of it",
)
