"""The exponential moving average of a network: what is validated and shipped."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Average:
    """A moving average of all tensors of a network, the running statistics of batch norm among them."""

    def __init__(self, network: nn.Module, decay: float | None) -> None:
        """decay: per step, below 1; None = no average, `state` is the network's own."""
        self.decay = decay
        self._live = _tensors(network)
        self.state: dict[str, Tensor] = (
            self._live if decay is None else {key: value.clone() for key, value in self._live.items()}
        )

    def update(self, step: int) -> None:
        """Take in the network as it is after `step` steps (1, 2, ...).

        The decay grows with the steps, min(decay, (1 + step) / (10 + step)): the start is soon forgotten.
        Counters are copied.
        """
        if self.decay is None:
            return
        decay = min(self.decay, (1 + step) / (10 + step))
        for key, value in self._live.items():
            if value.is_floating_point():
                self.state[key].lerp_(value, 1 - decay)
            else:
                self.state[key].copy_(value)

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved `state`. Raises KeyError, RuntimeError where it is another network's."""
        if self.decay is None:
            return
        for key, value in self.state.items():
            value.copy_(state[key])


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name: the tensors themselves, which optimisers change in place."""
    with torch.no_grad():
        return {key: value.detach() for key, value in network.state_dict().items()}
