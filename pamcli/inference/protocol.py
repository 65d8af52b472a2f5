"""Define what every stereo model offers: matchers and upscalers use any network through `StereoModel`."""

from typing import Any, Protocol

from numpy.typing import NDArray

from pamcli.inference import Report
from pamcli.inference.device import Compute
from pamcli.inference.images import Pixels
from pamcli.registry.catalog import ModelSpec
from pamcli.registry.description import Description
from pamcli.registry.resolution import MatchSize

Maps = dict[str, NDArray[Any]]
Names = tuple[str, ...]


class StereoModel(Protocol):
    """A network for stereo matching or super-resolution, ready to run on a device."""

    spec: ModelSpec | Description
    compute: Compute
    size: tuple[int, int] | None = None  # height and width that images are padded to; None = any size
    multiple: int = 1  # sides of images are padded to a multiple of this
    halo: int = 0  # rows above and below on which the result of a row depends noticeably
    has_confidence: bool = True
    memory_factor: float = 1.0  # peak memory relative to the prediction for the architecture; 0 = unknown
    has_fixed_search: bool = False
    """True if no maximum disparity can be set; then `check_search` and `reduced_size` have a say, too."""
    runtime_note: str | None = None  # runtime and device of a foreign network, for messages

    def match(
        self, left: Pixels, right: Pixels, progress: Report, *, max_disparity: int | None, extras: Names
    ) -> Maps:
        """Match a pair (H, W, 3) of one size whose disparities are not negative.

        Args:
            left: The left image.
            right: The right image.
            progress: Called with the completed fraction, if not None.
            max_disparity: Search below this disparity, px, a multiple of 16; None = no limit.
            extras: Further maps to compute: "confidence" and "visible".

        Returns:
            Maps (H, W) by the names of `StereoResult`: "disparity"; "right_disparity" if it is computed with
            the left one; if requested and available, "confidence", and "visible": True where a pixel
            receives attention from the right.
        """
        ...

    def upscale(self, left: Pixels, right: Pixels, progress: Report, *, both: bool) -> Maps:
        """Upscale the left image (H, W, 3), or both, to (scale H, scale W, 3) of the same type, by name."""
        ...

    def release_memory(self) -> None:
        return None

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Return a phrase on the preprocessing of images of this size, such as "padded to ...", or None."""
        return None

    def reduced_size(self, height: int, width: int) -> tuple[int, int] | None:
        """Return the only size at which efforts match; None = that of `choose_matching_size`."""
        return None

    def check_search(self, max_disparity: int | None, min_disparity: int, size: MatchSize) -> MatchSize:
        """Return the possible matching resolution; raise UsageError for an unsupported search."""
        return size
