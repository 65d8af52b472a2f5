"""A fixture that reads a calibration from texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pamcli.calibration.description import StoredCalibration
from pamcli.calibration.files import read_calibration


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., StoredCalibration]:
    """A function that writes contents to file0, file1 ... and reads them as one calibration."""

    def read(*contents: str | bytes, **options: Any) -> StoredCalibration:
        paths = [tmp_path / f"file{index}" for index in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_calibration(*paths, **options)

    return read
