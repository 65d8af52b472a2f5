"""The page server: only pages, for clients on this computer, and silence whatever a client does."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pamcli.errors import UsageError
from pamcli.viewing import server
from pamcli.viewing.server import HOST, PageServer, read_folder

LARGE = 8_000_000
RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: closing sends a reset


@pytest.fixture
def site(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[PageServer]:
    """Serve a folder with everything that is not a page; nothing may be printed in the end."""
    folder = tmp_path / "site"
    (folder / "folder.html").mkdir(parents=True)
    (folder / "sub").mkdir()
    (folder / "a.html").write_text("page")
    (folder / "sub" / "B b\udcff.HTML").write_text("below")
    (folder / "empty.html").touch()
    os.truncate(os.open(folder / "large.html", os.O_CREAT | os.O_WRONLY), LARGE)
    (folder / "secret.txt").write_text("secret")
    (tmp_path / "outside.html").write_text("outside")
    for name, target in (("loop", "loop.html"), ("device", "/dev/zero"), ("out", "../outside.html")):
        (folder / f"{name}.html").symlink_to(target)
    os.mkfifo(folder / "fifo.html")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(os.path.relpath(folder / "socket.html"))
    with PageServer(read_folder(folder), "a.html") as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.05,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()
    assert not found.clients
    assert capfd.readouterr() == ("", "")


def connect(site: PageServer) -> socket.socket:
    return socket.create_connection((HOST, site.server_port), timeout=30)


def receive(client: socket.socket) -> bytes:
    """Return all that the server sends before it closes the connection."""
    parts = []
    try:
        while part := client.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def ask(site: PageServer, request: bytes) -> bytes:
    with connect(site) as client:
        client.sendall(request)
        return receive(client)


@pytest.mark.parametrize(
    ("path", "page"),
    [
        (b"/a.html", b"page"),
        (b"/a.html?x=1#y", b"page"),
        (b"//a.html", b"page"),
        (b"http://localhost/a.html", b"page"),
        (b"/sub/B%20b%FF.HTML", b"below"),
        (b"/sub/../a.html", b"page"),
        (b"/a.html/", b"page"),
        (b"/empty.html", b""),
        (b"/large.html", bytes(LARGE)),
        *(
            (path, None)
            for path in (
                *(b"/", b"/none.html", b"/secret.txt", b"/sub", b"/folder.html"),
                *(b"/../outside.html", b"/%2e%2e/outside.html", b"/..%2foutside.html", b"/out.html"),
                *(b"/loop.html", b"/fifo.html", b"/socket.html", b"/device.html", b"/%2fdev%2fzero"),
                *(b"/nul%00.html", b"/%zz.html", b"/\xff.html", b"http://[::1/a.html", b"*"),
                b"/" + b"a" * 300 + b".html",
            )
        ),
    ],
)
def test_only_pages_are_served(site: PageServer, path: bytes, page: bytes | None) -> None:
    head, _, body = ask(site, b"GET %b HTTP/1.0\r\nHost: localhost\r\n\r\n" % path).partition(b"\r\n\r\n")
    assert head.split()[1] == (b"404" if page is None else b"200")
    assert page is None or body == page


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /a.html HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", b"200"),
        (b"GET /a.html HTTP/1.1\r\nhost: LocalHost\r\n\r\n", b"200"),  # port 80 is not named
        (b"GET /a.html HTTP/1.0\r\n\r\n", b"404"),
        (b"GET /a.html HTTP/1.1\r\nHost: elsewhere.example:80\r\n\r\n", b"404"),
        (b"GET /a.html HTTP/1.1\r\nHost: 127.0.0.1.example\r\n\r\n", b"404"),
        (b"GET /a.html HTTP/1.1\r\nHost: \xff[::\r\n\r\n", b"404"),
        (b"GET /a b.html HTTP/1.1\r\n\r\n", b"400"),
        (b"POST /a.html HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", b"501"),
        (b"\xff\xfe /a.html HTTP/1.1\r\n\r\n", b"501"),
        (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 200 + b"\r\n", b"431"),
    ],
)
def test_requests_are_answered(site: PageServer, request_: bytes, status: bytes) -> None:
    assert status in ask(site, request_)


def test_old_and_foreign_protocols_end(site: PageServer) -> None:
    assert b"404" in ask(site, b"GET /a.html\r\n\r\n")  # HTTP/0.9, which names no host
    assert b"400" in ask(site, b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n")  # TLS


@pytest.mark.parametrize("sent", [b"", b"GET /lar", b"GET /large.html HTTP/1.0\r\nHost: localhost\r\n\r\n"])
@pytest.mark.parametrize("received", [0, 1000])
def test_clients_may_leave_at_any_time(site: PageServer, sent: bytes, received: int) -> None:
    for linger in (RESET, struct.pack("ii", 0, 0)):
        with connect(site) as client:
            client.sendall(sent)
            if received and sent.endswith(b"\n\r\n"):
                client.recv(received)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    assert ask(site, b"GET /a.html HTTP/1.0\r\nHost: localhost\r\n\r\n").endswith(b"page")


def test_slow_clients_make_room_for_others(site: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CLIENTS", 5)
    slow = [connect(site) for _ in range(40)]
    for client in slow:
        client.sendall(b"GET /")
    assert ask(site, b"GET /a.html HTTP/1.0\r\nHost: localhost\r\n\r\n").endswith(b"page")
    assert len(site.clients) <= 5
    assert threading.active_count() < 15
    for client in slow:
        client.close()


def test_a_port_in_use_is_refused(site: PageServer) -> None:
    with pytest.raises(UsageError, match="cannot serve on port"):
        PageServer(site.read, "a.html", site.server_port)
