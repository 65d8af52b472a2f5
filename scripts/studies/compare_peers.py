"""Compare pam with matchers that anyone can install: OpenCV's StereoSGBM and CNES pandora.

    python scripts/studies/compare_peers.py DATA ... --folder FOLDER [--weights NAME|FILE ...]

DATA are data sets of `pam dataset list` with ground truth, as NAME:FOLDER. The first call creates the virtual
environment FOLDER/environment with pandora, its semi-global optimization and MC-CNN (fast, trained on
Middlebury); results of pandora are kept in FOLDER, and a second call goes on from there. `pam eval disparity`
then measures all on the same pairs by the same rules and prints one Markdown table per data set. Holes
count as wrong. Other networks join as --weights, or their results as --method NAME=files:FOLDER.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import cv2

from pamcli.data.open import open_data

PACKAGES = ("torch==2.13.0", "pandora==1.9.0", "pandora_plugin_libsgm==1.5.8", "pandora_plugin_mccnn==1.3.8")
# Matching cost and penalties of the configurations that CNES publishes with pandora.
MATCHERS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "pandora-census": (
        {"matching_cost_method": "census", "window_size": 5},
        {"penalty_method": "sgm_penalty", "P1": 8, "P2": 32, "p2_method": "constant"},
    ),
    "pandora-mccnn": (
        {"matching_cost_method": "mc_cnn", "window_size": 11},
        {"penalty_method": "mc_cnn_fast_penalty"},
    ),
}
DISPARITIES = 192  # px, the same for StereoSGBM
RUN_PANDORA = """
import sys, numpy, pandora, rasterio
for line in sys.stdin:
    configuration, folder, result = line.rstrip("\\n").split("\\t")
    pandora.main(configuration, folder, False)
    with rasterio.open(folder + "/left_disparity.tif") as file:
        numpy.save(result, 0 - file.read(1))  # 0 stays 0, not -0
"""


def main() -> None:
    """Run pandora where its results are missing, then evaluate all methods."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", nargs="+", help="data sets with ground truth, as NAME:FOLDER")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the environment and results")
    parser.add_argument("--weights", nargs="+", default=["pasmnet2"], help="networks of pam to compare")
    parser.add_argument("--method", action="append", default=[], help="further methods of pam eval disparity")
    options = parser.parse_args()
    python = create_environment(options.folder / "environment")
    for data in options.data:
        results = options.folder / data.partition(":")[0].replace("/", "-")
        for name in MATCHERS:
            run_pandora(python, data, name, results / name)
        methods = [*options.weights, "opencv", *(f"{name}=files:{results / name}" for name in MATCHERS)]
        arguments = [word for method in (*methods, *options.method) for word in ("--method", method)]
        table = results / "table.md"
        command = [sys.executable, "-m", "pamcli", "eval", "disparity", "--data", data, *arguments]
        subprocess.run([*command, "--table", table, "--overwrite"], check=True, stdout=subprocess.DEVNULL)
        print(table.read_text(encoding="utf-8"), flush=True)


def create_environment(folder: Path) -> Path:
    """Create the environment with pandora unless it is complete; return its interpreter."""
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        venv.create(folder, with_pip=True)
        for packages in (PACKAGES[:1], PACKAGES):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        complete.touch()
    return python


def run_pandora(python: Path, data: str, matcher: str, results: Path) -> None:
    """Match the pairs of a data set that have no result yet; write NAME.npy for each."""
    source = open_data(data)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        command = [str(python), "-c", RUN_PANDORA]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=sys.stderr, text=True, cwd=folder
        ) as peer:
            assert peer.stdin is not None
            for index, name in enumerate(source.names):
                result = (results / name).with_suffix(".npy")
                if result.exists():
                    continue
                sample = source.load(index)
                result.parent.mkdir(parents=True, exist_ok=True)
                for side, image in (("left", sample.left), ("right", sample.right)):
                    cv2.imwrite(str(folder / f"{index}-{side}.png"), cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))
                configuration = folder / f"{index}.json"
                configuration.write_text(json.dumps(configure(folder, index, matcher)), encoding="utf-8")
                print(
                    configuration,
                    folder / f"{index}",
                    result.resolve(),
                    sep="\t",
                    file=peer.stdin,
                    flush=True,
                )
        if peer.returncode:
            sys.exit(f"pandora ended with exit code {peer.returncode}")


def configure(folder: Path, index: int, matcher: str) -> dict[str, object]:
    """Return the configuration of a pair: semi-global matching, subpixel refinement, filled holes."""
    cost, penalty = MATCHERS[matcher]
    median = {"filter_method": "median", "filter_size": 3}
    images = {
        side: {"img": str(folder / f"{index}-{side}.png"), "nodata": -9999} for side in ("left", "right")
    }
    images["left"]["disp"] = [-DISPARITIES, 0]  # right column less left column
    return {
        "input": images,
        "pipeline": {
            "matching_cost": cost,
            "optimization": {"optimization_method": "sgm", "overcounting": False, "penalty": penalty},
            "disparity": {"disparity_method": "wta", "invalid_disparity": "NaN"},
            "refinement": {"refinement_method": "vfit"},
            "filter": median,
            "validation": {"validation_method": "cross_checking_accurate", "interpolated_disparity": "sgm"},
            "filter.after_validation": median,
        },
    }


if __name__ == "__main__":
    main()
