"""Define the rows of the paper's ablation tables: how each is trained, and its published figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Row:
    title: str
    published: str
    """Figures with spaces between, in the order of the study's columns."""
    variant: str = "paper"
    losses: tuple[str, ...] = ()
    """NAME=WEIGHT, where they differ from the recipe's."""


@dataclass(frozen=True)
class Study:
    table: int
    """Number of the table in the paper, counted from its beginning."""
    title: str
    columns: tuple[str, ...]
    """Keys of figures, as `ablations.COLUMNS` has them."""
    rows: tuple[Row, ...]


Task = Literal["disparity", "superres"]
RECIPES: dict[Task, str] = {"disparity": "paper-sceneflow", "superres": "paper-superres"}

NO_PAM = ("pam=0",)
PAM_P = ("pam_smoothness=0", "pam_cycle=0")
ERRORS = ("epe", "bad-1", "bad-3")
QUALITY = ("psnr", "ssim")
COST = ("parameters", "time")

PASMNET = Row("PASMnet", "4.54 18.99 15.91")
PASSRNET = Row("PASSRnet", "25.43 0.776")

STUDIES: dict[Task, tuple[Study, ...]] = {
    "disparity": (
        Study(
            1,
            "PASMnet of other parts, SceneFlow",
            ERRORS,
            (
                Row("pyramid features, 1 block", "4.86 19.58 16.31", "features=pyramid,blocks=1"),
                Row("single scale, 1 block", "4.78 19.50 16.21", "scales=1,blocks=1"),
                Row("1 block", "4.68 19.32 16.09", "blocks=1"),
                Row("2 blocks", "4.63 19.19 16.05", "blocks=2"),
                Row("3 blocks", "4.58 19.05 15.97", "blocks=3"),
                PASMNET,
            ),
        ),
        Study(
            2,
            "refinement, SceneFlow",
            ERRORS,
            (Row("without refinement", "4.56 19.15 16.11", "refinement=none"), PASMNET),
        ),
        Study(
            4,
            "attention against a 4D cost volume, SceneFlow",
            (*COST, *ERRORS),
            (
                Row("cost volume", "7.35M 1x 6.02 19.79 17.42", "volume=192", NO_PAM),
                Row("PASMnet", f"7.61M 1.1x {PASMNET.published}"),
            ),
        ),
        Study(
            5,
            "losses of PASMnet, SceneFlow",
            ERRORS,
            (
                Row("L_p", "6.07 20.78 17.11", losses=("smoothness=0", *NO_PAM)),
                Row("L_p, L_s", "4.87 19.69 16.54", losses=NO_PAM),
                Row("L_p, L_s, PAM-p", "4.63 19.46 16.12", losses=PAM_P),
                Row("L_p, L_s, PAM-p, PAM-s", "4.58 19.13 15.99", losses=PAM_P[1:]),
                PASMNET,
            ),
        ),
    ),
    "superres": (
        Study(
            10,
            "PASSRnet of other parts, x4, KITTI 2015",
            (*QUALITY, *COST),
            (
                Row("single picture", "25.27 0.770 1.32M 114ms", "views=left", NO_PAM),
                Row("the left picture twice", "25.29 0.771 1.42M 176ms", "views=twice"),
                Row("pyramid without residual connections", "25.40 0.774 1.42M 176ms", "pyramid=cascaded"),
                Row("pyramid without dilation", "25.38 0.773 1.42M 176ms", "pyramid=plain"),
                Row("views stacked, no attention", "25.28 0.771 1.32M 135ms", "matching=stacked", NO_PAM),
                Row("without transition block", "25.36 0.773 1.34M 160ms", "transition=none"),
                Row("PASSRnet", f"{PASSRNET.published} 1.42M 176ms"),
            ),
        ),
        Study(
            11,
            "attention against a 4D cost volume, x4, KITTI 2015",
            (*QUALITY, "time"),
            (
                Row("cost volume", "25.23 0.768 1.5x", "volume=64", NO_PAM),
                Row("PASSRnet", f"{PASSRNET.published} 1x"),
            ),
        ),
        Study(
            12,
            "losses of PASSRnet, x4, KITTI 2015",
            QUALITY,
            (
                Row("L_SR", "25.35 0.771", losses=NO_PAM),
                Row("L_SR, photometric", "25.38 0.773", losses=PAM_P),
                Row("L_SR, photometric, smoothness", "25.40 0.774", losses=PAM_P[1:]),
                PASSRNET,
            ),
        ),
    ),
}
"""What has no row to train: Tables 6, 7 and 14 to 16 are `pam eval --study`, Table 3 is counted."""
