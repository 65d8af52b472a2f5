"""The loss of PASMnet 2: every update of every scale."""

import pytest
import torch
from loss_examples import HEIGHT, WIDTH, example_truth, random_pictures, value
from paper_weights import SUPERVISED_2
from torch.nn.functional import smooth_l1_loss

from pamcli.losses.total import matching_terms
from pamcli.losses.weights import LossWeights
from pamcli.networks.pasmnet2 import PASMnet2Matching, ScaleResult
from pamcli.networks.symmetric_attention import attend


def example_matching() -> PASMnet2Matching:
    """Disparities and attention by chance."""
    torch.manual_seed(0)
    scales = []
    for stride, updates in ((16, 3), (8, 2), (4, 2)):
        h, w = HEIGHT // stride, WIDTH // stride
        d = [torch.rand(1, h, w) * 36 / stride for _ in range(updates)]
        attention = attend((torch.randn(1, 1, h, w), torch.randn(1, 1, h, w)))
        scales.append(ScaleResult(attention, tuple(d), torch.zeros(1, 48, h, w)))
    return PASMnet2Matching(36 * torch.rand(1, 1, HEIGHT, WIDTH), tuple(scales), torch.randn(1, h, w))


def test_the_expected_error_is_compared_with_the_cells_pixel() -> None:
    truth, matching = example_truth(1), example_matching()
    weights = LossWeights(confidence=0.5)
    terms = matching_terms(matching, *random_pictures(1, 1, HEIGHT, WIDTH), weights, truth)
    ((weight, quotient),) = terms["confidence"]
    assert [*terms] == ["confidence"]
    known = truth.known[:, 2::4, 2::4]
    errors = (matching.disparity[:, 0] - truth.disparity).abs()[:, 2::4, 2::4][known]
    likelihood = torch.distributions.Laplace(0.0, matching.log_expected_error[known].exp()).log_prob(errors)
    assert weight == 0.5
    torch.testing.assert_close(value(quotient), -likelihood.mean())


def test_earlier_and_coarser_updates_count_less() -> None:
    truth = example_truth(1)
    counts = {16: 0.5, 8: 0.7, 4: 1.0}
    matching = example_matching()
    scales = matching.scales
    terms = matching_terms(matching, *random_pictures(1, 1, HEIGHT, WIDTH), SUPERVISED_2, truth)
    assert [len(scale.updates) for scale in scales] == [3, 2, 2]
    found = iter(terms["updates"])
    for (stride, share), scale in zip(counts.items(), scales, strict=True):
        middle = slice(stride // 2, None, stride)
        known = truth.known[:, middle, middle]
        weights = torch.where(truth.visible[:, middle, middle], 1.0, SUPERVISED_2.occluded) * known
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
