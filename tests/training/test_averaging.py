"""The moving average of weights."""

from __future__ import annotations

import torch
from torch import nn

from pamcli.training.tasks import make_average, resume_average


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
    average = make_average(net, 0.9)
    expected = {key: value.clone() for key, value in net.state_dict().items()}
    for number in range(1, 121):
        step(net)
        average.update_parameters(net)
        decay = min(0.9, (1 + number) / (10 + number))
        for key, value in net.state_dict().items():
            if value.is_floating_point():
                expected[key] = decay * expected[key] + (1 - decay) * value
    found = average.module.state_dict()
    for key in ("0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var"):
        torch.testing.assert_close(found[key], expected[key])
        assert not torch.equal(found[key], net.state_dict()[key])
    assert found["1.num_batches_tracked"].item() == 120


def test_without_a_decay_there_is_no_average() -> None:
    assert make_average(network(), None) is None


def test_an_average_that_is_taken_up_goes_on_bit_for_bit() -> None:
    net = network()
    one, other = make_average(net, 0.99), make_average(network(), 0.99)
    step(net)
    one.update_parameters(net)
    other.module.load_state_dict(one.module.state_dict())
    resume_average(other, 1)
    step(net)
    for average in (one, other):
        average.update_parameters(net)
    found, again = one.module.state_dict(), other.module.state_dict()
    assert all(torch.equal(found[key], again[key]) for key in found)


def test_the_end_of_a_run_is_averaged_evenly_with_what_was_averaged_before() -> None:
    net = network()
    average = make_average(net, 0.9, remembers_from=50)
    for _ in range(50):
        step(net)
        average.update_parameters(net)
    before = average.module.state_dict()["0.weight"].clone()
    seen = []
    for _ in range(40):
        step(net)
        average.update_parameters(net)
        seen.append(net.state_dict()["0.weight"].clone())
    # Begins with what the average of decay 0.9 is worth: about ten steps.
    expected = (10 * before + torch.stack(seen).sum(0)) / (10 + 40)
    torch.testing.assert_close(average.module.state_dict()["0.weight"], expected, atol=1e-4, rtol=1e-3)
