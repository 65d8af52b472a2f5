"""Muon: matrices of weights are moved by the same amount in all of their directions.

Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024): the mean of a layer's
gradients is replaced by the nearest matrix whose singular values are alike, so that directions which the
gradients seldom have are learned, too. torch's own takes matrices alone: all other weights would need another
optimizer, with checkpoints of its own.
"""

from collections.abc import Callable
from itertools import groupby
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
    """AdamW, but convolutions' weights (O, I, h, w) that are no small matrices (O, I h w) move by Muon.

    AdamW's betas say nothing of these, and a limit of the gradient's norm hardly anything.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step by the gradients, which stay as they are. There is no `closure`."""
        assert closure is None
        matrices = [
            (group, weights, weights.grad)
            for group in self.param_groups
            for weights in group["params"]
            if weights.grad is not None and is_matrix(weights)
        ]
        for _, weights, _ in matrices:
            weights.grad = None  # AdamW leaves them alone
        super().step()
        matrices.sort(key=lambda each: each[1].shape)
        for shape, alike in groupby(matrices, key=lambda each: each[1].shape):
            groups, layers, gradients = zip(*alike, strict=True)
            means = [self._mean(*each) for each in zip(layers, gradients, strict=True)]
            ahead = torch.stack(gradients).lerp(torch.stack(means), MOMENTUM)
            size = OF_ADAMW * max(layers[0].flatten(1).shape) ** 0.5
            changes = size * orthogonal(ahead.flatten(2)).view(-1, *shape)
            for group, weights, gradient, change in zip(groups, layers, gradients, changes, strict=True):
                weights.grad = gradient
                weights.mul_(1 - group["lr"] * group["weight_decay"])
                weights.sub_(change, alpha=group["lr"])

    def _mean(self, weights: Tensor, gradient: Tensor) -> Tensor:
        """The moving mean of a layer's gradients, with this one."""
        state = self.state[weights]
        if not state:  # with a count of steps, which AdamW asks for of all that it reads from a checkpoint
            state |= {"step": torch.zeros(()), "mean": torch.zeros_like(gradient)}
        state["step"] += 1
        mean: Tensor = state["mean"]
        return mean.lerp_(gradient, 1 - MOMENTUM)


def is_matrix(weights: Tensor) -> bool:
    """Whether Muon moves these weights: a convolution's that are no small matrix."""
    return weights.ndim == 4 and min(weights.flatten(1).shape) >= SMALLEST


def orthogonal(matrices: Tensor) -> Tensor:
    """About the nearest matrices (..., m, n) whose singular values are alike.

    These come to lie between 0.7 and 1.2, but for those that were below a five hundredth of the norm.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    given = matrices.mT if tall else matrices
    wide: Tensor = given / torch.linalg.matrix_norm(given, keepdim=True).clamp(min=1e-12)
    for _ in range(ITERATIONS):
        square = wide @ wide.mT
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide.mT if tall else wide
