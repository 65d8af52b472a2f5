"""pam view: the page is served on this computer, and nothing else is."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from headless_browser import PAGE_READY, seen_by_browser
from pam_program import refuse_all

from pamcli.batch.viewing import open_server, render_result
from pamcli.settings.batches import ViewSettings

CAMERA = "cam0=[100 0 48; 0 100 32; 0 0 1]\ncam1=[100 0 48; 0 100 32; 0 0 1]\ndoffs=0\nbaseline=200\n"


@contextmanager
def serving(**options: object) -> Iterator[http.client.HTTPConnection]:
    """Serve a result in this process; yield a connection to it."""
    server = open_server(ViewSettings(**options))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(connection: http.client.HTTPConnection, path: str, **headers: str) -> tuple[int, bytes]:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_a_disparity_map_becomes_a_page_with_depth(pair: Path, tmp_path: Path) -> None:
    np.save("d.npy", np.full((64, 96), 4, np.float32))
    np.save("c.npy", np.full((64, 96), 0.5, np.float32))
    Path("calib.txt").write_text(CAMERA)
    paths = {"result": Path("d.npy"), "image": Path("left.png"), "confidence": Path("c.npy")}
    page = render_result(ViewSettings(**paths, calibration=["calib.txt"]))
    with serving(result=Path("d.npy"), image=Path("left.png")) as connection:
        status, served = get(connection, "/index.html")
        assert (status, b"<title>d.npy, left.png</title>" in served) == (200, True)
    probe = (
        f"{PAGE_READY} return {{ camera: facts.camera, confidence: facts.confidence, depths: facts.depths }};"
    )
    seen = seen_by_browser(page, probe, tmp_path)
    assert (seen["confidence"], seen["requested"]) == (True, [])
    assert seen["depths"] == pytest.approx([5, 5])  # m: 100 px * 0.2 m / 4 px


def test_the_address_is_printed_and_ctrl_c_ends_the_server(pair: Path) -> None:
    Path("d.html").write_text("page")
    command = [sys.executable, "-m", "pamcli", "view", "d.html", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        address = program.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        assert address.endswith("/d.html")
        connection = http.client.HTTPConnection(address.split("/")[2], timeout=30)
        assert get(connection, "/d.html") == (200, b"page")
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130
        assert program.stderr.read() == "pam: press Ctrl-C to stop\n"


def test_bad_input_is_one_line(pair: Path) -> None:
    np.save("d.npy", np.ones((10, 20), np.float32))
    Path("empty", "folder.html").mkdir(parents=True)
    Path("d.html").write_text("page")
    Path("photo.jpg").write_bytes(Path("left.png").read_bytes())
    refuse_all(
        """
        2 d.npy | the left image of the disparity map d.npy is required | pam view disp.pfm left.png
        3 left.png | left.png has 3 channels, but a disparity map has one
        2 photo.jpg | pam view shows pages (.html) and disparity maps (.pfm,
        3 d.npy left.png | left.png is 96x64 but d.npy is 20x10
        2 d.html left.png | cannot use both | drop the image
        2 empty | contains no page | --page
        3 left.jpeg | left.jpeg
        2 left.png --focal 300 | requires
        """,
        "view",
    )
