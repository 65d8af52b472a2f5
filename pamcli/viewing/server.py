"""Serve pages to browsers on this computer."""

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from pamcli.errors import UsageError

HOST = "127.0.0.1"
INDEX = "index.html"


class PageServer(ThreadingHTTPServer):
    """A server of pages, closed by `server_close`; `serve_forever` runs it. Raises UsageError."""

    daemon_threads = True

    def __init__(self, read: Callable[[str], bytes], first: str, port: int = 0) -> None:
        self.read = read
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            message = f"cannot serve on port {port}: {error.strerror}"
            raise UsageError(message, "choose another `port`") from error
        self.address = f"http://{HOST}:{self.server_port}/{quote(first)}"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        # Pages of other sites that resolve their own name to this computer are not served.
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        try:
            if host not in (HOST, "localhost"):
                raise FileNotFoundError
            page = self.server.read(unquote(urlsplit(self.path).path).lstrip("/") or INDEX)
        except OSError:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


def read_folder(folder: Path) -> Callable[[str], bytes]:
    """Return a reader of the pages in a folder and its subfolders; no other file is read."""
    inside = folder.resolve()

    def read(path: str) -> bytes:
        page = (inside / path).resolve()
        if page.suffix.lower() != ".html" or not page.is_relative_to(inside):
            raise FileNotFoundError(path)
        return page.read_bytes()

    return read
