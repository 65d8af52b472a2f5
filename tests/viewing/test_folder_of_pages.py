"""A folder of pages: its table of contents, and the server, which answers only this computer."""

from __future__ import annotations

import html
import os
import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pamcli.errors import InputError, UsageError
from pamcli.viewing import index, server
from pamcli.viewing.index import check_index, render_index, write_index
from pamcli.viewing.page import render_page
from pamcli.viewing.server import HOST, PageServer, read_folder

NASTY = 'a "b" <c> #1 ü%41'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    disparity = np.ones((8, 12), np.float32)
    left = np.zeros((8, 12, 3), np.uint8)
    for name in ("frame10", "frame9", f"sub/{NASTY}"):
        path = tmp_path / f"{name}.html"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(render_page(f"title of {name}", left, disparity))
    (tmp_path / "other.html").write_text("<html>somebody else's</html>")
    return tmp_path


def test_it_lists_the_pages_and_nothing_else(folder: Path) -> None:
    write_index(folder / "index.html")
    write_index(folder / "index.html")  # its own place is no page
    text = (folder / "index.html").read_text()
    entry = r'<li><a href="(.*?)"><img alt="" src="data:image/jpeg;base64,[\w+/=]+">(.*?)</a>'
    links = re.findall(entry, text)
    assert [title for _, title in links][:2] == ["title of frame9", "title of frame10"]
    assert "&lt;c&gt;" in links[2][1]
    nasty = "sub/a%20%22b%22%20%3Cc%3E%20%231%20%C3%BC%2541.html"
    assert [link for link, _ in links] == ["frame9.html", "frame10.html", nasty]


def test_pages_of_one_title_are_told_apart(folder: Path) -> None:
    for path in ("frame9.html", "sub/twin.html"):
        (folder / path).write_bytes(render_page("left.png", np.zeros((8, 12, 3), np.uint8), np.ones((8, 12))))
    text = render_index(folder)[0].decode()
    titles = re.findall(r"/>?[^<>]*>([^<>]+)</a>", text)
    assert "left.png (frame9)" in titles
    assert "left.png (sub/twin)" in titles
    assert "title of frame10" in titles


def test_many_pages_have_no_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MOST_THUMBNAILS", 2)
    page, _ = render_index(folder)
    assert b"<img" not in page
    assert b"title of frame9" in page


def test_a_file_of_its_name_that_is_no_index_stays(folder: Path) -> None:
    place = folder / "index.html"
    place.write_bytes((folder / "frame9.html").read_bytes())
    with pytest.raises(UsageError, match="not an index of pages"):
        write_index(place)
    assert place.read_bytes() == (folder / "frame9.html").read_bytes()
    with pytest.raises(UsageError, match="both a page and the index"):
        check_index(folder / "new" / "index.html", [folder / "new" / "index.html"])


def test_what_is_no_page_is_left_out(folder: Path) -> None:
    usual = render_index(folder)
    assert usual[1] == []
    (folder / "folder.html").mkdir()
    os.mkfifo(folder / "pipe.html")
    for name, target in (("endless.html", "/dev/zero"), ("loop.html", "loop.html")):
        os.symlink(target, folder / name)
    assert render_index(folder) == usual


@pytest.mark.parametrize(
    "entry",
    ["{", "null", "[" * 50_000, '{"title": 1, "picture": ""}', '{"title": "a", "picture": "<b>"}'],
    ids=lambda entry: entry[:30],
)
def test_a_damaged_page_is_named_and_the_others_are_listed(folder: Path, entry: str) -> None:
    write_index(folder / "index.html")
    usual = (folder / "index.html").read_bytes()
    (folder / "odd.html").write_text(f'<meta name="pam" content="{html.escape(entry)}">')
    with pytest.raises(InputError, match=r"index\.html.* damaged: .*odd\.html \(delete"):
        write_index(folder / "index.html")
    assert (folder / "index.html").read_bytes() == usual


def test_an_index_that_is_no_file_stays(folder: Path) -> None:
    os.mkfifo(folder / "index.html")
    with pytest.raises(UsageError, match="not an index of pages"):
        write_index(folder / "index.html")


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
