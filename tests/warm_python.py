"""Programs in Python that are there at once: forks of one process that has pam, and torch, loaded already.

A test that starts dozens of them would spend its time on imports: two seconds a program, four where one
trains. Each runs in its caller's folder and environment, with its caller's streams, and gives its exit code.
The processes of one test run share it, and it ends after them. What a start itself does, and signals, are
tested with real ones (test_startup.py, cli/test_interruption.py).
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from dataclasses import replace
from typing import NoReturn

CLIENT, SERVER = "call", "serve"
OTHERS = (
    *("av", "imagecodecs._deflate", "imagecodecs._png", "imagecodecs._zlib", "numpy.ma", "pillow_heif"),
    *("plyfile", "torch._dynamo", "yaml"),
)
"""What commands load of libraries while they work, beside all of pam; some are of extras."""


def list_modules() -> list[str]:
    import pkgutil

    import pamcli

    found = pkgutil.walk_packages(pamcli.__path__, "pamcli.")
    return [name for _, name, _ in found if "-" not in name and name != "pamcli.__main__"]


class WarmPython:
    """The process of which programs are forks, with modules loaded; it ends after the process `owner`.

    Without torch, it has the modules that do not need it. `executable` is a file that takes a Python's place
    where others start it.
    """

    def __init__(self, *, owner: int, torch: bool = True) -> None:
        import fcntl
        import subprocess

        self.folder = f"/tmp/pam-{owner}-{int(torch)}"  # the address is to be short
        self.address = os.path.join(self.folder, "s")
        self.executable = os.path.join(self.folder, "python")
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.folder, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # while it is started
            if not os.path.exists(self.address):
                server = [sys.executable, "-P", __file__, SERVER, self.folder, str(owner), str(int(torch))]
                subprocess.run(server, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
                with open(self.executable, "w") as script:
                    script.write(f'#!/bin/sh\nexec {shlex.join(self.command())} "$@"\n')
                os.chmod(self.executable, 0o755)

    def command(self, *words: str) -> list[str]:
        """What `python WORDS` would do: `-m MODULE ...`, `-c CODE ...` or `SCRIPT ...`."""
        return [sys.executable, "-ISE", __file__, CLIENT, self.address, *words]


def call(address: str, words: list[str]) -> int:
    """Have a fork of the server do what `python WORDS` would, with this process's streams; its exit code."""
    environment = [b"=".join(item) for item in os.environb.items()]
    parts = [os.getcwdb(), str(len(words)).encode(), *map(os.fsencode, words), *environment]
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [b" "], [0, 1, 2])
        server.sendall(b"\0".join(parts))
        server.shutdown(socket.SHUT_WR)
        return int(server.recv(9) or b"99")  # nothing: it was killed


def serve(folder: str, owner: int, torch: bool) -> None:
    import contextlib
    import gc
    import importlib
    import select
    import shutil
    import signal

    if not torch:
        sys.modules["torch"] = None  # type: ignore[assignment] # importing it fails
    for name in (*list_modules(), *OTHERS):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    if torch:
        keep_networks()
    else:
        del sys.modules["torch"]
    assert "huggingface_hub" not in sys.modules, "it would keep this environment instead of its caller's"
    gc.freeze()  # otherwise every fork would search, and thus copy, the objects of the libraries
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.join(folder, "s"))
        server.listen(64)
        if os.fork():
            os._exit(0)  # it is ready
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # who reads what the tests say need not wait
        while is_running(owner):
            if not select.select([server], [], [], 1)[0]:
                continue
            connection, _ = server.accept()
            with connection:
                if not os.fork():
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    server.close()
                    report_exit_code(connection)
                    os._exit(answer(connection))
    shutil.rmtree(folder)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def report_exit_code(connection: socket.socket) -> None:
    """Send the exit code to the caller when this process ends, as `pam` does, by `os._exit`."""
    leave, process = os._exit, os.getpid()

    def report(code: int) -> NoReturn:
        if os.getpid() == process:  # not a process that this one has started
            connection.sendall(str(code).encode())
        leave(code)

    os._exit = report


def keep_networks() -> None:
    """Load and prepare the networks that commands use by default, and match small images as they are."""
    import torch

    from pamcli.inference import device
    from pamcli.registry import load as registry
    from pamcli.registry.catalog import DEFAULT_MATCHING, DEFAULT_UPSCALING, locate
    from pamcli.registry.resolution import EFFORTS

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # forks of a process that has started OpenMP's threads would wait for them
    EFFORTS["normal"] = replace(EFFORTS["normal"], most=1.0)
    load, precision = registry.load_network, device.Compute.choose("cpu", "auto", reduce=True).precision
    kept = {path: load(path) for path in map(locate, (DEFAULT_MATCHING, *DEFAULT_UPSCALING.values()))}
    for network, _ in kept.values():
        prepare, given = network.prepare, device.PRECISIONS[precision]
        prepared = {given: prepare(given)}
        network.prepare = lambda dtype, real=prepare, made=prepared: made.get(dtype) or real(dtype)
    registry.load_network = lambda path: kept.get(path) or load(path)
    torch.set_num_threads(threads)


def answer(connection: socket.socket) -> int:
    """Take a caller's place, do what it wants, and return the exit code."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    given = b""
    while more := connection.recv(1 << 16):
        given += more
    folder, count, *parts = given.split(b"\0")
    words = [os.fsdecode(word) for word in parts[: int(count)]]
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(item.split(b"=", 1) for item in parts[int(count) :])  # type: ignore[misc]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering, closefd=False)  # noqa: SIM115
        for number, mode, buffering in ((0, "r", -1), (1, "w", -1), (2, "w", 1))
    )
    code = run(*words)
    sys.stdout.flush()
    return code


def run(*words: str) -> int:
    import runpy
    import traceback

    option, *rest = words
    try:
        if option == "-m":
            sys.argv = [option, *rest[1:]]
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif option == "-c":
            sys.argv = [option, *rest[1:]]
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = list(words)
            sys.path.insert(0, os.path.dirname(os.path.abspath(option)))
            runpy.run_path(option, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001 - as Python itself does
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == CLIENT:
        sys.exit(call(sys.argv[2], sys.argv[3:]))
    serve(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1")
