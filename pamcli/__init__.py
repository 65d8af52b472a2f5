"""pam: stereo matching and stereo super-resolution with parallax attention.

>>> import pamcli
>>> matcher = pamcli.StereoMatcher.load("pasmnet2")
>>> left, right = (pamcli.read_image(name).pixels for name in ("left.png", "right.png"))
>>> matcher(left, right).disparity  # (H, W) float32, pixels
>>> for result in pamcli.match_files("lefts/", "rights/", output="maps/"):  # or whole folders, to files
...     print(result.status, result.outputs)
"""

# Only what the interpreter has loaded already is imported: more would delay the handler of Ctrl-C.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pamcli.batch.depth import depth_files
    from pamcli.batch.jobs import Result
    from pamcli.batch.matching import match_files
    from pamcli.batch.rectification import rectify_files
    from pamcli.batch.run import Batch
    from pamcli.batch.upscaling import upscale_files
    from pamcli.calibration.files import read_calibration
    from pamcli.calibration.geometry import Calibration
    from pamcli.calibration.point_cloud import write_point_cloud
    from pamcli.data.preparing import prepare_flickr1024
    from pamcli.errors import PamError
    from pamcli.evaluation.disparity import evaluate_disparity
    from pamcli.evaluation.disparity_metrics import disparity_metrics
    from pamcli.evaluation.results import Evaluation
    from pamcli.evaluation.superres import evaluate_superres
    from pamcli.imaging.disparity_files import read_disparity, write_disparity
    from pamcli.imaging.images import RgbImage, read_image
    from pamcli.inference.matcher import StereoMatcher, StereoResult
    from pamcli.inference.upscaler import StereoUpscaler
    from pamcli.settings.batches import DepthSettings, MatchSettings, RectifySettings, UpscaleSettings
    from pamcli.settings.data import PrepareSettings
    from pamcli.settings.evaluation import EvaluateDisparitySettings, EvaluateSuperresSettings
    from pamcli.settings.training import TrainDisparitySettings, TrainSuperresSettings
    from pamcli.training.train import train_disparity, train_superres

if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & {*os.environ}:
    # Threads of PyTorch wait for each other briefly, then sleep. By default they spin, and use up the time of
    # those that wait for a core that another program has. It counts only before PyTorch is loaded.
    os.environ["GOMP_SPINCOUNT"] = "1000"

__version__ = "0.3.0"

__all__ = [
    "Batch",
    "Calibration",
    "DepthSettings",
    "EvaluateDisparitySettings",
    "EvaluateSuperresSettings",
    "Evaluation",
    "MatchSettings",
    "PamError",
    "PrepareSettings",
    "RectifySettings",
    "Result",
    "RgbImage",
    "StereoMatcher",
    "StereoResult",
    "StereoUpscaler",
    "TrainDisparitySettings",
    "TrainSuperresSettings",
    "UpscaleSettings",
    "__version__",
    "depth_files",
    "disparity_metrics",
    "evaluate_disparity",
    "evaluate_superres",
    "match_files",
    "prepare_flickr1024",
    "read_calibration",
    "read_disparity",
    "read_image",
    "rectify_files",
    "train_disparity",
    "train_superres",
    "upscale_files",
    "write_disparity",
    "write_point_cloud",
]

_LAZY = {
    "Batch": "pamcli.batch.run",
    "Calibration": "pamcli.calibration.geometry",
    "DepthSettings": "pamcli.settings.batches",
    "EvaluateDisparitySettings": "pamcli.settings.evaluation",
    "EvaluateSuperresSettings": "pamcli.settings.evaluation",
    "Evaluation": "pamcli.evaluation.results",
    "MatchSettings": "pamcli.settings.batches",
    "PamError": "pamcli.errors",
    "RgbImage": "pamcli.imaging.images",
    "PrepareSettings": "pamcli.settings.data",
    "RectifySettings": "pamcli.settings.batches",
    "Result": "pamcli.batch.jobs",
    "StereoMatcher": "pamcli.inference.matcher",
    "StereoResult": "pamcli.inference.matcher",
    "StereoUpscaler": "pamcli.inference.upscaler",
    "TrainDisparitySettings": "pamcli.settings.training",
    "TrainSuperresSettings": "pamcli.settings.training",
    "UpscaleSettings": "pamcli.settings.batches",
    "depth_files": "pamcli.batch.depth",
    "disparity_metrics": "pamcli.evaluation.disparity_metrics",
    "upscale_files": "pamcli.batch.upscaling",
    "evaluate_disparity": "pamcli.evaluation.disparity",
    "evaluate_superres": "pamcli.evaluation.superres",
    "match_files": "pamcli.batch.matching",
    "prepare_flickr1024": "pamcli.data.preparing",
    "read_calibration": "pamcli.calibration.files",
    "read_disparity": "pamcli.imaging.disparity_files",
    "read_image": "pamcli.imaging.images",
    "rectify_files": "pamcli.batch.rectification",
    "train_disparity": "pamcli.training.train",
    "train_superres": "pamcli.training.train",
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
