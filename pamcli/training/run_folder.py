"""What a training run leaves, by name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import check_writable
from pamcli.files.finding import shown


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run. Only the main process writes into it."""

    path: Path

    @property
    def recipe(self) -> Path:
        """The whole recipe, and what it was made with."""
        return self.path / "recipe.json"

    @property
    def log(self) -> Path:
        """A JSON object a line: figures of training and of validation."""
        return self.path / "log.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def last(self) -> Path:
        """The weights of the newest checkpoint."""
        return self.path / "last.safetensors"

    @property
    def best(self) -> Path:
        """The weights of the best validation."""
        return self.path / "best.safetensors"

    def samples(self, step: int) -> Path:
        """Folder of a validation's pictures."""
        return self.path / "validation" / f"step-{step:08d}"

    def require_new(self) -> None:
        """Raise UsageError where something is there already, OutputError where nothing can be written."""
        there = os.listdir(self.path) if os.path.isdir(self.path) else [""] * os.path.exists(self.path)
        if any(
            not name.startswith(".pam-") for name in there
        ):  # which a run leaves that is killed as it begins
            hint = f"`resume` {shown(self.path)} goes on with it" if self.recipe.exists() else "name another"
            raise UsageError(f"{shown(self.path)} holds something already", hint)
        check_writable(self.recipe)

    def require_run(self) -> None:
        """Raise InputError where no run has begun."""
        if not self.recipe.is_file():
            raise InputError(
                f"{shown(self.path)} is no training run: it has no recipe.json", "give a run's folder"
            )
