"""Export rectified pairs with their cameras and depth maps, for COLMAP and nerfstudio."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pamcli.batch.kinds import RIGHT_DISPARITY
from pamcli.batch.matching import Floats, MatchProcessor
from pamcli.batch.plan import Job, Plan, plan_batch
from pamcli.batch.processing import Results
from pamcli.batch.run import Batch
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.point_cloud import compute_points, encode_ply
from pamcli.errors import UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.imaging.disparity_encoding import encode_depth
from pamcli.imaging.images import StereoPair, encode_image
from pamcli.settings.batches import ExportSettings, MatchSettings

if TYPE_CHECKING:
    from pamcli.inference.result import StereoResult

Kind = Literal["colmap", "nerfstudio"]
SIDES = ("left", "right")
_MOST_POINTS = 100_000


class _Frame(NamedTuple):
    """One pair of a scene."""

    name: str  # path of its images below `images/left` and `images/right`
    calibration: Calibration
    points: np.ndarray  # (N,) with fields x, y, z, red, green, blue


def export_files(settings: ExportSettings, kind: Kind) -> Batch:
    """Export images, depth maps and a description of their cameras into a folder, as `pam export` does.

    Raises UsageError, InputError: Before any work. If a pair fails, its result has an `error`.
    """
    folder = Path(settings.output)
    if folder.is_file():
        raise UsageError(f"`output` {folder} is a file, not a folder")
    names = {each.name for each in fields(MatchSettings)} & {*vars(settings)} - {"output"}
    given = {name: getattr(settings, name) for name in names}
    match = MatchSettings(**given, unknown="occluded", workers=1)
    depths, suffix = ("stereo/depth_maps", ".png.geometric.bin") if kind == "colmap" else ("depths", ".png")
    results = []
    for side in SIDES:
        results.append(OutputKind(side, "`output`", (".png",), template=f"{folder}/images/{side}/{{}}.png"))
        depth = f"{folder}/{depths}/{side}/{{}}{suffix}"
        results.append(OutputKind(f"{side}_depth", "`output`", (".bin", ".png"), template=depth))
    plan = plan_batch(match, results, read=settings.calibration_files, tag="_scene")
    if kind == "nerfstudio" and plan.many:
        raise UsageError(
            "nerfstudio needs the pose of every image, which several pairs do not state",
            "export one pair, or use `pam export colmap` and reconstruct the poses",
        )
    return Batch(plan, _ExportProcessor(match, plan, folder, kind))


def _encode_depth(depth: np.ndarray, path: Path) -> Encoded:
    """Encode a depth map as a PNG, or in COLMAP's format."""
    if path.suffix == ".png":
        return encode_depth(depth, ".png")
    height, width = depth.shape
    return Encoded(f"{width}&{height}&1&".encode() + np.nan_to_num(depth, nan=0).astype("<f4").tobytes())


class _ExportProcessor(MatchProcessor):
    def __init__(self, settings: MatchSettings, plan: Plan, folder: Path, kind: Kind) -> None:
        super().__init__(settings, plan)
        self.folder, self.kind = folder, kind
        self.extras.add(RIGHT_DISPARITY.name)
        self.frame: _Frame | None = None  # the first exported pair

    def finish(self, results: Results) -> Results:
        try:
            yield from results
        finally:  # also if a pair failed: the cameras are those of the others
            if (frame := self.find_frame()) is not None:
                describe = _describe_colmap if self.kind == "colmap" else _describe_nerfstudio
                files = {self.folder / name: data for name, data in describe(frame, self.many).items()}
                for path, data in files.items():
                    write_atomically(path, data)
                self.made = [*files]

    def find_frame(self) -> _Frame | None:
        """Return the first exported pair; if a resumed batch skipped all pairs, one of those."""
        if self.frame is None and self.many and self.skipped is not None and self.skipped.pair is not None:
            return _Frame("", self.fit_calibration(self.read_rectified(self.skipped.pair)), np.empty(0))
        return self.frame

    def fit_calibration(self, pair: StereoPair) -> Calibration:
        """Return the calibration for images of this size. Raises InputError without one."""
        return self.require_calibration(pair).for_size(pair.width, pair.height)

    def read(self, job: Job) -> tuple[StereoPair, Sequence[str]]:
        assert job.pair is not None
        pair = self.read_rectified(job.pair)
        self.require_calibration(pair)
        return pair, self.find_problems(pair)

    def encode(
        self, pair: StereoPair, result: StereoResult, disparity: Floats, kind: str, path: Path
    ) -> Encoded:
        calibration = self.fit_calibration(pair)
        if kind == "right_depth":
            from pamcli.inference.matcher import find_visible

            right = result.require("right_disparity")
            one, other = (np.ascontiguousarray(each[:, ::-1]) for each in (right, result.disparity))
            disparity = np.where(find_visible(one, other)[:, ::-1], right, np.float32("nan"))
        if kind in ("left_depth", "right_depth"):
            return _encode_depth(calibration.depth(disparity), path)
        if kind == "left" and self.frame is None:
            stride = max(1, round((disparity.size / _MOST_POINTS) ** 0.5))
            points = compute_points(disparity, calibration, image=pair.left.pixels, stride=stride)
            name = path.relative_to(self.folder / "images" / "left").as_posix()
            self.frame = _Frame(name, calibration, points)
        return Encoded(encode_image(getattr(pair, kind), ".png", name=str(path)))


def _cameras(calibration: Calibration) -> list[dict[str, float]]:
    """Return focal lengths and principal points of both cameras; the corner of the image is 0, 0."""
    x, y = calibration.principal or (0.0, 0.0)
    focal = {"fx": calibration.focal_length, "fy": calibration.vertical_focal_length}
    return [{**focal, "cx": x + move + 0.5, "cy": y + 0.5} for move in (0.0, calibration.offset)]


def _describe_colmap(frame: _Frame, many: bool) -> Mapping[str, bytes]:
    """Describe the rig for `colmap rig_configurator`, and a single pair as a sparse model."""
    calibration = frame.calibration
    cameras = [[each[key] for key in ("fx", "fy", "cx", "cy")] for each in _cameras(calibration)]
    rig: list[dict[str, Any]] = [
        {"image_prefix": f"{side}/", "camera_model_name": "PINHOLE", "camera_params": camera}
        for side, camera in zip(SIDES, cameras, strict=True)
    ]
    rig[0]["ref_sensor"] = True
    rig[1]["cam_from_rig_rotation"] = [1, 0, 0, 0]
    rig[1]["cam_from_rig_translation"] = [-calibration.baseline, 0, 0]
    files = {"rig_config.json": json.dumps([{"cameras": rig}], indent=2).encode()}
    if many:
        return files
    assert calibration.size is not None
    width, height = calibration.size
    numbers = [" ".join(f"{value:.17g}" for value in camera) for camera in cameras]
    moves = (0.0, -calibration.baseline)
    lines = {
        "cameras.txt": [f"{n} PINHOLE {width} {height} {numbers[n - 1]}" for n in (1, 2)],
        "images.txt": [
            line
            for n in (1, 2)
            for line in (f"{n} 1 0 0 0 {moves[n - 1]:.17g} 0 0 {n} {SIDES[n - 1]}/{frame.name}", "")
        ],
        "points3D.txt": [
            f"{n} {x:.9g} {y:.9g} {z:.9g} {red} {green} {blue} 0"
            for n, (x, y, z, red, green, blue) in enumerate(frame.points.tolist(), 1)
        ],
    }
    files |= {
        f"sparse/{name}": "".join(f"{line}\n" for line in each).encode() for name, each in lines.items()
    }
    return files


def _describe_nerfstudio(frame: _Frame, many: bool) -> Mapping[str, bytes]:
    """Describe a pair in nerfstudio's `transforms.json`, with its points."""
    assert not many
    calibration = frame.calibration
    assert calibration.size is not None
    described = []
    for side, camera, move in zip(SIDES, _cameras(calibration), (0.0, calibration.baseline), strict=True):
        # World: left camera with y down, as the points; nerfstudio's cameras have y up and look along -z.
        pose = [[1, 0, 0, move], [0, -1, 0, 0], [0, 0, -1, 0], [0, 0, 0, 1]]
        described.append(
            {
                "file_path": f"images/{side}/{frame.name}",
                "depth_file_path": f"depths/{side}/{frame.name}",
                **{"fl_x": camera["fx"], "fl_y": camera["fy"], "cx": camera["cx"], "cy": camera["cy"]},
                **{"w": calibration.size[0], "h": calibration.size[1]},
                "transform_matrix": pose,
            }
        )
    tree = {"camera_model": "OPENCV", "ply_file_path": "points.ply", "frames": described}
    return {"transforms.json": json.dumps(tree, indent=2).encode(), "points.ply": encode_ply(frame.points)}
