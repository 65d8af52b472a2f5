"""pam: stereo matching and stereo super-resolution with parallax attention.

>>> import pamcli
>>> matcher = pamcli.StereoMatcher.load("pasmnet2")
>>> left, right = (pamcli.read_picture(name).pixels for name in ("left.png", "right.png"))
>>> matcher(left, right).disparity  # (H, W) float32, pixels
>>> for outcome in pamcli.match_files("lefts/", "rights/", output="maps/"):  # or whole folders, to files
...     print(outcome.status, outcome.outputs)
"""

# Nothing is imported, not even `__future__`: it would double the time until Ctrl-C is listened for.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pamcli.batch.enlarging import enlarge_files
    from pamcli.batch.job import Outcome
    from pamcli.batch.matching import match_files
    from pamcli.batch.run import Batch
    from pamcli.calibration.files import read_calibration
    from pamcli.calibration.point_cloud import write_point_cloud
    from pamcli.calibration.rectified import Calibration
    from pamcli.errors import PamError
    from pamcli.evaluation.disparity_metrics import disparity_metrics
    from pamcli.imaging.disparity_files import read_disparity, write_disparity
    from pamcli.imaging.images import Picture, read_picture
    from pamcli.inference.matcher import StereoMatcher, StereoResult
    from pamcli.inference.upscaler import StereoUpscaler

__version__ = "0.3.0"

__all__ = [
    "Batch",
    "Calibration",
    "Outcome",
    "PamError",
    "Picture",
    "StereoMatcher",
    "StereoResult",
    "StereoUpscaler",
    "__version__",
    "disparity_metrics",
    "enlarge_files",
    "match_files",
    "read_calibration",
    "read_disparity",
    "read_picture",
    "write_disparity",
    "write_point_cloud",
]

_LAZY = {
    "Batch": "pamcli.batch.run",
    "Calibration": "pamcli.calibration.rectified",
    "Outcome": "pamcli.batch.job",
    "PamError": "pamcli.errors",
    "Picture": "pamcli.imaging.images",
    "StereoMatcher": "pamcli.inference.matcher",
    "StereoResult": "pamcli.inference.matcher",
    "StereoUpscaler": "pamcli.inference.upscaler",
    "disparity_metrics": "pamcli.evaluation.disparity_metrics",
    "enlarge_files": "pamcli.batch.enlarging",
    "match_files": "pamcli.batch.matching",
    "read_calibration": "pamcli.calibration.files",
    "read_disparity": "pamcli.imaging.disparity_files",
    "read_picture": "pamcli.imaging.images",
    "write_disparity": "pamcli.imaging.disparity_files",
    "write_point_cloud": "pamcli.calibration.point_cloud",
}
"""Names that are imported when they are first used: the command line must not wait for torch or numpy."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
