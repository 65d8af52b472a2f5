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
from two_processes import CPU, PARTS, WORLD, Toy, joined_batch, learn, mean_square, run
from warm_python import WarmPython

from pamcli.errors import DeviceError, PamError, UsageError
from pamcli.training.distributed import Processes

TORCHRUN = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> list[dict[str, Any]]:
    """What the two processes of a torchrun found."""
    folder = tmp_path_factory.mktemp("together")
    torchrun = warm_python.command("-m", "torch.distributed.run", "--nproc_per_node", "2", "--no_python")
    address = ["--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    program = [warm_python.executable, two_processes.__file__, "together", str(folder)]
    ended = subprocess.run([*torchrun, *address, *program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


def test_two_processes_have_the_gradients_of_the_joined_batch(together: list[dict[str, Any]]) -> None:
    network = Toy(frozen=True)
    expected = learn(network, lambda *batch: mean_square()(network, *batch), *joined_batch())
    for part in together:
        found = part["frozen"]["gradients"]
        for name, gradient in expected["gradients"].items():
            if name.startswith("ignored."):
                assert gradient is found[name] is None, "weights that no term looks at keep no gradient"
            else:
                torch.testing.assert_close(found[name], gradient)
    shares = [part["frozen"]["values"]["error"] for part in together]
    torch.testing.assert_close(sum(shares), expected["values"]["error"])


def test_running_statistics_are_those_of_the_first_process(together: list[dict[str, Any]]) -> None:
    network, part = Toy(frozen=False), [each[PARTS[0]] for each in joined_batch()]
    alone = learn(network, lambda *batch: mean_square()(network, *batch), *part)
    first, second = (part["learning"] for part in together)
    for name, buffer in alone["buffers"].items():
        assert torch.equal(first["buffers"][name], buffer), name
    for name, gradient in first["gradients"].items():
        assert gradient is None or torch.equal(second["gradients"][name], gradient), name


def test_processes_hear_of_each_other(together: list[dict[str, Any]]) -> None:
    for rank, heard in enumerate(together):
        assert heard["rank"] == rank
        assert not heard["nobody"]
        assert heard["one"]
        assert heard["sum"] == pytest.approx([1.2, 4])
        assert heard["counts"].tolist() == [3, 20]
        assert not heard["counts"].requires_grad
        assert heard["own counts"].tolist() == [rank + 1, 10]


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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"LOCAL_RANK": ""}, "not LOCAL_RANK.*torchrun"),
        ({"MASTER_ADDR": ""}, "not MASTER_ADDR.*torchrun"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be .*'two'"),
        ({"RANK": "-1"}, "RANK must be .*'-1'"),
        ({"RANK": "2"}, "LOCAL_RANK 1, RANK 2 and WORLD_SIZE 2"),
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
