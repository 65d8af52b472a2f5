"""Options that contradict each other, name no format or ask for the impossible: refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from pam_program import pam, refuse, refuse_options, unchanged

PAIR = ["left.png", "right.png"]
COMMANDS = ["disparity", "superres"]


@pytest.fixture(autouse=True)
def placeholders(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that nothing may read: all of this is refused before an image or the network is loaded."""
    for name in (*PAIR, "left2.png", "l/a.png", "l/b.png", "r/a.png", "r/b.png", "packed.png"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("not a picture")
    Path("list.tsv").write_text("left.png\tright.png\n")
    monkeypatch.setattr("pamcli.batch.matching.load_matcher", None)
    monkeypatch.setattr("pamcli.batch.upscaling.load_upscaler", None)


def check(*arguments: str, texts: list[str], stdin: bytes = b"") -> None:
    with unchanged():
        refuse(pam(*arguments, stdin=stdin), 2, *texts)


# --- what is asked for ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_no_result_is_asked_for(command: str) -> None:
    check(command, *PAIR, texts=["no result is requested", "--output "])
    check(command, *PAIR, "-o", "", texts=["no result is requested"])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["superres", *PAIR], "--output left_x4.png"),
        (["superres", *PAIR, "--scale", "2"], "--output left_x2.png"),
        (["superres", "l", "r"], "--output results/"),
        (["disparity", *PAIR], "--output left_disparity.pfm"),
        (["rectify", *PAIR, "--uncalibrated"], "--output left_rectified.png"),
        (
            ["disparity", *PAIR, "out.pfm"],
            "no such file: out.pfm, and no result is requested (if it ",
        ),
        (["superres", *PAIR, "o u/x.png"], "--output 'o u/x.png')"),
        (["superres", "l", "r", "out"], "--output out)"),
        (["depth", "left.png", "metres.tif"], "--depth metres.tif)"),
        (["disparity", "packed.png", "out.pfm", "--packed", "lr"], "--output out.pfm)"),
        (["disparity", *PAIR, "--gpu"], "no such option: --gpu, did you mean --device?"),
        (["eval", "disparity", "--cuda"], "no such option: --cuda, did you mean --device?"),
        (["superres", *PAIR, "--outdir", "x"], "did you mean --output?"),
        (["disparity", *PAIR, "--over-write"], "did you mean --overwrite?"),
        (["dataset", "list", "--gpu"], "no such option: --gpu (pam dataset list --help"),
        (["disparity", *PAIR, "-output", "x.pfm"], "no such option: -output, did you mean --output?"),
        (["disparity", "packed.png", "\u2013packed", "lr"], "did you mean --packed?"),
        (
            ["disparity", *PAIR, "--color-map", "-o", "x.pfm"],
            "--color-map requires a value, got the option -o",
        ),
    ],
)
def test_hints_that_work(command: list[str], said: str) -> None:
    check(*command, texts=[said])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_number_of_images(command: str) -> None:
    check(command, "-o", "x.png", texts=["a left and a right image", "got none"])
    check(command, "left.png", "-o", "x.png", texts=["got 1", "--packed"])
    check(command, *PAIR, "left2.png", "-o", "x.png", texts=["got 3", "templates"])
    check(command, "--packed", "lr", "-o", "x.png", texts=["no packed image is given"])
    check(command, "left.png", "-", "-o", "x.png", texts=["stdin", "--packed lr"])
    for pictures in (["left.png", ""], ["--packed", "lr", ""], ["--pairs", ""]):
        check(command, *pictures, "-o", "x.png", texts=["the name of an image or list is empty"])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "said"),
    [("x", "no suffix"), ("x.exr", "the suffix .exr"), ("x.pfm.gz", "the suffix .gz"), (".png", "no suffix")],
)
def test_an_unknown_suffix(command: str, name: str, said: str) -> None:
    check(command, *PAIR, "-o", name, texts=[f"--output {name} has {said}", ".png", ".tif"])


@pytest.mark.parametrize(
    ("option", "name", "allowed"),
    [
        ("--output-right", "x.jpg", ".pfm"),
        ("--color-map", "x.pfm", ".png"),
        ("--visible", "x.pfm", ".png"),
        ("--confidence", "x.jpg", ".tif"),
    ],
)
def test_a_suffix_that_is_none_of_the_kind(option: str, name: str, allowed: str) -> None:
    check("disparity", *PAIR, "-o", "x.pfm", option, name, texts=[f"{option} {name}", allowed])


@pytest.mark.parametrize("suffix", ["PFM", "Png", "TIFF", "NPY"])
def test_suffixes_in_capitals(suffix: str) -> None:
    check(
        "disparity", *PAIR, "-o", f"x.{suffix}", "--range", "0:9", texts=["--range"]
    )  # no word on the suffix


def test_a_folder_that_is_a_file() -> None:
    check("disparity", "l", "r", "-o", "left.png/", texts=["--output left.png/ is a file, not a folder"])


# --- formats --------------------------------------------------------------------------------------------


def test_a_format_that_contradicts_the_suffix() -> None:
    said = "--output x.pfm differs from --format png"
    check("disparity", *PAIR, "-o", "x.pfm", "--format", "png", texts=[said])
    check(
        "disparity",
        "l",
        "r",
        "-o",
        "{}.pfm",
        "--format",
        "png",
        texts=["--output {}.pfm differs from --format"],
    )
    check("superres", *PAIR, "-o", "x.png", "--format", "jpg", texts=["--output x.png differs from --format"])


def test_a_format_that_does_not_exist() -> None:
    with unchanged():
        refuse_options(pam("disparity", *PAIR, "-o", "x/", "--format", "jpg"), "--format", "'jpg'", "'pfm'")
        refuse_options(pam("superres", *PAIR, "-o", "x/", "--format", "pfm"), "--format", "'pfm'", "'png'")


# --- stdout ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_bytes_on_stdout_are_of_one_pair(command: str) -> None:
    said = "--output - cannot hold a batch"
    check(command, "l", "r", "-o", "-", texts=[said])
    check(command, "l/{}.png", "r/{}.png", "-o", "-", texts=[said])
    check(command, "--pairs", "list.tsv", "-o", "-", texts=[said])
    check(command, "--pairs", "-", "-o", "-", texts=[said], stdin=b"left.png\tright.png\n")
    check(command, "--packed", "lr", "packed.png", "left.png", "-o", "-", texts=[said])


@pytest.mark.parametrize("command", COMMANDS)
def test_bytes_on_stdout_leave_no_room_for_records(command: str) -> None:
    check(command, *PAIR, "-o", "-", "--jsonl", texts=["--output - and --jsonl"])


def test_one_result_on_stdout() -> None:
    said = ["--output - and --color-map -"]
    check("disparity", *PAIR, "-o", "-", "--color-map", "-", texts=said)
    said = ["--visible - and --confidence -"]
    check("disparity", *PAIR, "--visible", "-", "--confidence", "-", "-o", "x.pfm", texts=said)
    check(
        "superres",
        *PAIR,
        "-o",
        "-",
        "--output-right",
        "-",
        texts=["--output - and --output-right -"],
    )


# --- which pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_ways_to_name_pairs_that_exclude_each_other(command: str) -> None:
    check(command, *PAIR, "--pairs", "list.tsv", "-o", "o/", texts=["--pairs and LEFT RIGHT"])
    check(command, "--pairs", "list.tsv", "--packed", "lr", "-o", "o/", texts=["--pairs and --packed"])
    check(command, *PAIR, "-0", "-o", "x.png", texts=["--null requires --pairs"])
    check(command, "--packed", "lr", "-", "left.png", "-o", "o/", texts=["- reads one image from stdin"])
    check(command, "l/{}.png", "r/a.png", "-o", "o/", texts=["r/a.png", "contains {}"])
    check(command, "l", "left.png", "-o", "o/", texts=["l is a folder and left.png is a file"])


@pytest.mark.parametrize("command", COMMANDS)
def test_existing_results_are_left_or_replaced(command: str) -> None:
    said = "cannot use both --overwrite and --skip-existing"
    check(command, *PAIR, "-o", "x.png", "--overwrite", "--skip-existing", texts=[said])
    check(command, "--pairs", "-", "-o", "o/", "--overwrite", "--skip-existing", texts=[said])


# --- numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "-16", "16.0", "all", "", "9" * 5000])
def test_a_maximum_disparity_that_is_none(text: str) -> None:
    said = ["--max-disparity must be a positive whole number or none"]
    check("disparity", *PAIR, "-o", "x.pfm", "--max-disparity", text, texts=said)


@pytest.mark.parametrize(
    "text", ["", "5", "5:", ":5", "5:5", "9:5", "0:inf", "nan:5", "1:2:3", "a:b", "Auto"]
)
def test_a_range_that_is_none(text: str) -> None:
    said = ["--range must be MIN:MAX", repr(text)]
    check("disparity", *PAIR, "--color-map", "x.png", "--range", text, texts=said)


def test_a_range_without_colours() -> None:
    check("disparity", *PAIR, "-o", "x.pfm", "--range", "0:9", texts=["--range requires --color-map"])


def test_the_range_of_a_batch_that_is_not_known() -> None:
    said = "--range shared"
    auto = ["--color-map", "c/", "--range", "shared"]
    check("disparity", "--pairs", "-", *auto, texts=[said, "--pairs -"])
    check("disparity", "l", "r", "--skip-existing", *auto, texts=[said, "--skip-existing"])


@pytest.mark.parametrize("text", ["-0.1", "1.5", "nan", "high"])
def test_a_confidence_that_is_none(text: str) -> None:
    with unchanged():
        run = pam("disparity", *PAIR, "-o", "x.pfm", "--min-confidence", text)
        refuse(run, 2, "--min-confidence")


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("disparity", "--unknown", "sky"),
        ("disparity", "--packed", "up"),
        ("superres", "--color-map", "c.png"),
    ],
)
def test_values_that_do_not_exist(command: str, option: str, value: str) -> None:
    with unchanged():
        refuse_options(pam(command, *PAIR, "-o", "x.png", option, value), option)


@pytest.mark.parametrize("scale", ["1", "0.5", "9", "nan", "", "two"])
def test_what_is_no_scale(scale: str) -> None:
    texts = ["--scale must be a number above 1"]
    check("superres", *PAIR, "-o", "x.png", "--scale", scale, texts=texts)


def test_a_scale_that_no_network_reaches() -> None:
    texts = ["the scale of shipped networks must be at most 4, got 5"]
    check("superres", *PAIR, "-o", "x.png", "--scale", "5", texts=texts)
