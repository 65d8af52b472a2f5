"""Too little address space and too few threads are one line, whatever library meets them first."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pamcli import limits
from pamcli.errors import DeviceError, InputError, OutputError, convert_system_error
from pamcli.imaging.raster import encode_png
from pamcli.limits import KINDS, OF_A_THREAD, OWN, require_room


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment, without counts of threads, on a machine of eight cores."""
    for name in limits.THREAD_COUNTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(limits, "count_cores", lambda: 8)
    monkeypatch.setattr(limits, "usable_cores", lambda: limits.count_cores())
    monkeypatch.setattr(limits, "_count_threads", lambda most: most)
    environment: dict[str, str] = {}
    monkeypatch.setattr(os.environ, "update", environment.update)
    return environment


@pytest.mark.parametrize(
    ("megabytes", "threads"),
    [(1300, "1"), (1300 + 3 * OF_A_THREAD, "3"), (1300 + 8 * OF_A_THREAD, None), (math.inf, None)],
)
def test_no_more_threads_than_the_address_space_has_room_for(
    counts: dict[str, str], monkeypatch: pytest.MonkeyPatch, megabytes: float, threads: str | None
) -> None:
    monkeypatch.setattr(limits, "get_address_space", lambda: megabytes)
    require_room("torch")
    assert counts.get("OMP_NUM_THREADS") == threads
    assert counts.get("OPENBLAS_NUM_THREADS") == threads


def test_no_more_threads_than_can_be_started(counts: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "get_address_space", lambda: math.inf)
    monkeypatch.setattr(limits, "_count_threads", lambda most: OWN + 2 * KINDS + 1)
    require_room("numpy")
    assert counts["OMP_NUM_THREADS"] == "2"
    counts.clear()
    monkeypatch.setattr(limits, "count_cores", lambda: 128)
    monkeypatch.setattr(limits, "_count_threads", lambda most: most)
    require_room("numpy")
    assert not counts, "not every thread is tried on a large machine"
    monkeypatch.setattr(limits, "_count_threads", lambda most: OWN - 1)
    with pytest.raises(DeviceError, match="cannot start more threads"):
        require_room("numpy")


def test_no_more_threads_than_cores_of_the_container(
    counts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "usable_cores", lambda: 2)
    require_room("numpy")
    assert counts["OMP_NUM_THREADS"] == "2"
    counts.clear()
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    require_room("numpy")
    assert not counts, "the user's number counts"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ImportError("cv2.so: failed to map segment from shared object"), DeviceError),
        (RuntimeError("could not create a primitive"), DeviceError),
        (RuntimeError("std::bad_alloc"), DeviceError),
        (OSError(12, "Cannot allocate memory"), DeviceError),
        (RuntimeError("can't start new thread"), DeviceError),
        (MemoryError(), DeviceError),
        (OSError(28, "No space left on device"), OutputError),
        (RecursionError(), InputError),
        (UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "x"), InputError),
        (RuntimeError("something else"), type(None)),
    ],
)
def test_what_the_system_refuses_is_told_from_faults(error: Exception, kind: type) -> None:
    assert type(convert_system_error(error)) is kind


def in_limits(folder: Path, limit: str, count: int, *command: str) -> subprocess.CompletedProcess[str]:
    for name in ("left.png", "right.png"):
        view = np.random.default_rng(len(name)).integers(0, 255, (32, 64, 3), np.uint8)
        (folder / name).write_bytes(encode_png(view))
    words = ["bash", "-c", f'ulimit {limit} {count} && exec "$0" "$@"', sys.executable, "-P", "-m", "pamcli"]
    words += ["disparity", "left.png", "right.png", "-o", "d.pfm", "-q"]
    return subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.parametrize("megabytes", [100, 1100])
def test_little_address_space_is_one_line(tmp_path: Path, megabytes: int) -> None:
    run = in_limits(tmp_path, "-v", megabytes * 1000)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (5, "", 1)
    assert run.stderr.startswith("pam: error: not enough memory")


@pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0 or not shutil.which("setpriv"), reason="takes another user"
)
@pytest.mark.parametrize("count", [3])
def test_few_processes_are_one_line(tmp_path: Path, count: int) -> None:
    keep = "+dac_override,+dac_read_search"
    other = ["setpriv", "--reuid", "54322", "--inh-caps", keep, "--ambient-caps", keep]
    run = in_limits(tmp_path, "-u", count, *other)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (5, "", 1)
    assert "cannot start more threads" in run.stderr
