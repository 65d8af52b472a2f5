"""Read the images of pairs from files, videos, ROS bags or stdin."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pamcli.files.pairing import STDIN, PairPaths, open_stdin
from pamcli.files.paths import STDIN_NAME
from pamcli.files.suffixes import PackedLayout
from pamcli.imaging.stereo_pair import StereoPair, read_packed_pair, read_pair, split_packed


class PairReader:
    """Reads pairs of images."""

    rectifies_recording = True
    """True if images of a recording are rectified with its `camera_info`."""
    same_size = True
    """False if a calibration permits views of two sizes."""

    def __init__(self, max_pixels: int | None, packed: PackedLayout | None = None, recording: Any = None):
        """packed: layout of images that hold both views; recording: the `Recording` that holds the pairs."""
        self.max_pixels, self.packed, self.recording = max_pixels, packed, recording

    @cached_property
    def videos(self) -> Any:
        """The input videos by their paths."""
        from pamcli.imaging.videos import Videos

        return Videos()

    def read(self, pair: PairPaths) -> StereoPair:
        """Read both views of a pair. Raises InputError."""
        limit = self.max_pixels
        if pair.frames is not None and self.recording is not None:
            rectify = self.rectifies_recording
            recorded: StereoPair = self.recording.read(pair.frames, max_pixels=limit, rectify=rectify)
            return recorded
        if pair.frames is not None:
            left = self.videos[pair.left].frame(pair.frames[0], max_pixels=limit)
            if pair.right is None:
                return split_packed(left, self.packed or "lr", str(pair))
            return StereoPair(
                left, self.videos[pair.right].frame(pair.frames[1], max_pixels=limit), str(pair)
            )
        if self.packed is None:
            assert pair.right is not None
            return read_pair(pair.left, pair.right, max_pixels=limit, same_size=self.same_size)
        if pair.left == STDIN:
            with open_stdin() as stdin:
                image = stdin.read()
            return read_packed_pair(image, self.packed, max_pixels=limit, name=STDIN_NAME)
        return read_packed_pair(pair.left, self.packed, max_pixels=limit, name=str(pair.left))
