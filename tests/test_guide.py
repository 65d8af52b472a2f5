"""Every command and every Python example of the README and the guide runs, on small stand-ins.

`pytest tests/test_guide.py -k batches.md` runs those of one page.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from documents import (
    BLOCKS,
    CHECKPOINT,
    PAGES,
    PROGRAMS,
    ROOT,
    Block,
    assert_outputs_exist,
    prepare,
    programs_of,
    shortened,
)
from PIL import Image
from warm_python import WarmPython

from pamcli.cli import app
from pamcli.registry.catalog import CAMERA_UPSCALING, DEFAULT_MATCHING, DEFAULT_UPSCALING, recorded_sha256


def leaves(group: Any, *names: str) -> list[tuple[str, Any]]:
    """Every command, with its name on the command line."""
    found = []
    for name in group.commands:
        each = group.get_command(None, name)
        below = hasattr(each, "commands")
        found += leaves(each, *names, name) if below else [(" ".join(("pam", *names, name)), each)]
    return found


COMMANDS = dict(leaves(app))
SHELL = [block for block in BLOCKS if block.language in ("sh", "console")]
DIFFERENT = list({block.text: block for block in reversed(SHELL)}.values())[::-1]
"""The blocks without repetitions: some pages begin with the same command."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a checkpoint in the authors' layout from the shipped network."""
    import torch
    from safetensors.torch import load_file

    file = tmp_path_factory.mktemp("checkpoints") / CHECKPOINT
    torch.save({"epoch": 80, "state_dict": load_file(ROOT / "weights" / "pasmnet.safetensors")}, file)
    return file


def check_run_by_continuous_integration(script: str) -> None:
    assert f"\n{script}\n" in (ROOT / ".ci" / "run").read_text()


RUN_BY_CI = ("scripts/demo.sh", "scripts/test.sh")


@pytest.mark.parametrize("block", DIFFERENT, ids=str)
def test_the_commands_work(block: Block, tmp_path: Path, checkpoint: Path, warm_python: WarmPython) -> None:
    for words, package, extra in (
        (".onnx", "onnxruntime", "onnx"),
        ("--engine ray", "ray", "ray"),
        (".mp4", "av", "video"),
        ("drive.bag", "rosbags", "ros"),
        ("--rerun", "rerun", "rerun"),
        ("HEIC", "pillow_heif", "heif"),
    ):
        if words in block.text:
            pytest.importorskip(package, reason=f"{package} is not installed (pip install 'pamcli[{extra}]')")
    environment = prepare(tmp_path, block, checkpoint, warm_python)
    for command in block.commands():
        programs = programs_of(command)
        if programs[0] in RUN_BY_CI:
            check_run_by_continuous_integration(programs[0])
            continue
        # test_downloads.py pushes weights; sbatch and parallel are programs of clusters.
        if command.startswith((". .venv/bin/activate", "pam weights push", "sbatch", "parallel")):
            continue
        assert set(programs) <= PROGRAMS, f"no stand-in for: {command}"
        run = subprocess.run(
            ["bash", "-o", "pipefail", "-c", shortened(command)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        assert run.returncode == 0, f"{command}\n{run.stderr.decode()}"
        assert_outputs_exist(tmp_path, command)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"], ids=str)
def test_the_python_works(block: Block, tmp_path: Path, checkpoint: Path, warm_python: WarmPython) -> None:
    environment = prepare(tmp_path, block, checkpoint, warm_python)
    strict = "import warnings; warnings.simplefilter('error')\n"
    command = warm_python.command("-c", strict + block.text)
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, f"{block.text}\n{run.stderr}"


@pytest.mark.parametrize("words", ["scripts/demo.sh", "scripts/test.sh", *COMMANDS])
def test_every_command_is_shown(words: str) -> None:
    assert any(words in command for block in SHELL for command in block.commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_guide_contains_the_examples_of_the_help(name: str) -> None:
    shown = {command.partition(" #")[0].rstrip() for block in SHELL for command in block.commands()}
    examples = COMMANDS[name].epilog.splitlines()[1:]
    assert [example for example in examples if example not in shown] == []


def test_every_fenced_block_has_a_known_language() -> None:
    assert {block.language for block in BLOCKS} <= {"sh", "console", "python", "text", "json", "yaml"}


def test_the_readme_is_short() -> None:
    assert PAGES[0].read_text(encoding="utf-8").count("\n") <= 150


def test_pages_are_short() -> None:
    lines = {page.name: page.read_text(encoding="utf-8").count("\n") for page in PAGES[1:]}
    assert {name for name, count in lines.items() if count > 120} <= {"benchmarks.md"}


def test_the_first_page_links_every_other_page() -> None:
    text = (ROOT / "pamcli" / "guide" / "start.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", text)) == {page.name for page in PAGES[1:]} - {"start.md"}


SEVERAL_COMMANDS = {"depth.md", "looking.md", "onnx.md", "own-network.md"}
"""Pages that begin with a chain of commands, each of which uses the result of the previous one."""
WITHOUT_COMMAND = {"code.md", "glossary.md", "how-it-works.md"}


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_a_page_begins_with_its_task_and_shows_a_command_at_once(page: Path) -> None:
    title, _, text = page.read_text(encoding="utf-8").partition("\n")
    assert re.fullmatch(r"# [A-Z][^.]{8,80}", title), "it names the task"
    if page.name in WITHOUT_COMMAND:
        return
    assert "```" in text.partition("\n## ")[0]
    shown = next(block for block in BLOCKS if block.page == page.name)
    if shown.language != "python" and page.name not in SEVERAL_COMMANDS:
        assert len(shown.commands()) == 1, "one command, and what it does, before the others"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize(
    ("image", "networks"),
    [
        ("readme.jpg", (DEFAULT_MATCHING, DEFAULT_UPSCALING[4])),
        ("superres.jpg", (DEFAULT_UPSCALING[4],)),
        ("camera.jpg", (DEFAULT_UPSCALING[4], CAMERA_UPSCALING[4])),
        ("confidence.jpg", (DEFAULT_MATCHING,)),
        ("attention.jpg", (DEFAULT_MATCHING,)),
    ],
)
def test_an_image_shows_the_shipped_weights(image: str, networks: tuple[str, ...]) -> None:
    path = ROOT / "scripts" / "sample" / image
    with Image.open(path) as opened:
        made_with = opened.info["comment"].decode()
    checksums = "\n".join(f"{name} {recorded_sha256(name)}" for name in networks)
    assert made_with == checksums, "outdated: run scripts/guide_images.py"
    assert path.stat().st_size < 400_000


def test_the_site_has_every_page_and_plain_pipes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import build_site

    shown = str(build_site.navigation())
    assert [page.name for page in PAGES if page.name not in shown] == []
    assert "pamcli.batch.matching.match_files" in build_site.reference()
    monkeypatch.setattr(build_site, "PAGES", tmp_path)
    build_site.copy("pamcli/guide/batches.md")
    assert "\\|" not in (tmp_path / "pamcli/guide/batches.md").read_text(encoding="utf-8")


def test_the_pages_of_options_match_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import option_tables

    for name in option_tables.PAGES:
        assert (option_tables.GUIDE / name).read_text(encoding="utf-8") == option_tables.page(name)


def test_the_tables_of_figures_match_figures_toml(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import figure_tables

    pages = figure_tables.pages()
    assert {"README.md", "networks.md", "pasmnet2.md", "passrnet2-x4.md"} <= {page.name for page in pages}
    outdated = [page.name for page in pages if figure_tables.updated(page) != page.read_text("utf-8")]
    assert outdated == [], "run scripts/figure_tables.py"
