"""The weights of the losses as the paper has them, and ours with known disparities: those of the recipes."""

from __future__ import annotations

from dataclasses import replace

from pamcli.training.recipes import RECIPES

SCENEFLOW = replace(RECIPES["paper-sceneflow"].losses, pam_over_columns=False, mask_by_truth_below=None)
KITTI = replace(RECIPES["paper-kitti"].losses, pam_over_columns=False)
SUPER_RESOLUTION = replace(RECIPES["paper-superres"].losses, pam_over_columns=False)
SUPERVISED = RECIPES["scenes"].losses
SUPERVISED_2 = RECIPES["pasmnet2"].losses
