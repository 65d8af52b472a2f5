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


def end_silently(number: int, frame: object) -> None:
    """Handle Ctrl-C until the program `pam` can clean up after itself."""
    os._exit(130)


_started = "".join(sys.argv[:1]), "".join(sys.orig_argv[-len(sys.argv) :][:1])  # program; name after -m
if os.path.basename(_started[0]) in ("pam", "pam-asp") or _started[1] == "pamcli":
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else ignored, as under nohup
        _signal.signal(_signal.SIGINT, end_silently)

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from pamcli.batch.depth import depth_files as depth_files
    from pamcli.batch.matching import match_files as match_files
    from pamcli.batch.plan import Result as Result
    from pamcli.batch.rectification import rectify_files as rectify_files
    from pamcli.batch.run import Batch as Batch
    from pamcli.batch.upscaling import upscale_files as upscale_files
    from pamcli.calibration.files import read_calibration as read_calibration
    from pamcli.calibration.geometry import Calibration as Calibration
    from pamcli.calibration.point_cloud import write_point_cloud as write_point_cloud
    from pamcli.data.preparing import prepare_flickr1024 as prepare_flickr1024
    from pamcli.errors import PamError as PamError
    from pamcli.evaluation.disparity import evaluate_disparity as evaluate_disparity
    from pamcli.evaluation.disparity_metrics import disparity_metrics as disparity_metrics
    from pamcli.evaluation.results import Evaluation as Evaluation
    from pamcli.evaluation.superres import evaluate_superres as evaluate_superres
    from pamcli.imaging.disparity_encoding import write_disparity as write_disparity
    from pamcli.imaging.disparity_files import read_disparity as read_disparity
    from pamcli.imaging.images import RgbImage as RgbImage
    from pamcli.imaging.images import read_image as read_image
    from pamcli.inference.matcher import StereoMatcher as StereoMatcher
    from pamcli.inference.result import StereoResult as StereoResult
    from pamcli.inference.upscaler import StereoUpscaler as StereoUpscaler
    from pamcli.settings.batches import DepthSettings as DepthSettings
    from pamcli.settings.batches import MatchSettings as MatchSettings
    from pamcli.settings.batches import RectifySettings as RectifySettings
    from pamcli.settings.batches import UpscaleSettings as UpscaleSettings
    from pamcli.settings.data import PrepareSettings as PrepareSettings
    from pamcli.settings.evaluation import EvaluateDisparitySettings as EvaluateDisparitySettings
    from pamcli.settings.evaluation import EvaluateSuperresSettings as EvaluateSuperresSettings
    from pamcli.settings.live import LiveSettings as LiveSettings
    from pamcli.settings.training import TrainDisparitySettings as TrainDisparitySettings
    from pamcli.settings.training import TrainSuperresSettings as TrainSuperresSettings
    from pamcli.streams.live import LiveFrame as LiveFrame
    from pamcli.streams.live import live as live
    from pamcli.training.train import train_disparity as train_disparity
    from pamcli.training.train import train_superres as train_superres

if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & {*os.environ}:
    # Threads of PyTorch wait for each other briefly, then sleep. By default they spin, and use up the time of
    # those that wait for a core that another program has. It counts only before PyTorch is loaded.
    os.environ["GOMP_SPINCOUNT"] = "1000"

__version__ = "0.3.0"

_LAZY = {  # imported when they are first used: the command line must not wait for torch or numpy
    name: module
    for module, names in {
        "pamcli.batch.depth": "depth_files",
        "pamcli.batch.plan": "Result",
        "pamcli.batch.matching": "match_files",
        "pamcli.batch.rectification": "rectify_files",
        "pamcli.batch.run": "Batch",
        "pamcli.batch.upscaling": "upscale_files",
        "pamcli.calibration.files": "read_calibration",
        "pamcli.calibration.geometry": "Calibration",
        "pamcli.calibration.point_cloud": "write_point_cloud",
        "pamcli.data.preparing": "prepare_flickr1024",
        "pamcli.errors": "PamError",
        "pamcli.evaluation.disparity": "evaluate_disparity",
        "pamcli.evaluation.disparity_metrics": "disparity_metrics",
        "pamcli.evaluation.results": "Evaluation",
        "pamcli.evaluation.superres": "evaluate_superres",
        "pamcli.imaging.disparity_encoding": "write_disparity",
        "pamcli.imaging.disparity_files": "read_disparity",
        "pamcli.imaging.images": "RgbImage read_image",
        "pamcli.inference.matcher": "StereoMatcher",
        "pamcli.inference.result": "StereoResult",
        "pamcli.inference.upscaler": "StereoUpscaler",
        "pamcli.settings.batches": "DepthSettings MatchSettings RectifySettings UpscaleSettings",
        "pamcli.settings.data": "PrepareSettings",
        "pamcli.settings.evaluation": "EvaluateDisparitySettings EvaluateSuperresSettings",
        "pamcli.settings.live": "LiveSettings",
        "pamcli.settings.training": "TrainDisparitySettings TrainSuperresSettings",
        "pamcli.streams.live": "LiveFrame live",
        "pamcli.training.train": "train_disparity train_superres",
    }.items()
    for name in names.split()
}

__all__ = ["__version__", *_LAZY]


_RENAMED = {"read_picture": "read_image"}  # former names, which still work: pam guide stability


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        import warnings

        now = _RENAMED[name]
        warnings.warn(f"pamcli.{name} is now pamcli.{now}", DeprecationWarning, stacklevel=2)
        name = now
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
