"""Run networks of other programs: named arrays in, named arrays out, in ONNX Runtime or PyTorch."""

import hashlib
import importlib
import io
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.errors import DeviceError, ModelError, UsageError, suggest_extra
from pamcli.inference.device import HINT, Compute, CudaGraphs, first_line, is_memory_error, run_program
from pamcli.inference.protocol import Maps
from pamcli.registry.catalog import convert_read_errors
from pamcli.registry.downloads import find_cache
from pamcli.registry.families import Interface, Port

PROVIDERS = {  # ONNX Runtime's provider names, by device
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
}
ON_CPU = "CPUExecutionProvider"
INSTALL = {
    "cuda": "pip install onnxruntime-gpu",
    "tensorrt": "pip install onnxruntime-gpu",
    "openvino": "pip install onnxruntime-openvino",
    "coreml": "use macOS",
}
TYPES: dict[str, type[np.generic]] = {  # input types that can hold images
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
}
LARGEST_INPUT = 1 << 28  # maximum number of input values
GUIDE = "pam guide own-network"


def import_library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed", suggest_extra("onnx")) from None


def choose_providers(
    available: list[str], device: str, engines: Path | None = None
) -> tuple[list[tuple[str, dict[str, str]]], str]:
    """Return ONNX Runtime's providers, best first, and the device; `engines`: folder of built engines."""
    kind, _, number = device.partition(":")
    if device == "auto":
        kind = device = "cuda" if PROVIDERS["cuda"] in available else "cpu"
    if kind == "cpu":
        return [(ON_CPU, {})], kind
    if PROVIDERS.get(kind) not in available:
        install = f", or {INSTALL[kind]}" if kind in INSTALL else ""
        raise DeviceError(f"the installed ONNX Runtime does not support {kind}", f"use `device` cpu{install}")
    place = {"device_id": number or "0"}
    options: dict[str, dict[str, str]] = {"cuda": place, "tensorrt": {**place}, "openvino": {}, "coreml": {}}
    if engines is not None:
        for cache in ("engine", "timing"):
            options["tensorrt"][f"trt_{cache}_cache_enable"] = "True"
            options["tensorrt"][f"trt_{cache}_cache_path"] = str(engines)
        options["openvino"]["cache_dir"] = str(engines)
        options["coreml"] = {"ModelFormat": "MLProgram", "ModelCacheDirectory": str(engines)}
    names = [kind, "cuda"] if kind == "tensorrt" and PROVIDERS["cuda"] in available else [kind]
    return [*((PROVIDERS[name], options[name]) for name in names), (ON_CPU, {})], device


def open_session(model: Path | bytes, device: str, *, name: str | None = None) -> tuple[Any, str]:
    """Open an ONNX Runtime session of a file or its bytes (`name` in messages); return it with its device."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # which also writes a file into the temporary folder
    runtime = import_library("onnxruntime")
    name, engines = name or str(model), None
    with convert_read_errors(Path(name), "create one: pam weights export"):
        if device.partition(":")[0] in ("tensorrt", "openvino", "coreml"):  # they build an engine once
            engines = _find_engines(model)
        elif isinstance(model, Path):
            model.open("rb").close()
    providers, where = choose_providers(runtime.get_available_providers(), device, engines)
    if engines is not None:
        with suppress(OSError):  # without the folder, engines are rebuilt each time
            engines.mkdir(parents=True, exist_ok=True)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4
    try:
        with redirect_stdout(io.StringIO()):  # retries print to stdout
            given = model if isinstance(model, bytes) else str(model)
            session = runtime.InferenceSession(given, options, providers=providers)
    except Exception as error:  # ONNX Runtime has its own classes
        if is_memory_error(error):
            raise DeviceError(f"not enough memory for {name}", HINT) from error
        if re.search(r"external data|no such file|file_size", str(error), re.IGNORECASE):
            hint = f"copy that file, too, usually {name}.data"
            raise ModelError(f"the external weights of {name} are missing", hint) from error
        raise ModelError(f"{name} is not an ONNX file, or is damaged", "export it again") from error
    if session.get_providers()[0] != providers[0][0]:
        raise DeviceError(f"ONNX Runtime cannot use {where} on this machine", "use `device` cpu")
    session.disable_fallback()  # a fallback would change the device and print to stdout
    return session, where


def _find_engines(model: Path | bytes) -> Path:
    """Return the cache folder for the engines of a network, named by its content."""
    key = model if isinstance(model, bytes) else model.read_bytes()
    if isinstance(model, Path):
        with suppress(OSError):  # external weights, if any, by size and modification time
            weights = model.with_name(f"{model.name}.data").stat()
            key += f"{weights.st_size} {weights.st_mtime_ns}".encode()
    return find_cache() / "engines" / hashlib.sha256(key).hexdigest()[:16]


@contextmanager
def convert_runtime_errors(what: str, hint: str) -> Iterator[None]:
    """Convert ONNX Runtime's errors: MemoryError if out of memory, else ModelError."""
    try:
        yield
    except Exception as error:  # ONNX Runtime has its own classes
        if is_memory_error(error):
            raise MemoryError from error
        raise ModelError(f"ONNX Runtime cannot run {what}: {first_line(error)}", hint) from error


@dataclass(frozen=True)
class Session:
    """An ONNX file in ONNX Runtime."""

    name: str
    compute: Compute
    interface: Interface
    session: Any
    side: ClassVar[int] = 64  # px of a free side when probing

    @classmethod
    def load(cls, path: Path, device: str, precision: str = "auto") -> "Session":
        """Open an .onnx file, which may refer to files beside it; `precision`: auto, or the file's own."""
        session, where = open_session(path, device)
        try:
            inputs, outputs = (
                tuple(Port(each.name, _find_shape(each.shape), each.type) for each in ports)
                for ports in (session.get_inputs(), session.get_outputs())
            )
        except UnicodeDecodeError:
            raise ModelError(
                f"{path}: names of its inputs or outputs are not UTF-8", "use ASCII names"
            ) from None
        for what, ports in (("input", inputs), ("output", outputs)):
            if not ports:
                raise ModelError(f"{path} has no {what}", "export it with two images as inputs and an output")
        for port in inputs:
            if math.prod(side or 1 for side in port.shape) > LARGEST_INPUT:
                raise ModelError(f"{path}: input {port} is larger than any supported image")
            if port.type not in TYPES:
                raise ModelError(f"{path}: input {port.name} has type {port.type}", f"use {', '.join(TYPES)}")
        stored = "fp16" if any(port.type == "tensor(float16)" for port in inputs) else "fp32"
        if precision not in ("auto", stored):
            raise UsageError(f"{path} has the precision {stored}, not {precision}", "use `precision` auto")
        compute = Compute(torch.device("cpu"), stored, f"onnxruntime {where}")
        return cls(str(path), compute, Interface(inputs, outputs), session)

    @property
    def note(self) -> str:
        used = [each for each in self.session.get_providers() if each != ON_CPU]
        kinds = {provider: kind for kind, provider in PROVIDERS.items()}
        first = self.compute.runtime.removeprefix("onnxruntime ")
        others = [kinds.get(each, each) for each in used[1:]]
        rest = f", on the CPU where {' and '.join([first, *others])} cannot" if used else ""
        return f"{self.name} runs in ONNX Runtime on {first}{rest}"

    def probe(self) -> tuple[Interface, int]:
        """Run on black images; return the interface with output shapes, and the scale of the first output."""
        inputs = {
            port.name: np.zeros([side or self.side for side in port.shape[1:]], np.float32)[None]
            for port in self.interface.inputs
        }
        found = self.run(inputs)
        outputs = tuple(replace(port, shape=found[port.name].shape) for port in self.interface.outputs)
        return replace(self.interface, outputs=outputs), _find_scale(inputs, found)

    def run(self, inputs: Mapping[str, NDArray[np.float32]]) -> Maps:
        """Run the network; raise ModelError or MemoryError."""
        ready = {}
        for port in self.interface.inputs:
            values, kind = inputs[port.name], TYPES[port.type]
            ready[port.name] = (values.round().clip(0, 255) if kind is np.uint8 else values).astype(kind)
        shapes = ", ".join(f"{name} {'x'.join(map(str, values.shape))}" for name, values in ready.items())
        with convert_runtime_errors(f"{self.name} on {shapes}", GUIDE):
            found = self.session.run(None, ready)
        if not all(isinstance(each, np.ndarray) for each in found):
            raise ModelError(f"{self.name} must output arrays only", GUIDE)
        return dict(zip((port.name for port in self.interface.outputs), found, strict=True))


@dataclass(frozen=True)
class Module:
    """A user's PyTorch network, called with its inputs in the order of the description."""

    name: str
    compute: Compute
    network: Any
    graphs: CudaGraphs | None
    names: list[str] = field(default_factory=list)  # names of its outputs, from the last run
    interface: None = None
    side: ClassVar[int] = 256  # px when probing; some networks pool over 256 px

    @classmethod
    def load(cls, source: str, device: str, precision: str) -> "Module":
        """Create the network by calling `source`, "module:function", without arguments; its code runs."""
        compute = Compute.choose(device, precision)
        module, colon, function = source.partition(":")
        if not (module and colon and function):
            raise UsageError(f"`network_from` must be MODULE:FUNCTION, got {source!r}")
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
        try:
            network = getattr(importlib.import_module(module), function)()
        except ModuleNotFoundError as error:
            hint = "it is searched in the current directory and among the installed packages"
            raise UsageError(f"`network_from` {source}: no module {error.name}", hint) from None
        except Exception as error:
            if module in sys.modules and not hasattr(sys.modules[module], function):
                raise UsageError(f"`network_from` {source}: {module} has no {function}") from None
            raise ModelError(f"{source} fails: {type(error).__name__}: {error}") from error
        if not callable(network):
            raise ModelError(f"{source} must return a network, got a {type(network).__name__}")
        if isinstance(network, torch.nn.Module):
            network = network.to(compute.device).eval()
            if compute.device.type == "cuda":
                network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return cls(source, compute, network, CudaGraphs(compute) if compute.device.type == "cuda" else None)

    @property
    def note(self) -> str:
        return f"{self.name} runs in PyTorch on {', '.join(self.compute.describe().values())}"

    def probe(self) -> tuple[Interface, int]:
        """Run on two black images, or on both in one input of six channels; return as `Session.probe`."""
        failure: ModelError | None = None
        for names, channels in ((("left", "right"), 3), (("images",), 6)):
            inputs = {name: np.zeros((1, channels, self.side, self.side), np.float32) for name in names}
            try:
                found = self.run(inputs)
            except ModelError as error:
                failure = failure or error
                continue
            outputs = tuple(Port(name, values.shape) for name, values in found.items())
            ports = tuple(Port(name, (1, channels, None, None)) for name in names)
            return Interface(ports, outputs), _find_scale(inputs, found)
        assert failure is not None
        raise failure

    def run(self, inputs: Mapping[str, NDArray[np.float32]]) -> Maps:
        """Run the network; unnamed outputs are called 0, 1, ...; raise ModelError or MemoryError."""

        def program(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with self.compute.autocast():
                outputs = self.network(*tensors)
            outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
            items = outputs.items() if isinstance(outputs, Mapping) else enumerate(outputs)
            named = {str(name): each for name, each in items if isinstance(each, torch.Tensor)}
            self.names[:] = named
            return tuple(each.float() for each in named.values())

        try:
            how: dict[str, Any] = {"compute": self.compute, "graphs": self.graphs}
            arrays = run_program(program, *inputs.values(), **how, key=self.name, verify=True)
        except Exception as error:
            if isinstance(error, MemoryError | RuntimeError) and is_memory_error(error):
                raise
            raise ModelError(f"{self.name} fails: {type(error).__name__}: {first_line(error)}") from error
        if not arrays:
            raise ModelError(f"{self.name} must return tensors")
        return dict(zip(self.names, arrays, strict=True))


Runner = Session | Module


def open_runner(
    network: str | Path | None, network_from: str | None, device: str, precision: str, named_by: str | Path
) -> Runner:
    """Open an ONNX file named by a description `named_by`, or the network that "module:function" builds."""
    if network and network_from is not None:
        what = f"cannot use both `network_from` {network_from} and the network {network} of {named_by}"
        raise UsageError(what, "omit one of them")
    if network_from is not None:
        return Module.load(network_from, device, precision)
    if not network:
        raise UsageError(f"{named_by} does not name a network", "add `network_from` MODULE:FUNCTION")
    return Session.load(Path(network), device, precision)


def _find_scale(inputs: Maps, outputs: Maps) -> int:
    """Return the factor between the widths of the first input and the first output."""
    given, made = next(iter(inputs.values())), next(iter(outputs.values()))
    return made.shape[-1] // given.shape[-1] if made.ndim else 0


def _find_shape(sides: list[Any]) -> tuple[int | None, ...]:
    return tuple(side if isinstance(side, int) and side > 0 else None for side in sides or [])
