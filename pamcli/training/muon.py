"""Implement Muon (Jordan et al., 2024), which orthogonalizes the updates of weight matrices."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
SMALLEST = 16  # minimum rows and columns of a weight matrix; smaller ones use AdamW
OF_ADAMW = 0.2  # root mean square of AdamW's updates, in learning rates, so that one rate suits both
ITERATIONS = 5
COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of the Newton-Schulz iteration, by Muon's authors


class Muon(torch.optim.AdamW):
    """AdamW, except that large convolution weights (O, I, h, w), as matrices (O, I h w), move by Muon."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step without changing the gradients; `closure` is not supported."""
        assert closure is None
        matrices = [
            (group, weights, weights.grad)
            for group in self.param_groups
            for weights in group["params"]
            if weights.grad is not None and is_matrix(weights)
        ]
        for _, weights, _ in matrices:
            weights.grad = None  # AdamW skips weights without gradient
        super().step()
        matrices.sort(key=lambda each: each[1].shape)
        for shape, alike in groupby(matrices, key=lambda each: each[1].shape):
            groups, layers, gradients = zip(*alike, strict=True)
            means = [self._update_mean(*each) for each in zip(layers, gradients, strict=True)]
            ahead = torch.stack(gradients).lerp(torch.stack(means), MOMENTUM)
            size = OF_ADAMW * max(layers[0].flatten(1).shape) ** 0.5
            changes = size * orthogonalize(ahead.flatten(2)).view(-1, *shape)
            for group, weights, gradient, change in zip(groups, layers, gradients, changes, strict=True):
                weights.grad = gradient
                weights.mul_(1 - group["lr"] * group["weight_decay"])
                weights.sub_(change, alpha=group["lr"])

    def _update_mean(self, weights: Tensor, gradient: Tensor) -> Tensor:
        """Update and return the moving average of a layer's gradients."""
        state = self.state[weights]
        if not state:  # AdamW requires a step count in checkpoints
            state |= {"step": torch.zeros(()), "mean": torch.zeros_like(gradient)}
        state["step"] += 1
        mean: Tensor = state["mean"]
        return mean.lerp_(gradient, 1 - MOMENTUM)


def is_matrix(weights: Tensor) -> bool:
    return weights.ndim == 4 and min(weights.flatten(1).shape) >= SMALLEST


def orthogonalize(matrices: Tensor) -> Tensor:
    """Compute approximately the nearest matrices (..., m, n) with equal singular values (0.7 to 1.2)."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    given = matrices.mT if tall else matrices
    wide: Tensor = given / torch.linalg.matrix_norm(given, keepdim=True).clamp(min=1e-12)
    for _ in range(ITERATIONS):
        square = wide @ wide.mT
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide.mT if tall else wide
