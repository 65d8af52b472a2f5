"""--engine ray: what is refused before any cluster is asked."""

from __future__ import annotations

import sys

import pytest
from pam_program import pam, refuse, refuse_all, unchanged

from pamcli.errors import suggest_extra


@pytest.mark.parametrize("command", ["disparity", "superres", "rectify --uncalibrated"])
def test_without_the_library(small_pair: object, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with open("pairs.tsv", "w") as file:
        file.write("left.png\tright.png\n")
    with unchanged():
        run = pam(*command.split(), "--pairs", "pairs.tsv", "-o", "out/", "--engine", "ray")
        refuse(run, 2, "ray is not installed", suggest_extra("ray"))
        run = pam(*command.split(), "left.png", "right.png", "-o", "x.png", "--engine", "ray")
        refuse(run, 2, "--engine ray requires a batch")


def test_options_of_a_cluster_that_is_not_asked_for(small_pair: object) -> None:
    table = """
        2 --ray-address local | --ray-address requires --engine ray
        2 --ray-cores 1 | --ray-cores requires --engine ray
    """
    refuse_all(table, "rectify left.png right.png --uncalibrated -o x.png")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:x", "ray://127.0.0.1:1"])
def test_a_cluster_that_is_not_there(
    small_pair: object, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="ray is not installed (pip install 'pamcli[ray]')")
    with open("pairs.tsv", "w") as file:
        file.write("left.png\tright.png\n")
    with unchanged():
        run = pam("disparity --pairs pairs.tsv -o out/ --engine ray --ray-address", address)
        refuse(run, 5, f"no Ray cluster answers at {address}")
    assert capfd.readouterr().err == ""
