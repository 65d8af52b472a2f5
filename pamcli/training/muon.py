"""Muon: matrices of weights are moved by the same amount in all of their directions.

Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024): the mean of a layer's
gradients is replaced by the nearest matrix whose singular values are alike, so that rare ones are
learned, too. torch's own takes matrices alone: other weights need an optimizer of their own beside it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
SMALLEST = 16
"""Rows or columns of a matrix of weights below which it is AdamW's, as depthwise layers are."""
OF_ADAMW = 0.2
"""Root mean square of AdamW's changes, in learning rates: so that one rate suits both."""
ITERATIONS = 5
COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of Newton and Schulz's iteration, as the authors of Muon chose them


class Muon(torch.optim.AdamW):
    """AdamW, but for convolutions of many channels, whose weights (O, I, h, w) are matrices (O, I h w)."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step by the gradients, all of which stay as they are."""
        matrices = [
            (group, weights, weights.grad)
            for group in self.param_groups
            for weights in group["params"]
            if weights.grad is not None and is_matrix(weights)
        ]
        for _, weights, _ in matrices:
            weights.grad = None  # AdamW leaves them alone
        result = super().step(closure)
        for group, weights, gradient in matrices:
            weights.grad = gradient
            if not self.state[weights]:  # with a count of steps, which AdamW asks for of all that it reads
                self.state[weights] = {"step": torch.zeros(()), "mean": torch.zeros_like(gradient)}
            self.state[weights]["step"] += 1
            mean = self.state[weights]["mean"]
            mean.lerp_(gradient, 1 - MOMENTUM)
            change = orthogonal(gradient.lerp(mean, MOMENTUM).flatten(1)).view_as(weights)
            weights.mul_(1 - group["lr"] * group["weight_decay"])
            weights.sub_(change, alpha=group["lr"] * OF_ADAMW * max(weights.flatten(1).shape) ** 0.5)
        return result


def is_matrix(weights: Tensor) -> bool:
    """Whether weights are those of a convolution of so many channels that Muon moves them."""
    return weights.ndim == 4 and min(weights.flatten(1).shape) >= SMALLEST


def orthogonal(matrix: Tensor) -> Tensor:
    """About the nearest matrix (m, n) whose singular values are alike: they lie between 0.7 and 1.2."""
    a, b, c = COEFFICIENTS
    tall = len(matrix) > matrix.shape[1]
    wide: Tensor = matrix.T if tall else matrix
    wide = wide / wide.norm().clamp(min=1e-12)
    for _ in range(ITERATIONS):
        square = wide @ wide.T
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide.T if tall else wide
