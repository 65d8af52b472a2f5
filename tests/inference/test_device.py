"""Tests of choosing device and precision, of checking them, and of out-of-memory errors."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pamcli.errors import DeviceError, PamError, UsageError
from pamcli.inference import device, gpu_check
from pamcli.inference.device import Compute, CudaGraphs, catch_memory_errors
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.model import TorchModel
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.networks.passrnet import PASSRnet
from pamcli.registry.catalog import REGISTERED, ModelSpec


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend to have so many GPUs, with or without bf16, or Apple's."""

    def pretend(gpus: int = 0, bf16: bool = True, mps: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: bf16)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    pretend()
    return pretend


@pytest.mark.parametrize(
    ("has", "asked", "expected"),
    [
        ({}, (), ("cpu", "fp32")),
        ({"mps": True}, (), ("cpu", "fp32")),  # nobody tried one
        ({"mps": True}, ("mps",), ("mps", "fp32")),
        ({"gpus": 2, "mps": True}, (), ("cuda:0", "fp32")),
        ({"gpus": 2}, ("cuda", "fp16"), ("cuda", "fp16")),
        ({"gpus": 2}, ("cuda:1", "bf16"), ("cuda:1", "bf16")),
        ({}, ("cpu", "bf16"), ("cpu", "bf16")),
    ],
)
def test_a_device_and_a_precision_are_chosen(
    machine: Callable[..., None], has: dict[str, Any], asked: tuple[str, ...], expected: tuple[str, str]
) -> None:
    machine(**has)
    assert tuple(Compute.choose(*asked).describe().values()) == expected


@pytest.mark.parametrize(
    ("has", "asked", "kind", "words"),
    [
        ({"gpus": 2}, ("cuda:2",), DeviceError, r"no cuda:2 \(2 CUDA devices\) \(use `device` cpu\)"),
        *(({}, (name,), DeviceError, f"this machine has no {name}") for name in ("cuda:0", "mps")),
        *(
            ({}, (name,), UsageError, "unknown device.*cuda:N")
            for name in ("", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:128", "cuda:٣")
        ),
        ({}, ("cpu", "fp16"), DeviceError, "fp16 requires a GPU"),
        ({}, ("cpu", "half"), UsageError, "unknown precision .half."),
        ({"gpus": 1, "bf16": False}, ("cuda", "bf16"), DeviceError, "does not support bf16"),
    ],
)
def test_what_the_machine_does_not_have_is_refused(
    machine: Callable[..., None],
    has: dict[str, Any],
    asked: tuple[str, ...],
    kind: type[PamError],
    words: str,
) -> None:
    machine(**has)
    with pytest.raises(kind, match=words):
        Compute.choose(*asked)


def test_a_gpu_that_is_held_or_too_old_is_one_line(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def held() -> int:
        raise RuntimeError("CUDA error: all devices are busy\nand what to set for more")

    machine(gpus=1)
    monkeypatch.setattr(torch.cuda, "current_device", held)
    with pytest.raises(
        DeviceError, match=r"cannot use the GPU: CUDA error: all devices are busy \(use `device` cpu"
    ):
        Compute.choose()
    with (
        pytest.raises(DeviceError, match="the GPU failed: CUDA error: no kernel"),
        catch_memory_errors("little"),
    ):
        raise RuntimeError("CUDA error: no kernel image is available\nCompile with ...")


@pytest.mark.parametrize(
    ("vendor", "features", "expected"),
    [
        ("AuthenticAMD", (), "fp32"),
        ("AuthenticAMD", ("_is_avx512_bf16_supported",), "bf16"),
        ("GenuineIntel", ("_is_avx512_bf16_supported",), "fp32"),
        ("GenuineIntel", ("_is_avx512_bf16_supported", "_is_amx_tile_supported"), "bf16"),
    ],
)
def test_where_auto_reduces_the_processors_features_decide(
    machine: Callable[..., None],
    vendor: str,
    features: tuple[str, ...],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(f"vendor_id : {vendor}\n")
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda name=name: name in features, raising=False)
    assert device.cpu_has_bf16() == bool(features)
    assert Compute.choose("cpu", reduce=True).precision == expected
    assert Compute.choose("cpu").precision == "fp32"
    assert Compute.choose("cpu", "fp32", reduce=True).precision == "fp32"


def test_a_processor_of_which_torch_cannot_tell_computes_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert not device.cpu_has_bf16()


@pytest.mark.parametrize(
    ("has", "name", "expected"),
    [
        ({"gpus": 1, "bf16": True}, "auto", "bf16"),
        ({"gpus": 1, "bf16": False}, "auto", "fp16"),
        ({"mps": True}, "mps", "fp32"),
    ],
)
def test_auto_is_16_bits_on_gpus(
    machine: Callable[..., None], has: dict[str, Any], name: str, expected: str
) -> None:
    machine(**has)
    assert Compute.choose(name, reduce=True).precision == expected
    assert Compute.choose(name).precision == "fp32"


def test_auto_lowers_the_precision_where_that_changes_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True, raising=False)
    assert StereoMatcher.load(device="cpu").compute.precision == "bf16"
    assert StereoUpscaler.load("passrnet2-x2", device="cpu").compute.precision == "bf16"
    assert StereoUpscaler.load("passrnet-x2", device="cpu").compute.precision == "fp32"


class Failing:
    """Runs no network, but allocates, and then fails."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
        self.activations: weakref.ref[Tensor] | None = None

    def __call__(self, *arguments: object, **named: object) -> None:
        features = torch.ones(20)
        self.activations = weakref.ref(features)
        if self.error is not None:
            raise self.error
        torch.empty(2**59)  # the allocator's own words


def upscale(failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TorchModel(PASSRnet(2), ModelSpec("passrnet", scale=2), Compute.choose("cpu"))
    monkeypatch.setattr(model, "upscale", failing)
    StereoUpscaler(model)(*(np.zeros((20, 30, 3), np.uint8),) * 2)


@pytest.mark.parametrize(
    "error",
    [
        None,
        MemoryError(),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.00 GB)"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=lambda error: "really" if error is None else str(error)[:30] or type(error).__name__,
)
def test_running_out_of_memory_is_a_device_error(
    error: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(error)
    with pytest.raises(DeviceError, match="not enough memory for a pair of 30x20") as caught:
        upscale(failing, monkeypatch)
    assert caught.value.hint
    assert failing.activations is not None
    assert failing.activations() is None, "the error keeps the memory that the next pair needs"


@pytest.mark.parametrize("error", [RuntimeError("shapes do not fit"), KeyboardInterrupt()])
def test_other_errors_stay_what_they_are(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error)) as caught:
        upscale(Failing(error), monkeypatch)
    assert caught.value is error


def test_threads_use_a_gpu_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    running, counts = [0], []

    def run(self: CudaGraphs, *_: object) -> list[object]:
        running.append(0)
        counts.append(len(running))
        time.sleep(0.01)
        running.pop()
        return []

    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(CudaGraphs, "_run", run)
    graphs = CudaGraphs(Compute(torch.device("cuda", 0), "fp32"))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: graphs.run(lambda: (), "key", (), False), range(8)))
    assert counts == [2] * 8


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], float]:
    """A GPU, and how far the results of each device and precision are from those of fp32 on the CPU."""
    off: dict[tuple[str, str], float] = {}

    def run(name: str, task: str, device: str, precision: str) -> tuple[np.ndarray, float, int | None]:
        if np.isinf(off.get((device, precision), 0)):
            raise DeviceError("out of memory", "a hint")
        return np.full((2, 2), np.float32(5 + off.get((device, precision), 0))), 0.25, 10**9

    monkeypatch.setattr(gpu_check, "_run", run)
    monkeypatch.setattr(gpu_check, "list_gpus", lambda: ["cuda"])
    monkeypatch.setattr(gpu_check, "cpu_has_bf16", lambda: False)
    return off


def test_what_is_off_and_what_fails(a_gpu: dict[tuple[str, str], float]) -> None:
    a_gpu["cuda", "fp32"] = 0.06  # too much of pixels and of grey levels
    a_gpu["cuda", "bf16"] = np.nan
    a_gpu["cuda", "fp16"] = np.inf
    rows = list(gpu_check.check_networks())
    assert len(rows) == len(REGISTERED) * 2 * 3
    said = {(row.device, row.precision): (row.verdict, row.is_ok) for row in rows}
    assert said["cpu", "bf16"] == ("skipped: this processor emulates it", True)
    assert said["cpu", "fp16"] == ("skipped: it requires a GPU", True)
    assert said["cuda", "fp32"] == said["cuda", "bf16"] == ("WRONG", False)
    assert said["cuda", "fp16"] == ("FAILED: out of memory (a hint)", False)
    assert said["cpu", "fp32"] == ("ok", True)
