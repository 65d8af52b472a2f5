"""The moving average of weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pamcli.training.averaging import Average


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))


def step(net: nn.Module) -> None:
    """Change weights and running statistics as a step of training does."""
    net(torch.randn(2, 3, 4, 4))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter))


def test_the_average_is_the_recurrence_of_weights_and_running_statistics() -> None:
    net = network()
    average = Average(net, 0.9)
    expected = {key: value.clone() for key, value in net.state_dict().items()}
    for number in range(1, 121):
        step(net)
        average.update(number)
        decay = min(0.9, (1 + number) / (10 + number))
        for key, value in net.state_dict().items():
            if value.is_floating_point():
                expected[key] = decay * expected[key] + (1 - decay) * value
    for key in ("0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var"):
        torch.testing.assert_close(average.state[key], expected[key])
        assert not torch.equal(average.state[key], net.state_dict()[key])


def test_counters_are_copied() -> None:
    net = network()
    average = Average(net, 0.9)
    for number in (1, 2, 3):
        step(net)
        average.update(number)
    assert average.state["1.num_batches_tracked"].item() == 3


def test_without_a_decay_the_state_is_the_network_s() -> None:
    net = network()
    average = Average(net, None)
    step(net)
    average.update(1)
    assert torch.equal(average.state["0.weight"], net.state_dict()["0.weight"])


def test_a_loaded_average_goes_on_bit_for_bit() -> None:
    net = network()
    average = Average(net, 0.99)
    step(net)
    average.update(1)
    again = Average(net, 0.99)
    again.load_state({key: value.clone() for key, value in average.state.items()})
    step(net)
    for one in (average, again):
        one.update(2)
    assert all(torch.equal(average.state[key], again.state[key]) for key in average.state)


def test_the_state_of_another_network_is_refused() -> None:
    average = Average(network(), 0.9)
    with pytest.raises(KeyError):
        average.load_state({})
