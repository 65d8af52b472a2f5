"""The table of data sources: names, splits, keys, and the tree that each expects.

Only the standard library is used here: listing the sources imports neither numpy nor any reader. A new
source is a file in this folder, with one function that lists its samples, and a row in this table.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pamcli.data.listing import Listed


@dataclass(frozen=True)
class Key:
    """What can be asked of a source behind "?": NAME:PATH?key=value."""

    name: str
    meaning: str
    choices: tuple[str, ...]
    default: str | None = None
    """None: whatever the tree holds."""


@dataclass(frozen=True)
class SourceInfo:
    """A row of the table."""

    name: str
    about: str
    splits: tuple[str, ...]
    """The first is the default."""
    tree: tuple[str, ...]
    """Files of one sample as the publisher's archives unpack; left and right picture come first."""
    keys: tuple[Key, ...] = ()
    unverified: str = ""
    """What was not read in the publisher's own text or tool kit; "" = all was."""
    opener: str = ""
    """Module in this package and function; "" = `open_source` in the module of the source's name."""
    needs_folder: bool = True
    """False: NAME alone, without a path, means something, too."""

    @property
    def verified(self) -> bool:
        return not self.unverified

    def expected(self, split: str) -> str:
        """The pictures of one sample, on one line."""
        pictures = ", ".join(line.split("  ")[0] for line in self.tree[:2])
        if split.startswith(("test", "val")):
            default = self.splits[0]
            pictures = pictures.replace(default, split).replace(default.capitalize(), split.capitalize())
            pictures = pictures.replace(default.upper(), split.upper())
        return pictures

    def open(self, root: Path | None, split: str, keys: Mapping[str, str]) -> Listed:
        """List the samples below `root`; an unrecognised tree gives none. Raises InputError, UsageError.

        root: None only where no folder is needed.
        """
        module, _, function = (self.opener or f"{self.name}:open_source").partition(":")
        loaded = importlib.import_module(f"{__name__}.{module}")
        listing: Callable[[Path | None, str, Mapping[str, str]], Listed] = getattr(loaded, function)
        return listing(root, split, keys)


_RENDER = Key("pass", "rendered without or with blur and haze", ("clean", "final"), "final")

_ROWS = (
    SourceInfo(
        "sceneflow",
        "Scene Flow: FlyingThings3D, Driving, Monkaa, one of them or all side by side",
        ("train", "test"),
        (
            "frames_finalpass/TRAIN/A/0000/left/0006.png  (FlyingThings3D; TEST/... for the split test)",
            "frames_finalpass/TRAIN/A/0000/right/0006.png",
            "disparity/TRAIN/A/0000/left/0006.pfm, .../right/0006.pfm",
            "frames_finalpass/15mm_focallength/scene_backwards/fast/left/0001.png  (Driving)",
            "frames_finalpass/a_rain_of_stones_x2/left/0000.png  (Monkaa)",
            "FlyingThings3D/frames_finalpass/...  (several sets in one folder)",
        ),
        (
            _RENDER,
            Key("part", "one of the three sets", ("all", "flyingthings3d", "driving", "monkaa"), "all"),
        ),
        unverified="the folders of Driving and Monkaa",
    ),
    SourceInfo(
        "kitti2012",
        "KITTI 2012 stereo",
        ("training", "testing"),
        (
            "training/colored_0/000000_10.png  (or the grey image_0, image_1)",
            "training/colored_1/000000_10.png",
            "training/disp_occ/000000_10.png",
            "training/disp_noc/000000_10.png",
            "training/calib/000000.txt",
        ),
        (Key("truth", "all measured pixels or the visible ones", ("occ", "noc"), "occ"),),
        unverified="the names of colour pictures and of the calibration",
        opener="kitti:open_2012",
    ),
    SourceInfo(
        "kitti2015",
        "KITTI 2015 stereo",
        ("training", "testing"),
        (
            "training/image_2/000000_10.png",
            "training/image_3/000000_10.png",
            "training/disp_occ_0/000000_10.png",
            "training/disp_noc_0/000000_10.png",
            "training/obj_map/000000_10.png",
            "training/calib_cam_to_cam/000000.txt",
        ),
        (Key("truth", "all measured pixels or the visible ones", ("occ", "noc"), "occ"),),
        unverified="the names of object maps and of the calibration",
        opener="kitti:open_2015",
    ),
    SourceInfo(
        "middlebury",
        "Middlebury 2001, 2003, 2005, 2006, 2014, 2021, and the version 3 evaluation (MiddEval3)",
        ("training", "test"),
        (
            "MiddEval3/trainingQ/Adirondack/im0.png",
            "MiddEval3/trainingQ/Adirondack/im1.png",
            "MiddEval3/trainingQ/Adirondack/disp0GT.pfm, disp1GT.pfm, mask0nocc.png, calib.txt",
            "Adirondack-perfect/im0.png, im1.png, disp0.pfm, disp1.pfm, calib.txt  (2014, 2021)",
            "Art/view1.png, view5.png, disp1.png, disp5.png  (2005, 2006)",
            "cones/im2.png, im6.png, disp2.png, disp6.png  (2003)",
            "venus/im2.ppm, im6.ppm, disp2.pgm, disp6.pgm  (2001)",
        ),
        (Key("size", "full, half, third (2005, 2006), quarter", ("F", "H", "T", "Q")),),
        unverified="all layouts but that of 2003, and the scale of the truth of 2001, 2005 and 2006",
    ),
    SourceInfo(
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
    ),
    SourceInfo(
        "flickr1024",
        "Flickr1024, or patches cut from it, by pam or by PASSRnet's and iPASSR's authors; no truth",
        ("train", "validation", "test"),
        (
            "Train/0001_L.png  (Validation, Test; or all in one folder)",
            "Train/0001_R.png",
            "patches_x4/000001/hr0.png, hr1.png, lr0.png, lr1.png  (patches)",
            "x4/pixels.npy, index.json, manifest.csv  (patches of `pam dataset prepare-flickr1024`)",
        ),
        (
            Key("scale", "of the patches", ("2", "4")),
            Key(
                "view",
                "of x2, x4: patches, or the pictures they are cut from",
                ("patches", "pictures"),
                "patches",
            ),
        ),
        unverified="the names of the pictures",
    ),
    SourceInfo(
        "pairs",
        "any pairs, paired by equal names without suffix",
        ("all",),
        (
            "left/NAME.png",
            "right/NAME.png",
            "disparity/NAME.pfm  (optional; .png in 1/256 px, .npy, .tif)",
        ),
    ),
    SourceInfo(
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
        (_RENDER,),
    ),
    SourceInfo(
        "instereo2k",
        "InStereo2K, indoor scenes",
        ("train", "test"),
        (
            "train/part1/000000/left.png",
            "train/part1/000000/right.png",
            "train/part1/000000/left_disp.png, right_disp.png",
        ),
        unverified="the names of folders and files",
    ),
    SourceInfo(
        "crestereo",
        "CREStereo's rendered pairs",
        ("train",),
        (
            "tree/0_left.jpg",
            "tree/0_right.jpg",
            "tree/0_left.disp.png, 0_right.disp.png",
        ),
        (Key("part", "one of the four sets", ("all", "tree", "shapenet", "reflective", "hole"), "all"),),
    ),
    SourceInfo(
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
    ),
    SourceInfo(
        "carla",
        "CARLA high-resolution virtual stereo (HR-VS)",
        ("train",),
        (
            "carla-highres/trainingF/SCENE/im0.png",
            "carla-highres/trainingF/SCENE/im1.png",
            "carla-highres/trainingF/SCENE/disp0GT.pfm, disp1GT.pfm",
        ),
        unverified="the top folders",
    ),
    SourceInfo(
        "drivingstereo",
        "DrivingStereo",
        ("train", "test", "sunny", "cloudy", "foggy", "rainy"),
        (
            "train-left-image/2018-07-09-16-11-56/FRAME.jpg",
            "train-right-image/2018-07-09-16-11-56/FRAME.jpg",
            "train-disparity-map/2018-07-09-16-11-56/FRAME.png",
            "test-left-image/left-image-half-size/FRAME.jpg",
            "sunny/left-image-half-size/FRAME.jpg",
        ),
        (Key("size", "half or full resolution", ("half", "full"), "half"),),
        unverified="all of it",
    ),
    SourceInfo(
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
                    "all",
                    "clone",
                    "fog",
                    "morning",
                    "overcast",
                    "rain",
                    "sunset",
                    "15-deg-left",
                    "15-deg-right",
                    "30-deg-left",
                    "30-deg-right",
                ),
                "all",
            ),
        ),
        unverified="all of it",
    ),
    SourceInfo(
        "booster",
        "Booster, balanced stereo: transparent and mirroring things",
        ("train", "test"),
        (
            "train/balanced/Bathroom/camera_00/im0.png",
            "train/balanced/Bathroom/camera_02/im0.png",
            "train/balanced/Bathroom/disp_00.npy, disp_02.npy, mask_00.png",
        ),
        unverified="all of it",
    ),
    SourceInfo(
        "holopix50k",
        "Holopix50k, pictures of phones with two cameras; no truth",
        ("train", "val", "test"),
        ("train/left/NAME_left.jpg", "train/right/NAME_right.jpg"),
        unverified="the names of the pictures",
    ),
    SourceInfo(
        "procedural",
        "made-up scenes with exact truth; by its name alone, without a folder, of made-up textures",
        ("all",),
        (
            "ANY/NAME.jpg  (photographs, anywhere below the folder: backgrounds and skins)",
            "ANY/NAME.png  (cut-outs, pictures with an opacity channel: objects)",
        ),
        (Key("size", "of the pictures", ("512x256", "960x512", "1280x384"), "512x256"),),
        needs_folder=False,
    ),
)

SOURCES: Mapping[str, SourceInfo] = {row.name: row for row in _ROWS}
"""Every data source by its name, in the order in which they are listed."""

COMMON_KEYS = (("first", "only the first N samples"), ("weight", "how often in training, against other sets"))
"""Keys that every source knows, with what they mean."""
