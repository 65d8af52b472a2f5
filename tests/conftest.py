"""The environment of every test, which must not change the output of the commands."""

from __future__ import annotations

import gc
import os
import signal
import sys

import pytest
from warm_python import WarmPython

# Before anything imports torch, for these tests and the programs that they start: the images are small, and
# more threads would only get in the way of the tests that run beside.
os.environ.setdefault("OMP_NUM_THREADS", "1")
import pamcli  # noqa: F401 - before PyTorch, as in a program of pam: it warns of the other order

gc.set_threshold(5_000)  # as in a program of pam

# Whoever starts the tests in the background (nohup ... &) has SIGINT or SIGHUP ignored, and so would have the
# programs that they start.
for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    number = getattr(signal, name, signal.SIGINT)  # Windows has no SIGHUP
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# Where pytest finds one of these it shows differences whole, which of two files takes it hours and gigabytes.
for name in ("CI", "BUILD_NUMBER"):
    os.environ.pop(name, None)


def pytest_collection_finish() -> None:
    gc.freeze()  # later collections, also those of forks, need not search modules and thousands of tests


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    if torch := sys.modules.get("torch"):  # which tests ran before in this process makes no difference
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def warm_python() -> WarmPython:
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    return WarmPython(owner=os.getppid() if is_worker else os.getpid())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=8, help="mutations of each file that a reader is given")
    parser.addoption("--kills", type=int, default=2, help="stops at random moments of each command's work")
