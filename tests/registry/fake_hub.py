"""A Hub on this machine, as far as downloading goes: what it answers follows from the repository's name."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" + "0" * 34
STALL = 3.0  # seconds without data in the answers for owner/stalling

ranges: list[int] = []
"""First byte of each request for a file."""

REFUSALS = {
    # repository: status, the Hub's name for the error, and its words
    "gated": (403, "GatedRepo", "Access to model owner/gated is restricted"),
    "missing": (401, "RepoNotFound", "Invalid username or password."),
    "disabled": (403, "", "Access to this resource is disabled."),
    "forbidden": (403, "", "You are not welcome"),
    "expired": (401, "", "Invalid credentials in Authorization header"),
    "teapot": (418, "", "I am a teapot"),
}


def _handler(content: bytes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._respond()

        def do_GET(self) -> None:
            self._respond()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

        def _respond(self) -> None:
            repository, resolve, revision, file = [*self.path.split("/", 5)[2:], "", "", "", ""][:4]
            if resolve != "resolve":
                self._answer(404, {})
            elif repository in REFUSALS:
                status, code, message = REFUSALS[repository]
                self._answer(status, {"X-Error-Code": code, "X-Error-Message": message})
            elif repository == "portal":
                self._answer(200, {}, b"<html>Welcome to our hotel, please log in</html>")
            elif repository == "stalling" and self.command == "GET":
                time.sleep(STALL)
            elif repository == "broken" and self.command == "GET":
                self._answer(418, {"X-Error-Message": "the disk is gone"})
            elif revision not in ("main", "v1", COMMIT):
                self._answer(404, {"X-Error-Code": "RevisionNotFound"})
            elif file not in ("net.safetensors", "sub/net.safetensors"):
                self._answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            else:
                headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{repository}"', "X-HF-Warning": "a; chatter"}
                begin = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
                ranges.append(begin)
                if begin:
                    headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
                self._answer(206 if begin else 200, headers, content[begin:])

        def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            if self.command == "GET" and "cut" in self.path and body and not self.headers["Range"]:
                self.wfile.write(body[: len(body) // 2])  # the connection breaks off
            elif self.command == "GET":
                self.wfile.write(body)

    return Handler


@contextmanager
def serve_hub(content: bytes) -> Iterator[str]:
    """The address of a Hub where every file that exists has this content."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(content)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
