"""Blocks of PASSRnet 2 that are compiled learn as the others do; here by dynamo alone, without a GPU."""

from __future__ import annotations

import copy

import pytest
import torch

from pamcli.errors import DeviceError, UsageError
from pamcli.networks.passrnet import PASSRnet
from pamcli.networks.passrnet2 import PASSRnet2
from pamcli.training import initialisation
from pamcli.training.initialisation import compile_blocks

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def gradients(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    left, right = torch.rand(2, 1, 3, 6, 12, generator=rng)
    result = network(left, right, both=True)
    (result.left.square().sum() + result.right.square().sum()).backward()
    return {
        key: parameter.grad for key, parameter in network.named_parameters() if parameter.grad is not None
    }


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # dynamo looks at what it traces
def test_compiled_blocks_have_the_gradients_of_the_others() -> None:
    torch.manual_seed(0)
    plain = PASSRnet2(2, blocks=4)
    torch.nn.init.normal_(plain.last.weight, std=0.1)
    other = copy.deepcopy(plain)
    compile_blocks(other, CPU, "eager")
    assert other.state_dict().keys() == plain.state_dict().keys()
    expected, found = gradients(plain), gradients(other)
    assert found.keys() == expected.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], gradient, rtol=1e-4, atol=1e-6)
    assert all(block._compiled_call_impl is not None for block in other.blocks)


def test_what_cannot_be_compiled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="only passrnet2"):
        compile_blocks(PASSRnet(4), GPU)
    network = PASSRnet2(2, blocks=4)
    with pytest.raises(UsageError, match="requires a CUDA GPU"):
        compile_blocks(network, CPU)
    monkeypatch.setattr(initialisation, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="Triton"):
        compile_blocks(network, GPU)
    assert all(block._compiled_call_impl is None for block in network.blocks)
