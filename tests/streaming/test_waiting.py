"""What waits in 16 bits is near what it was, however many rows come at a time."""

from __future__ import annotations

import pytest
import torch

from pamcli.streaming.rolling import MEMORY_FORMAT, Given, Whole
from pamcli.streaming.waiting import Rounded, in_16_bits, of_16_bits


@pytest.mark.parametrize("step", [1, 2, 3, 5, 8, 40])
def test_rows_that_wait_in_16_bits_are_near_and_the_same_whatever_the_strips(step: int) -> None:
    values = 3 * torch.randn(2, 4, 30, 17, generator=torch.Generator().manual_seed(0))
    values[0, 0, 5] = 0
    values[1, 2, 6] *= 1e6
    found, waiting = [], Rounded(Given(lambda a, b: values[:, :, a:b], 30, strip=step))
    reader = waiting.reader()
    for first in range(0, 30, step):
        found.append(reader(first, min(first + step, 30)))
    rounded = torch.cat(found, 2)
    step_of_rows = values.abs().amax(3, keepdim=True) / 32767
    assert ((rounded - values).abs() <= 0.501 * step_of_rows).all()
    assert torch.equal(rounded, Rounded(Whole(values)).reader()(0, 30))
    assert rounded.is_contiguous(memory_format=MEMORY_FORMAT)
    assert sum(held.nbytes for held in waiting._held) == values.nbytes / 2 * 19 / 17


def test_attention_that_waits_in_16_bits_is_rounded_by_no_more_than_is_said() -> None:
    attention = torch.linspace(0, 1, 100_001)[1:]
    assert (of_16_bits(in_16_bits(attention.log())).exp() - attention).abs().max() < 6e-5
    little = torch.tensor([-torch.inf, -30.0, -20.0])
    assert of_16_bits(in_16_bits(little)).tolist() == pytest.approx([-20, -20, -20], abs=1e-2)
