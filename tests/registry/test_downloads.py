"""Weights from the Hub and from URLs: what is found, cached and resumed, and every way in which it fails."""

from __future__ import annotations

import importlib
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fake_hub
import huggingface_hub
import pytest
from fake_hub import COMMIT, serve_hub
from huggingface_hub import constants
from huggingface_hub import errors as hub_errors
from network_states import shipped
from warm_python import WarmPython

from pamcli.cli.console import Console, listen
from pamcli.errors import ModelError, PamError, UsageError
from pamcli.registry import downloads
from pamcli.registry.catalog import locate, read_header
from pamcli.registry.downloads import publish

CONTENT = b"weights" * 1000


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    fake_hub.ranges.clear()
    return tmp_path


def use_hub(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture
def hub(caches: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serve_hub(CONTENT) as address:
        use_hub(address, monkeypatch)
        yield address


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            try:
                while True:
                    held.append(server.accept()[0])
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    for each in held:
        each.close()


@pytest.mark.parametrize("kind", ["hub", "url"])
def test_a_silent_server_is_one_line(
    kind: str, caches: Path, silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_hub(silent_server, monkeypatch)
    monkeypatch.setattr(downloads, "SILENCE", 0.5)
    weights = "hf:owner/repo/net.safetensors" if kind == "hub" else f"{silent_server}/net.safetensors"
    start = time.perf_counter()
    with pytest.raises(ModelError, match=r"the server sent nothing for 0.5 s") as caught:
        locate(weights)
    assert 0.4 < time.perf_counter() - start < 10
    assert caught.value.exit_code == 4
    assert weights in caught.value.message
    assert "\n" not in str(caught.value)


def test_a_download_that_stalls_ends(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "SILENCE", 0.5)
    start = time.perf_counter()
    with pytest.raises(ModelError, match="the server sent nothing for"):
        locate("hf:owner/stalling/net.safetensors")
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("kind", ["hub", "url"])
def test_a_connection_that_breaks_off_is_resumed(kind: str, hub: str) -> None:
    url = f"{hub}/owner/cut/resolve/main/net.safetensors"
    path = locate("hf:owner/cut/net.safetensors" if kind == "hub" else url)
    assert path.read_bytes() == CONTENT
    assert fake_hub.ranges[-2:] == [0, len(CONTENT) // 2]
    assert [each.name for each in path.parent.iterdir()] == ["net.safetensors"]


def test_an_interrupted_download_is_resumed(hub: str, caches: Path) -> None:
    url = f"{hub}/owner/good/resolve/main/net.safetensors"
    path = locate(url)
    path.rename(path.with_name("net.safetensors.part"))
    part = path.with_name("net.safetensors.part")
    part.write_bytes(CONTENT[:100])
    part.with_name("net.safetensors.etag").write_text('"good"')
    assert locate(url).read_bytes() == CONTENT
    assert fake_hub.ranges == [0, 100]


def test_simultaneous_downloads_wait_for_each_other(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url, receive = f"{hub}/owner/good/resolve/main/net.safetensors", downloads._receive

    def receive_slowly(*arguments: Any) -> None:
        time.sleep(0.1)
        receive(*arguments)

    monkeypatch.setattr(downloads, "_receive", receive_slowly)
    with ThreadPoolExecutor(3) as threads:
        paths = {*threads.map(locate, [url] * 3)}
    assert [path.read_bytes() for path in paths] == [CONTENT]
    assert fake_hub.ranges == [0]


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user without an account
    with pytest.raises(ModelError, match=r"no home folder .*XDG_CACHE_HOME"):
        locate("http://127.0.0.1/net.safetensors")


def test_a_cached_file_needs_no_server(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url, address = f"{hub}/owner/good/resolve/main/net.safetensors", "hf:owner/good/net.safetensors"
    paths = [locate(each) for each in (url, address)]
    assert COMMIT in str(paths[1])
    count = len(fake_hub.ranges)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert [locate(each) for each in (url, address)] == paths
    assert len(fake_hub.ranges) == count
    for missing in (url.replace("good", "other"), "hf:owner/other/net.safetensors"):
        with pytest.raises(ModelError, match=r"is not in the local cache.*offline mode is enabled"):
            locate(missing)


def test_a_proxy_of_the_environment_is_used(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", hub)
    huggingface_hub.close_session()
    with pytest.raises(ModelError, match="the server answers 404"):  # of the proxy: the host does not exist
        locate("http://nowhere.invalid/net.safetensors")
    huggingface_hub.close_session()


FAILURES = {
    # address: what the message says, and the hint
    "hf:owner/gated/net.safetensors": ("the terms of owner/gated must be accepted", "hf auth login"),
    "hf:owner/missing/net.safetensors": ("the Hub has no repository owner/missing", "hf auth login"),
    "hf:owner/good/net.safetensors@v9": ("owner/good has no revision v9", "use a branch, tag or commit"),
    "hf:owner/good/none.safetensors": ("owner/good has no file none.safetensors", "its page lists the files"),
    "hf:owner/disabled/net.safetensors": ("answers 403, Access to this resource is dis", "give its path"),
    "hf:owner/forbidden/net.safetensors": ("answers 403, You are not welcome", "give its path"),
    "hf:owner/expired/net.safetensors": ("answers 401, Invalid credentials in Auth", "give its path"),
    "hf:owner/teapot/net.safetensors": ("answers 418, I am a teapot", "give its path"),
    "hf:owner/portal/net.safetensors": ("net.safetensors is not in the local cache", "give its path"),
    "hf:owner/broken/net.safetensors": ("answers 418, the disk is gone", "give its path"),
}


@pytest.mark.parametrize("address", FAILURES)
@pytest.mark.usefixtures("hub")
def test_every_refusal_of_the_hub_says_what_and_what_to_do(address: str) -> None:
    message, hint = FAILURES[address]
    with pytest.raises(ModelError) as caught:
        locate(address)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 4


def test_a_download_is_used_its_commit_is_said_and_it_is_found_again_offline(
    caches: Path, warm_python: WarmPython
) -> None:
    address, token = "hf:owner/good/sub/net.safetensors", "hf_do_not_tell"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    plain |= {"HF_HOME": str(caches), "HF_TOKEN": token}
    said = f"pam: {address} is at commit {COMMIT}; add @{COMMIT} to the address to pin it\n"
    with serve_hub(shipped("passrnet-x2").read_bytes()) as server:
        there = {"HF_ENDPOINT": server}
        for given, more, expected in (
            (address, there, said),
            (address, there | {"HF_HUB_OFFLINE": "1"}, said),
            (address, {"HF_ENDPOINT": "http://127.0.0.1:9"}, said),
            (f"{address}@v1", there, ""),
        ):
            command = warm_python.command("-m", "pamcli", "weights", "info", given)
            run = subprocess.run(command, env=plain | more, capture_output=True, text=True)
            assert run.returncode == 0, run.stderr
            lines = run.stderr.splitlines(keepends=True)  # on a busy machine, any download takes seconds
            assert "".join(line for line in lines if not line.startswith("pam: downloading ")) == expected
            assert "architecture   passrnet\n" in run.stdout
            assert f"{COMMIT}/sub/net.safetensors\n" in run.stdout
            assert token not in run.stdout + run.stderr


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_silences_the_bar_of_the_hub_too(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_VERBOSITY"):
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    listen(Console(quiet=quiet))
    assert ("HF_HUB_DISABLE_PROGRESS_BARS" in os.environ) == quiet


@pytest.mark.parametrize(
    "address",
    [
        "hf:",
        "hf:owner/net.safetensors",
        "hf:owner/repo/net.pth",
        "hf:owner/repo/net.safetensors@",
        "hf:owner//net.safetensors",
        "hf:owner/repo/n@t.safetensors",
        "hf:own er/repo/net.safetensors",
        "hf:owner/re--po/net.safetensors",
        "hf:owner/repo/../net.safetensors",
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


# httpx or httpx2
http = importlib.import_module(hub_errors.HfHubHTTPError.__mro__[1].__module__.partition(".")[0])
request = http.Request("HEAD", "http://127.0.0.1/owner/repo")


def not_cached(cause: Exception | None = None) -> Exception:
    error = hub_errors.LocalEntryNotFoundError("An error happened while trying to locate the file")
    error.__cause__ = cause
    return error


RAISED: list[Callable[[], Exception]] = [
    lambda: not_cached(),
    lambda: not_cached(http.ConnectError("[Errno -2] Name or service not known")),
    lambda: hub_errors.HfHubHTTPError("long\n\nexplanation", response=http.Response(500, request=request)),
    lambda: http.ReadError(""),
    lambda: http.ReadTimeout("timed out"),
    lambda: RuntimeError("the storage service said no"),
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


@pytest.mark.parametrize("url", ["https://host/net.pth", "https://host/", "https:///net.onnx"])
def test_a_url_must_name_a_weights_file(url: str) -> None:
    with pytest.raises(UsageError, match=r"must name a file of type .safetensors or .onnx"):
        locate(url)


class Api:
    """A Hub that remembers what is uploaded."""

    calls: list[tuple[str, Any]] = []  # noqa: RUF012 - shared with the test

    def create_repo(self, repository: str, *, private: bool, exist_ok: bool) -> None:
        self.calls.append(("create", (repository, private, exist_ok)))

    def create_commit(self, repository: str, operations: list[Any], *, commit_message: str) -> None:
        files = {each.path_in_repo: each.path_or_fileobj for each in operations}
        self.calls.append(("commit", (repository, files, commit_message)))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> type[Api]:
    Api.calls.clear()
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    return Api


def test_weights_are_published_with_a_card_from_their_metadata(api: type[Api], tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    path.write_bytes(shipped("passrnet-x2").read_bytes())
    assert (
        publish(path, read_header(path).spec, "hf:owner/repo", private=True)
        == "hf:owner/repo/mine.safetensors"
    )
    (_, created), (_, (repository, files, message)) = api.calls
    assert created == ("owner/repo", True, True)
    assert (repository, message) == ("owner/repo", "Upload mine.safetensors with pam")
    assert files["mine.safetensors"] == str(path) or files["mine.safetensors"] == path
    card = files["README.md"].decode()
    assert card.startswith("---\nlicense: ")
    assert "--weights hf:owner/repo/mine.safetensors" in card
    assert re.search(r"\| network \| passrnet \|\n\| scale \| 2 \|", card)


def test_the_card_next_to_the_weights_is_used(api: type[Api], tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    path.write_bytes(shipped("passrnet-x2").read_bytes())
    path.with_suffix(".md").write_text("my card")
    publish(path, read_header(path).spec, "hf:owner/repo")
    assert api.calls[1][1][1]["README.md"] == b"my card"
    (tmp_path / "other.md").write_text("other")
    publish(path, read_header(path).spec, "hf:owner/repo", card=tmp_path / "other.md")
    assert api.calls[3][1][1]["README.md"] == b"other"


def test_what_cannot_be_published(api: type[Api], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shipped("passrnet-x2")
    for address in ("owner/repo", "hf:repo", "hf:owner/repo/file", "hf:/repo"):
        with pytest.raises(UsageError, match="must be hf:OWNER/REPO"):
            publish(path, read_header(path).spec, address)
    with pytest.raises(ModelError, match="is not a safetensors file"):
        publish(path, read_header(Path(__file__)).spec, "hf:owner/repo")

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(Api, "create_repo", fail)
    with pytest.raises(ModelError, match=r"cannot upload .* to owner/repo: no route to host") as caught:
        publish(path, read_header(path).spec, "hf:owner/repo")
    assert caught.value.hint is not None
    assert "hf auth login" in caught.value.hint
