"""Export pam's networks to ONNX, compare the files with PyTorch, and run them in ONNX Runtime."""

import hashlib
import logging
import mmap
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pamcli.errors import DeviceError, ModelError, UsageError
from pamcli.files.paths import check_regular
from pamcli.inference import Report
from pamcli.inference.device import HINT, Compute, format_bytes, get_free_memory
from pamcli.inference.images import Pixels, crop_extras, to_network, to_pixels, to_plain
from pamcli.inference.protocol import Maps, Names, StereoModel
from pamcli.inference.runners import ON_CPU, convert_runtime_errors, import_library, open_session
from pamcli.inference.tiles import predict_memory
from pamcli.networks.blocks import convert, fold_batch_norms
from pamcli.networks.pasmnet import SIZE_MULTIPLE
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.catalog import ModelSpec, convert_read_errors
from pamcli.registry.load import Network
from pamcli.registry.resolution import MatchSize

SUFFIX = ".onnx"
DYNAMIC = "dynamic"  # metadata of a file that supports any size

OPSET = 18
LARGEST_SIDE = 8160  # px, of files for any size; memory ends long before
EXPORTED_MEMORY = 3.0  # memory relative to PyTorch: ONNX Runtime holds whole attention maps, and more of them
SHIFT = 12  # disparity of the pair that the export is checked with, px

# maximum deviation from PyTorch's fp32: the largest one for fp32, the mean for fp16
MOST = {"fp32": {"px": 1e-3, "grey levels": 0.5}, "fp16": {"px": 0.1, "grey levels": 0.5}}

_SEAL = b"\x72\x4a\x0a\x06sealed\x12\x40"  # field 14 of 74 bytes: key of 6 and value of 64


def seal(data: bytes) -> bytes:
    """Append the sha256 of an ONNX file as another entry of its metadata."""
    return data + _SEAL + hashlib.sha256(data).hexdigest().encode()


def check_seal(path: Path) -> None:
    """Raise ModelError if a file was changed since its export; files of other programs have no seal."""
    data = path.read_bytes()
    if _SEAL in data[-100:] and data != seal(data[: data.rindex(_SEAL)]):
        raise ModelError(f"{path} is damaged, or was changed by another program", "export it again")


def is_exported(path: Path) -> bool:
    """Return True for files of `export`, and for unreadable files, which fail when they are loaded."""
    check_regular(path, ModelError)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(b"pam_format") >= 0
    except (OSError, ValueError):  # an empty file
        return True


class OnnxModel(StereoModel):
    """An exported network in ONNX Runtime; it runs whole images."""

    has_fixed_search = True
    memory_factor = EXPORTED_MEMORY

    def __init__(self, model: Path | bytes, device: str = "auto", precision: str = "auto") -> None:
        """Open a file, or its bytes; `device`: see `runners`; `precision`: auto, or that of the file."""
        name = "the network" if isinstance(model, bytes) else str(model)
        if isinstance(model, Path):
            with convert_read_errors(model, "create one: pam weights export"):
                model = model.read_bytes()
        self.session, where = open_session(model, device, name=name)
        try:
            self.metadata: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
            spec, stored = ModelSpec.from_metadata(self.metadata), self.metadata["precision"]
            if not re.fullmatch(rf"\d{{1,5}}x\d{{1,5}}|{DYNAMIC}", size := self.metadata["input_size"]):
                raise ValueError(size)
        except (ModelError, KeyError, ValueError) as error:  # also for metadata that are not UTF-8
            raise ModelError(
                f"{name} is damaged, or was not written by pam", "create one: pam weights export"
            ) from error
        if precision not in ("auto", stored):
            raise UsageError(f"{name} has the precision {stored}, not {precision}", "use `precision` auto")
        self.spec: ModelSpec = spec
        if size != DYNAMIC:
            width, height = map(int, size.split("x"))
            self.size = height, width
        self.multiple = spec.row.multiple
        self.compute = Compute(torch.device("cpu"), stored, f"onnxruntime {where}")
        if self.session.get_providers()[0] != ON_CPU:
            self.memory_factor = 0

    def check_search(self, max_disparity: int | None, min_disparity: int, size: MatchSize) -> MatchSize:
        limit = self.spec.max_disparity
        if max_disparity != limit or (limit is not None and (min_disparity or size not in (1, "auto"))):
            search = "any disparity" if limit is None else f"disparities from 0 to {limit} px at full size"
            raise UsageError(f"the exported network can only search {search}", "export it again")
        return size if limit is None else 1.0

    def adaptation_note(self, height: int, width: int) -> str | None:
        if self.size in (None, (height, width)):
            return None
        return f"padded to {self.size[1]}x{self.size[0]}, the exported size"

    def match(
        self, left: Pixels, right: Pixels, progress: Report, *, max_disparity: int | None, extras: Names
    ) -> Maps:
        (above, outputs), width = self._run(left, right), left.shape[1]
        cropped = [outputs[0][0, 0, above:, :width], *crop_extras(extras, above, width, *outputs[1:])]
        maps = [each.contiguous().numpy() for each in cropped]
        return dict(zip(("disparity", *extras), maps, strict=True))

    def upscale(self, left: Pixels, right: Pixels, progress: Report, *, both: bool) -> Maps:
        scale = self.spec.scale or 1
        above, outputs = self._run(left, right)
        inside = (..., slice(scale * above, None), slice(scale * left.shape[1]))
        views = {"left": left, "right": right} if both else {"left": left}
        return {
            name: to_pixels(made[0][inside], image.dtype).numpy().astype(image.dtype, copy=False)
            for made, (name, image) in zip(outputs, views.items(), strict=False)
        }

    def _run(self, left: Pixels, right: Pixels) -> tuple[int, list[Tensor]]:
        height, width = left.shape[:2]
        above, beside = -height % self.multiple, -width % self.multiple
        if self.size is not None:
            above, beside = self.size[0] - height, self.size[1] - width
        images = [to_network(torch.from_numpy(to_plain(each)), above, beside) for each in (left, right)]
        return above, self.run_padded(*images)

    def run_padded(self, left: Tensor, right: Tensor) -> list[Tensor]:
        """Run the network on padded images (1, 3, H, W) in [0, 1]; raise ModelError."""
        with convert_runtime_errors("the network", "export it again"):
            found = self.session.run(None, {"left": left.numpy(), "right": right.numpy()})
        expected = [(self.spec.scale or 1) * side for side in left.shape[2:]]
        if list(found[0].shape[2:]) != expected:
            raise ModelError(
                f"the network outputs {found[0].shape[3]}x{found[0].shape[2]} px, expected "
                f"{expected[1]}x{expected[0]} px",
                "export it again",
            )
        return [torch.from_numpy(each) for each in found]


@dataclass(frozen=True)
class Exported:
    """A file, and its comparison with PyTorch."""

    data: bytes
    size: tuple[int, int]  # height and width of the images of the comparison
    largest: float  # deviation from PyTorch, in `unit`
    mean: float
    unit: str
    seconds: tuple[float, float]  # time of ONNX Runtime and of PyTorch for the same whole maps on the CPU, s


class _Exportable(nn.Module):
    """A network from images (1, 3, H, W) in [0, 1] to a tuple of tensors."""

    def __init__(self, network: nn.Module, spec: ModelSpec) -> None:
        super().__init__()
        self.network, self.matching, self.max_disparity = network, spec.scale is None, spec.max_disparity
        self.mean, self.std = (torch.tensor(each).view(3, 1, 1) for each in (IMAGE_MEAN, IMAGE_STD))
        self.eval()

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
        if self.matching:
            images = [(image - self.mean) / self.std for image in (left, right)]
            found = self.network(*images, self.max_disparity)
            return found.disparity, found.attention_mass, found.confidence
        found = self.network(left, right, both=True)
        return found.left, found.right


def export(
    network: Network, spec: ModelSpec, size: tuple[int, int] | None, *, half: bool, source: dict[str, str]
) -> Exported:
    """Convert a network to ONNX for images of `size` (height, width) or any, and compare it with PyTorch."""
    # `half`: fp16 convolutions. `source`: more metadata. Raises ModelError if the results differ.
    for name in ("onnx", "onnxscript", "onnxruntime"):
        import_library(name)
    matching, multiple = spec.row.task == "disparity", spec.row.multiple
    shown = size or (3 * SIZE_MULTIPLE, 4 * SIZE_MULTIPLE)
    above, beside = -shown[0] % multiple, -shown[1] % multiple
    height, width = shown[0] + above, shown[1] + beside
    needed, free = EXPORTED_MEMORY * predict_memory(spec, height, width), get_free_memory(torch.device("cpu"))
    if free is not None and needed > free:
        what = f"{width}x{height} needs {format_bytes(needed)} of memory, only {format_bytes(free)} are free"
        raise DeviceError(what, HINT)
    module = plain = _Exportable(fold_batch_norms(network), spec)
    if half:  # convolutions in fp16; attention and results stay float32
        folded = fold_batch_norms(network)
        halved = convert(folded, torch.float16) if matching else folded.half()
        if getattr(network, "consistency", None) is not None:
            halved.consistency = network.consistency
        for layer in halved.modules():
            if isinstance(layer, nn.Conv2d):
                layer.register_forward_pre_hook(
                    lambda layer, given: tuple(part.to(layer.weight.dtype) for part in given)
                )
        module = _Exportable(halved, spec)
    left, right = (nn.functional.pad(view, (0, beside, above, 0), mode="replicate") for view in _pair(*shown))
    pair = left, right
    precision = "fp16" if half else "fp32"
    metadata = {
        **spec.to_metadata(),
        **source,
        "input_size": DYNAMIC if size is None else f"{width}x{height}",
        "precision": precision,
        "inputs": "left, right: 1 x 3 x height x width, float32, RGB in [0, 1]",
        "padding": f"edges repeated at the top and the right, to multiples of {multiple}",
    }
    names = ["disparity", "received", "confidence"] if matching else ["left_larger", "right_larger"]
    data = _to_onnx(module, pair, multiple if size is None else None, names, metadata)
    runtime = OnnxModel(data, "cpu")
    found, quick = _measure(lambda: runtime.run_padded(*pair))
    with torch.inference_mode():
        expected, slow = _measure(lambda: plain(*pair))
    unit, levels = ("px", 1.0) if matching else ("grey levels", 255.0)
    compared = list(zip(found, expected, strict=True))[: 1 if matching else 2]
    apart = levels * torch.stack([(one - other).abs() for one, other in compared])
    largest, mean = apart.max().item(), apart.mean().item()
    if not (mean if half else largest) <= MOST[precision][unit]:
        raise ModelError(
            f"this network cannot be exported: the result of ONNX Runtime differs from PyTorch by {mean:.2g} "
            f"{unit} on average, {largest:.2g} {unit} at most"
        )
    return Exported(data, shown, largest, mean, unit, (quick, slow))


def _to_onnx(
    module: nn.Module,
    pair: tuple[Tensor, Tensor],
    multiple: int | None,
    names: list[str],
    metadata: dict[str, str],
) -> bytes:
    """Return a sealed ONNX file for images of any size that is a `multiple`, or of the size of `pair`."""
    # ONNX Runtime simplifies the rest; the exporter's own simplification takes twice the time of all else.
    shapes = None
    if multiple is not None:
        steps = [torch.export.Dim(side, min=8, max=LARGEST_SIDE // SIZE_MULTIPLE * 8) for side in "hw"]
        if multiple > 1:
            steps = [torch.export.Dim(side, min=1, max=LARGEST_SIDE // multiple) * multiple for side in "hw"]
        shapes = {view: dict(zip((2, 3), steps, strict=True)) for view in ("left", "right")}
    fold_constants = import_library("onnxscript.optimizer").fold_constants
    passes = import_library("onnx_ir.passes.common")
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries, about each other
            program = torch.onnx.export(
                torch.export.export(module, pair, dynamic_shapes=shapes, strict=False),
                dynamo=True,
                input_names=["left", "right"],
                output_names=names,
                opset_version=OPSET,
                optimize=False,
                verbose=False,
            )
            assert program is not None
            for _ in range(2):
                fold_constants(program.model)
                passes.RemoveUnusedNodesPass()(program.model)
            passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(program.model)
            passes.DeduplicateInitializersPass()(program.model)
            passes.CommonSubexpressionEliminationPass()(program.model)
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
    program.model.metadata_props.update(metadata)
    return seal(program.model_proto.SerializeToString())


def _pair(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return images (1, 3, H, W) in [0, 1] of a textured plane."""
    noise = torch.rand(1, 3, height, width + SHIFT, generator=torch.Generator().manual_seed(0))
    texture = nn.functional.avg_pool2d(noise, 3, 1, 1, count_include_pad=False)
    return texture[..., :width].contiguous(), texture[..., SHIFT:].contiguous()


def _measure(run: Callable[[], Any]) -> tuple[Any, float]:
    run()
    start = time.perf_counter()
    return run(), time.perf_counter() - start
