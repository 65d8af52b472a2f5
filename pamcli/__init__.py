"""pam: stereo matching and stereo super-resolution with parallax attention.

>>> import pamcli
>>> matcher = pamcli.StereoMatcher.load("pasmnet2")
>>> left, right = (pamcli.read_picture(name).pixels for name in ("left.png", "right.png"))
>>> matcher(left, right).disparity  # (H, W) float32, pixels
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import would double the time until Ctrl-C is listened for
if TYPE_CHECKING:
    from pamcli.calibration.files import read_calibration
    from pamcli.calibration.rectified import Calibration
    from pamcli.errors import PamError
    from pamcli.imaging.disparity_files import read_disparity
    from pamcli.imaging.images import read_picture
    from pamcli.inference.matcher import StereoMatcher, StereoResult
    from pamcli.inference.upscaler import StereoUpscaler

__version__ = "0.3.0"

__all__ = [
    "Calibration",
    "PamError",
    "StereoMatcher",
    "StereoResult",
    "StereoUpscaler",
    "__version__",
    "read_calibration",
    "read_disparity",
    "read_picture",
]

_LAZY = {
    "Calibration": "pamcli.calibration.rectified",
    "PamError": "pamcli.errors",
    "StereoMatcher": "pamcli.inference.matcher",
    "StereoResult": "pamcli.inference.matcher",
    "StereoUpscaler": "pamcli.inference.upscaler",
    "read_calibration": "pamcli.calibration.files",
    "read_disparity": "pamcli.imaging.disparity_files",
    "read_picture": "pamcli.imaging.images",
}
"""Names that are imported when they are first used: the command line must not wait for torch or numpy."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
