"""Write the figures of scripts/figures.toml into the tables of README, guide and model cards.

python scripts/figure_tables.py

A table is found by its file and its heading row; all rows below the heading are replaced.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pamcli.registry.resolution import EFFORTS

ROOT = Path(__file__).parents[1]
FIGURES: dict[str, Any] = tomllib.loads((ROOT / "scripts" / "figures.toml").read_text(encoding="utf-8"))
DISPARITY, SUPERRES, GPU = FIGURES["disparity"], FIGURES["superres"], FIGURES["gpu"]
CONFIDENCE = FIGURES["confidence"]
ERRORS = (
    ("kitti", "d1", "D1", "KITTI 2015, 20 pairs"),
    ("middlebury", "bad-2", "bad-2", "Middlebury, 17 images"),
)

Rows = Iterable[tuple[str, ...]]


def main() -> None:
    """Write every page whose figures are out of date."""
    for path in pages():
        path.write_text(updated(path), encoding="utf-8")


def pages() -> list[Path]:
    """Return the files with tables of figures."""
    return sorted({ROOT / file for file, _ in TABLES})


def updated(path: Path) -> str:
    """Return the text of a page with the figures of figures.toml."""
    text = path.read_text(encoding="utf-8")
    for (file, heading), rows in TABLES.items():
        if ROOT / file == path:
            body = "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows)
            table = rf"({re.escape(f'| {heading} |')}\n\|[- |]+\|\n)(?:\|.*\n)+"
            text, count = re.subn(table, lambda found, body=body: found[1] + body, text)  # type: ignore[misc]
            assert count == 1, f"{file} has {count} tables with the heading {heading}"
    return text


def accuracy(networks: Iterable[str]) -> Rows:
    """Return a row per network and data set: figures of the network and of the classical method."""
    for name in networks:
        if name in DISPARITY:
            for key, figure, title, data in ERRORS:
                both = [DISPARITY[method][key] for method in (name, "StereoSGBM")]
                found = [f"{title} {each[figure]:.1f} %, EPE {each['epe']:.2f} px" for each in both]
                yield f"`{name}`", data, found[0], f"StereoSGBM: {found[1]}"
        else:
            key, data = "clean", "KITTI 2012, 20 pairs, left image"
            if "camera" in name:
                key, data = "jpeg-75", "as above, JPEG quality 75"
            bicubic = SUPERRES[f"bicubic-{name[-2:]}"][key]["left"]
            yield f"`{name}`", data, f"{SUPERRES[name][key]['left']:.2f} dB", f"bicubic: {bicubic:.2f} dB"


def errors(name: str) -> Rows:
    """Return the rows of a model card: errors of a matcher on both data sets."""
    for key, data, pairs in (("kitti", "KITTI 2015", 20), ("middlebury", "Middlebury", 17)):
        found = DISPARITY[name][key]
        yield data, str(pairs), f"{found['epe']:.2f} px", f"{found['d1']:.1f} %", f"{found['bad-2']:.1f} %"


def precisions() -> Rows:
    """Return errors of the default matcher in fp32 and bf16."""
    for name, sets in DISPARITY["pasmnet2"]["precisions"].items():
        yield name, *(f"{found[figure]:.2f} %" for found in sets.values() for figure in ("d1", "bad-2"))


def psnr(name: str) -> Rows:
    """Return the rows of a model card: PSNR of bicubic upscaling and of the network."""
    for title, found in (("bicubic", SUPERRES[f"bicubic-{name[-2:]}"]), (f"`{name}`", SUPERRES[name])):
        yield title, *(f"{found['clean'][key]:.2f} dB" for key in ("left", "both"))
    twice = SUPERRES[name]["clean"]["left-twice"]
    yield f"`{name}`, left image in place of the right image", f"{twice:.2f} dB", ""


def second_image() -> Rows:
    """Return the gain from the second image for each network of super-resolution."""
    for name, found in SUPERRES.items():
        if "left-twice" in found.get("clean", {}):
            yield f"`{name}`", f"{found['clean']['left'] - found['clean']['left-twice']:.2f} dB"


def thresholds(*networks: str, chosen: Iterable[float] = CONFIDENCE["threshold"]) -> Rows:
    """Return remaining and wrong pixels at each threshold of confidence."""
    for index, threshold in enumerate(CONFIDENCE["threshold"]):
        if threshold in chosen:
            cells = [CONFIDENCE[name][key][index] for name in networks for key in ("kitti", "middlebury")]
            found = [f"{value:g} %" for pair in cells for value in pair]
            yield f"{threshold:g}" if threshold else "not set", *found


def times(names: Iterable[str], columns: slice) -> Rows:
    """Return milliseconds per pair on the GPU."""
    for name in names:
        found = [f"{value:g} ms" for value in GPU[name]["ms"][columns]]
        missing = len(range(4)[columns]) - len(found)  # StereoSGBM computes disparity only
        yield describe_task(name, GPU), *found, *[""] * missing


def describe_task(name: str, figures: dict[str, Any]) -> str:
    """Return what a time is for, and the version of the weights that it was measured with."""
    network, size = name.split()
    what = f"both images of {size} upscaled by 4" if "passr" in network else f"disparity map of {size}"
    return f"{what}, `{network}` version {figures[name]['version']}"


def efforts() -> Rows:
    """Return rule, time and errors of each effort, and those of the classical method."""
    for name, found in FIGURES["effort"].items():
        rule, title = (str(EFFORTS[name]), f"`{name}`") if name in EFFORTS else ("", name)
        yield title, rule, f"{found['ratio']:.1f}", f"{found['d1']:.2f} %", f"{found['bad-2']:.2f} %"


def ratios() -> Rows:
    """Return times on the CPU by those of the classical method, if they are those of the shipped weights."""
    for name, found in FIGURES["cpu"].items():
        network = name.split()[0]
        if found["version"] == {**DISPARITY, **SUPERRES}[network]["version"]:
            low, high = found["quartiles"]
            yield describe_task(name, FIGURES["cpu"]), f"{found['ratio']:g} ({low:g} to {high:g})"


SHOWN_TIMES = ("pasmnet2 1248x384", "pasmnet2 1920x1080", "passrnet2-x4 310x93")
DEFAULTS = ["pasmnet2", "passrnet2-x4", "passrnet2-x2"]
NETWORKS = [name for name in [*DISPARITY, *SUPERRES] if name.startswith("pas")]
KEPT = "KITTI 2015: remain | wrong | Middlebury: remain | wrong"
PSNR = " | left image | both images"
GUIDE = "pamcli/guide/"
TABLES: dict[tuple[str, str], list[tuple[str, ...]]] = {
    (file, heading): list(rows)
    for file, heading, rows in (
        (
            "README.md",
            "network | data | pam | baseline",
            accuracy(DEFAULTS),
        ),
        ("README.md", "one pair on one CPU core, fp32 | times StereoSGBM (quartiles)", ratios()),
        (f"{GUIDE}networks.md", "network | data | pam | baseline", accuracy(NETWORKS)),
        (f"{GUIDE}networks.md", "network | gain from the second image", second_image()),
        (f"{GUIDE}disparity.md", "network | data | pam | baseline", accuracy(DEFAULTS[:1])),
        (
            f"{GUIDE}disparity.md",
            "`--effort` | before matching | times StereoSGBM | D1, streets | bad-2, rooms",
            efforts(),
        ),
        (
            f"{GUIDE}superres.md",
            "network | data | pam | baseline",
            accuracy(DEFAULTS[1:]),
        ),
        (f"{GUIDE}confidence.md", f"`--min-confidence` | {KEPT}", thresholds("pasmnet2")),
        (f"{GUIDE}benchmarks.md", f"`pasmnet`, threshold | {KEPT}", thresholds("pasmnet")),
        (f"{GUIDE}speed.md", "one pair on an NVIDIA H200 | fp32 | bf16", times(SHOWN_TIMES, slice(2))),
        (
            f"{GUIDE}speed.md",
            "precision | D1, KITTI 2015 | bad-2, KITTI 2015 | D1, Middlebury | bad-2, Middlebury",
            precisions(),
        ),
        (f"{GUIDE}benchmarks.md", "one pair | fp32 | bf16 | fp16 | StereoSGBM", times(GPU, slice(4))),
        *(
            (f"weights/{name}.md", "data | pairs | EPE | D1 | bad-2", errors(name))
            for name in ("pasmnet2", "pasmnet")
        ),
        *(
            (f"weights/{name}.md", f"upscaled by {name[-1]} with{PSNR}", psnr(name))
            for name in ("passrnet2-x4", "passrnet2-x2", "passrnet-x4", "passrnet-x2")
        ),
    )
}
"""Rows of each table, by file and heading."""


if __name__ == "__main__":
    main()
