"""Compile pamcli/winograd.c into the libraries beside it; `pamcli.convolutions` loads the fitting one.

pip does so when it installs pam, as a hook of its build backend; by hand: python scripts/build_winograd.py.
Without a C compiler, and elsewhere than on Linux on x86, pam is installed, and works, without them.
"""

import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "pamcli/winograd.c"
FLAGS = ["-O3", "-Wall", "-Wno-psabi", "-fPIC", "-shared"]
FORMS = {
    "libwinograd-avx512.so": ["-mavx512f", "-mfma", "-DTOGETHER=16"],
    "libwinograd-avx2.so": ["-mavx2", "-mfma", "-DTOGETHER=8"],
}
"""One for each kind of processor; which it is, is seen where they are loaded."""


def compiled() -> str | None:
    """Compile the libraries; return what is in the way, None where nothing is."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "was tried on Linux on x86 alone"
    for name, flags in FORMS.items():
        library = SOURCE.with_name(name)
        made = library.with_suffix(f".{os.getpid()}")  # a program that runs may have the old one open
        command = [os.environ.get("CC", "cc"), *FLAGS, *flags, "-o", str(made), str(SOURCE)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                return done.stderr.strip().partition("\n")[0] or f"{command[0]} ended with {done.returncode}"
            made.replace(library)
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        finally:
            made.unlink(missing_ok=True)
    return None


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the libraries into the wheel, or into the checkout that is installed in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile them; where that fails, the wheel is one for all platforms, without them."""
        if self.target_name != "wheel":
            return
        reason = compiled()
        if reason is not None:
            self.app.display_warning(f"winograd.c is not compiled ({reason}): fp32 takes a third longer")
        elif version != "editable":
            build_data["artifacts"] += [str(SOURCE.with_name(name).relative_to(ROOT)) for name in FORMS]
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


if __name__ == "__main__":
    reason = compiled()
    sys.exit(None if reason is None else f"winograd.c: {reason}")
