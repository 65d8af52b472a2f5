"""Images, attention and truths for the tests of the losses."""

from __future__ import annotations

import torch
from torch import Tensor

from pamcli.losses.supervised import Quotient, find_visible_left, find_visible_right
from pamcli.losses.total import GroundTruth
from pamcli.networks.parallax import ParallaxMaps, attention

HEIGHT, WIDTH = 32, 64


def value(*quotients: Quotient) -> Tensor:
    """The sum of the means."""
    return torch.stack([q.total / q.count.clamp(min=1) for q in quotients]).sum()


def random_costs(seed: int, batch: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Matching costs of both directions that ask for their gradient."""
    random = torch.Generator().manual_seed(seed)
    shape = (batch, height, width, width)
    right_to_left, left_to_right = (3 * torch.randn(shape, generator=random) for _ in range(2))
    return right_to_left.requires_grad_(), left_to_right.requires_grad_()


def maps_of(
    right_to_left: Tensor, left_to_right: Tensor, *, ordered: bool = True, seed: int = 0
) -> ParallaxMaps:
    """Attention from costs, with random masks that leave no image without valid pixels."""
    random = torch.Generator().manual_seed(seed)
    batch, height, width, _ = right_to_left.shape
    valid_left, valid_right = (
        torch.rand(batch, height, width, generator=random)
        < torch.linspace(0.3, 0.9, batch).view(batch, 1, 1)  # the images differ in N
        for _ in range(2)
    )
    return ParallaxMaps(
        attention(right_to_left, "left" if ordered else None),
        attention(left_to_right, "right" if ordered else None),
        valid_left,
        valid_right,
    )


def random_pictures(seed: int, batch: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(batch, 3, height, width, generator=random) for _ in range(2))
    return left, right


def example_truth(batch: int) -> GroundTruth:
    """Known disparities of both views, a third of them missing, and what the other view sees."""
    random = torch.Generator().manual_seed(5)
    left, right = (20 * torch.rand(batch, HEIGHT, WIDTH, generator=random) for _ in range(2))
    left[torch.rand(left.shape, generator=random) < 0.3] = torch.nan
    right[torch.rand(right.shape, generator=random) < 0.3] = torch.nan
    visible, right_visible = (torch.rand(left.shape, generator=random) < 0.7 for _ in range(2))
    return GroundTruth(left, right, visible, right_visible, torch.zeros(batch, dtype=torch.bool))


def truth_of(disparity: Tensor, right: Tensor | None = None) -> GroundTruth:
    """Disparities of both views, the right ones unknown if not given, and the pixels visible in both."""
    right = torch.full_like(disparity, torch.nan) if right is None else right
    visible = find_visible_left(disparity, right), find_visible_right(disparity, right)
    return GroundTruth(disparity, right, *visible, torch.zeros(len(disparity), dtype=torch.bool))
