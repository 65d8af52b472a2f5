"""Select ONNX Runtime's providers (CPU, CUDA, TensorRT, OpenVINO, CoreML) and cache their engines."""

import hashlib
import importlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch

from pamcli.errors import DeviceError, ModelError, UsageError, suggest_extra
from pamcli.inference.device import HINT, first_line, is_memory_error
from pamcli.registry.downloads import find_cache
from pamcli.registry.spec import convert_read_errors

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

BUILDING = ("tensorrt", "openvino", "coreml")  # devices that build an engine for each network once

Providers = list[tuple[str, dict[str, str]]]


def import_library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed", suggest_extra("onnx")) from None


def choose_providers(available: list[str], device: str, engines: Path | None = None) -> tuple[Providers, str]:
    """Return ONNX Runtime's providers, best first, and the device; `engines`: folder of built engines."""
    kind, _, number = device.partition(":")
    if device == "auto":
        kind = "cuda" if PROVIDERS["cuda"] in available else "cpu"
    if kind == "cpu":
        return [(ON_CPU, {})], kind
    if PROVIDERS.get(kind) not in available:
        install = f", or {INSTALL[kind]}" if kind in INSTALL else ""
        raise DeviceError(f"the installed ONNX Runtime does not support {kind}", f"use `device` cpu{install}")
    names = [kind, "cuda"] if kind == "tensorrt" and PROVIDERS["cuda"] in available else [kind]
    chosen = [(PROVIDERS[name], _options(name, number or "0", engines)) for name in names]
    return [*chosen, (ON_CPU, {})], kind if device == "auto" else device


def _options(name: str, number: str, engines: Path | None) -> dict[str, str]:
    options = {"device_id": number} if name in ("cuda", "tensorrt") else {}
    if engines is None:
        return options
    if name == "tensorrt":
        for cache in ("engine", "timing"):
            options |= {f"trt_{cache}_cache_enable": "True", f"trt_{cache}_cache_path": str(engines)}
    elif name == "openvino":
        options["cache_dir"] = str(engines)
    elif name == "coreml":
        options |= {"ModelFormat": "MLProgram", "ModelCacheDirectory": str(engines)}
    return options


def _engine_folder(model: Path | bytes) -> Path:
    """Return the cache folder for the engines of a network, named by its content."""
    key = model if isinstance(model, bytes) else model.read_bytes()
    if isinstance(model, Path):
        with suppress(OSError):  # external weights, if any, by size and modification time
            weights = model.with_name(f"{model.name}.data").stat()
            key += f"{weights.st_size} {weights.st_mtime_ns}".encode()
    return find_cache() / "engines" / hashlib.sha256(key).hexdigest()[:16]


def open_session(model: Path | bytes, device: str, *, name: str | None = None) -> tuple[Any, str]:
    """Open an ONNX Runtime session of a file or its bytes (`name` in messages); return it with its device."""
    runtime = import_library("onnxruntime")
    name = name or str(model)
    engines = None
    hint = "create one: pam weights export"
    with convert_read_errors(model, hint) if isinstance(model, Path) else nullcontext():
        if device.partition(":")[0] in BUILDING:
            engines = _engine_folder(model)
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


@contextmanager
def convert_runtime_errors(what: str, hint: str) -> Iterator[None]:
    """Convert ONNX Runtime's errors: MemoryError if out of memory, else ModelError."""
    try:
        yield
    except Exception as error:  # ONNX Runtime has its own classes
        if is_memory_error(error):
            raise MemoryError from error
        raise ModelError(f"ONNX Runtime cannot run {what}: {first_line(error)}", hint) from error
