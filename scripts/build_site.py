"""Build the documentation site from README, guide and docstrings.

python scripts/build_site.py                              # needs the extra docs; writes build/site/html/
python -m mkdocs serve -f build/site/mkdocs.yml           # shows it, after a first build

The pages keep their places relative to each other, so their links are those of the repository. The navigation
follows the tables of pamcli/guide/start.md. Any broken link ends the build.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pamcli

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
PAGES = SITE / "pages"
GUIDE = Path("pamcli") / "guide"
REFERENCE, EXAMPLE = "reference.md", "example.html"

HOME = "README.md"
TOP = (HOME, "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", ".github/SECURITY.md")


def main() -> None:
    """Collect the pages and build the site."""
    if importlib.util.find_spec("mkdocs") is None:
        sys.exit(f"MkDocs is missing: {sys.executable} -m pip install -e '{ROOT}[docs]'")
    shutil.rmtree(SITE, ignore_errors=True)
    for name in (*TOP, *(str(GUIDE / path.name) for path in (ROOT / GUIDE).glob("*.md"))):
        copy(name, name.removeprefix(".github/"))
    for path in (ROOT / "scripts" / "sample").glob("*.jpg"):
        copy(str(path.relative_to(ROOT)))
    (PAGES / REFERENCE).write_text(reference(), encoding="utf-8")
    make_example(PAGES / EXAMPLE)
    config = (ROOT / "scripts" / "mkdocs.yml").read_text(encoding="utf-8")
    (SITE / "mkdocs.yml").write_text(f"{config}nav: {json.dumps(navigation())}\n", encoding="utf-8")
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(SITE / "mkdocs.yml")]
    subprocess.run(mkdocs, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    print(SITE / "html" / "index.html")


def copy(source: str, target: str | None = None) -> None:
    """Copy a file of the repository to its place among the pages."""
    place = PAGES / (target or source)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.suffix != ".md":
        shutil.copyfile(ROOT / source, place)
        return
    text = (ROOT / source).read_text(encoding="utf-8")
    # In tables, GitHub needs \\| in code for |, and MkDocs shows it as it is.
    text = re.sub(r"`[^`\n]+`", lambda code: code[0].replace("\\|", "|"), text)
    place.write_text(text, encoding="utf-8")


def navigation() -> list[dict[str, object]]:
    """Return the sections of start.md with their pages, between the top-level ones."""
    sections: list[dict[str, object]] = [{"Home": HOME}, {"Example": EXAMPLE}]
    start = (ROOT / GUIDE / "start.md").read_text(encoding="utf-8")
    sections.append({"Which page do I need?": str(GUIDE / "start.md")})
    for section in start.split("\n## ")[1:]:
        pages = dict.fromkeys(re.findall(r"\]\(([\w-]+\.md)\)", section))
        sections.append({section.partition("\n")[0]: [str(GUIDE / page) for page in pages]})
    project = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
    return [*sections, {"Python reference": REFERENCE}, {"Project": project}]


def reference() -> str:
    """Return the page of all public names, whose docstrings mkdocstrings renders."""
    text = "# Python reference\n\nThe public names of `pamcli`; see also [python](pamcli/guide/python.md).\n"
    names = sorted(pamcli._LAZY.items(), key=lambda item: item[0].lower())
    return text + "".join(f"\n::: {module}.{name}\n" for name, module in names)


def make_example(page: Path) -> None:
    """Write the interactive page of the sample pair."""
    sample = ROOT / "scripts" / "sample"
    pair = [str(sample / "left.png"), str(sample / "right.png"), "--calibration", str(sample / "calib.txt")]
    results = ["--page", str(page), "-o", str(SITE / "example.pfm")]
    command = [sys.executable, "-m", "pamcli", "disparity", "--quiet", *pair, *results]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
