"""Convert an ONNX file of one size to TorchScript, which runs without ONNX Runtime and on a GPU.

    python scripts/training/trace_teacher.py TEACHER.onnx -o TEACHER.pt

Requires the packages onnx and onnxruntime, which computes what does not depend on the images. Supports
the operators of NAFRSSR and EHFSSR.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.inference.runners import import_library

Attributes = dict[str, Any]


def slice_axes(x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor, steps: Tensor | None = None) -> Tensor:
    """Slice as ONNX; steps must be positive."""
    places = [slice(None)] * x.ndim
    by = torch.ones_like(starts) if steps is None else steps
    for start, end, axis, step in zip(*(each.tolist() for each in (starts, ends, axes, by)), strict=True):
        places[axis] = slice(start, end, step)
    return x[tuple(places)]


def squeeze(x: Tensor, axes: Tensor) -> Tensor:
    return x.squeeze(tuple(axes.tolist()))


def unsqueeze(x: Tensor, axes: Tensor) -> Tensor:
    for axis in sorted(axes.tolist()):
        x = x.unsqueeze(axis)
    return x


def scatter(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return x.index_put(tuple(indices.unbind(-1)), updates)


def convolve(attributes: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = weight.ndim - 2
    pads = attributes.get("pads", (0, 0) * axes)
    assert pads[:axes] == pads[axes:]
    stride, dilation = (attributes.get(key, (1,) * axes) for key in ("strides", "dilations"))
    run = F.conv1d if axes == 1 else F.conv2d
    return run(x, weight, bias, stride, pads[:axes], dilation, attributes.get("group", 1))


def pad(attributes: Attributes, x: Tensor, pads: Tensor) -> Tensor:
    before, after = pads.view(2, -1).tolist()
    sides = [side for pair in zip(before[:1:-1], after[:1:-1], strict=True) for side in pair]
    return F.pad(x, sides, mode=attributes["mode"].decode())


def resize(attributes: Attributes, x: Tensor, _: None, scales: Tensor) -> Tensor:
    assert (attributes["mode"], attributes["coordinate_transformation_mode"]) == (b"cubic", b"half_pixel")
    size = [round(int(side) * scale) for side, scale in zip(x.shape[2:], scales[2:].tolist(), strict=True)]
    return F.interpolate(x, size, mode="bicubic")


def reshape(x: Tensor, shape: Tensor) -> Tensor:
    return x.reshape([side or int(x.shape[axis]) for axis, side in enumerate(shape.tolist())])


PLAIN: dict[str, Callable[..., Any]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": torch.div,
    "Pow": torch.pow,
    "Sqrt": torch.sqrt,
    "Sigmoid": torch.sigmoid,
    "MatMul": torch.matmul,
    "Clip": torch.clamp,
    "Slice": slice_axes,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Reshape": reshape,
    "ScatterND": scatter,
    "Expand": lambda x, shape: x + x.new_zeros(shape.tolist()),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
}
WITH_ATTRIBUTES: dict[str, Callable[..., Any]] = {
    "Conv": convolve,
    "Pad": pad,
    "Resize": resize,
    "ReduceMean": lambda a, x: x.mean(a["axes"], keepdim=bool(a["keepdims"])),
    "ReduceL2": lambda a, x: x.norm(dim=a["axes"], keepdim=bool(a["keepdims"])),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Softmax": lambda a, x: x.softmax(a["axis"]),
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a["alpha"]),
    "DepthToSpace": lambda a, x: F.pixel_shuffle(x, a["blocksize"]),
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Gather": lambda a, x, at: (
        x.select(a["axis"], int(at)) if at.ndim == 0 else x.index_select(a["axis"], at)
    ),
    "Split": lambda a, x, sizes: x.split(sizes.tolist(), a["axis"]),
}


class Graph(nn.Module):
    """The nodes of an ONNX graph, run one after the other."""

    def __init__(self, graph: Any, attribute: Callable[[Any], Any], constants: dict[str, Tensor]) -> None:
        super().__init__()
        self.nodes = [
            (
                each.op_type,
                [*each.input],
                [*each.output],
                {one.name: attribute(one) for one in each.attribute},
            )
            for each in graph.node
        ]
        self.constants, self.given, self.made = constants, graph.input[0].name, graph.output[0].name
        self.last_uses = {name: index for index, each in enumerate(graph.node) for name in each.input}

    def forward(self, images: Tensor) -> Tensor:
        values: dict[str, Any] = {**self.constants, self.given: images}
        for index, (kind, names, outputs, attributes) in enumerate(self.nodes):
            inputs = [values[name] if name else None for name in names]
            made = PLAIN[kind](*inputs) if kind in PLAIN else WITH_ATTRIBUTES[kind](attributes, *inputs)
            values.update(zip(outputs, made if isinstance(made, tuple) else (made,), strict=True))
            for name in {each for each in names if each and self.last_uses[each] == index}:
                del values[name]
        upscaled: Tensor = values[self.made]
        return upscaled


def main() -> None:
    """Simplify, trace, check, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    onnx, runtime = import_library("onnx"), import_library("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = f"{folder}/simple.onnx"
        session = runtime.InferenceSession(str(given.teacher), options)
        graph = onnx.load(options.optimized_model_filepath).graph
    arrays = {each.name: onnx.numpy_helper.to_array(each).copy() for each in graph.initializer}
    constants = {name: torch.from_numpy(array) for name, array in arrays.items()}
    module = Graph(graph, onnx.helper.get_attribute_value, constants)
    images = torch.rand(session.get_inputs()[0].shape)
    with torch.inference_mode():
        (expected,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
        traced = torch.jit.trace(module, images, check_trace=False)  # type: ignore[no-untyped-call]
        difference = (traced(images) - torch.from_numpy(expected)).abs().max()
    assert difference < 1e-4, difference
    traced.save(str(given.output))
    print(f"{given.output}: differs by at most {float(difference):.1e}")


if __name__ == "__main__":
    main()
