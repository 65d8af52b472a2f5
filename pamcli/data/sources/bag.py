"""Read the image pairs of ROS bags, as `pam disparity` does."""

from __future__ import annotations

import copy
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pamcli.data.listing import Listed
from pamcli.data.source import Files, make_info
from pamcli.errors import UsageError
from pamcli.files.suffixes import BAG_PREFIX
from pamcli.imaging.images import StereoPair
from pamcli.imaging.raster import DEFAULT_MAX_PIXELS
from pamcli.recordings.bags import Recording

LOG = logging.getLogger("pamcli")


class _Reader:
    """Reads the pairs of a `Recording` by name, in any process."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.process = recording, os.getpid()
        self.numbers = {f"{left:06}": (left, right) for left, right in recording.numbers.tolist()}

    def __call__(self, files: Files) -> StereoPair:
        if self.process != os.getpid():  # a forked process shares the position in the open file
            self.process, self.recording = os.getpid(), copy.copy(self.recording)
        return self.recording.read(self.numbers[files.name], max_pixels=DEFAULT_MAX_PIXELS, rectify=True)


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    every = keys.get("every", "1")
    if not re.fullmatch(r"0*[1-9]\d{0,11}", every):
        raise UsageError(f"every must be a whole number above 0, got {every[:40]}")
    query = "&".join(f"{key}={value}" for key, value in keys.items() if key != "every")
    recording = Recording(f"{BAG_PREFIX}{root}?{query}")
    recording.numbers = recording.numbers[recording.numbers[:, 0] % int(every) == 0]
    for note in recording.notes:
        LOG.info(note)
    read = _Reader(recording)
    files = (Files(name, root, root) for name in read.numbers)
    return Listed(files, absent=recording.warnings, read=read)


INFO = make_info("bag", open_source)
