"""Two processes train as one process with both their batches would."""

from __future__ import annotations

import socket
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import two_processes
from ports import free_port
from torch import Tensor
from two_processes import (
    ALL_TERMS,
    ATTENTION_ALONE,
    CPU,
    State,
    after_two_steps,
    each_picture_by_itself,
    in_one_process,
    joined_batch,
    loss_of,
    part_of,
    pasmnet,
    results,
    run,
)
from warm_python import WarmPython

from pamcli.errors import DeviceError, PamError, UsageError
from pamcli.training.distributed import Processes, wrap

TORCHRUN = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


@pytest.fixture(scope="module")
def whole_network(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, State]]:
    return results("whole_network", tmp_path_factory.mktemp("whole_network"))


def deviations(expected: dict[str, Tensor], found: dict[str, Tensor]) -> dict[str, float]:
    """|found - expected| / |expected| of each weight's gradient, in the Euclidean norm.

    Gradients that cancel are measured against the one of the weight beside them: biases of convolutions
    before a batch norm, and those of keys, which add the same to a whole row of the softmax.
    """
    assert expected.keys() == found.keys()
    far = {}
    for name, gradient in expected.items():
        cancels = name.endswith(".bias") and (
            expected[name.replace(".bias", ".weight")].ndim == 4 or ".key." in name
        )
        scale = expected[name.replace(".bias", ".weight")] if cancels else gradient
        far[name] = float((found[name] - gradient).norm() / scale.norm())
    return far


def test_two_processes_have_the_gradients_of_the_joined_batch(
    whole_network: list[dict[str, State]],
) -> None:
    expected = in_one_process(ALL_TERMS)
    found = [result["float32"] for result in whole_network]
    # Bit for bit: a LeakyReLU, mask or absolute value that tips over could not be told from a fault.
    disparity = torch.cat([part["values"]["disparity"] for part in found])
    assert torch.equal(disparity, expected["values"]["disparity"])
    for part in found:
        far = deviations(expected["gradients"], part["gradients"])
        assert max(far.values()) < 1e-5, sorted(far.items(), key=lambda item: -item[1])[:5]
        assert_same_tensors(part["buffers"], expected["buffers"])
    assert_same_tensors(found[1]["gradients"], found[0]["gradients"])


def test_in_double_precision_they_are_those_of_a_plain_network(whole_network: list[dict[str, State]]) -> None:
    expected = in_one_process(ALL_TERMS, torch.float64)
    found = whole_network[0]["float64"]
    far = deviations(expected["gradients"], found["gradients"])
    assert max(far.values()) < 1e-10, sorted(far.items(), key=lambda item: -item[1])[:5]
    for name, buffer in expected["buffers"].items():
        torch.testing.assert_close(found["buffers"][name], buffer, rtol=1e-12, atol=1e-12)
    for name in set(expected["values"]) - {"disparity"}:
        both = sum(part["float64"]["values"][name] for part in whole_network)
        torch.testing.assert_close(both, expected["values"][name], rtol=1e-12, atol=0)


def test_weights_that_no_term_looks_at_keep_no_gradient(whole_network: list[dict[str, State]]) -> None:
    expected = in_one_process(ATTENTION_ALONE)["gradients"]
    found = whole_network[1]["attention alone"]["gradients"]
    assert {name for name, gradient in expected.items() if gradient is None} == {
        name for name in expected if name.startswith("refine.")
    }
    for name in [name for name, gradient in expected.items() if gradient is None]:
        assert expected.pop(name) is found.pop(name) is None
    far = deviations(expected, found)
    assert max(far.values()) < 1e-5, sorted(far.items(), key=lambda item: -item[1])[:5]


def assert_same_tensors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_running_statistics_are_those_of_the_first_process(whole_network: list[dict[str, State]]) -> None:
    network, loss, batch = pasmnet(frozen=False), loss_of(ALL_TERMS), part_of(joined_batch(), 0)
    with each_picture_by_itself():
        alone = after_two_steps(network, lambda *pairs: loss(network, *pairs), batch)
    assert_same_tensors(whole_network[0]["trained norms"]["buffers"], alone["buffers"])
    assert_same_tensors(*(part["trained norms"]["gradients"] for part in whole_network))


def test_one_process_trains_the_network_itself() -> None:
    network, (left, right, _) = pasmnet(), joined_batch()
    loss = wrap(network, lambda net, *views: (net(*views).disparity, {}), Processes(), CPU)
    with torch.no_grad():
        assert torch.equal(loss(left, right)[0], pasmnet()(left, right).disparity)


def assert_messages(found: list[dict[str, Any]]) -> None:
    for rank, heard in enumerate(found):
        assert heard["rank"] == rank
        assert not heard["nobody"]
        assert heard["one"]
        assert heard["sum"] == pytest.approx([1.2, 4])
        assert heard["counts"].tolist() == [3, 20]
        assert not heard["counts"].requires_grad
        assert heard["own counts"].tolist() == [rank + 1, 10]


def test_processes_hear_of_each_other(tmp_path: Path) -> None:
    assert_messages(results("messages", tmp_path))


def test_torchrun_starts_them(tmp_path: Path, warm_python: WarmPython) -> None:
    torchrun = warm_python.command("-m", "torch.distributed.run", "--nproc_per_node", "2", "--no_python")
    address = ["--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    program = [warm_python.executable, two_processes.__file__, "messages", str(tmp_path)]
    ended = subprocess.run([*torchrun, *address, *program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert_messages([torch.load(tmp_path / f"{rank}.pt") for rank in range(2)])


def test_one_process_hears_itself() -> None:
    alone = Processes.from_environment({})
    with alone.connect(CPU):
        counts = torch.tensor([3.0])
        alone.sum_values([0])
        alone.require_same("a recipe")
        assert alone.is_main
        assert (alone.any_true(True), alone.any_true(False)) == (True, False)
        assert alone.sum_values([1.5, 2]) == [1.5, 2]
        assert alone.sum_counts(counts) is counts


def test_other_options_end_all_processes_with_the_same_line(tmp_path: Path) -> None:
    line = "pam: process 1 has other options than process 0 (use the same options for all processes)\n"
    assert run("other_options", tmp_path) == [(UsageError.exit_code, line)] * 2


def test_where_one_fails_the_others_end_with_one_line(tmp_path: Path) -> None:
    (code, stderr), failed = run("one_fails", tmp_path)
    assert failed == (7, "pam: the disk is full\n")
    assert code == PamError.exit_code
    assert stderr.startswith("pam: process 0 of 2 has lost the others: ")
    assert "`resume`" in stderr
    assert stderr.count("\n") == 1


def test_the_environment_of_torchrun_is_understood() -> None:
    found = Processes.from_environment(TORCHRUN | {"RANK": "11", "LOCAL_RANK": "3", "WORLD_SIZE": "16"})
    assert (found.rank, found.local_rank, found.world, found.is_main) == (11, 3, 16, False)
    assert Processes.from_environment(TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"}).is_main
    assert Processes.from_environment({"MASTER_ADDR": "node1"}) == Processes(0, 0, 1)


@pytest.mark.parametrize("name", TORCHRUN)
def test_an_incomplete_environment_names_what_is_missing(name: str) -> None:
    environment = {key: text for key, text in TORCHRUN.items() if key != name}
    with pytest.raises(UsageError, match=f"{name}.*torchrun"):
        Processes.from_environment(environment)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be .*'two'"),
        ({"RANK": "-1"}, "RANK must be .*'-1'"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT must be .*'http'"),
        ({"RANK": "2"}, "LOCAL_RANK 1, RANK 2 and WORLD_SIZE 2"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE 0"),
        ({"RANK": "0"}, "RANK 0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(changed: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Processes.from_environment(TORCHRUN | changed)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_stays_alone_says_so(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    port = str(free_port())
    message = f"process {rank} of 2 cannot reach the others at 127.0.0.1:{port}"
    for name, text in (TORCHRUN | {"MASTER_PORT": port}).items():
        monkeypatch.setenv(name, text)
    with (
        pytest.raises(PamError, match=message) as error,
        Processes(rank, rank, 2).connect(CPU, timedelta(seconds=1)),
    ):
        pytest.fail("it is connected with nobody")
    assert "\n" not in str(error.value)
    assert not torch.distributed.is_initialized()


def test_a_port_in_use_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for name, text in (TORCHRUN | {"MASTER_PORT": str(taken.getsockname()[1])}).items():
            monkeypatch.setenv(name, text)
        with (
            pytest.raises(PamError, match=r"cannot reach.*the port must be free") as error,
            Processes(0, 0, 2).connect(CPU, timedelta(seconds=1)),
        ):
            pytest.fail("it is connected with nobody")
    assert "\n" not in str(error.value)


def test_each_process_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    second = Processes(3, 1, 4)
    assert second.device("auto") == second.device("cuda") == "cuda:1"
    assert second.device("cpu") == "cpu"
    assert Processes().device("cuda:1") == "cuda:1"
    with pytest.raises(DeviceError, match=r"process 3 .* has no GPU: .* 2 "):
        Processes(2, 2, 4).device("auto")
    for asked in ("cuda:0", "mps"):
        with pytest.raises(UsageError, match=f"4 processes cannot share {asked}"):
            second.device(asked)


def test_several_processes_without_a_gpu_take_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Processes(1, 1, 2).device("auto") == "cpu"
    with pytest.raises(DeviceError, match=r"has no GPU: .* 0 "):
        Processes(1, 1, 2).device("cuda")
