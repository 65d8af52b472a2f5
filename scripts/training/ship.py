"""Measure new weights of PASMnet 2, and ship them with their figures, tables and images.

    python scripts/training/ship.py ema.pt --data FOLDER
    python scripts/training/ship.py ema.pt --data FOLDER --pixels 570000,700000,850000
    python scripts/training/ship.py ema.pt --data FOLDER --as-version 3 --training "62,000 pairs: ..."

FOLDER has kitti2015 and middlebury. The figures are those of pam eval in fp32; small images are upscaled to
--pixels, as by --match-size auto. Without --as-version they are only printed. With it, the script writes the
weights and their checksum, the figures in scripts/figures.toml and its tables, and the images of the guide.
It prints the remaining steps at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pamcli.data.open import open_data, parse_data
from pamcli.evaluation.disparity_metrics import DisparityMeter, Estimate
from pamcli.evaluation.protocols import USUAL
from pamcli.inference.matcher import StereoMatcher
from pamcli.registry.resolution import EFFORTS

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "weights"
FIGURES = ROOT / "scripts" / "figures.toml"
SETS = {"KITTI": "kitti2015", "Middlebury": "middlebury"}
BY_HAND = """by hand:
  weights/pasmnet2.md: version, training data, training, time
  scripts/figures.toml: version, bf16 (compare_precisions.py), confidence (measure_confidence.py);
    then run scripts/figure_tables.py, and compare DOUBTFUL of pamcli/inference/result.py with the confidence
  pamcli/guide/onnx.md: memory of an exported pasmnet2
  scripts/training/README.md: the log; CHANGELOG.md: its line
then the tests: tests/registry tests/test_package.py tests/test_guide.py
  tests/cli/test_weights_command.py tests/cli/test_onnx_files.py tests/cli/test_disparity_results.py
  tests/inference"""

Figures = Mapping[str, float]


def main() -> None:
    """Import, measure, and with --as-version ship."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="state dict of PASMnet 2, stored by torch.save")
    parser.add_argument("--data", type=Path, required=True, help="folder of kitti2015 and middlebury")
    parser.add_argument(
        "--pixels", default=str(EFFORTS["normal"].pixels), help="N,...: matching resolutions to measure"
    )
    parser.add_argument("--as-version", help="ship the weights as this version")
    parser.add_argument("--training", default="", help="description of data and recipe, stored in the file")
    given = parser.parse_args()
    tried = [int(number) for number in given.pixels.split(",")]
    if given.as_version and tried != [EFFORTS["normal"].pixels]:
        sys.exit("shipped is the size of pamcli/registry/resolution.py: set it there, leave out --pixels")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "pasmnet2.safetensors"
        stored = ["--half", "--max-disparity", "none", "--licence", "MIT"]
        stored += ["--version", given.as_version or "none", "--training", given.training]
        subprocess.run(
            [sys.executable, "-m", "pamcli", "weights", "import", given.checkpoint, "-o", made, *stored],
            check=True,
        )
        for pixels in tried:
            EFFORTS["normal"] = replace(EFFORTS["normal"], pixels=pixels)
            found = {name: measured(made, f"{kind}:{given.data / kind}") for name, kind in SETS.items()}
            for name, figures in found.items():
                said = ", ".join(f"{key} {value:.3f}" for key, value in figures.items())
                print(f"{pixels} px, {name}: {said}", flush=True)
        if given.as_version:
            ship(made, found)


def measured(weights: Path, data: str) -> dict[str, float]:
    """Figures of all pixels of a set that its benchmark counts, in pixels and percent."""
    matcher = StereoMatcher.load(str(weights), device="cpu", precision="fp32")
    spec = parse_data(data)
    source, meter = open_data(spec), DisparityMeter(USUAL.get(spec.info.name))
    for index in range(len(source)):
        sample = source.load(index)
        found = matcher(sample.left, sample.right, extras={"confidence"})
        meter.add(sample, Estimate(found.disparity, confidence=found.confidence))
    pooled = meter.pooled_metrics["all"]
    return {name: pooled[name] for name in ("epe", "d1", "bad-2", "ause-epe")}


def ship(made: Path, found: Mapping[str, Figures]) -> None:
    """Write the weights, their checksum, their figures, and the images of README and guide."""
    (WEIGHTS / made.name).write_bytes(made.read_bytes())
    files = sorted(WEIGHTS.glob("*.safetensors"))
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (WEIGHTS / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    for name, figures in found.items():
        line = "{{ epe = {epe:.2f}, d1 = {d1:.3f}, bad-2 = {bad-2:.3f} }}".format(**figures)
        replace_in(FIGURES, rf"(\[disparity\.pasmnet2\]\n(?:.+\n)*?{name.lower()} = ).*", rf"\g<1>{line}")
    for script in ("figure_tables.py", "guide_images.py"):
        subprocess.run([sys.executable, ROOT / "scripts" / script], check=True)
    print(BY_HAND)


def replace_in(file: Path, pattern: str, by: str) -> None:
    """Replace what stands in a page exactly once."""
    text, count = re.subn(pattern, by, file.read_text(encoding="utf-8"))
    if count != 1:
        sys.exit(f"{file}: {pattern} is there {count} times, not once")
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
