"""The loss of PASMnet 2: every update of every scale."""

import pytest
import torch
from loss_examples import HEIGHT, WIDTH, example_truth, random_pictures, value
from paper_weights import SUPERVISED_2
from torch.nn.functional import smooth_l1_loss

from pamcli.losses.total import matching_terms
from pamcli.networks.pasmnet2 import ScaledMatching, ScaleMatching, attention_logs


def test_updates_count_less_the_earlier_and_coarser_they_are_and_occluded_pixels_half() -> None:
    truth = example_truth(1)
    torch.manual_seed(0)
    counts = {16: (0.5, 3), 8: (0.7, 2), 4: (1.0, 2)}
    scales = []
    for stride, (_, updates) in counts.items():
        h, w = HEIGHT // stride, WIDTH // stride
        d = [torch.rand(1, h, w) * 36 / stride for _ in range(1 + updates)]
        logs = attention_logs(torch.randn(1, h, w, w), None)
        scales.append(ScaleMatching(*logs, torch.ones(1, h, w), d[0], tuple(d[1:])))
    matching = ScaledMatching(torch.rand(1, 1, HEIGHT, WIDTH), tuple(scales), d[0])
    terms = matching_terms(matching, *random_pictures(1, 1, HEIGHT, WIDTH), SUPERVISED_2, truth)
    assert [len(scale.updates) for scale in scales] == [3, 2, 2]
    assert truth.visible is not None
    found = iter(terms["updates"])
    for (stride, (share, _)), scale in zip(counts.items(), scales, strict=True):
        middle = slice(stride // 2, None, stride)
        known = truth.known[:, middle, middle]
        weights = torch.where(truth.visible[:, middle, middle], 1.0, 0.5) * known
        # In full-size pixels, at the truth of the pixel next to each cell's centre.
        target = torch.where(known, truth.disparity[:, middle, middle], 0)
        for place, update in enumerate(reversed(scale.updates)):
            weight, quotient = next(found)
            assert weight == pytest.approx(0.3 * share * 0.8**place)
            far = (stride * update - target).abs()
            error = torch.where(
                far < 8, smooth_l1_loss(far, 0 * far, reduction="none"), 7.5 + 8 * (far / 8).log()
            )
            expected = (error * weights).sum() / known.sum()
            torch.testing.assert_close(value(quotient), expected)
    assert next(found, None) is None
    assert [weight for weight, _ in terms["likelihood"]] == pytest.approx([0.02, 0.01, 0.04, 0.02, 0.1, 0.05])
