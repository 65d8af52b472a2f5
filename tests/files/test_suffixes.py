from __future__ import annotations

import subprocess
import sys

from pamcli.files import suffixes


def test_suffixes_are_in_lower_case_and_begin_with_a_dot() -> None:
    every = (
        suffixes.IMAGE_SUFFIXES
        + suffixes.IMAGE_OUTPUT_SUFFIXES
        + suffixes.DISPARITY_SUFFIXES
        + suffixes.CONFIDENCE_SUFFIXES
    )
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in every)


def test_every_format_that_is_written_is_read_from_folders() -> None:
    assert set(suffixes.IMAGE_OUTPUT_SUFFIXES) <= set(suffixes.IMAGE_SUFFIXES)


def test_suffixes_and_atomic_writing_need_the_standard_library_only() -> None:
    code = (
        "import sys, pamcli.files.suffixes, pamcli.files.atomic;"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'PIL', 'imageio', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
