r"""Train, measure and print the paper's ablation tables, beside the published figures.

    python scripts/studies/ablations.py disparity --data procedural:photos/ \
        --val 'procedural:photos/?first=20' --steps 300 -o studies [--tables 1,2] [options of pam train]
    python scripts/studies/ablations.py superres --data pairs:mine/ --val 'kitti2015:kitti?first=5' -o studies
    python scripts/studies/ablations.py counts

Called again, it resumes where it stopped; with more --steps every row trains longer. --commands prints the
commands without running them. `counts` computes Table 3, and the operations of Table 11, which need no
training.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rows import RECIPES, STUDIES, Row, Study
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from pamcli.cli import app
from pamcli.data.open import open_data
from pamcli.data.source import Sample
from pamcli.errors import PamError
from pamcli.evaluation.disparity import Disparity
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.evaluation.loop import measure as measured
from pamcli.evaluation.methods import BICUBIC
from pamcli.evaluation.superres import Superres
from pamcli.evaluation.superres_metrics import SuperresPair, Upscaled
from pamcli.files.atomic import write_atomically
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.networks.blocks import ParallaxAttentionBlock
from pamcli.networks.parallax import matching_cost
from pamcli.networks.passrnet import ParallaxAttention
from pamcli.networks.variants import CostVolume
from pamcli.registry.catalog import read_header, sha256
from pamcli.registry.load import load_network
from pamcli.training.recipes import read_recipe

COLUMNS = {
    "epe": "EPE",
    "bad-1": "> 1 px",
    "bad-3": "> 3 px",
    "psnr": "PSNR",
    "ssim": "SSIM",
    "parameters": "parameters",
    "time": "time",
}
FARTHEST = 192
"""Pixels with a larger disparity are not counted (Section 4.3.2)."""
TIMED = {"disparity": (128, 256), "superres": (32, 64)}
"""Rows and columns of the pair on which the time of a network is taken."""


def main() -> int:
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form, allow_abbrev=False)
    parser.add_argument("study", choices=("disparity", "superres", "counts"))
    parser.add_argument("--data", action="append", default=[], help="what rows learn from, as of pam train")
    parser.add_argument("--val", action="append", default=[], help="what they are measured on")
    parser.add_argument("--steps", type=int, default=300, help="the budget of a row")
    parser.add_argument("-o", dest="folder", type=Path, default=Path("studies"))
    parser.add_argument("--tables", help="of the paper, as 1,2,4; all of the network's by default")
    parser.add_argument("--volume", type=int, help="the fixed maximum of cost volumes, for small crops")
    parser.add_argument("--resize", metavar="WxH", help="bring disparity's pairs to this size to measure")
    parser.add_argument("--commands", action="store_true", help="only show them")
    given, more = parser.parse_known_args()
    if given.study == "counts":
        print(counts())
        return 0
    wanted = given.tables and {int(number) for number in given.tables.split(",")}
    studies = [study for study in STUDIES[given.study] if not wanted or study.table in wanted]
    rows = {folder_of(given, row): row for study in studies for row in study.rows}
    try:
        for folder, row in rows.items():
            train(given, row, folder, more)
            if not given.commands:
                measure(given, folder)
    except PamError as error:
        print(f"ablations: {error}", file=sys.stderr)
        return error.exit_code
    for study in studies if not given.commands else ():
        print(table(study, [folder_of(given, row) for row in study.rows], given.val, given.resize))
    return 0


def folder_of(given: argparse.Namespace, row: Row) -> Path:
    """Folder of the row's run: rows that several tables have are trained once."""
    folder: Path = given.folder / given.study
    return folder / ",".join((variant_of(given, row), *row.losses))


def variant_of(given: argparse.Namespace, row: Row) -> str:
    return f"volume={given.volume}" if given.volume and row.variant.startswith("volume") else row.variant


def train(given: argparse.Namespace, row: Row, folder: Path, more: Sequence[str]) -> None:
    """Train a row for as many steps as are asked for, in all."""
    command = ["train", given.study]
    if (folder / "recipe.json").exists():
        if steps_of(folder) == given.steps:
            return
        command += ["--resume", str(folder), "--steps", str(given.steps)]
    else:
        command += ["--recipe", RECIPES[given.study], "--variant", variant_of(given, row)]
        command += [word for loss in row.losses for word in ("--set", f"losses.{loss}")]
        command += [word for data in given.data for word in ("--data", data)]
        command += ["--steps", str(given.steps), "-o", str(folder), *more]
    print(shlex.join(["pam", *command]), file=sys.stdout if given.commands else sys.stderr, flush=True)
    if not given.commands:
        with contextlib.redirect_stdout(io.StringIO()):
            code = app(command, prog_name="pam", standalone_mode=False)
        if code:  # stopped by hand
            sys.exit(code)


def steps_of(folder: Path) -> int:
    """Return the number of steps of a run, as recorded in its weights."""
    weights = folder / "last.safetensors"
    return int(read_header(weights).spec.training.split("; ")[1].split()[0]) if weights.exists() else 0


def measure(given: argparse.Namespace, folder: Path) -> None:
    """Figures of a run's weights, into its folder, unless they are there."""
    weights, record = folder / "last.safetensors", folder / "figures.json"
    made_of = {"weights": sha256(weights), "val": given.val, "resize": given.resize}
    if record.exists() and json.loads(record.read_text())["of"] == made_of:
        return
    if given.study == "disparity":
        size = given.resize and tuple(map(int, given.resize.split("x")))
        figures = errors(weights, given.val, size)
    else:
        figures = quality(weights, given.val)
    figures |= {"parameters": read_header(weights).parameters, "time": seconds(weights), "of": made_of}
    write_atomically(record, json.dumps(figures, indent=1).encode())


def errors(weights: Path, sets: Sequence[str], size: tuple[int, int] | None) -> dict[str, Any]:
    """Means over the pictures of all sets."""
    matcher, task = StereoMatcher.load(weights), Disparity(max_gt=FARTHEST, resize=size)

    def estimate(sample: Sample) -> Estimate:
        return Estimate(matcher(sample.left, sample.right, extras=()).disparity)

    totals = [measured(task, open_data(text), {"network": estimate}).meter for text in sets]
    found = [image.figures["all"] for total in totals for image in total.images]
    means = {key: float(np.mean([figures[key] for figures in found])) for key in ("epe", "bad-1", "bad-3")}
    return {**means, "pairs": len(found)}


def quality(weights: Path, sets: Sequence[str]) -> dict[str, Any]:
    """Means over the pairs of all sets, of the left view, and of bicubic."""
    upscaler = StereoUpscaler.load(weights)

    def enlarge(pair: SuperresPair) -> Upscaled:
        left = upscaler.upscale_left(pair.low_left, pair.low_right).astype(np.uint8)
        return Upscaled(left, pair.bicubic().right)

    methods, task = {BICUBIC: SuperresPair.bicubic, "network": enlarge}, Superres(int(upscaler.scale))
    found = [measured(task, open_data(text), methods).methods for text in sets]
    left = [{method: total.image_means["left"] for method, total in one.items()} for one in found]
    return {
        "psnr": float(np.mean([one["network"]["psnr"] for one in left])),
        "ssim": float(np.mean([one["network"]["ssim-ipassr"] for one in left])),
        "bicubic": float(np.mean([one["bicubic"]["psnr"] for one in left])),
        "pairs": sum(len(one[BICUBIC].images) for one in found),
    }


def seconds(weights: Path) -> float:
    """Return the processor time of a small pair by the plain network, s."""
    network, spec = load_network(weights)
    left, right = torch.rand(2, 1, 3, *TIMED[spec.row.task])
    taken = []
    with torch.inference_mode():
        for _ in range(4):
            start = time.process_time()
            network(left, right)
            taken.append(time.process_time() - start)
    return float(np.median(taken[1:]))


def table(study: Study, folders: Sequence[Path], sets: Sequence[str], resize: str | None) -> str:
    """Return the Markdown table: measured here, and in brackets as published."""
    lines = []
    figures = [json.loads((folder / "figures.json").read_text()) for folder in folders]
    for row, folder, found in zip(study.rows, folders, figures, strict=True):
        recipe = read_recipe(folder / "recipe.json")
        budget = f"{steps_of(folder)} of {recipe.batch} at {recipe.crop[1]}x{recipe.crop[0]}"
        cells = [
            f"{shown(key, found, figures[-1])} ({published})"
            for key, published in zip(study.columns, row.published.split(), strict=True)
        ]
        lines.append(f"| {row.title} | {budget} | {' | '.join(cells)} |")
    heads = ["", "steps", *(COLUMNS[key] for key in study.columns)]
    size = f" at {resize}" if resize else ""
    pairs = f"means over {', '.join(sets)}{size}, pairs: {figures[0]['pairs']}"
    bicubic = f"; bicubic {figures[0]['bicubic']:.2f} dB" if "bicubic" in figures[0] else ""
    title = f"Table {study.table}: {study.title}. Here {pairs}{bicubic} (in brackets: as published)"
    return "\n".join([title, "", f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads), *lines, ""])


def shown(key: str, found: dict[str, Any], whole: dict[str, Any]) -> str:
    """Format a figure; times relative to the published network, the last row."""
    if key == "parameters":
        return f"{found[key] / 1e6:.2f}M"
    if key == "time":
        return f"{found[key] / whole[key]:.1f}x"
    return f"{found[key]:.{3 if key == 'ssim' else 2}f}"


def counts() -> str:
    """Table 3 and the operations of Table 11, by counting them: nothing is computed."""
    lines = ["Table 3: a block and a 3D convolution at 135 x 240, 48 disparities (in brackets: as published)"]
    lines += ["", "| channels | block | 3D convolution | operations |", "| --- | --- | --- | --- |"]
    for channels, published in ((12, "16.2x"), (32, "23.5x")):
        with FakeTensorMode():
            block = ParallaxAttentionBlock(channels)
            layer = nn.Conv3d(channels, channels, 3, padding=1, bias=False)
            views, volume = torch.empty(2, channels, 135, 240), torch.empty(1, channels, 48, 135, 240)
            with FlopCounterMode(display=False) as of_block:
                _, query, key = block(views)
                matching_cost(query, key.flip(0))
            with FlopCounterMode(display=False) as of_layer:
                layer(volume)
        sizes = [sum(p.numel() for p in module.parameters() if p.dim() > 1) for module in (block, layer)]
        ratio = of_layer.get_total_flops() / of_block.get_total_flops()
        lines.append(f"| {channels} | {sizes[0]} | {sizes[1]} | {ratio:.1f}x ({published}) |")
    with FakeTensorMode():
        flops = []
        for module in (ParallaxAttention(), CostVolume(64)):
            with FlopCounterMode(display=False) as counter:
                module(torch.empty(2, 64, 128, 128), both=False)
            flops.append(counter.get_total_flops())
    lines += ["", f"Table 11: operations of the cost volume {flops[1] / flops[0]:.0f}x (151x)"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
