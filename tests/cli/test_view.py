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
from pam_program import pam, refuse

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


def test_pages_of_a_folder_are_served_and_no_other_file(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in ("index.html", "a b.html"):
        (folder / name).write_text(name)
    (folder / "secret.txt").write_text("secret")
    (tmp_path / "outside.html").write_text("outside")
    with serving(result=folder) as connection:
        assert get(connection, "/") == (200, b"index.html")
        assert get(connection, "/a%20b.html") == (200, b"a b.html")
        for path in ("/secret.txt", "/../outside.html", "/%2e%2e/outside.html", "/none.html"):
            assert get(connection, path)[0] == 404
        assert get(connection, "/", Host="elsewhere.example:80")[0] == 404


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
    Path("empty").mkdir()
    Path("d.html").write_text("page")
    refuse(
        pam("view", "d.npy"),
        2,
        "the left image of the disparity map d.npy is required",
        "pam view disp.pfm left.png",
    )
    refuse(pam("view", "left.png"), 3, "left.png has 3 channels, but a disparity map has one")
    Path("photo.jpg").write_bytes(Path("left.png").read_bytes())
    refuse(pam("view", "photo.jpg"), 2, "pam view shows pages (.html) and disparity maps (.pfm,")
    refuse(pam("view", "d.npy", "left.png"), 3, "left.png is 96x64 but d.npy is 20x10")
    refuse(pam("view", "d.html", "left.png"), 2, "cannot use both", "drop the image")
    refuse(pam("view", "empty"), 2, "contains no page", "--page")
    refuse(pam("view", "left.jpeg"), 3, "left.jpeg")
    refuse(pam("view", "left.png", "--focal", "300"), 2, "requires")
