"""Results appear whole or not at all, and never leave anything else behind."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from pamcli.errors import OutputError
from pamcli.files import atomic
from pamcli.files.atomic import FileInTheWayError, check_writable, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_is_replaced_in_a_folder_that_is_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "disp.pfm"
    for content in (b"old and longer", b"new"):
        write_atomically(path, content)
        assert path.read_bytes() == content
        assert names(path.parent) == ["disp.pfm"]


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "disp.pfm", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "disp.pfm").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), SystemExit(143)]
)
def test_what_stops_the_rename_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    (tmp_path / "disp.pfm").write_bytes(b"old")
    seen: list[str] = []

    def fail(source: Path, target: Path) -> None:
        seen.extend(names(tmp_path))
        raise error

    monkeypatch.setattr(atomic.os, "replace", fail)
    expected = OutputError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        write_atomically(tmp_path / "disp.pfm", b"new")
    assert len(seen) == 2
    assert seen[0].startswith(".pam-")
    assert seen[0].endswith(".tmp")
    assert names(tmp_path) == ["disp.pfm"]
    assert (tmp_path / "disp.pfm").read_bytes() == b"old"


def test_a_name_may_be_as_long_as_it_can_be_and_no_longer(tmp_path: Path) -> None:
    longest = "d" * 251 + ".pfm"
    write_atomically(tmp_path / longest, b"x")
    with pytest.raises(OutputError, match="name too long"):
        write_atomically(tmp_path / f"d{longest}", b"x")
    assert names(tmp_path) == [longest]


@pytest.mark.skipif(os.name != "posix", reason="symbolic links and devices")
class TestOnPosix:
    def test_a_link_is_followed_not_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "disp.pfm").symlink_to(tmp_path / "elsewhere" / "real.pfm")
        write_atomically(tmp_path / "disp.pfm", b"x")
        assert (tmp_path / "disp.pfm").is_symlink()
        assert (tmp_path / "elsewhere" / "real.pfm").read_bytes() == b"x"

    def test_a_device_is_written_to_not_replaced(self) -> None:
        write_atomically(Path("/dev/null"), b"x")
        assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
    def test_a_full_device(self) -> None:
        with pytest.raises(OutputError, match="cannot write /dev/full: no space left on device") as caught:
            write_atomically(Path("/dev/full"), b"x")
        assert "free some space" in (caught.value.hint or "")

    def test_a_pipe_is_written_to(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
        reader.start()
        write_atomically(pipe, b"through the pipe")
        reader.join()
        assert received == [b"through the pipe"]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_is_not_replaced_without_overwrite(
    has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not has_links:  # as on exFAT
        monkeypatch.setattr(atomic.os, "link", fail)
    path = tmp_path / "disp.pfm"
    write_atomically(path, b"first", overwrite=False)
    with pytest.raises(FileInTheWayError, match=r"disp.pfm already exists: another process .* `overwrite`"):
        write_atomically(path, b"second", overwrite=False)
    assert (names(tmp_path), path.read_bytes()) == (["disp.pfm"], b"first")


@pytest.mark.skipif(os.name != "posix", reason="Windows has no test for a living process")
def test_files_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = atomic._temporary_name()
    killed = subprocess.Popen(["true"])
    killed.wait()
    abandoned = mine.replace(f"-{os.getpid()}-", f"-{killed.pid}-")
    elsewhere = ".pam-0-" + abandoned.split("-", 2)[2]
    for name in (mine, abandoned, elsewhere, ".pam-other.tmp"):
        (tmp_path / name).touch()
    check_writable(tmp_path / "disp.pfm")
    assert names(tmp_path) == sorted((mine, elsewhere, ".pam-other.tmp"))
