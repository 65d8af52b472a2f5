"""Render stereo pairs of one scene with Blender; run by `render_rooms.py`.

    python blender.py JOB.json

JOB.json holds the values of `Job`. For each pair, NUMBER.npz gets linear colours and disparities of both
views, and a line `pair NUMBER rendered` is printed, or `pair NUMBER skipped` if no useful view is found.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import bpy
import numpy as np
from mathutils import Euler, Vector
from numpy.typing import NDArray
from objects import FURNITURE, SEE_THROUGH, STREET
from stage import INDOORS, OUTDOORS, Stage

Values = NDArray[np.float32]

ATTEMPTS = 60  # camera poses to try for one pair
CLEARANCE = 0.22  # m, least distance of surfaces from the camera
GRID = 40, 24  # rays that measure the depth of a view
NEAREST = 0.36  # maximum disparity, as a fraction of the image width
LARGEST = 235  # px, less than a 16-bit PNG can hold
TRANSPARENT = 0.05  # surfaces of less opacity have no depth
STREETS = 0.45  # share of streets among the scenes


class Job(NamedTuple):
    """The pairs of one scene to render."""

    scene: int
    pairs: list[int]
    width: int
    height: int
    samples: int
    threads: int
    photos: list[str]
    furniture: str | None
    cache: str
    folder: str


class Pose(NamedTuple):
    """A camera: position (m), orientation, and focal length (px)."""

    at: Vector
    turn: Euler
    focal: float

    def shift(self, distance: float) -> Pose:
        """Return the camera moved to its right (m)."""
        return self._replace(at=self.at + self.turn.to_matrix() @ Vector((distance, 0, 0)))


def main() -> None:
    """Build the scene, and render its pairs."""
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    set_up_renderer(job)
    rng = Random(f"scene {job.scene}")
    stage = Stage(rng, [*map(Path, job.photos)], job.furniture, Path(job.cache))
    is_street = rng.random() < STREETS
    (stage.build_street if is_street else stage.build_room)()
    bpy.context.scene.camera = camera = bpy.data.objects.new("camera", bpy.data.cameras.new("camera"))
    bpy.context.collection.objects.link(camera)
    camera.data.clip_start, camera.data.clip_end = 0.02, 5000
    permanent = set(bpy.data.objects)
    for pair in job.pairs:
        stage.rng = stage.materials.rng = rng = Random(f"pair {pair}")
        for _ in range(ATTEMPTS):
            pose = draw_pose(rng, stage, is_street, job)
            baseline = choose_baseline(rng, pose, stage, is_street, job)
            if baseline is not None:
                render_pair(pose, baseline, pair, job)
                print("pair", pair, "rendered", flush=True)
                break
            remove_objects(permanent)
        else:
            print("pair", pair, "skipped", flush=True)
        remove_objects(permanent)


def set_up_renderer(job: Job) -> None:
    """Set up an empty scene, the path tracer, and an output node for depth."""
    bpy.ops.wm.read_factory_settings(use_empty=True)
    scene = bpy.context.scene
    scene.render.engine, scene.cycles.device = "CYCLES", "CPU"
    bounces = {"max": 6, "diffuse": 2, "glossy": 2, "transmission": 6, "transparent_max": 8}
    for name, count in bounces.items():
        setattr(scene.cycles, f"{name}_bounces", count)
    scene.cycles.caustics_reflective = scene.cycles.caustics_refractive = False
    scene.cycles.denoiser, scene.cycles.denoising_prefilter = "OPENIMAGEDENOISE", "FAST"
    scene.cycles.sample_clamp_indirect = 8
    scene.render.use_persistent_data = True
    scene.render.threads_mode, scene.render.threads = "FIXED", job.threads
    scene.render.resolution_x, scene.render.resolution_y = job.width, job.height
    scene.render.image_settings.file_format = "OPEN_EXR"
    scene.render.image_settings.color_depth = "32"
    layer = scene.view_layers[0]
    layer.use_pass_z, layer.pass_alpha_threshold = True, TRANSPARENT
    scene.use_nodes = True
    nodes, connect = scene.node_tree.nodes, scene.node_tree.links.new
    nodes.clear()
    layers, file, result = (
        nodes.new(f"CompositorNode{name}") for name in ("RLayers", "OutputFile", "Composite")
    )
    file.base_path, file.file_slots[0].path = job.folder, "depth"
    file.format.file_format, file.format.color_depth = "OPEN_EXR", "32"
    connect(layers.outputs["Depth"], file.inputs[0])
    connect(layers.outputs["Image"], result.inputs[0])


def draw_pose(rng: Random, stage: Stage, is_street: bool, job: Job) -> Pose:
    """Draw a camera that looks along the street, or across the room."""
    focal = job.width / 2 / math.tan(math.radians(rng.uniform(45, 90)) / 2)
    at = Vector(rng.uniform(low, high) for low, high in zip(stage.low, stage.high, strict=True))
    if is_street:
        turn = Euler((math.pi / 2 - rng.uniform(-0.03, 0.18), rng.gauss(0, 0.02), rng.gauss(0, 0.3)))
    else:
        limits = zip(stage.low, stage.high, strict=True)
        goal = Vector(low + rng.uniform(0.1, 0.9) * (high - low) for low, high in limits)
        if rng.random() < 0.4:
            goal = Vector(rng.choice(stage.goals))
            at = goal + (at - goal) * min(1, rng.uniform(0.6, 2) / max((at - goal).length, 0.1))
        turn = (goal - at).to_track_quat("-Z", "Y").to_euler()
        turn.rotate_axis("Z", rng.gauss(0, 0.1))
    return Pose(at, turn, focal)


def choose_baseline(rng: Random, pose: Pose, stage: Stage, is_street: bool, job: Job) -> float | None:
    """Add near objects, and return a baseline (m) that suits the view; None if the view is not useful."""
    depths = measure_depths(pose, job)
    if depths.min() < CLEARANCE or np.percentile(depths, 60) < 0.8:
        return None
    middle = float(np.percentile(depths, 55))
    for _ in range(rng.randint(0, 4) if is_street else rng.randint(1, 7)):
        add_near_object(
            rng, pose, stage, middle * math.exp(rng.uniform(math.log(0.12), math.log(0.8))), is_street, job
        )
    bpy.context.view_layer.update()
    depths = measure_depths(pose, job)
    near, far = (float(np.percentile(depths, share)) for share in (2, 90))
    if depths.min() < 0.12 or far < 1.5 * near:
        return None
    disparity = job.width * math.exp(rng.uniform(math.log(0.08), math.log(0.34)))
    largest = min(NEAREST * job.width, LARGEST)
    baseline = min(disparity * near, largest * float(depths.min())) / pose.focal
    right = measure_depths(pose.shift(baseline), job)
    return baseline if baseline * pose.focal <= largest * float(right.min()) else None


def measure_depths(pose: Pose, job: Job) -> NDArray[np.float64]:
    """Return the depth (m) of the view along the rays of a grid; 1e4 where a ray hits nothing."""
    scene, graph = bpy.context.scene, bpy.context.evaluated_depsgraph_get()
    turn, depths = pose.turn.to_matrix(), []
    for x in np.linspace(-0.98, 0.98, GRID[0]) * job.width / 2 / pose.focal:
        for y in np.linspace(-0.98, 0.98, GRID[1]) * job.height / 2 / pose.focal:
            ray = Vector((float(x), float(y), -1))
            hit, place, *_ = scene.ray_cast(graph, pose.at, turn @ ray)
            depths.append((place - pose.at).length / ray.length if hit else 1e4)
    return np.array(depths)


def add_near_object(rng: Random, pose: Pose, stage: Stage, depth: float, is_street: bool, job: Job) -> None:
    """Add an object that floats, or leans anywhere, in front of the scene at a given depth (m)."""
    builders = rng.choice((SEE_THROUGH, SEE_THROUGH, STREET if is_street else FURNITURE))
    categories = (OUTDOORS if is_street else INDOORS) if rng.random() < 0.4 else ()
    thing = stage.add_object(categories, builders, (0, 0, 0))
    bpy.context.view_layer.update()
    half = depth * job.width / 2 / pose.focal
    size = half * math.exp(rng.uniform(math.log(0.3), math.log(1.8)))
    thing.scale = (size / max(*thing.dimensions, 1e-3),) * 3
    across, up = rng.uniform(-0.9, 0.9) * half, rng.uniform(-0.9, 0.6) * half * job.height / job.width
    place = pose.at + pose.turn.to_matrix() @ Vector((across, up, -depth))
    if rng.random() < 0.5:
        thing.rotation_euler = [rng.uniform(0, 2 * math.pi) for _ in range(3)]
    else:
        thing.rotation_euler = 0, 0, rng.uniform(0, 2 * math.pi)
        place.z -= size / 2
    thing.location = place


def render_pair(pose: Pose, baseline: float, pair: int, job: Job) -> None:
    """Render colours and disparities of both views into one file."""
    scene, results = bpy.context.scene, {}
    camera = scene.camera
    camera.data.angle = 2 * math.atan(job.width / 2 / pose.focal)
    poses = {"left": pose, "right": pose.shift(baseline)}
    for is_depth in (False, True):
        # Depth comes from the centre of each pixel; colours are means of jittered samples.
        scene.cycles.samples = 1 if is_depth else job.samples
        scene.cycles.use_denoising = not is_depth
        scene.cycles.filter_width = 0.01 if is_depth else 1.5
        scene.cycles.max_bounces = 0 if is_depth else 6
        for number, (side, view) in enumerate(poses.items()):
            scene.cycles.seed = 2 * pair + number
            camera.location, camera.rotation_euler = view.at, view.turn
            scene.render.filepath = f"{job.folder}/colours.exr"
            bpy.ops.render.render(write_still=True)
            if is_depth:
                depth = read_channels(next(Path(job.folder).glob("depth*.exr")))[..., 0]
                results[f"{side}_disparity"] = pose.focal * baseline / depth
            else:
                results[side] = read_channels(Path(scene.render.filepath))[..., :3]
    np.savez(f"{job.folder}/{pair}.npz", allow_pickle=False, **results)


def read_channels(path: Path) -> Values:
    """Read an EXR file as (H, W, channels)."""
    image = bpy.data.images.load(str(path))
    width, height = image.size
    values = np.empty(width * height * image.channels, np.float32)
    image.pixels.foreach_get(values)
    values = values.reshape(height, width, image.channels)[::-1]
    bpy.data.images.remove(image)
    return values


def remove_objects(permanent: set[Any]) -> None:
    """Remove the objects of the last pair."""
    for thing in [each for each in bpy.data.objects if each not in permanent]:
        bpy.data.objects.remove(thing)


if __name__ == "__main__":
    main()
