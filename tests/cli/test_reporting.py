"""stdout holds results and nothing else; warnings, errors and progress go to stderr."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
from pathlib import Path

import pytest
from pam_program import forked_quick, pam

pytestmark = pytest.mark.usefixtures("networks", "pair")

DISPARITY = ["disparity", "left.png", "right.png", "--device", "cpu"]
MATCHED = [*DISPARITY, "-o", "d.pfm"]
SUPERRES = ["superres", "left.png", "right.png", "-o", "larger.png"]
KEYS = "left right line outputs width height seconds device precision options status code error warnings"


def test_records_of_a_batch() -> None:
    for side, picture in (("l", "left.png"), ("r", "right.png")):
        Path(side).mkdir()
        for stem in "abc":
            os.link(picture, f"{side}/{stem}.png")
    os.remove("l/c.png")
    Path("l/c.png").write_bytes(b"")
    Path("out").mkdir()
    Path("out/a.png").write_bytes(b"old")
    options = ["--format=png", "--device=cpu", "--skip-existing", "--jsonl"]
    run = pam("disparity", "l", "r", "-o", "out", *options)
    assert run.code == 6
    keys, added = KEYS.split(), {"matched_width": 96, "matched_height": 64, "input_shows": None}
    records = run.records
    assert [list(record) for record in records] == [keys, [*keys[:10], *added, *keys[10:]], keys]
    seconds = [record.pop("seconds") for record in records]
    assert seconds[::2] == [None, None]
    assert 0 < seconds[1] < 60
    given = {"inputs": ["l", "r"], "output": "out", "format": "png", "device": "cpu", "skip_existing": True}
    common = {"line": None, "device": "cpu", "precision": "fp32", "options": given, "warnings": []}
    states: dict[str, dict[str, object]] = {
        "a": {"width": None, "height": None, "status": "skipped", "code": 0, "error": None},
        "b": {"width": 96, "height": 64, **added, "status": "ok", "code": 0, "error": None},
        "c": {"width": None, "height": None, "status": "failed", "code": 3, "error": "l/c.png is empty"},
    }
    for record, (stem, values) in zip(records, states.items(), strict=True):
        outputs = {} if stem == "c" else {"disparity": f"out/{stem}.png"}
        files = {"left": f"l/{stem}.png", "right": f"r/{stem}.png", "outputs": outputs}
        assert record == {**files, **common, **values}


def test_quiet_and_verbose() -> None:
    batch = ["disparity", "{}ft.png", "{}ght.png", "-o", "out/", "--device", "cpu", "--overwrite"]
    os.link("right.png", "leght.png")
    shutil.copy("left.png", "lonely_ft.png")
    batch.append("--skip-unpaired")
    lonely = [
        "warning: lonely_ft.png has no partner and is ignored",
        "warning: right.png has no partner and is ignored",
    ]
    assert pam(*batch).complaints == [*lonely, "1 ok"]
    assert pam(*batch, "--quiet").complaints == lonely
    run = pam(*batch, "--verbose")
    assert run.complaints[:2] == lonely
    assert re.fullmatch(
        r"pasmnet2: .*pasmnet2\.safetensors, cpu, fp32, maximum disparity none, matching resolution auto",
        run.complaints[2],
    )
    assert run.complaints[3:] == ["1 ok"]
    Path("right.png").write_bytes(b"")
    assert pam(*DISPARITY, "-o", "d.pfm", "--quiet").complaints == ["error: right.png is empty"]


def test_a_file_name_cannot_command_the_terminal() -> None:
    name = "a\x1b[31m\nb.png"
    Path(name).write_bytes(b"")
    run = pam("disparity", name, "right.png", "-o", "d.pfm")
    assert run.code == 3
    assert run.stderr == "pam: error: a\\x1b[31m\\nb.png is empty\n"


def test_where_an_unexpected_error_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("pamcli.inference.matcher.StereoMatcher.__call__", broken)
    run = pam(*DISPARITY, "-o", "d.pfm")
    assert run.code == 1
    said = "error: left.png: unexpected ZeroDivisionError: a mistake of ours (PAM_TRACEBACK=1 shows where)"
    assert run.complaints == [said]
    monkeypatch.setenv("PAM_TRACEBACK", "1")
    run = pam(*DISPARITY, "-o", "d.pfm")
    assert 'raise ZeroDivisionError("a mistake of ours")' in run.stderr
    assert run.stderr.endswith(f"pam: {said}\n")


def read_all(terminal: int) -> bytes:
    """What a process wrote to its terminal, until it has ended."""
    content = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # how Linux says that nobody has the other end open any more
            part = b""
        if not part:
            os.close(terminal)
            return content
        content += part


@pytest.mark.parametrize("options", [[], ["--quiet"]], ids=["talkative", "quiet"])
def test_progress_is_shown_on_a_terminal_only(options: list[str]) -> None:
    os.link("left.png", "a_L.png")
    os.link("right.png", "a_R.png")
    command = ["disparity", "{}_L.png", "{}_R.png", "-o", "out/", "--jsonl", *options]
    ours, theirs = pty.openpty()
    with forked_quick(*command, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as running:
        os.close(theirs)
        shown = read_all(ours).decode()
        output = running.stdout.read()
        assert running.wait() == 0
    assert b"\x1b" not in output
    assert json.loads(output)["status"] == "ok"
    assert ("1/1" in shown) == ("pairs" in shown) == ("\x1b" in shown) == (not options)
    assert ("1 ok" in shown) == (not options)


@pytest.mark.parametrize("command", [MATCHED, SUPERRES], ids=["disparity", "superres"])
def test_rows_of_a_slow_pair_are_counted(command: list[str]) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "SLOW": "1"}
    with forked_quick(*command, stderr=theirs, env=environment) as running:
        os.close(theirs)
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", read_all(ours).decode())
        assert running.wait() == 0
    assert re.search(r"pairs +\S+ 0/1 +0:00:0\d elapsed", shown)
    assert re.search(r"rows +\S+ +32/64 +0:00:0\d remaining", shown)
    last = re.split("pairs(?!/s)", shown)[-1]
    assert "1/1" in last
    assert "rows" not in last, "they are gone with the pair"


def test_a_long_batch_says_in_a_pipe_how_far_it_is() -> None:
    for side, letter in (("left", "L"), ("right", "R")):
        for name in "ab":
            os.link(f"{side}.png", f"{name}_{letter}.png")
    command = ["disparity", "{}_L.png", "{}_R.png", "-o", "out/"]
    with forked_quick(*command, env={**os.environ, "SLOW": "1", "EVERY": "0.05"}) as running:
        output, complaints = running.communicate()
        assert running.returncode == 0
    assert output.split() == [b"out/a.pfm", b"out/b.pfm"]
    assert b"\x1b" not in complaints
    lines = [line for line in complaints.decode().splitlines() if line.startswith("pam: pairs: ")]
    within = r"pam: pairs: [01] of 2, 50% of the next one, (\d.+, )?0:00:\d\d remaining"
    counted = r"pam: pairs: 1 of 2, \d\.\d+ (pairs/s|s/pair), 0:00:\d\d remaining"
    for expected in (within, counted):
        assert any(re.fullmatch(expected, line) for line in lines), lines


def test_bytes_are_not_written_to_a_terminal() -> None:
    ours, theirs = pty.openpty()
    with forked_quick(*DISPARITY, "-o", "-", stdout=theirs) as running:
        os.close(theirs)
        assert read_all(ours) == b""
        assert running.wait() == 2
        complaint = running.stderr.read().decode()
    said = "--output - cannot write binary data to a terminal (use a pipe, or name a file)"
    assert complaint == f"pam: error: {said}\n"
