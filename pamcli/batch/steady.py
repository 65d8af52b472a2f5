"""Reduce the flicker of videos, for `steady`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pamcli.batch import LOG
from pamcli.batch.jobs import Job
from pamcli.batch.kinds import DISPARITY
from pamcli.imaging.disparity_files import quantize_disparity, read_disparity
from pamcli.imaging.stereo_pair import StereoPair
from pamcli.imaging.temporal_fusion import Floats, PreviousFrame, fuse_frames


class VideoFusion:
    """Fuses disparity maps with those of the previous frame as written, so that resuming changes nothing."""

    def __init__(self) -> None:
        self.previous: PreviousFrame | None = None
        """The last frame that was processed."""
        self.restored: dict[str, PreviousFrame | None] = {}
        """The skipped frame before each pair; None if it is only in a finished video."""

    def restore_previous(self, job: Job, skipped: Job, read: Callable[[Job], StereoPair]) -> None:
        """Read the files of the frame before a job, which was skipped. Raises InputError."""
        path, previous = skipped.places[DISPARITY.name], None
        if not path.exists() and skipped.videos:
            LOG.warning(
                f"`steady` starts anew at {job.pair}: the previous disparity map is stored only in a video"
            )
        else:
            pair = read(skipped)
            disparity = read_disparity(path, max_pixels=None)
            previous = PreviousFrame(pair.left.pixels, pair.right.pixels, disparity)
        self.restored[str(job.pair)] = previous

    def fuse(self, job: Job, pair: StereoPair, disparity: Floats) -> Floats:
        """Return the disparity map (H, W), px, fused with the previous one."""
        previous = self.restored.pop(str(job.pair), self.previous)
        if previous is None:
            return disparity
        return fuse_frames(disparity, pair.left.pixels, pair.right.pixels, previous)

    def remember(self, job: Job, pair: StereoPair, disparity: Floats) -> None:
        """Keep a frame for the next one. disparity: as written, NaN = unknown."""
        suffix = job.places.get(DISPARITY.name, Path()).suffix
        self.previous = PreviousFrame(
            pair.left.pixels, pair.right.pixels, quantize_disparity(disparity, suffix)
        )
