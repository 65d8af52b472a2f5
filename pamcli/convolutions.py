"""Convolve fast on CPUs: fused by oneDNN, or by Winograd's F(4x4, 3x3) with a quarter of the products.

oneDNN: fused convolutions apply the following operation while they write, which saves a pass over memory.
Products of float32 matrices use MKL by default, which is half as fast as possible on AMD processors. torch
uses oneDNN if results may be inexact; without AMX, oneDNN has no inexact mode, so results are exact.
Elsewhere torch computes everything as usual.

Winograd: `scripts/build_winograd.py` compiles `winograd.c` when pam is installed; without a C compiler torch
computes the 3x3 convolutions, in twice the time. Results agree up to rounding, about 1e-5 of the input. In
training, the input gradient is another such convolution, and the weight gradient sums such products.
"""

import ctypes
import itertools
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CPUINFO = Path("/proc/cpuinfo")

_ONEDNN = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and torch.backends.cpu.get_cpu_capability().startswith("AVX")
    and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
)
FUSED = {  # True if this device supports fused convolutions
    ("cpu", torch.float32): _ONEDNN,
    ("cpu", torch.bfloat16): _ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported(),
}

KIND = torch.backends.cpu.get_cpu_capability().lower()
LIBRARY = Path(__file__).with_name(f"libwinograd-{KIND}.so")  # compiled for this processor; may be missing

TILE = 4  # rows and columns of an output tile
TOGETHER = 16  # channel counts are multiples of this, which suits both instruction sets
ROWS = 6  # the number of tiles in a block is a multiple of this
BLOCK = 130_000  # approximate number of values per block of tiles, which fit into a core's cache
GRADIENT_BLOCK = 250_000  # the same for the weight gradient, which accumulates
LARGEST = 9 * 128 * 128  # maximum weights of a layer, which need four times the memory
SMALLEST = 4000  # training: minimum map pixels in a batch, below which transforming the weights takes longer
FEWEST = 0.6  # minimum share of a tile's rows and columns inside the result for tiles to pay off

TO_PRODUCTS = torch.tensor(  # transforms three weights of a row to the six factors of the transformed input
    [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]],
    dtype=torch.float64,
    device="cpu",  # whatever the default device is
) / 24  # fmt: skip

BOTH_TO_PRODUCTS = torch.kron(TO_PRODUCTS, TO_PRODUCTS)  # transforms nine weights to 36


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    slope: float | None = None,
    add_to: Tensor | None = None,
) -> Tensor:
    """Convolve x, add that to `add_to` in place, then apply a leaky rectifier of the given slope.

    All in one operation if oneDNN supports it, which has no gradient.
    """
    if (slope is None and add_to is None) or not FUSED.get((x.device.type, x.dtype), False):
        if weight.shape[2:] == (1, 1) and x.device.type == "cpu" and not torch.compiler.is_compiling():
            dilation = 2  # no effect except that torch uses oneDNN, even with one thread
        made = F.conv2d(x, weight, bias, stride, padding, dilation)
        made = made if add_to is None else add_to.add_(made)
        return made if slope is None else F.leaky_relu_(made, slope)
    how = padding, (stride, stride), (dilation, dilation), 1
    if add_to is None:
        fused: Tensor = torch.ops.mkldnn._convolution_pointwise(
            x, weight, bias, *how, "leaky_relu", [slope], ""
        )
        return fused
    rectifier = "relu" if slope == 0 else None
    torch.ops.mkldnn._convolution_pointwise_(add_to, x, weight, bias, *how, "add", None, rectifier, [], "")
    return F.leaky_relu_(add_to, slope) if slope else add_to


def multiply_by_convolution(factor: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Multiply `factor`, which may be overwritten, by a 1x1 convolution of x; float32 is slower fused."""
    if x.dtype == torch.float32 or not FUSED.get((x.device.type, x.dtype), False):
        return factor.mul_(convolve(x, weight, bias))
    how = (0, 0), (1, 1), (1, 1), 1
    with_factor = torch.ops.mkldnn._convolution_pointwise.binary
    made: Tensor = with_factor(x, factor, weight, bias, *how, "mul", None, None, [], None)
    return made


@cache
def is_onednn_faster() -> bool:
    """Return whether oneDNN is faster here and, as tested, exact."""
    named = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else platform.processor()
    if "AuthenticAMD" not in named or not hasattr(torch.backends.mkldnn, "matmul"):
        return False
    a, b = torch.linspace(1, 2, 64 * 64).view(2, 64, 32).chunk(2)
    with _enable_onednn():
        product = torch.matmul(a, b.mT)
    return torch.allclose(product, torch.matmul(a.double(), b.mT.double()).float(), rtol=1e-6)


def use_faster_products() -> AbstractContextManager[None]:
    """Multiply float32 matrices by the faster library, in full precision, in all of a network's run.

    All threads of the program share torch's setting. It is enabled for whole runs, so that each product of a
    network comes from the same library, whatever networks run in other threads.
    """
    return _enable_onednn() if is_onednn_faster() else nullcontext()


_LOCK = threading.Lock()
_RUNS: list[str] = []  # the setting before each run in progress


@contextmanager
def _enable_onednn() -> Iterator[None]:
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    with _LOCK:
        _RUNS.append(_RUNS[0] if _RUNS else settings.fp32_precision)
        settings.fp32_precision = "bf16"
    try:
        yield
    finally:
        with _LOCK:
            before = _RUNS.pop()
            if not _RUNS:
                settings.fp32_precision = before


class _Map(ctypes.Structure):
    """The struct `Map` of winograd.c."""

    _fields_: ClassVar[Any] = [
        *((name, ctypes.c_void_p) for name in ("x", "weight", "bias", "nothing", "y", "room")),
        *((name, ctypes.c_long) for name in ("room_size", "x_row", "x_pixel", "y_row", "y_pixel")),
        *((name, ctypes.c_long) for name in ("x_height", "x_width", "y_height", "y_width")),
        *((name, ctypes.c_long) for name in ("x_channels", "y_channels", "made_channels")),
        *((name, ctypes.c_long) for name in ("first_row", "first_column", "tiles", "tile_columns", "block")),
        ("adds", ctypes.c_long),
        ("slope", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("thread", "threads")),
    ]


class Winograd:
    """A 3x3 convolution of stride 1, ready to run."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, dilation: int = 1) -> None:
        """Transform `weight` (O, I, 3, 3) and `bias` (O,) of a layer that satisfies `can_run`."""
        self.own, self.own_bias, self.dilation = weight, bias, dilation
        self.channels, inputs = weight.shape[:2]
        made = -(-self.channels // TOGETHER) * TOGETHER
        self.weight = torch.zeros(36, inputs, made)
        both = weight.double().permute(2, 3, 1, 0).flatten(0, 1)
        self.weight[..., : self.channels] = torch.tensordot(BOTH_TO_PRODUCTS, both, 1)
        self.bias = torch.zeros(made)
        if bias is not None:
            self.bias[: self.channels] = bias

    def __call__(
        self, x: Tensor, padding: tuple[int, int], slope: float | None, add_to: Tensor | None = None
    ) -> Tensor:
        """Convolve x (B, C, H, W), then rectify with `slope`; add to the map `add_to`, in place, before."""
        height, width = x.shape[2:]
        height, width = height + 2 * (padding[0] - self.dilation), width + 2 * (padding[1] - self.dilation)
        x = x.float()
        if not _is_worthwhile(height, width, self.dilation) or x.stride(1) != 1:
            return convolve(x, self.own, self.own_bias, 1, padding, self.dilation, slope, add_to)
        y = torch.empty((len(x), self.channels, height, width), memory_format=torch.channels_last)
        if add_to is not None:
            y = add_to.contiguous(memory_format=torch.channels_last)
        channels = self.weight.shape[1:]
        block = ROWS * max(1, round(BLOCK / (36 * sum(channels) * ROWS)))
        size = 36 * block * sum(channels)
        room = torch.empty(size * torch.get_num_threads())
        map_ = _Map(
            weight=self.weight.data_ptr(),
            bias=self.bias.data_ptr(),
            room=room.data_ptr(),
            room_size=size,
            block=block,
            slope=1.0 if slope is None else slope,
            adds=add_to is not None,
        )
        map_.x_channels, map_.made_channels = channels
        _run("make_map", map_, x, y, padding, self.dilation)
        return y


def weight_gradient(x: Tensor, gradient: Tensor, dilation: int = 1) -> Tensor | None:
    """Compute the weight gradient (O, I, 3, 3) of a size-preserving 3x3 convolution of stride 1."""
    # x and the output gradient are channels last. None: torch must compute it (channels, small maps).
    inputs, outputs = x.shape[1], gradient.shape[1]
    if inputs % TOGETHER or outputs % TOGETHER or not _is_worthwhile(x.shape[2], x.shape[3], dilation):
        return None
    block = ROWS * max(1, round(GRADIENT_BLOCK / (36 * (inputs + outputs) * ROWS)))
    size = 36 * (inputs * outputs + block * (inputs + outputs))
    room = torch.zeros(torch.get_num_threads(), size)
    map_ = _Map(room=room.data_ptr(), room_size=size, block=block)
    map_.x_channels, map_.y_channels = inputs, outputs
    _run("add_gradient", map_, x, gradient, (dilation, dilation), dilation)
    products = room[:, : 36 * inputs * outputs].sum(0).view(36, -1)
    return (BOTH_TO_PRODUCTS.float().T @ products).view(3, 3, inputs, outputs).permute(3, 2, 0, 1)


def _is_worthwhile(height: int, width: int, dilation: int) -> bool:
    """Return whether tiles fit a result of this height and width well enough to be faster."""
    rows, columns = height / dilation, width / dilation
    return rows * columns >= FEWEST * (-(-rows // TILE) * TILE) * (-(-columns // TILE) * TILE)


def _run(name: str, map_: _Map, x: Tensor, y: Tensor, padding: tuple[int, int], apart: int) -> None:
    """Call a function of `winograd.c` on the input (B, C, H, W) and the corresponding output."""
    function, openmp, threads = getattr(_library(), name), _openmp(), torch.get_num_threads()
    nothing = torch.zeros(x.shape[1])
    map_.nothing, map_.y_channels = nothing.data_ptr(), y.shape[1]
    map_.x_row, map_.x_pixel = apart * x.stride(2), apart * x.stride(3)
    map_.y_row, map_.y_pixel = apart * y.stride(2), apart * y.stride(3)
    # Rows and columns interleaved by the dilation are independent maps.
    for row, column in itertools.product(range(apart), repeat=2):
        map_.first_row, down = divmod(row - padding[0], apart)
        map_.first_column, across = divmod(column - padding[1], apart)
        own, made = x[:, :, down::apart, across::apart], y[:, :, row::apart, column::apart]
        map_.x_height, map_.x_width = own.shape[2:]
        map_.y_height, map_.y_width = made.shape[2:]
        map_.tile_columns = -(-map_.y_width // TILE)
        map_.tiles = -(-map_.y_height // TILE) * map_.tile_columns
        for source, result in zip(own, made, strict=True):
            map_.x, map_.y = source.data_ptr(), result.data_ptr()
            if threads == 1 or openmp is None:
                function(ctypes.byref(map_))
            else:
                parallel, map_.thread, map_.threads = openmp
                parallel(ctypes.cast(function, ctypes.c_void_p), ctypes.addressof(map_), threads, 0)


def available() -> bool:
    """Return whether `winograd.c` was compiled and can share torch's threads."""
    return _library() is not None and (_openmp() is not None or torch.get_num_threads() <= 2)


def can_run(layer: nn.Conv2d) -> bool:
    """Return whether `winograd.c` supports a layer."""
    return (
        layer.kernel_size == (3, 3)
        and layer.stride == (1, 1)
        and layer.groups == 1
        and layer.dilation[0] == layer.dilation[1]
        and can_channels(*layer.weight.shape[:2])
        and layer.weight.dtype == torch.float32
        and layer.weight.device.type == "cpu"
        and available()
    )


def can_channels(outputs: int, inputs: int) -> bool:
    return inputs % TOGETHER == 0 and outputs > TOGETHER and 9 * inputs * outputs <= LARGEST


def make_faster(network: nn.Module) -> None:
    """Replace the layers of a network on a CPU by ones that train faster, in place; weight keys stay.

    In float32, Winograd computes 3x3 convolutions and their gradients, and oneDNN the others, in half the
    time of torch's own code for 1x1; in bf16, 1x1 convolutions are matrix products.
    """
    for layer in network.modules():
        if not isinstance(layer, nn.Conv2d):
            continue
        if layer.kernel_size == (1, 1):
            layer.dilation = 2, 2  # no effect except that torch uses oneDNN
            plain = type(layer) is nn.Conv2d and layer.groups == 1
            if plain and layer.stride == (1, 1) and layer.padding == (0, 0):
                layer.__class__ = _Pointwise
        elif can_run(layer) and layer.padding == layer.dilation:
            layer.__class__ = _WinogradConv2d


class _Pointwise(nn.Conv2d):
    """A 1x1 layer."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_autocast_enabled("cpu") or not x.is_contiguous():  # keeps channels last
            return super().forward(x)
        weight = self.weight.flatten(1).expand(len(x), -1, -1)
        out = torch.bmm(weight, x.flatten(2)).view(len(x), -1, *x.shape[2:])
        return out if self.bias is None else out + self.bias.to(out.dtype)[:, None, None]


class _WinogradConv2d(nn.Conv2d):
    """A 3x3 layer that keeps the size and satisfies `can_run`."""

    def forward(self, x: Tensor) -> Tensor:
        small = len(x) * x.shape[2] * x.shape[3] < SMALLEST
        if small or torch.is_autocast_enabled("cpu") or x.dtype != torch.float32:
            return super().forward(x)
        run: Callable[..., Tensor] = _Convolution.apply
        return run(x, self.weight, self.bias, self.dilation[0])


class _Convolution(torch.autograd.Function):
    """A convolution of (B, I, H, W) by weights (O, I, 3, 3) and a bias (O,) or None, to (B, O, H, W)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight)
        ctx.dilation, ctx.biased = dilation, bias is not None
        return Winograd(weight, bias, dilation)(x, (dilation, dilation), None)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        outputs, same, wanted = len(weight), (ctx.dilation, ctx.dilation), ctx.needs_input_grad
        of_bias = gradient.sum((0, 2, 3)) if ctx.biased and wanted[2] else None
        if more := -outputs % TOGETHER:
            gradient = F.pad(gradient, (0, 0, 0, 0, 0, more))
            weight = F.pad(weight, (0, 0, 0, 0, 0, 0, 0, more))
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        of_x = of_weight = None
        if wanted[0] and can_channels(*weight.shape[1::-1]):
            turned = weight.flip(2, 3).transpose(0, 1)
            of_x = Winograd(turned, None, ctx.dilation)(gradient, same, None)
        if wanted[1]:
            of_weight = weight_gradient(x, gradient, ctx.dilation)
        left = [wanted[0] and of_x is None, wanted[1] and of_weight is None, False]
        if any(left):
            how = None, (1, 1), same, same, False, (0, 0), 1, left
            theirs = torch.ops.aten.convolution_backward(gradient, x, weight, *how)
            of_x, of_weight = (theirs[0] if left[0] else of_x), (theirs[1] if left[1] else of_weight)
        return of_x, None if of_weight is None else of_weight[:outputs], of_bias, None


@cache
def _library() -> Any:
    """Load the compiled library; return None if it is missing or does not fit."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        return library if library.size_of_map() == ctypes.sizeof(_Map) else None
    except (OSError, AttributeError):  # not compiled, or for another machine or version
        return None


@cache
def _openmp() -> tuple[Any, int | None, int | None] | None:
    """Return access to torch's threads, which separate threads would disturb.

    GOMP_parallel(function, its argument, number of threads, 0), and the addresses of functions without
    arguments for the thread's index and the number of threads.
    """
    for path in sorted(Path(torch.__file__).parent.glob("lib/libgomp*")):
        library = ctypes.CDLL(str(path))
        library.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        library.GOMP_parallel.restype = None
        index, count = library.omp_get_thread_num, library.omp_get_num_threads
        addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in (index, count)]
        return library.GOMP_parallel, addresses[0], addresses[1]
    return None
