"""Select ONNX Runtime's providers (CPU, CUDA, TensorRT, OpenVINO, CoreML) and cache their engines."""

import hashlib
import importlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch

from pamcli.errors import DeviceError, ModelError, UsageError, suggest_extra
from pamcli.inference.memory import HINT, is_memory_error
from pamcli.registry.spec import reading

PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
}
"""ONNX Runtime's provider names, by device."""
ON_CPU = "CPUExecutionProvider"
BROUGHT_BY = {
    "cuda": "pip install onnxruntime-gpu",
    "tensorrt": "pip install onnxruntime-gpu",
    "openvino": "pip install onnxruntime-openvino",
    "coreml": "macOS has it",
}

BUILDING = ("tensorrt", "openvino", "coreml")
"""Devices that build an engine for each network once."""

Providers = list[tuple[str, dict[str, str]]]


def library(name: str) -> Any:
    """Import an optional library; raise UsageError if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed", suggest_extra("onnx")) from None


def choose_providers(available: list[str], device: str, engines: Path | None = None) -> tuple[Providers, str]:
    """Return ONNX Runtime's providers, best first, and the device; auto is CUDA if available, else the CPU.

    `engines`: cache folder for built engines. Raises DeviceError.
    """
    kind, _, number = device.partition(":")
    if device == "auto":
        kind = "cuda" if PROVIDERS["cuda"] in available else "cpu"
    if kind == "cpu":
        return [(ON_CPU, {})], kind
    if PROVIDERS.get(kind) not in available:
        by = f", or {BROUGHT_BY[kind]}" if kind in BROUGHT_BY else ""
        raise DeviceError(f"ONNX Runtime has no {kind} here", f"use `device` cpu{by}")
    names = [kind, "cuda"] if kind == "tensorrt" and PROVIDERS["cuda"] in available else [kind]
    chosen = [(PROVIDERS[name], _options(name, number or "0", engines)) for name in names]
    return [*chosen, (ON_CPU, {})], kind if device == "auto" else device


def _options(name: str, number: str, engines: Path | None) -> dict[str, str]:
    kept = {}
    if engines is not None:
        kept = {
            "tensorrt": {
                "trt_engine_cache_enable": "True",
                "trt_engine_cache_path": str(engines),
                "trt_timing_cache_enable": "True",
                "trt_timing_cache_path": str(engines),
            },
            "openvino": {"cache_dir": str(engines)},
            "coreml": {"ModelFormat": "MLProgram", "ModelCacheDirectory": str(engines)},
        }.get(name, {})
    return {**({"device_id": number} if name in ("cuda", "tensorrt") else {}), **kept}


def _content(model: Path) -> bytes:
    """Return a cache key: file content plus the modification time of external weights."""
    weights = model.with_name(f"{model.name}.data")
    with suppress(OSError):
        said = weights.stat()
        return model.read_bytes() + f"{said.st_size} {said.st_mtime_ns}".encode()
    return model.read_bytes()


def engines_of(network: bytes) -> Path:
    """Return the engine cache folder of a network, which depends on its content."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "pam", "engines", hashlib.sha256(network).hexdigest()[:16])


def open_session(model: Path | bytes, device: str, *, name: str | None = None) -> tuple[Any, str]:
    """Open an ONNX Runtime session of a file or its bytes, and return it with the device name.

    Bytes cannot refer to other files. `device`: auto, cpu, cuda, cuda:N, tensorrt, tensorrt:N, openvino,
    coreml.
    `name`: of the bytes, in messages. Raises ModelError: missing or damaged file; DeviceError; UsageError:
    the library is missing.
    """
    runtime = library("onnxruntime")
    name = name or str(model)
    engines = None
    with reading(Path(name), "pam weights export makes one") if isinstance(model, Path) else nullcontext():
        if device.partition(":")[0] in BUILDING:
            engines = engines_of(model if isinstance(model, bytes) else _content(model))
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
            hint = "copy that, too; mostly it is called like it, with .data behind"
            raise ModelError(f"a file that {name} takes its weights from is missing", hint) from error
        raise ModelError(f"{name} is no ONNX file, or is damaged", "export it again") from error
    if session.get_providers()[0] != providers[0][0]:
        raise DeviceError(f"ONNX Runtime cannot use {where} here", "use `device` cpu")
    session.disable_fallback()  # a fallback would change the device and print to stdout
    return session, where


@contextmanager
def running(what: str, hint: str) -> Iterator[None]:
    """Convert ONNX Runtime's errors: MemoryError if out of memory, else ModelError."""
    try:
        yield
    except Exception as error:  # ONNX Runtime has its own classes
        if is_memory_error(error):
            raise MemoryError from error
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"ONNX Runtime cannot run {what}: {reason}", hint) from error
