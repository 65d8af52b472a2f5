"""A port of this machine for processes that meet there."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def free_port() -> int:
    """A port of this process alone among the tests, below those that a system gives to whoever asks."""
    first = 20_000 + os.getpid() % 750 * 16
    for port in range(first, first + 16):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError(f"none of the ports from {first} is free")
