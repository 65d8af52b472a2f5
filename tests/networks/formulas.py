"""Weights and images that are pure formulas, so golden numbers need no stored weights or photographs.

`tests/data/*.npz` hold what the authors' networks compute on them (`pasmnet2.npz`: the prototype that its
description came from); each file stores its own parameters.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

DATA = Path(__file__).parents[1] / "data"


def layout(name: str) -> dict[str, tuple[int, ...]]:
    """Every key of the authors' checkpoint and its shape."""
    return {key: tuple(shape) for key, shape in json.loads((DATA / f"{name}_keys.json").read_text()).items()}


def formula_state(name: str, seed: int, query_gain: float) -> dict[str, Tensor]:
    gain = 1.0 if name.startswith("pasmnet") else 0.5
    random = np.random.RandomState(seed)
    state: dict[str, Tensor] = {}
    for key, shape in sorted(layout(name).items()):
        if key.endswith("num_batches_tracked"):
            state[key] = torch.zeros(shape, dtype=torch.long)
            continue
        z = random.standard_normal(shape).astype(np.float32)
        if len(shape) == 4:
            value = z * np.sqrt(gain / np.prod(shape[1:])).astype(np.float32)
        elif key.endswith("running_var"):
            value = 0.75 + 0.25 * np.abs(z)
        elif key.endswith("running_mean"):
            value = 0.1 * z
        elif key.endswith("weight"):
            value = 1 + 0.1 * z
        else:
            value = 0.05 * z
        state[key] = torch.from_numpy(np.asarray(value, np.float32))
    if name.startswith("pasmnet"):
        for key in state:
            if ".query.1." in key and key.endswith(("weight", "bias")):
                state[key] = state[key] * query_gain
        for key in state:
            if ".key." in key:
                state[key] = state[key.replace(".key.", ".query.")].clone()
    else:
        state["pam.b1.weight"] = state["pam.b1.weight"] * query_gain
        for part in ("weight", "bias"):
            state[f"pam.b2.{part}"] = state[f"pam.b1.{part}"].clone()
    return state


def formula_images(seed: int, n: int, h: int, w: int, shift: int) -> tuple[Tensor, Tensor]:
    """Left and right (n, 3, h, w) in [0, 1]; the true disparity is `shift` everywhere."""
    random = np.random.RandomState(seed + 1)
    base = np.zeros((n, 3, h, w + shift))
    for s in (1, 2, 4, 8, 16):
        cells = random.random_sample((n, 3, -(-h // s), -(-(w + shift) // s)))
        base += np.sqrt(s) * cells.repeat(s, 2).repeat(s, 3)[:, :, :h, : w + shift]
    base = (base - base.min()) / (base.max() - base.min())
    left = torch.from_numpy(base[..., :w].astype(np.float32))
    right = torch.from_numpy(base[..., shift : shift + w].astype(np.float32))
    return left, right


def golden_pair(name: str) -> tuple[Tensor, Tensor]:
    """The images that the golden numbers of a network belong to."""
    g = golden(name)
    return formula_images(*(int(g[key]) for key in ("seed", "n", "h", "w", "shift")))


def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"{name}.npz") as file:
        return dict(file)
