"""Print the lines of Python by package beside their budget, and fail if a sum is too large.

A change that needs more lines raises the limit in the same commit, with the reason in its body.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"pamcli": 42_550, "tests": 33_400}

BUDGETS = {
    "calibration": 3500,
    "training": 2900,
    "evaluation": 2700,
    "inference": 2500,
    "imaging": 2800,
    "batch": 2200,
    "networks": 2100,
    "scenes": 2000,
    "cli": 1900,
    "data": 1900,
    "flickr1024": 1000,
    "files": 1300,
    "settings": 1100,
    "registry": 1000,
    "others": 2100,
}
"""Lines of each package of pamcli; what one saves, another may spend."""


def main() -> int:
    """Print the lines of each package, and both sums; return 1 if a sum is above its limit."""
    lines: Counter[str] = Counter()
    for folder in LIMITS:
        for path in (ROOT / folder).rglob("*.py"):
            count, package = path.read_bytes().count(b"\n"), path.relative_to(ROOT).parts[1]
            lines[folder] += count
            if folder == "pamcli":
                lines[package if package in BUDGETS else "others"] += count
    for name, most in {**BUDGETS, **LIMITS}.items():
        remedy = ": shorten, or raise LIMITS in .ci/check_sizes.py, with the reason in the commit"
        exceeded = remedy if name in LIMITS and lines[name] > most else ""
        print(f"{name:12} {lines[name]:6} of {most:6}{'' if name in LIMITS else ' aimed at'}{exceeded}")
    return int(any(lines[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
