"""Check the English of the project: python .ci/check_texts.py [pages] [code] [commits].

pages: README, guide, changelog, model cards. code: docstrings, help texts, messages. commits: subjects.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "pamcli" / "guide"
SENTENCE_WORDS, PAGE_LINES, SUBJECT_LETTERS = 30, 120, 72
LONG_PAGES = {"benchmarks.md"}  # the appendix of all measurements
GENERATED_PAGES = {"options.md", "options-live.md", "options-training.md"}  # checked as help texts

WRONG_WORDS = {  # the "not" side of the glossary (pamcli/guide/glossary.md), and what to write instead
    r"pictures?": "image",
    r"(?<!ground )(?<!ground-)truths?": "ground truth",
    r"enlarge\w*": "upscale",
    r"match size": "matching resolution",
    r"(re)?drawn|draws? scenes?": "render",
    r"kept scenes?": "scene cache",
    r"seen by both|hidden": "visible in both images, occluded",
    r"error scale": "expected error",
    r"work off|outcomes?|ended": "process, result, failed",
    r"how far it is|what is left": "progress, remaining",
    r"what (is|was|are) (asked for|given|said)": "setting, option",
    r"refuse\w*|leaves? out": "raise, reject, skip, ignore",
    r"can be taken|so many|told": "a plain statement",
    r"(?<!there )(is|are) (no(?! longer)|(?-i:none))": "not a ..., missing, empty",
}

ALLOWED = {  # phrases that may stay, and why
    "partly hidden": "the ordinary word for a board",
    "How it works": "the title of a page",
    "By default": "states when a default applies",
    "hidden files": "the term of file systems",
    "hidden state": "the term of recurrent networks",
}

# Beginnings of sentences that state their subject too late; questions are fine.
RIDDLE = re.compile(r"\W*(Of|As|What|Whether|How|Where|That|Those|By)\b(?![^.]*\?)")


def problems(text: str) -> Iterator[str]:
    """Yield what is wrong with one text: long sentences, riddling beginnings, words outside the glossary."""
    plain = re.sub(r"`[^`]*`", "CODE", text)
    plain = re.sub("|".join(ALLOWED), "X", plain, flags=re.IGNORECASE)
    for sentence in re.split(r"(?<=[.:!?])\s+", plain):
        if len(words := sentence.split()) > SENTENCE_WORDS:
            yield f"{len(words)} words: {' '.join(words[:8])} ..."
        if RIDDLE.match(sentence):
            yield f"begins with {words[0]}: {' '.join(words[:8])} ..."
    for pattern, better in WRONG_WORDS.items():
        for found in re.finditer(rf"\b({pattern})\b", plain, re.IGNORECASE):
            yield f"{found[0]!r} instead of {better}: {plain[max(found.start() - 30, 0) :][:70]}"


def passages(page: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each paragraph, list item, heading and table cell of a page."""
    page = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), page, flags=re.M | re.S)
    page = re.sub(r"\]\([^)]*\)", "]", page)
    start, lines = 0, [""]
    for number, line in enumerate([*page.splitlines(), ""], 1):
        if line.startswith("|"):
            yield from ((number, cell.strip()) for cell in re.split(r"(?<!\\)\|", line))
        elif not line.strip() or re.match(r"#|\s*(-|\d+\.) ", line):
            yield start, " ".join(lines)
            start, lines = number, [re.sub(r"^(#+|\s*(-|\d+\.)) ", "", line)]
        else:
            lines.append(line.strip())


def pages() -> Iterator[str]:
    """Yield findings in README, guide, changelog and model cards."""
    folders = ROOT, ROOT / ".github", GUIDE, ROOT / "weights"
    for path in [path for folder in folders for path in sorted(folder.glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > PAGE_LINES and path.parent == GUIDE and path.name not in LONG_PAGES:
            yield f"{path.relative_to(ROOT)}: {lines} lines instead of {PAGE_LINES} at most"
        if path.name not in GENERATED_PAGES:
            for line, passage in passages(text):
                yield from (f"{path.relative_to(ROOT)}:{line}: {each}" for each in problems(passage))


def constant_text(node: ast.expr) -> str:
    """Return a string's text, with X for each value that is filled in; other expressions are empty."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of help texts, messages, hints, and the first lines of docstrings in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).split(".")[-1]
            named = [each.value for each in node.keywords if each.arg in ("help", "hint", "epilog")]
            if re.search(r"Error$|^(warn|warning|note|info|fail|option|flag|argument|result)$", name):
                named += node.args
            yield from ((each.lineno, " ".join(constant_text(each).split())) for each in named)
        elif isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            whole = path.parent.name == "cli" and getattr(node, "name", "") == "command"  # shown by --help
            shown = re.sub(r"\n\$ .*", "", text) if whole else text.partition("\n")[0]
            yield getattr(node, "lineno", 1), " ".join(shown.split())


def code() -> Iterator[str]:
    """Yield findings in docstrings (ruff's rules of pyproject.toml), help texts and messages."""
    rules = [sys.executable, "-m", "ruff", "check", "--select", "D401,D417", "--output-format", "concise"]
    run = subprocess.run([*rules, "pamcli", "scripts"], cwd=ROOT, capture_output=True, text=True)
    if not run.stdout:
        yield f"ruff did not run: {run.stderr.strip()}"
    yield from (line for line in run.stdout.splitlines() if re.match(r"\S+:\d+", line))
    for path in sorted((ROOT / "pamcli").rglob("*.py")):
        for line, text in texts_of(path):
            yield from (f"{path.relative_to(ROOT)}:{line}: {each}" for each in problems(text))


def git(*words: str) -> list[str]:
    """Return the lines that a git command prints; nothing if it fails."""
    run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return run.stdout.splitlines() if run.returncode == 0 else []


def commits() -> Iterator[str]:
    """Yield commit subjects that are too long, since this file changed: merged ones stay as they are."""
    try:
        complete = git("rev-parse", "--is-shallow-repository") == ["false"]
        changed = git("log", "-1", "--format=%H", "--", ".ci/check_texts.py") if complete else []
    except FileNotFoundError:
        changed = []
    if not changed:
        print("check_texts: commit subjects were not checked: git or the history is missing", file=sys.stderr)
        return
    for subject in git("log", "--no-merges", "--format=%h %s", f"{changed[0]}..HEAD"):
        if len(subject.partition(" ")[2]) > SUBJECT_LETTERS:
            yield f"commit {subject}: more than {SUBJECT_LETTERS} characters"


if __name__ == "__main__":
    parts = {"pages": pages, "code": code, "commits": commits}
    findings = [each for name in sys.argv[1:] or parts for each in parts[name]()]
    print(*findings, sep="\n", end="\n" if findings else "")
    sys.exit(1 if findings else 0)
