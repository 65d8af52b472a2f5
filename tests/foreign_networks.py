"""Small random ONNX networks with the inputs and outputs of published ones, and one that matches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

AS_MODULE = """import torch
from torch.nn.functional import avg_pool2d, interpolate


class Matching(torch.nn.Module):
    def forward(self, left, right):  # matches at half the size
        size = left.shape[2:]
        left, right = (avg_pool2d(view, 2, ceil_mode=True) for view in (left, right))
        costs = [(left - torch.roll(right, shift, 3)).abs().mean(1, keepdim=True) for shift in range(32)]
        joined = avg_pool2d(torch.cat(costs, 1).clamp(max=0.1), 5, 1, 2)
        return interpolate(2 * joined.argmin(1, keepdim=True).float(), size)


def make():
    return Matching()
"""
"""A module with a PyTorch network that matches views in [0, 1]."""

DESCRIBED = """network = "{name}.onnx"
task = "disparity"
inputs = {{ left = "left", right = "right" }}
outputs = {{ disparities = "disparity" }}
white = 1
size = "{size}"
"""
"""A description of one that takes views in [0, 1]; to be formatted with its name and its size."""

Shape = tuple[int | str, ...]


class Graph:
    """An ONNX graph that grows node by node; each method names what it makes."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[object] = []
        self.constants: list[object] = []
        self.rng = np.random.default_rng(seed)

    def constant(self, values: np.ndarray) -> str:
        from onnx import numpy_helper

        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, kind: str, *inputs: str, to: str | None = None, **attributes: object) -> str:
        from onnx import helper

        name = to or f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def convolution(self, value: str, inside: int, outside: int, *, scale: float = 1.0) -> str:
        """A random 3 x 3 convolution, its results about as large as what goes in."""
        weights = scale * self.rng.normal(0, 1 / np.sqrt(9 * inside), (outside, inside, 3, 3))
        return self.node(
            "Conv", value, self.constant(weights.astype(np.float32)), kernel_shape=[3, 3], pads=[1] * 4
        )

    def random(self, value: str, inside: int, outside: int, *, scale: float = 1.0) -> str:
        """Two convolutions with a rectifier between them."""
        return self.convolution(
            self.node("Relu", self.convolution(value, inside, 8)), 8, outside, scale=scale
        )

    def larger(self, value: str, times: float) -> str:
        """Each pixel `times` as many on each side."""
        factors = self.constant(np.float32([1, 1, times, times]))
        return self.node(
            "Resize",
            value,
            "",
            factors,
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )

    def smaller(self, value: str, times: int) -> str:
        return self.node("AveragePool", value, kernel_shape=[times] * 2, strides=[times] * 2)

    def save(self, path: Path, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape]) -> Path:
        from onnx import TensorProto, helper, save

        ports = [
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in each.items()]
            for each in (inputs, outputs)
        ]
        graph = helper.make_graph(self.nodes, "g", *ports, self.constants)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return path


def sides(size: tuple[int, int] | None, times: float = 1) -> tuple[int | str, int | str]:
    return ("h", "w") if size is None else (int(times * size[0]), int(times * size[1]))


def two_views(
    path: Path,
    size: tuple[int, int] | None,
    *,
    names: tuple[str, str] = ("left", "right"),
    output: str = "disp",
    channels: int = 1,
) -> Path:
    """FoundationStereo, Lite Any Stereo, StereoNet, CREStereo's first part: two views, one map."""
    graph = Graph(1)
    both = graph.node("Concat", *names, axis=1)
    graph.node("Identity", graph.random(both, 6, channels), to=output)
    given = {name: (1, 3, *sides(size)) for name in names}
    return graph.save(path, given, {output: (1, channels, *sides(size))})


def coarse_and_fine(
    path: Path, size: tuple[int, int] | None, *, outputs: tuple[str, str], coarse: int
) -> Path:
    """RAFT-Stereo (coarse: 2 channels) and IGEV (1): what was found at a quarter of the size stands first."""
    graph = Graph(2)
    both = graph.node("Concat", "left", "right", axis=1)
    low = graph.node("Identity", graph.random(graph.smaller(both, 4), 6, coarse), to=outputs[0])
    first = graph.node("Slice", low, *(graph.constant(np.int64([n])) for n in (0, 1, 1)))
    fine = graph.node("Add", graph.larger(first, 4), graph.random(both, 6, 1))
    graph.node("Identity", fine, to=outputs[1])
    given = {name: (1, 3, *sides(size)) for name in ("left", "right")}
    made = {
        outputs[0]: (1, coarse, *(sides(size, 1 / 4) if size else ("h4", "w4"))),
        outputs[1]: (1, 1, *sides(size)),
    }
    return graph.save(path, given, made)


def crestereo(path: Path, size: tuple[int, int]) -> Path:
    """Both sizes of both views in, a flow of two channels out."""
    graph = Graph(3)
    names = ("init_left", "init_right", "next_left", "next_right")
    low = graph.random(graph.node("Concat", *names[:2], axis=1), 6, 2)
    high = graph.random(graph.node("Concat", *names[2:], axis=1), 6, 2)
    graph.node("Add", graph.larger(low, 2), high, to="next_output")
    halves, whole = sides(size, 1 / 2), sides(size)
    given = {name: (1, 3, *(halves if name.startswith("init") else whole)) for name in names}
    return graph.save(path, given, {"next_output": (1, 2, *whole)})


def crestereo_with_flow(path: Path, size: tuple[int, int]) -> Path:
    """The second part, which begins with a flow at half the size."""
    graph = Graph(4)
    high = graph.random(graph.node("Concat", "left", "right", axis=1), 6, 2)
    graph.node("Add", graph.larger("flow_init", 2), high, to="output")
    given: dict[str, Shape] = {name: (1, 3, *sides(size)) for name in ("left", "right")}
    given["flow_init"] = (1, 2, *sides(size, 1 / 2))
    return graph.save(path, given, {"output": (1, 2, *sides(size))})


def hitnet(path: Path, size: tuple[int, int] | None, *, channels: int = 6, right: bool = False) -> Path:
    """Both views in the channels of one input; disparities with the channel last."""
    graph = Graph(5)
    names = ["reference_output_disparity", *(["secondary_output_disparity"] if right else [])]
    for name in names:
        found = graph.random("input", channels, 1, scale=20)
        graph.node("Transpose", found, to=name, perm=[0, 2, 3, 1])
    return graph.save(
        path, {"input": (1, channels, *sides(size))}, {name: (1, *sides(size), 1) for name in names}
    )


def side_by_side(path: Path, scale: int, size: tuple[int, int] | None = None) -> Path:
    """NAFSSR and CVHSSR: both views in the channels, and both larger ones."""
    graph = Graph(6)
    found = graph.node("DepthToSpace", graph.random("input", 6, 6 * scale**2, scale=0.2), blocksize=scale)
    graph.node("Add", found, graph.larger("input", scale), to="output")
    made = ("sh", "sw") if size is None else sides(size, scale)
    return graph.save(path, {"input": (1, 6, *sides(size))}, {"output": (1, 6, *made)})


def block_matcher(
    path: Path,
    size: tuple[int, int] | None,
    *,
    reach: int,
    white: float = 1,
    sign: int = 1,
    weights: tuple[float, float, float] = (0.299, 0.587, 0.114),
    names: tuple[str, str] = ("left", "right"),
    dark: float = 0,
) -> Path:
    """A network that matches: of the disparities below `reach` that with the most similar surroundings.

    `weights`: of the channels that it looks at. `names`: of the inputs, the left view's first. `dark`: what
    is darker than that, of 1, is black to it.
    """
    graph = Graph()
    mixed = np.float32(weights).reshape(1, 3, 1, 1) / white
    views = [graph.node("Conv", name, graph.constant(mixed.astype(np.float32))) for name in names]
    if dark:
        black = graph.constant(np.float32(dark))
        views = [graph.node("Relu", graph.node("Sub", view, black)) for view in views]
    costs = []
    for disparity in range(reach):
        pads = graph.constant(np.int64([0, 0, 0, disparity, 0, 0, 0, -disparity]))
        moved = graph.node("Pad", views[1], pads, mode="constant") if disparity else views[1]
        apart = graph.node("Abs", graph.node("Sub", views[0], moved))
        limited = graph.node("Min", apart, graph.constant(np.float32(0.1)))
        around = {"kernel_shape": [9, 9], "pads": [4] * 4, "count_include_pad": 0}
        costs.append(graph.node("AveragePool", limited, **around))
    joined = graph.node("Concat", *costs, axis=1)
    scores = graph.node("Mul", joined, graph.constant(np.float32(-400)))
    likely = graph.node("Softmax", scores, axis=1)
    values = np.float32(sign * np.arange(reach)).reshape(1, reach, 1, 1)
    graph.node("Conv", likely, graph.constant(values), to="disparities")
    given = {name: (1, 3, *sides(size)) for name in sorted(names)}
    return graph.save(path, given, {"disparities": (1, 1, *sides(size))})
