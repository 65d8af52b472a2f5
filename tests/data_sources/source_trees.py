"""Miniature trees in the layouts of the publishers, two samples each, written with what is not under test."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 4, 6


def picture(path: Path, level: int = 90, size: tuple[int, int] = (HEIGHT, WIDTH)) -> None:
    """An image of one colour, in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    color = np.full((*size, 3), level, np.uint8)
    Image.fromarray(color[..., 0] if path.suffix == ".pgm" else color).save(path)


def pair(left: Path, right: Path, size: tuple[int, int] = (HEIGHT, WIDTH)) -> None:
    picture(left, 90, size)
    picture(right, 120, size)


def levels(path: Path, first: list[int], bits: int = 8, size: tuple[int, int] = (HEIGHT, WIDTH)) -> None:
    """A grey image of 8 or 16 bits whose first row begins with `first`, all else 1."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.ones(size, np.uint8 if bits == 8 else np.uint16)
    values[0, : len(first)] = first
    Image.fromarray(values).save(path)


def rgb(path: Path, first: list[tuple[int, int, int]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    values[0, : len(first)] = first
    Image.fromarray(values).save(path)


def pfm(path: Path, first: list[float], rest: float = 1.0) -> None:
    """Little-endian, last row first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.full((HEIGHT, WIDTH), rest, "<f4")
    values[0, : len(first)] = first
    path.write_bytes(f"Pf\n{WIDTH} {HEIGHT}\n-1.0\n".encode() + values[::-1].tobytes())


def npy(path: Path, first: list[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.ones((HEIGHT, WIDTH), np.float32)
    values[0, : len(first)] = first
    buffer = io.BytesIO()
    np.save(buffer, values)
    path.write_bytes(buffer.getvalue())


def text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


MIDDLEBURY_CALIBRATION = (
    "cam0=[3979.911 0 1244.772; 0 3979.911 1019.507; 0 0 1]\n"
    "cam1=[3979.911 0 1369.115; 0 3979.911 1019.507; 0 0 1]\n"
    "doffs=124.343\nbaseline=193.001\nwidth=2964\nheight=1988\n"
)


def sceneflow(root: Path) -> None:
    """FlyingThings3D, Driving and Monkaa in one folder."""
    for frames in (
        "FlyingThings3D/{}/TRAIN/A/0000/{}/0006",
        "FlyingThings3D/{}/TEST/B/0001/{}/0006",
        "Driving/{}/15mm_focallength/scene_backwards/fast/{}/0001",
        "Monkaa/{}/a_rain_of_stones_x2/{}/0000",
    ):
        pair(*(root / (frames.format("frames_finalpass", side) + ".png") for side in ("left", "right")))
        pfm(root / (frames.format("disparity", "left") + ".pfm"), [2.5, np.inf])
        pfm(root / (frames.format("disparity", "right") + ".pfm"), [-3.5, np.nan], -1)


def kitti2012(root: Path) -> None:
    for number in ("000000", "000001"):
        name = f"{number}_10.png"
        pair(root / "training/colored_0" / name, root / "training/colored_1" / name)
        picture(root / "training/colored_0" / f"{number}_11.png")
        levels(root / "training/disp_occ" / name, [640, 0, 65535], 16)
        levels(root / "training/disp_noc" / name, [640, 0, 0], 16)
        projection = "P{}: 700 0 600 {} 0 700 180 0 0 0 1 0\n"
        text(
            root / f"training/calib/{number}.txt",
            "".join(projection.format(camera, x) for camera, x in enumerate((0, -380, 45, -335))),
        )


def kitti2015(root: Path) -> None:
    for number in ("000000", "000001"):
        name = f"{number}_10.png"
        pair(root / "training/image_2" / name, root / "training/image_3" / name)
        levels(root / "training/disp_occ_0" / name, [640, 0, 65535], 16)
        levels(root / "training/disp_noc_0" / name, [640, 0, 0], 16)
        levels(root / "training/obj_map" / name, [0, 3, 1])
        row = "7.2e+02 0 6.0e+02 {} 0 7.2e+02 1.8e+02 0.2 0 0 1 0.003\n"
        text(
            root / f"training/calib_cam_to_cam/{number}.txt",
            "calib_time: 09-Jan-2012 14:00:15\ncorner_dist: 9.95e-02\n"
            f"P_rect_02: {row.format('4.4e+01')}P_rect_03: {row.format('-3.4e+02')}",
        )
        pair(root / "testing/image_2" / name, root / "testing/image_3" / name)


def middlebury(root: Path) -> None:
    """Two scenes as of 2014."""
    for scene in ("Adirondack-perfect", "Piano-perfect"):
        folder = root / scene
        pair(folder / "im0.png", folder / "im1.png")
        pfm(folder / "disp0.pfm", [20.25, np.inf])
        pfm(folder / "disp1.pfm", [30.5])
        levels(folder / "mask0nocc.png", [255, 128, 0])
        text(folder / "calib.txt", MIDDLEBURY_CALIBRATION)


def eth3d(root: Path) -> None:
    for scene in ("delivery_area_1l", "electro_1s"):
        pair(root / f"two_view_training/{scene}/im0.png", root / f"two_view_training/{scene}/im1.png")
        text(root / f"two_view_training/{scene}/calib.txt", MIDDLEBURY_CALIBRATION)
        pfm(root / f"two_view_training_gt/{scene}/disp0GT.pfm", [5.5, np.inf])
        levels(root / f"two_view_training_gt/{scene}/mask0nocc.png", [255, 0])
    pair(root / "two_view_test/lakeside_1l/im0.png", root / "two_view_test/lakeside_1l/im1.png")


def flickr1024(root: Path) -> None:
    for split in ("Train", "Validation", "Test"):
        for number in ("0001", "0002"):
            pair(root / split / f"{number}_L.png", root / split / f"{number}_R.png")


def pairs(root: Path) -> None:
    for stem in ("shelf2", "shelf10"):
        pair(root / f"left/{stem}.png", root / f"right/{stem}.webp")
        npy(root / f"disparity/{stem}.npy", [7.5, np.nan])
        npy(root / f"right_disparity/{stem}.npy", [6.5])


def sintel(root: Path) -> None:
    for frame in ("frame_0001.png", "frame_0002.png"):
        folder = root / "training"
        pair(folder / "final_left/alley_1" / frame, folder / "final_right/alley_1" / frame)
        rgb(folder / "disparities/alley_1" / frame, [(2, 32, 0), (0, 0, 64), (255, 0, 0)])
        levels(folder / "occlusions/alley_1" / frame, [0, 255, 0, 0, 0, 0])
        levels(folder / "outofframe/alley_1" / frame, [0, 0, 255, 0, 0, 0])


def instereo2k(root: Path) -> None:
    for folder in (root / "train/part1/000000", root / "train/part2/000001", root / "test/000040"):
        pair(folder / "left.png", folder / "right.png")
        levels(folder / "left_disp.png", [1234, 0], 16)
        levels(folder / "right_disp.png", [50], 16)


def crestereo(root: Path) -> None:
    for stem in ("tree/0", "shapenet/1", "reflective/2", "hole/7"):
        pair(root / f"{stem}_left.jpg", root / f"{stem}_right.jpg")
        levels(root / f"{stem}_left.disp.png", [100, 0], 16)
        levels(root / f"{stem}_right.disp.png", [64], 16)


def fallingthings(root: Path) -> None:
    for folder in (root / "single/002_master_chef_can_16k/kitchen_0", root / "mixed/temple_1"):
        pair(folder / "000000.left.jpg", folder / "000000.right.jpg")
        picture(folder / "000000.left.seg.png")
        levels(folder / "000000.left.depth.png", [10000, 0, 65535], 16)
        levels(folder / "000000.right.depth.png", [20000], 16)
        cameras = [{"name": side, "intrinsic_settings": {"fx": 768.16, "fy": 768.16}} for side in "lr"]
        text(folder / "_camera_settings.json", json.dumps({"camera_settings": cameras}))


def carla(root: Path) -> None:
    for scene in ("scene1", "scene2"):
        folder = root / "carla-highres/trainingF" / scene
        pair(folder / "im0.png", folder / "im1.png")
        pfm(folder / "disp0GT.pfm", [12.5])
        pfm(folder / "disp1GT.pfm", [-12.5], -1)


def drivingstereo(root: Path) -> None:
    for frame in ("2018-07-09-16-11-56/a", "2018-07-09-16-11-56/b"):
        pair(root / f"train-left-image/{frame}.jpg", root / f"train-right-image/{frame}.jpg")
        levels(root / f"train-disparity-map/{frame}.png", [640, 0], 16)
    for size in ("half", "full"):
        for below in ("sunny", "foggy/foggy"):
            kinds = [f"{kind}-{size}-size" for kind in ("left-image", "right-image", "disparity-map")]
            pair(root / below / kinds[0] / "a.jpg", root / below / kinds[1] / "a.jpg")
            levels(root / below / kinds[2] / "a.png", [640, 0], 16)


def virtualkitti2(root: Path) -> None:
    for variation in ("clone", "fog"):
        folder = root / "Scene01" / variation / "frames"
        pair(folder / "rgb/Camera_0/rgb_00000.jpg", folder / "rgb/Camera_1/rgb_00000.jpg")
        levels(folder / "depth/Camera_0/depth_00000.png", [1000, 65535, 0], 16)
        levels(folder / "depth/Camera_1/depth_00000.png", [2000], 16)


def booster(root: Path) -> None:
    folder = root / "train/balanced/Bathroom"
    for name in ("im0.png", "im1.png"):
        pair(folder / "camera_00" / name, folder / "camera_02" / name)
    npy(folder / "disp_00.npy", [44.5, 0])
    npy(folder / "disp_02.npy", [33.5])
    levels(folder / "mask_00.png", [255, 0])
    levels(folder / "mask_cat.png", [0, 3])


def spring(root: Path) -> None:
    """Truth is twice as fine; needs h5py."""
    import h5py

    for frame in ("0001", "0002"):
        folder = root / "spring/train/0007"
        pair(folder / f"frame_left/frame_left_{frame}.png", folder / f"frame_right/frame_right_{frame}.png")
        for side, first in (("left", [8.5, 8.75, np.nan, 3, 2]), ("right", [6.5])):
            path = folder / f"disp1_{side}/disp1_{side}_{frame}.dsp5"
            path.parent.mkdir(parents=True, exist_ok=True)
            values = np.ones((2 * HEIGHT, 2 * WIDTH), np.float32)
            values[0, : len(first)] = first
            with h5py.File(path, "w") as file:
                file.create_dataset("disparity", data=values, compression="gzip")
        maps = folder / "maps"
        rgb(maps / f"matchmap_disp1_left/matchmap_disp1_left_{frame}.png", [(0, 0, 0), (255, 0, 0)])
        levels(maps / f"detailmap_disp1_left/detailmap_disp1_left_{frame}.png", [255, *[0] * 5])
        sky = maps / f"skymap_left/skymap_left_{frame}.png"
        levels(sky, [0, 0, 255, 0, 255, 255], size=(2 * HEIGHT, 2 * WIDTH))


def tartanair(root: Path) -> None:
    for level, frame in (("Easy/P000", "000000"), ("Hard/P001", "000013")):
        folder = root / "abandonedfactory" / level
        pair(folder / f"image_left/{frame}_left.png", folder / f"image_right/{frame}_right.png")
        npy(folder / f"depth_left/{frame}_left_depth.npy", [2, 10000])
        npy(folder / f"depth_right/{frame}_right_depth.npy", [4])


def foundationstereo(root: Path) -> None:
    for scene in ("kitchen_1", "office_2"):
        data = root / scene / "dataset/data"
        pair(data / "left/rgb/0000.jpg", data / "right/rgb/0000.jpg")
        rgb(data / "left/disparity/0000.png", [(0, 10, 5), (1, 2, 3), (0, 0, 0)])


def holopix50k(root: Path) -> None:
    for name in ("-L_a", "-L_b"):
        pair(root / f"val/left/{name}_left.jpg", root / f"val/right/{name}_right.jpg")


TREES: dict[str, Callable[[Path], None]] = {
    "sceneflow": sceneflow,
    "kitti2012": kitti2012,
    "kitti2015": kitti2015,
    "middlebury": middlebury,
    "eth3d": eth3d,
    "flickr1024": flickr1024,
    "pairs": pairs,
    "sintel": sintel,
    "instereo2k": instereo2k,
    "crestereo": crestereo,
    "fallingthings": fallingthings,
    "carla": carla,
    "drivingstereo": drivingstereo,
    "virtualkitti2": virtualkitti2,
    "booster": booster,
    "tartanair": tartanair,
    "foundationstereo": foundationstereo,
    "holopix50k/val": holopix50k,
}
"""Trees of the sources, by what stands before the colon of `--data`."""
if importlib.util.find_spec("h5py") is not None:  # pip install 'pamcli[hdf5]'
    TREES["spring"] = spring
