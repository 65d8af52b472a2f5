"""How do disparities flicker less? Each frame is fused with the one before; a later run goes on from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pamcli.batch import LOG
from pamcli.batch.jobs import Job
from pamcli.imaging.disparity_files import quantize_disparity, read_disparity
from pamcli.imaging.stereo_pair import StereoPair
from pamcli.imaging.temporal_fusion import Floats, PreviousFrame, fuse_frames

DISPARITY = "disparity"
"""The result that the next frame is fused with."""


class Steadiness:
    """Fuses disparities with those of the frame before, as they were written.

    So a run that goes on where another one stopped finds what that one would have found.
    """

    def __init__(self) -> None:
        self.before: PreviousFrame | None = None
        """The last frame that was worked on."""
        self.left_out: Job | None = None
        """The last one that was not, since its results exist."""
        self.found_again: dict[str, PreviousFrame | None] = {}
        """What that was, by the names of the pairs that come after it; None: it is not to be had."""

    def read_again(self, job: Job, read: Callable[[Job], StereoPair]) -> None:
        """Read what the frame before has left, where it was left out. Raises InputError."""
        if self.left_out is None:
            return
        place, found = self.left_out.places[DISPARITY], None
        if not place.exists() and self.left_out.videos:
            LOG.warning(f"{job.pair} is not fused with the frame before, which is in a finished video alone")
        else:
            pair = read(self.left_out)
            disparity = read_disparity(place, max_pixels=None)
            found = PreviousFrame(pair.left.pixels, pair.right.pixels, disparity)
        self.found_again[str(job.pair)] = found
        self.left_out = None

    def fused(self, job: Job, pair: StereoPair, disparity: Floats) -> Floats:
        """The disparities of a pair, (H, W), pixels, fused with those before."""
        before = self.found_again.pop(str(job.pair), self.before)
        if before is None:
            return disparity
        return fuse_frames(disparity, pair.left.pixels, pair.right.pixels, before)

    def keep(self, job: Job, pair: StereoPair, shown: Floats) -> None:
        """Keep what becomes of a pair for the next one; shown: as it is written, NaN unknown."""
        suffix = job.places.get(DISPARITY, Path()).suffix
        self.before = PreviousFrame(pair.left.pixels, pair.right.pixels, quantize_disparity(shown, suffix))
