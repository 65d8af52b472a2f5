"""Compile pamcli/winograd.c into the library beside it, which `pamcli.winograd` runs.

pip does so when it installs pam, as a hook of its build backend; by hand: python scripts/build_winograd.py.
Without a C compiler, and elsewhere than on Linux, pam is installed without the library and works without it.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "pamcli/winograd.c"
LIBRARY = SOURCE.with_name("libwinograd.so")

FLAGS = ["-O3", "-Wall", "-Wno-psabi", "-fPIC", "-shared"]
"""The code holds forms for several processors, of which the loader takes the best: no -march."""


def compiled() -> str | None:
    """Compile the library; return what is in the way, None where nothing is."""
    if sys.platform != "linux":
        return "was tried on Linux alone"
    made = LIBRARY.with_suffix(f".{os.getpid()}")  # a program that runs may have the old one open
    command = [os.environ.get("CC", "cc"), *FLAGS, "-o", str(made), str(SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            made.replace(LIBRARY)
            return None
        return done.stderr.strip().partition("\n")[0] or f"{command[0]} ended with {done.returncode}"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    finally:
        made.unlink(missing_ok=True)


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the library into the wheel, or into the checkout that is installed in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile it; where that fails, the wheel is one for all platforms, without it."""
        if self.target_name != "wheel":
            return
        reason = compiled()
        if reason is not None:
            self.app.display_warning(f"winograd.c is not compiled ({reason}): fp32 takes a third longer")
        elif version != "editable":
            build_data["artifacts"].append(str(LIBRARY.relative_to(ROOT)))
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


if __name__ == "__main__":
    reason = compiled()
    sys.exit(None if reason is None else f"winograd.c: {reason}")
