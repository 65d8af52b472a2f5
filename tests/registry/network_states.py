"""The tensors of the shipped networks, and checkpoints made of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import safetensors.torch
from torch import Tensor

from pamcli.registry.catalog import SHIPPED

NAMES = (
    *("pasmnet2", "pasmnet", "passrnet2-x2", "passrnet2-x4"),
    *("passrnet2-camera-x2", "passrnet2-camera-x4", "passrnet-x2", "passrnet-x4"),
)


@cache
def _stored(name: str) -> dict[str, Tensor]:
    return safetensors.torch.load_file(SHIPPED / f"{name}.safetensors")


def state_of(name: str) -> dict[str, Tensor]:
    """Key to tensor, in half precision; the dictionary is the caller's own."""
    return dict(_stored(name))


def shipped(name: str) -> Path:
    return SHIPPED / f"{name}.safetensors"
