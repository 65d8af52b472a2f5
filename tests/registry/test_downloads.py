"""Downloads that stall or break off, files of URLs, and the publication of weights."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fake_hub
import huggingface_hub
import pytest
from fake_hub import COMMIT, serve_hub
from huggingface_hub import constants
from network_states import shipped

from pamcli.errors import ModelError, UsageError
from pamcli.registry import downloads
from pamcli.registry.catalog import locate
from pamcli.registry.downloads import publish

CONTENT = b"weights" * 1000


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(downloads, "SILENCE", 0.5)
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
    weights = "hf:owner/repo/net.safetensors" if kind == "hub" else f"{silent_server}/net.safetensors"
    start = time.perf_counter()
    with pytest.raises(ModelError, match=r"the server sent nothing for 0.5 s") as caught:
        locate(weights)
    assert 0.4 < time.perf_counter() - start < 10
    assert caught.value.exit_code == 4
    assert weights in caught.value.message
    assert "\n" not in str(caught.value)


def test_a_download_that_stalls_ends(hub: str) -> None:
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
    assert publish(path, "hf:owner/repo", private=True) == "hf:owner/repo/mine.safetensors"
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
    publish(path, "hf:owner/repo")
    assert api.calls[1][1][1]["README.md"] == b"my card"
    (tmp_path / "other.md").write_text("other")
    publish(path, "hf:owner/repo", card=tmp_path / "other.md")
    assert api.calls[3][1][1]["README.md"] == b"other"


def test_what_cannot_be_published(api: type[Api], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shipped("passrnet-x2")
    for address in ("owner/repo", "hf:repo", "hf:owner/repo/file", "hf:/repo"):
        with pytest.raises(UsageError, match="must be hf:OWNER/REPO"):
            publish(path, address)
    with pytest.raises(ModelError, match="is not a safetensors file"):
        publish(Path(__file__), "hf:owner/repo")

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(Api, "create_repo", fail)
    with pytest.raises(ModelError, match=r"cannot upload .* to owner/repo: no route to host") as caught:
        publish(path, "hf:owner/repo")
    assert caught.value.hint is not None
    assert "hf auth login" in caught.value.hint
