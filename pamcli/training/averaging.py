"""The exponential moving average of a network: what is validated and shipped."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def averaged(network: nn.Module, decay: float | None) -> AveragedModel | None:
    """A moving average of all tensors of a network, the running statistics of batch norm among them.

    decay: per step, below 1; None = no average. It grows with the steps, min(decay, (1 + n) / (10 + n)): the
    start is soon forgotten. Counters are copied.
    """
    if decay is None:
        return None

    def mixed(average: Tensor, live: Tensor, steps: Tensor | int) -> Tensor:
        if not average.is_floating_point():
            return live
        kept = min(decay, (1 + int(steps)) / (10 + int(steps)))
        return torch.lerp(average, live, 1 - kept)

    model = AveragedModel(network, avg_fn=mixed, use_buffers=True)
    taken_up(model, 0)
    return model


def taken_up(average: AveragedModel, steps: int) -> None:
    """Say how many steps are in the average; the next update is number `steps` + 1."""
    average.n_averaged.fill_(steps + 1)
