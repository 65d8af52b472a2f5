"""Load the stereo model of some weights: pam's own networks in PyTorch, exported files, foreign networks."""

import copy
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pamcli.errors import UsageError
from pamcli.inference import Progress, Report, device
from pamcli.inference.device import PRECISIONS, Compute, CudaGraphs, catch_memory_errors, run_program
from pamcli.inference.foreign import ForeignModel
from pamcli.inference.images import Pixels, crop_extras, to_network, to_pixels, to_plain
from pamcli.inference.onnx_file import OnnxModel, is_exported
from pamcli.inference.protocol import Maps, Names, StereoModel
from pamcli.registry import load
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.catalog import REGISTERED, REMOTE, ModelSpec
from pamcli.settings import shared


def load_model(path: Path, settings: shared.Network) -> StereoModel:
    """Load the network of a file. Raises the errors of `StereoMatcher.load`."""
    assert isinstance(settings, shared.Compute)
    precision, network_from = settings.precision, settings.network_from
    device.warn_of_spinning_threads()
    device.keep_freed_memory()
    if network_from is not None and path.suffix != ".toml":
        what = "`network_from` requires a description as `weights`"
        raise UsageError(what, "write one: pam weights describe --network-from MODULE:FUNCTION -o NET.toml")
    if path.suffix == ".onnx" and is_exported(path):
        return OnnxModel(path, settings.device, precision)
    if path.suffix in (".onnx", ".toml"):
        return ForeignModel.load(path, settings.device, precision, network_from)
    compute = Compute.choose(settings.device, precision, reduce=True)  # before the weights: it may fail
    network, spec = load.load_network(path)
    if precision == "auto" and not spec.row.sixteen_bits:
        compute = compute._replace(precision="fp32")
    return TorchModel(network, spec, compute)


def reload(network: Any, origin: tuple[shared.Network, Path] | None) -> tuple[Any, ...]:
    """Return how a pickle loads a network again: by name, or from the absolute path of other weights."""
    if origin is None:
        kind = type(network).__name__
        raise TypeError(f"only a {kind} of `{kind}.load` can be pickled")
    name, (settings, path) = origin[0].weights, origin
    if not (isinstance(name, str) and (name in REGISTERED or name.startswith(REMOTE))):
        settings = replace(settings, weights=path)
    return type(network).from_settings, (settings,)


class TorchModel(StereoModel):
    """One of pam's own networks in PyTorch."""

    def __init__(self, network: Any, spec: ModelSpec, compute: Compute) -> None:
        """Prepare a network (see its `prepare`) for a device and a precision."""
        self.spec, self.compute = spec, compute
        self.multiple = spec.row.multiple
        with catch_memory_errors(f"the network does not fit into the memory of {compute.device}"):
            if compute.device.type == "mps":  # networks are prepared in float64, which mps lacks
                network = copy.deepcopy(network).cpu()
            self.network = network.prepare(PRECISIONS[compute.precision]).to(compute.device)
        self.halo = network.HALO
        self.graphs = CudaGraphs(compute) if compute.device.type == "cuda" else None
        mean, std = (IMAGE_MEAN, IMAGE_STD) if spec.row.normalised else ((0.0,) * 3, (1.0,) * 3)
        self._mean = torch.tensor(mean, device=compute.device).view(3, 1, 1)
        self._std = torch.tensor(std, device=compute.device).view(3, 1, 1)

    def match(
        self, left: Pixels, right: Pixels, progress: Report, *, max_disparity: int | None, extras: Names
    ) -> Maps:
        height, width = left.shape[:2]
        above, beside = -height % self.multiple, -width % self.multiple

        def program(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
            left, right = to_network(left, above, beside), to_network(right, above, beside)
            images = (left - self._mean) / self._std, (right - self._mean) / self._std
            is_asked = "confidence" in extras
            found = self.network(*images, max_disparity, confidence=is_asked)
            disparity = found.disparity[0, 0, above:, :width]
            if not extras:
                return (disparity,)
            confidence = found.confidence if is_asked else None
            return disparity, *crop_extras(extras, above, width, found.attention_mass, confidence)

        key, pair = (max_disparity, extras), (to_plain(left), to_plain(right))
        found = run_program(program, *pair, compute=self.compute, graphs=self.graphs, key=key)
        return dict(zip(("disparity", *extras), found, strict=True))

    def upscale(self, left: Pixels, right: Pixels, progress: Report, *, both: bool) -> Maps:
        kinds = left.dtype, right.dtype

        def program(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
            found = self.network(to_network(left), to_network(right), both=both)
            images = (found.left, found.right) if both else (found.left,)
            return tuple(to_pixels(each[0], kind) for each, kind in zip(images, kinds, strict=False))

        with nullcontext() if progress is None or self.graphs is not None else self._report_blocks(progress):
            pair = to_plain(left), to_plain(right)
            found = run_program(program, *pair, compute=self.compute, graphs=self.graphs, key=(both, kinds))
        images = [each.astype(kind, copy=False) for each, kind in zip(found, kinds, strict=False)]
        return dict(zip(("left", "right"), images, strict=False))

    def release_memory(self) -> None:
        if self.graphs is not None:
            self.graphs.forget()

    @contextmanager
    def _report_blocks(self, progress: Progress) -> Iterator[None]:
        """Report progress after each of the network's blocks, if it has a list of them."""
        blocks = [*getattr(self.network, "blocks", ())]
        count = itertools.count(1)
        with ExitStack() as stack:
            for block in blocks:
                hook = block.register_forward_hook(lambda *_: progress(next(count) / len(blocks)))
                stack.callback(hook.remove)
            yield
