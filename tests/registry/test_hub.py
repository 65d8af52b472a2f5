"""Addresses on the Hub: what is found, what is cached, and every way in which it can fail."""

from __future__ import annotations

import errno
import importlib
import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fake_hub import COMMIT, serve_hub
from huggingface_hub import constants
from huggingface_hub import errors as hub
from network_states import shipped
from warm_python import WarmPython

from pamcli.errors import ModelError, PamError, UsageError
from pamcli.registry import downloads
from pamcli.registry.catalog import locate

Pam = Callable[..., subprocess.CompletedProcess[str]]
"""Runs pam with an environment and arguments."""

SECRET = "hf_do_not_tell"

LOCATE = """
import json, sys
from pamcli.cli.console import Console, listen
from pamcli.errors import PamError
from pamcli.registry.catalog import locate
listen(Console(quiet=sys.argv[1] == "quiet"))
for address in sys.argv[2:]:
    try:
        found = {"path": str(locate(address))}
    except PamError as error:
        found = {"code": error.exit_code, "message": error.message, "hint": error.hint}
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment with a Hub, an empty cache, and a token that must not be seen."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    with serve_hub(shipped("passrnet-x2").read_bytes()) as address:
        yield {
            **plain,
            "HF_ENDPOINT": address,
            "HF_HOME": str(tmp_path_factory.mktemp("hub")),
            "HF_TOKEN": SECRET,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
        }


@pytest.fixture
def pam(warm_python: WarmPython) -> Pam:
    def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        command = warm_python.command("-m", "pamcli", *arguments)
        run = subprocess.run(
            command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
        )
        assert "Traceback" not in run.stderr
        assert SECRET not in run.stdout + run.stderr
        lines = run.stderr.splitlines(keepends=True)  # on a busy machine, any download takes seconds
        run.stderr = "".join(line for line in lines if not line.startswith("pam: downloading "))
        return run

    return run


def refused(run: subprocess.CompletedProcess[str], code: int) -> str:
    assert run.returncode == code, run.stderr
    assert run.stdout == ""
    assert run.stderr.startswith("pam: error: ")
    assert run.stderr.count("\n") == 1
    return run.stderr


# --- from a server ------------------------------------------------------------------------------------------

FAILURES = {
    # address: what the message says, and the hint
    "hf:owner/gated/net.safetensors": ("the terms of owner/gated must be accepted", "hf auth login"),
    "hf:owner/missing/net.safetensors": ("the Hub has no repository owner/missing", "hf auth login"),
    "hf:owner/good/net.safetensors@v9": ("owner/good has no revision v9", "use a branch, tag or commit"),
    "hf:owner/good/none.safetensors": ("owner/good has no file none.safetensors", "its page lists the files"),
    "hf:owner/disabled/net.safetensors": (
        "answers 403, Access to this resource is disabled",
        "give its path",
    ),
    "hf:owner/forbidden/net.safetensors": ("answers 403, You are not welcome", "give its path"),
    "hf:owner/expired/net.safetensors": ("answers 401, Invalid credentials in Auth", "give its path"),
    "hf:owner/teapot/net.safetensors": ("answers 418, I am a teapot", "give its path"),
    "hf:owner/portal/net.safetensors": (
        "hf:owner/portal/net.safetensors is not in the local cache",
        "give its path",
    ),
    "hf:owner/broken/net.safetensors": ("answers 418, the disk is gone", "give its path"),
}


@pytest.fixture(scope="module")
def answers(environment: dict[str, str]) -> dict[str, dict[str, str]]:
    """What became of every address above, in one process."""
    run = subprocess.run(
        [sys.executable, "-c", LOCATE, "quiet", *FAILURES], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert SECRET not in run.stdout
    return dict(zip(FAILURES, map(json.loads, run.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("address", FAILURES)
def test_every_refusal_of_the_hub_says_what_and_what_to_do(
    answers: dict[str, dict[str, str]], address: str
) -> None:
    answer = answers[address]
    message, hint = FAILURES[address]
    assert answer["code"] == ModelError.exit_code == 4
    assert message in answer["message"]
    assert hint in answer["hint"]
    assert "\n" not in answer["message"]


def test_a_download_is_used_its_commit_is_said_and_it_is_found_again_offline(
    environment: dict[str, str], pam: Pam
) -> None:
    address = "hf:owner/good/sub/net.safetensors"
    for extra in ({}, {"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        run = pam({**environment, **extra}, "weights", "info", address)
        assert run.returncode == 0, run.stderr
        assert run.stderr == f"pam: {address} is at commit {COMMIT}; add @{COMMIT} to the address to pin it\n"
        assert "architecture   passrnet\n" in run.stdout
        assert f"{COMMIT}/sub/net.safetensors\n" in run.stdout


def test_a_named_revision_needs_no_report(environment: dict[str, str]) -> None:
    addresses = [f"hf:owner/good/net.safetensors@{revision}" for revision in ("v1", COMMIT)]
    run = subprocess.run(
        [sys.executable, "-c", LOCATE, "loud", *addresses], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "commit" not in run.stderr
    found = [json.loads(line)["path"] for line in run.stdout.splitlines()]
    assert len(found) == 2
    assert all(path.endswith(f"{COMMIT}/net.safetensors") for path in found)


def test_offline_and_not_cached(environment: dict[str, str], pam: Pam) -> None:
    run = pam({**environment, "HF_HUB_OFFLINE": "1"}, "weights", "info", "hf:owner/other/net.safetensors")
    line = refused(run, 4)
    assert "hf:owner/other/net.safetensors is not in the local cache" in line
    assert "offline mode is enabled" in line
    assert "try again online, or download the file elsewhere and give its path" in line


def test_a_file_that_is_not_of_pam_is_refused_after_the_download(
    environment: dict[str, str], pam: Pam, tmp_path: Path
) -> None:
    with serve_hub(b"<html>not a network</html>") as address:
        run = pam(
            {**environment, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path)},
            *("weights", "info", "hf:owner/good/net.safetensors@v1"),
        )
    assert "net.safetensors is not a safetensors file" in refused(run, 4)


def on_a_terminal(environment: dict[str, str], *arguments: str) -> str:
    """What LOCATE shows when stderr is a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [sys.executable, "-c", LOCATE, *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # which says on Linux that the other end is closed
        while block := os.read(ours, 4096):
            shown += block
    os.close(ours)
    result = json.loads(process.communicate()[0])
    assert process.returncode == 0
    assert "path" in result
    return shown.decode()


def test_quiet_silences_the_bar_of_the_hub_too(environment: dict[str, str], tmp_path: Path) -> None:
    address = "hf:owner/good/net.safetensors"
    shown = on_a_terminal({**environment, "HF_HOME": str(tmp_path / "loud")}, "loud", address)
    assert "net.safetensors" in shown.replace(address, "")
    assert "2.74M" in shown
    assert on_a_terminal({**environment, "HF_HOME": str(tmp_path / "quiet")}, "quiet", address) == ""


# --- addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "hf:",
        "hf:net.safetensors",
        "hf:owner/net.safetensors",
        "hf:owner/repo",
        "hf:owner/repo/",
        "hf:owner/repo/net.pth",
        "hf:owner/repo/net.pth@main",
        "hf:owner/repo/net.safetensors@",
        "hf:owner//net.safetensors",
        "hf:/repo/net.safetensors",
        "hf:owner/repo//net.safetensors",
        "hf:owner/repo/n@t.safetensors",
        "hf:own er/repo/net.safetensors",
        "hf:owner/-repo/net.safetensors",
        "hf:owner/re--po/net.safetensors",
        "hf:owner/repo.git/net.safetensors",
        "hf:owner/repo/../net.safetensors",
        "hf:owner/repo/../../net.safetensors",
    ],
)
def test_an_address_of_another_form_is_a_usage_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="is not a Hub address") as caught:
        locate(address)
    assert repr(address) in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint == "write hf:owner/repo/file.safetensors[@revision]"
    assert caught.value.exit_code == 2


# --- what the Hub's library raises --------------------------------------------------------------------------

http = importlib.import_module(hub.HfHubHTTPError.__mro__[1].__module__.partition(".")[0])  # httpx, httpx2
request = http.Request("HEAD", "http://127.0.0.1/owner/repo")


def answered(kind: type[Exception], status: int) -> Exception:
    return kind("long\n\nexplanation", response=http.Response(status, request=request))


def not_cached(cause: Exception | None = None) -> Exception:
    error = hub.LocalEntryNotFoundError("An error happened while trying to locate the file")
    error.__cause__ = cause
    return error


RAISED: list[Callable[[], Exception]] = [
    lambda: not_cached(),
    lambda: not_cached(http.ConnectError("[Errno -2] Name or service not known")),
    lambda: not_cached(hub.OfflineModeIsEnabled("Cannot reach it: offline mode is enabled.")),
    lambda: not_cached(answered(hub.HfHubHTTPError, 503)),
    lambda: hub.OfflineModeIsEnabled("offline mode is enabled"),
    lambda: answered(hub.GatedRepoError, 403),
    lambda: answered(hub.RepositoryNotFoundError, 404),
    lambda: answered(hub.RevisionNotFoundError, 404),
    lambda: answered(hub.RemoteEntryNotFoundError, 404),
    lambda: answered(hub.HfHubHTTPError, 500),
    lambda: hub.FileMetadataError("no ETag"),
    lambda: http.RemoteProtocolError("peer closed connection"),
    lambda: http.ReadError(""),
    lambda: http.ReadTimeout("timed out"),
    lambda: http.UnsupportedProtocol("Request URL is missing an 'http://' or 'https://' protocol."),
    lambda: RuntimeError("the storage service said no"),
    lambda: ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    lambda: OSError("Consistency check failed: file should be of size 5\nbut has size 3"),
]


@pytest.mark.parametrize("make", RAISED, ids=lambda make: f"{make()!r}"[:60])
def test_whatever_the_library_raises_is_a_model_error(
    make: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = make()

    def fail(*arguments: object, **named: object) -> str:
        raise error

    monkeypatch.setattr(downloads, "_fetch", fail)
    with pytest.raises(PamError) as caught:
        locate("hf:owner/repo/net.safetensors@v1")
    assert type(caught.value) is ModelError
    assert caught.value.exit_code == 4
    assert "owner/repo" in caught.value.message
    assert "\n" not in caught.value.message
    assert not caught.value.message.endswith((" ", ":", "("))
    assert caught.value.hint
    assert caught.value.__cause__ is error
