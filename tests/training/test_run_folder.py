"""Folders that a run may begin in."""

from __future__ import annotations

from pathlib import Path

import pytest

from pamcli.errors import OutputError, UsageError
from pamcli.training.journal import RunFolder


def test_a_run_begins_in_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.require_new()
    folder.path.mkdir()
    folder.require_new()
    (folder.path / ".pam-00ff.tmp").touch()  # of a run that was killed before it had written its recipe
    folder.require_new()
    (folder.path / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"is not empty \(use another\)"):
        folder.require_new()
    folder.recipe.touch()
    with pytest.raises(UsageError, match="continue the run with"):
        folder.require_new()
    with pytest.raises(UsageError, match="is not empty"):
        RunFolder(folder.recipe).require_new()


def test_a_name_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="file name too long"):
        RunFolder(tmp_path / ("x" * 300)).require_new()
