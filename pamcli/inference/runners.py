"""Run foreign networks: named arrays in, named arrays out."""

import importlib
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.errors import ModelError, UsageError
from pamcli.inference.device import Compute
from pamcli.inference.memory import is_memory_error
from pamcli.inference.providers import ON_CPU, PROVIDERS, open_session, running
from pamcli.inference.runtime import Runtime
from pamcli.registry.interface import Interface, Port

TYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
}
"""Input types that can hold images."""

LARGEST_INPUT = 1 << 28  # maximum number of input values
FREE_SIDE = 64  # px of a free side when probing a network

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Session:
    """An ONNX file in ONNX Runtime."""

    name: str
    compute: Compute
    interface: Interface
    session: Any

    @classmethod
    def load(cls, path: Path, device: str, precision: str = "auto") -> "Session":
        """Open an .onnx file, which may refer to other files beside it.

        `precision`: auto, or the file's own. Raises as `open_session`, and UsageError: another precision.
        """
        session, where = open_session(path, device)
        inputs, outputs = (
            tuple(Port(each.name, _shape(each.shape), each.type) for each in ports)
            for ports in (session.get_inputs(), session.get_outputs())
        )
        for what, ports in (("input", inputs), ("output", outputs)):
            if not ports:
                raise ModelError(f"{path} has no {what}", "export it with two views in and a result out")
        for port in inputs:
            if math.prod(side or 1 for side in port.shape) > LARGEST_INPUT:
                raise ModelError(f"{path}: its input {port} is larger than pictures are")
            if port.type not in TYPES:
                raise ModelError(f"{path}: its input {port.name} is a {port.type}, which no picture can be")
        half = any(port.type == "tensor(float16)" for port in inputs)
        compute = Compute(torch.device("cpu"), "fp16" if half else "fp32", f"onnxruntime {where}")
        if precision not in ("auto", compute.precision):
            said = f"{path} takes {compute.precision}, not {precision}"
            raise UsageError(said, "`precision` auto takes that of the file")
        return cls(str(path), compute, Interface(inputs, outputs), session)

    @property
    def says(self) -> str:
        """Runtime and device, for people."""
        used = [each for each in self.session.get_providers() if each != ON_CPU]
        kinds = {provider: kind for kind, provider in PROVIDERS.items()}
        first = self.compute.runtime.removeprefix("onnxruntime ")
        others = [kinds.get(each, each) for each in used[1:]]
        rest = f", the CPU where {' and '.join([first, *others])} cannot" if used else ""
        return f"{self.name} runs in ONNX Runtime on {first}{rest}"

    def probed(self) -> tuple[Interface, int]:
        """Return the interface, with output shapes from a run on black images, and the scale.

        The scale is the ratio of the first output to the first input. Raises ModelError.
        """
        given = {
            port.name: np.zeros([side or FREE_SIDE for side in port.shape[1:]], np.float32)[None]
            for port in self.interface.inputs
        }
        found = self.run(given)
        outputs = tuple(replace(port, shape=found[port.name].shape) for port in self.interface.outputs)
        first = next(iter(given.values())), next(iter(found.values()))
        larger = first[1].shape[-1] // first[0].shape[-1] if first[1].ndim else 0
        return replace(self.interface, outputs=outputs), larger

    def run(self, given: Mapping[str, NDArray[np.float32]]) -> Arrays:
        """Run the network; raise ModelError or MemoryError."""
        types = {port.name: TYPES[port.type] for port in self.interface.inputs}
        ready = {
            name: (values.round().clip(0, 255) if types[name] is np.uint8 else values).astype(types[name])
            for name, values in given.items()
        }
        shapes = ", ".join(f"{name} {'x'.join(map(str, values.shape))}" for name, values in ready.items())
        with running(f"{self.name} on {shapes}", "pam guide own-network"):
            found = self.session.run(None, ready)
        if not all(isinstance(each, np.ndarray) for each in found):
            raise ModelError(f"{self.name} gives something other than arrays", "pam guide own-network")
        return dict(zip((port.name for port in self.interface.outputs), found, strict=True))


@dataclass(frozen=True)
class Module:
    """A user's PyTorch network, called with its inputs in the order of the description."""

    name: str
    compute: Compute
    network: Any
    runtime: Runtime
    names: list[str] = field(default_factory=list)
    """Names of its outputs, as the last run showed them."""
    interface: None = None

    @classmethod
    def load(cls, source: str, device: str, precision: str) -> "Module":
        """Create the network by calling `source`, "module:function", without arguments; its code runs.

        Raises UsageError: unknown module or function; ModelError: the function fails or returns no network.
        """
        compute = Compute.choose(device, precision)
        module, colon, function = source.partition(":")
        if not (module and colon and function):
            raise UsageError(f"`network_from` {source!r} is no place of a network", "MODULE:FUNCTION")
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
        try:
            home = importlib.import_module(module)
        except ModuleNotFoundError as error:
            hint = "it is looked for in the current folder and among the installed packages"
            raise UsageError(f"`network_from` {source}: no module {error.name}", hint) from None
        except Exception as error:
            raise ModelError(f"{source} fails: {type(error).__name__}: {error}") from error
        if not hasattr(home, function):
            raise UsageError(f"`network_from` {source}: {module} has no {function}")
        try:
            network = getattr(home, function)()
        except Exception as error:
            raise ModelError(f"{source} fails: {type(error).__name__}: {error}") from error
        if not callable(network):
            raise ModelError(f"{source} makes a {type(network).__name__}, no network that can be called")
        if isinstance(network, torch.nn.Module):
            network = network.to(compute.device).eval()
            if compute.device.type == "cuda":
                network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return cls(source, compute, network, Runtime(compute))

    @property
    def says(self) -> str:
        """Runtime and device, for people."""
        return f"{self.name} runs in PyTorch on {', '.join(self.compute.describe().values())}"

    def run(self, given: Mapping[str, NDArray[np.float32]]) -> Arrays:
        """Run the network; unnamed outputs are called 0, 1, ...; raise ModelError or MemoryError."""

        def program(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with self.compute.autocast():
                found = self.network(*tensors)
            found = [found] if isinstance(found, torch.Tensor) else found
            named = found.items() if isinstance(found, Mapping) else enumerate(found)
            tensors_of = {str(name): each for name, each in named if isinstance(each, torch.Tensor)}
            self.names[:] = tensors_of
            return tuple(each.float() for each in tensors_of.values())

        try:
            arrays = self.runtime(program, self.name, *given.values(), verify=True)
        except Exception as error:
            if isinstance(error, MemoryError | RuntimeError) and is_memory_error(error):
                raise
            reason = str(error).strip().partition("\n")[0]
            raise ModelError(f"{self.name} fails: {type(error).__name__}: {reason}") from error
        if not arrays:
            raise ModelError(f"{self.name} gives no tensor")
        return dict(zip(self.names, arrays, strict=True))


Runner = Session | Module


def open_runner(
    network: str | Path | None, network_from: str | None, device: str, precision: str, named_by: str | Path
) -> Runner:
    """Open an ONNX file, or the network that "module:function" makes.

    `named_by`: the description that names the file. Raises ModelError, DeviceError; UsageError: none or both
    given.
    """
    if network and network_from is not None:
        said = f"{named_by} names a network, {network}, and `network_from` {network_from} makes another"
        raise UsageError(said, "leave one of them out")
    if network_from is not None:
        return Module.load(network_from, device, precision)
    if not network:
        raise UsageError(f"{named_by} names no network", "`network_from` MODULE:FUNCTION makes it")
    return Session.load(Path(network), device, precision)


def _shape(given: list[Any]) -> tuple[int | None, ...]:
    return tuple(side if isinstance(side, int) and side > 0 else None for side in given or [])
