"""Networks of pam as ONNX files: exported, compared with PyTorch, and run by ONNX Runtime."""

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
from pamcli.inference import Progress
from pamcli.inference.device import Compute
from pamcli.inference.images import Pixels, padding, plain_array, to_network, to_pixels
from pamcli.inference.match_size import MatchSize
from pamcli.inference.memory import HINT, free_memory, readable
from pamcli.inference.model import Match, predict_memory
from pamcli.inference.providers import ON_CPU, library, open_session, running
from pamcli.networks.blocks import convert, fold_batch_norms, upsample
from pamcli.networks.parallax import valid_mask
from pamcli.networks.pasmnet import SIZE_MULTIPLE
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.load import Network
from pamcli.registry.spec import ModelSpec, reading

SUFFIX = ".onnx"
DYNAMIC = "dynamic"  # the size of a file that takes pictures of any

OPSET = 18
LARGEST_SIDE = 8160  # pixels of a picture that a file of any size is made for; memory ends long before
EXPORTED_MEMORY = 3
"""Times the memory of PyTorch: ONNX Runtime holds whole maps, and more of them."""
SHIFT = 12  # disparity of the pair that the check is made with, in pixels

MOST = {"fp32": {"px": 1e-3, "grey levels": 0.5}, "fp16": {"px": 0.1, "grey levels": 0.5}}
"""Deviation from PyTorch's fp32 that is passed: the largest of fp32, the mean of fp16."""


_SEAL = b"\x72\x4a\x0a\x06sealed\x12\x40"  # field 14 of 74 bytes: key of 6 and value of 64


def sealed(data: bytes) -> bytes:
    """An ONNX file with the sha256 of its bytes as one more of its metadata, which may stand last."""
    return data + _SEAL + hashlib.sha256(data).hexdigest().encode()


def require_as_sealed(path: Path) -> None:
    """Check the seal of a file. Raises ModelError where it has one, and is not as it was then."""
    data = path.read_bytes()
    if _SEAL in data[-100:] and data != sealed(data[: data.rindex(_SEAL)]):
        raise ModelError(
            f"{path} is damaged, or another program has changed it since its export", "export it again"
        )


def is_exported(path: Path) -> bool:
    """Whether a file seems to be of `export`; a missing or unreadable one, too: loading it says so.

    Raises ModelError: it is a pipe or a device.
    """
    check_regular(path, ModelError)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(b"pam_format") >= 0
    except (OSError, ValueError):  # an empty file
        return True


class OnnxModel:
    """A network of `export`, as `model.StereoModel`."""

    halo = 0  # it takes whole images, of its own size where it has one
    has_confidence = has_fixed_search = True
    says: str | None = None

    def __init__(self, model: Path | bytes, device: str = "auto", precision: str = "auto") -> None:
        """`model`: a file, or its bytes. `device`: auto, or one of ONNX Runtime's, see `providers`.

        `precision`: auto, or that of the file. Raises ModelError, DeviceError, UsageError.
        """
        name = "the network" if isinstance(model, bytes) else str(model)
        if isinstance(model, Path):
            with reading(model, "pam weights export makes one"):
                model = model.read_bytes()
        self.session, where = open_session(model, device, name=name)
        try:
            self.said: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        except UnicodeDecodeError as error:
            raise ModelError(f"{name} is no ONNX file, or is damaged: its notes are no text") from error
        said = self.said
        try:
            self.spec = ModelSpec.from_metadata(said)
            sides = re.fullmatch(r"(\d{1,5})x(\d{1,5})", said["size"])
            if sides is None and said["size"] != DYNAMIC:
                raise ValueError(said["size"])
            self.size = None if sides is None else (int(sides[1]), int(sides[2]))
            stored = said["precision"]
        except (ModelError, KeyError, ValueError) as error:
            raise ModelError(
                f"{name} does not say which network it holds", "pam weights export does"
            ) from error
        if precision not in ("auto", stored):
            said = f"{name} computes in {stored}, not in {precision}"
            raise UsageError(said, "`precision` auto takes that of the file")
        self.compute = Compute(torch.device("cpu"), stored, f"onnxruntime {where}")
        self.multiple = self.spec.row.multiple

    def check_search(self, max_disparity: int | None, min_disparity: int, size: MatchSize) -> MatchSize:
        """Return the match size that is possible: the search is fixed in the file. Raises UsageError."""
        limit = self.spec.max_disparity
        if max_disparity != limit or (limit is not None and (min_disparity or size not in (1, "auto"))):
            searched = (
                "any disparity"
                if limit is None
                else f"disparities from 0 to {limit} px, at the images' own size,"
            )
            raise UsageError(f"the exported network searches {searched} alone", "export it again")
        return size if limit is None else 1.0

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Say that images are padded, see `model.StereoModel`."""
        if self.size in (None, (height, width)):
            return None
        return f"images of {width}x{height} are padded to {self.size[1]}x{self.size[0]}, the exported size"

    def fitting(self, height: int, width: int) -> tuple[int, int] | None:
        """Return None: images are padded, not reduced."""
        return None

    def memory(self, height: int, width: int) -> int:
        """Predict the bytes that images take; that of a GPU is ONNX Runtime's affair."""
        if self.session.get_providers()[0] != ON_CPU:
            return 0
        above, beside = padding(height, width, self.multiple, self.size)
        return EXPORTED_MEMORY * predict_memory(self.spec, height + above, width + beside)

    def match(
        self,
        left: Pixels,
        right: Pixels,
        *,
        max_disparity: int | None = None,
        confidence: bool = False,
        attended: bool = False,
        progress: Progress | None = None,
    ) -> Match:
        """Match a pair, see `model.StereoModel`."""
        above, beside = padding(left.shape[0], left.shape[1], self.multiple, self.size)
        disparity, received, sure = self._run(left, right, above, beside)
        inside = slice(above, None), slice(left.shape[1])
        valid = None
        if attended:
            valid = valid_mask(received)[0].repeat_interleave(4, 0).repeat_interleave(4, 1)[inside].numpy()
        shown = upsample(sure[None], 4)[0, 0][inside].contiguous().numpy() if confidence else None
        return Match(disparity[0, 0][inside].contiguous().numpy(), shown, valid)

    def upscale(
        self, left: Pixels, right: Pixels, *, both: bool = True, progress: Progress | None = None
    ) -> tuple[Pixels, ...]:
        """Upscale a pair, see `model.StereoModel`."""
        above, beside = padding(left.shape[0], left.shape[1], self.multiple, self.size)
        scale = self.spec.scale or 1
        found = self._run(left, right, above, beside)[: 2 if both else 1]
        images = zip(found, (left, right), strict=False)
        inside = (..., slice(scale * above, None), slice(scale * left.shape[1]))
        return tuple(
            to_pixels(made[0][inside], image.dtype).numpy().astype(image.dtype, copy=False)
            for made, image in images
        )

    def _run(self, left: Pixels, right: Pixels, above: int, beside: int) -> list[Tensor]:
        images = [to_network(torch.from_numpy(plain_array(each)), above, beside) for each in (left, right)]
        return self.run_padded(*images)

    def run_padded(self, left: Tensor, right: Tensor) -> list[Tensor]:
        """Run the network on padded images (1, 3, H, W) in [0, 1]. Raises ModelError."""
        with running("the network", "export it again"):
            found = self.session.run(None, {"left": left.numpy(), "right": right.numpy()})
        expected = [(self.spec.scale or 1) * side for side in left.shape[2:]]
        if list(found[0].shape[2:]) != expected:
            raise ModelError("the network gives another size than its file says", "export it again")
        return [torch.from_numpy(each) for each in found]


@dataclass(frozen=True)
class Exported:
    """A file, and what its check found."""

    data: bytes
    size: tuple[int, int]
    """Rows and columns of the pictures that the check was made with."""
    largest: float
    mean: float
    """Deviation from PyTorch, in `unit`."""
    unit: str
    seconds: tuple[float, float]
    """Seconds that ONNX Runtime and PyTorch take for equal whole maps on the CPU."""


class _Matching(nn.Module):
    def __init__(self, network: nn.Module, max_disparity: int | None) -> None:
        super().__init__()
        self.network, self.max_disparity = network, max_disparity
        self.mean, self.std = (torch.tensor(each).view(3, 1, 1) for each in (IMAGE_MEAN, IMAGE_STD))

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
        views = [(view - self.mean) / self.std for view in (left, right)]
        found = self.network(*views, self.max_disparity)
        return found.disparity, found.received, found.confidence


class _Enlarging(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
        found = self.network(left, right, both=True)
        return found.left, found.right


def export(
    network: Network, spec: ModelSpec, size: tuple[int, int] | None, *, half: bool, source: dict[str, str]
) -> Exported:
    """A network as an ONNX file, of pictures of `size` (rows, columns), or of any with None.

    Sides are rounded up to what the network takes, and it is held against PyTorch with a pair of just `size`,
    padded as the file says. `half`: convolutions in fp16. `source`: more of what the
    file says about itself. Raises ModelError where ONNX Runtime does not find what PyTorch does, DeviceError
    for too little memory, UsageError where libraries are missing.
    """
    for name in ("onnx", "onnxscript", "onnxruntime"):
        library(name)
    matching = spec.row.task == "disparity"
    least = spec.row.multiple
    shown = size or (3 * SIZE_MULTIPLE, 4 * SIZE_MULTIPLE)
    tried = tuple(-(-side // least) * least for side in shown)
    needed = EXPORTED_MEMORY * predict_memory(spec, *tried)
    free = free_memory(torch.device("cpu"))
    if free is not None and needed > free:
        side = f"{tried[0]}x{tried[1]}"
        raise DeviceError(f"{side} needs {readable(needed)} of memory, {readable(free)} are free", HINT)
    exact = fold_batch_norms(network)
    plain = _wrapped(exact, spec)
    module = _wrapped(_halved(fold_batch_norms(network), matching), spec) if half else plain
    above, beside = (padded - side for padded, side in zip(tried, shown, strict=True))
    left, right = (nn.functional.pad(view, (0, beside, above, 0), mode="replicate") for view in _pair(*shown))
    pair = left, right
    precision = "fp16" if half else "fp32"
    names = ["disparity", "received", "confidence"] if matching else ["left_larger", "right_larger"]
    metadata = spec.to_metadata() | source
    metadata |= {
        "size": DYNAMIC if size is None else f"{tried[0]}x{tried[1]}",
        "precision": precision,
        "inputs": "left, right: 1 x 3 x rows x columns, float32, RGB in [0, 1]",
        "padding": f"edges repeated at the top and the right, to multiples of {least}",
    }
    data = _as_onnx(module, pair, least if size is None else None, names, metadata)
    runtime = OnnxModel(data, "cpu")
    found, quick = _timed(lambda: runtime.run_padded(*pair))
    with torch.inference_mode():
        expected, slow = _timed(lambda: plain(*pair))
    unit, per = ("px", 1.0) if matching else ("grey levels", 255.0)
    compared = list(zip(found, expected, strict=True))[: 1 if matching else 2]
    apart = per * torch.stack([(one - other).abs() for one, other in compared])
    largest, mean = apart.max().item(), apart.mean().item()
    if not (mean if half else largest) <= MOST[precision][unit]:
        raise ModelError(
            f"ONNX Runtime's result is {mean:.2g} {unit} from PyTorch's in the mean, {largest:.2g} at most",
            "this network cannot be exported so",
        )
    return Exported(data, shown, largest, mean, unit, (quick, slow))


def _wrapped(network: Network, spec: ModelSpec) -> nn.Module:
    whole = _Matching(network, spec.max_disparity) if spec.row.task == "disparity" else _Enlarging(network)
    return whole.eval()


def _halved(network: Any, matching: bool) -> Any:
    """Convolutions in fp16, whatever they are given; attention and results stay float32."""
    network = convert(network, torch.float16) if matching else network.half()
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_pre_hook(lambda layer, given: (given[0].to(layer.weight.dtype),))
    return network


def _traced(
    module: nn.Module, pair: tuple[Tensor, Tensor], multiple: int | None
) -> torch.export.ExportedProgram:
    """What a network computes, as a graph of PyTorch's.

    multiple: of both sides of pictures of any size; None: they have that of `pair`.
    """
    shapes = None
    if multiple is not None:
        steps = [torch.export.Dim(side, min=8, max=LARGEST_SIDE // SIZE_MULTIPLE * 8) for side in "hw"]
        if multiple > 1:
            steps = [torch.export.Dim(side, min=1, max=LARGEST_SIDE // multiple) * multiple for side in "hw"]
        shapes = {view: dict(zip((2, 3), steps, strict=True)) for view in ("left", "right")}
    return torch.export.export(module, pair, dynamic_shapes=shapes, strict=False)


def _as_onnx(
    module: nn.Module,
    pair: tuple[Tensor, Tensor],
    multiple: int | None,
    names: list[str],
    metadata: dict[str, str],
) -> bytes:
    """A sealed ONNX file; multiple: as of `_traced`. ONNX Runtime does what is left out of simplifying it.

    The library's own simplification takes twice the time of all the rest, and hardly finds more.
    """
    fold_constants = library("onnxscript.optimizer").fold_constants
    passes = library("onnx_ir.passes.common")
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries, about each other
            program = torch.onnx.export(
                _traced(module, pair, multiple),
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
        log.setLevel(level)
    program.model.metadata_props.update(metadata)
    return sealed(program.model_proto.SerializeToString())


def _pair(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Views (1, 3, H, W) in [0, 1] of a textured plane."""
    noise = torch.rand(1, 3, height, width + SHIFT, generator=torch.Generator().manual_seed(0))
    texture = nn.functional.avg_pool2d(noise, 3, 1, 1, count_include_pad=False)
    return texture[..., :width].contiguous(), texture[..., SHIFT:].contiguous()


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    run()
    start = time.perf_counter()
    return run(), time.perf_counter() - start
