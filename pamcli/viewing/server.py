"""Serve pages to browsers on this computer."""

import io
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlsplit

from pamcli.errors import UsageError

HOST = "127.0.0.1"
INDEX = "index.html"
MOST_CLIENTS = 64  # served at the same time; another one takes the place of the oldest
HTML = "text/html; charset=utf-8"
TIME_LIMIT = 10.0  # s, for a client to send its request, and then to receive each part of a page


class PageServer(ThreadingHTTPServer):
    """A server of pages, closed by `server_close`; `serve_forever` runs it. Raises UsageError.

    Whatever a client sends, and whenever it leaves, nothing is printed.
    """

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, read: Callable[[str], BinaryIO], first: str, port: int = 0) -> None:
        """Serve what `read` opens for a path; it raises OSError or ValueError if there is no such page.

        A stream with a `content_type` is not HTML.
        """
        self.read = read
        self.clients: dict[Any, float] = {}  # sockets, and when their requests must be complete; oldest first
        self.change = threading.Condition()  # of `clients`
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            message = f"cannot serve on port {port}: {error.strerror}"
            raise UsageError(message, "choose another `port`") from error
        self.address = f"http://{HOST}:{self.server_port}/{quote(first, errors='surrogateescape')}"

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.change:
            if len(self.clients) >= MOST_CLIENTS:
                _disconnect(next(iter(self.clients)))
            if not self.change.wait_for(lambda: len(self.clients) < MOST_CLIENTS, timeout=TIME_LIMIT):
                raise TimeoutError("no client leaves")
            self.clients[request] = time.monotonic() + TIME_LIMIT
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self.change:
            self.clients.pop(request, None)
            self.change.notify()

    def service_actions(self) -> None:
        """Disconnect clients that do not complete their requests."""
        with self.change:
            for client, deadline in self.clients.items():
                if time.monotonic() > deadline:
                    _disconnect(client)

    def server_close(self) -> None:
        """Disconnect all clients, and join their threads."""
        with self.change:
            for client in self.clients:
                _disconnect(client)
        super().server_close()

    def handle_error(self, *_: object) -> None:
        """Print nothing: the client left, or the computer is short of memory or threads."""


def _disconnect(client: socket.socket) -> None:
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = TIME_LIMIT

    def do_GET(self) -> None:
        self.server.clients[self.request] = float("inf")
        # Pages of other sites that resolve their own name to this computer are not served.
        host = (self.headers.get("Host") or "").partition(":")[0]
        try:
            if host.lower() not in (HOST, "localhost"):
                raise FileNotFoundError
            path = unquote(urlsplit(self.path).path, errors="surrogateescape").lstrip("/")
            page = self.server.read(path or INDEX)
        except (OSError, ValueError):
            self.send_error(404)
            return
        with page:
            size = page.seek(0, os.SEEK_END)
            page.seek(0)
            self.send_response(200)
            self.send_header("Content-Type", getattr(page, "content_type", HTML))
            self.send_header("Content-Length", str(size))
            self.end_headers()
            if size:
                self.connection.sendfile(page, 0, size)

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


def serve_one(page: bytes) -> Callable[[str], BinaryIO]:
    """Return a reader of one page, which is the index."""

    def read(path: str) -> BinaryIO:
        if path != INDEX:
            raise FileNotFoundError(path)
        return io.BytesIO(page)

    return read


def read_folder(folder: Path) -> Callable[[str], BinaryIO]:
    """Return a reader of the pages in a folder and its subfolders; no other file is read."""
    inside = folder.resolve()

    def read(path: str) -> BinaryIO:
        try:
            page = (inside / path).resolve()
        except RuntimeError as error:  # a link to itself
            raise FileNotFoundError(path) from error
        if page.suffix.lower() != ".html" or not page.is_relative_to(inside) or not page.is_file():
            raise FileNotFoundError(path)
        return page.open("rb")

    return read
