"""A program that uses pam from Python: mypy checks it strictly, as its author would. It does not run."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import pamcli


def deepest(folder: Path) -> float:
    """The largest disparity of a folder's pairs."""
    found: list[float] = []
    for outcome in pamcli.match_files(folder / "l", folder / "r", output="maps/", skip_existing=True):
        error: pamcli.PamError | None = outcome.error
        if error is None:
            found.append(float(np.nanmax(pamcli.read_disparity(outcome.outputs["disparity"]))))
    return max(found)


matcher: pamcli.StereoMatcher = pamcli.StereoMatcher.load(match_size=1)
left, right = (pamcli.read_image(name).pixels for name in ("left.png", "right.png"))
result: pamcli.StereoResult = matcher(left, right)
disparity: npt.NDArray[np.float32] = result.disparity
pamcli.write_disparity("d.png", disparity, overwrite=True)
figures: dict[str, float] = pamcli.disparity_metrics(disparity, pamcli.read_disparity("truth.pfm"))
calibration = pamcli.read_calibration("calib.txt").rectified
if calibration is not None:
    depth: npt.NDArray[np.float32] = calibration.depth(disparity)
    count: int = pamcli.write_point_cloud("points.ply", disparity, calibration, image=left)
for outcome in pamcli.upscale_files("left.png", "right.png", output="upscaled/", scale=2):
    words: tuple[str, float] = (outcome.status, figures["epe"])
for _ in pamcli.upscale_files("left.png", "right.png", output="o/", scael=2):  # type: ignore[call-arg]
    pass
