"""The sums of the losses: what is in them, what is not, and that processes can share them."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import pytest
import torch
from loss_examples import (
    HEIGHT,
    WIDTH,
    example_truth,
    maps_of,
    random_costs,
    random_pictures,
    truth_of,
    value,
)
from paper_weights import KITTI, SCENEFLOW, SUPERVISED
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from pamcli.losses.total import (
    GroundTruth,
    Terms,
    matching_terms,
    total_loss,
)
from pamcli.losses.unsupervised import attention_cycle, attention_smoothness, photometric_loss
from pamcli.losses.weights import LossWeights
from pamcli.networks.parallax import ParallaxMaps, fill_occlusions, regress_disparity
from pamcli.networks.pasmnet import STAGE_STRIDES, Matching, PASMnet

NO_TERMS = ("pam", "likelihood_shares", "likelihood_right")
EVERY_TERM = replace(SCENEFLOW, pam_cycle=0.5, refined=1.0, initial=0.5, likelihood=0.3)
TERMS = [name for name, weight in asdict(EVERY_TERM).items() if weight and name not in NO_TERMS]
NAN = torch.nan


def example_leaves(batch: int) -> list[Tensor]:
    """Costs of the three stages and both directions, and a residual disparity, that ask for gradients."""
    leaves = []
    for stage, stride in enumerate(STAGE_STRIDES):
        leaves += random_costs(stage, batch, HEIGHT // stride, WIDTH // stride)
    random = torch.Generator().manual_seed(9)
    return [*leaves, torch.rand(batch, 1, HEIGHT, WIDTH, generator=random).requires_grad_()]


def example_matching(leaves: list[Tensor], images: slice = slice(None)) -> Matching:
    """A matching whose refined disparity is the enlarged initial one and a residual."""
    maps = []
    for stage in range(3):
        right_to_left, left_to_right = leaves[2 * stage : 2 * stage + 2]
        whole = maps_of(right_to_left, left_to_right, seed=stage)
        maps.append(ParallaxMaps(*[getattr(whole, field.name)[images] for field in fields(whole)]))
    initial = fill_occlusions(regress_disparity(maps[-1].right_to_left), maps[-1].valid_left)
    enlarged = 4 * initial.repeat_interleave(4, -1).repeat_interleave(4, -2)[:, None]
    return Matching(enlarged + leaves[-1][images], initial, tuple(maps), enlarged)


def part(truth: GroundTruth, images: slice) -> GroundTruth:
    return GroundTruth(*(values[images] for values in truth))


def loss_of(terms: Terms) -> Tensor:
    return total_loss(terms)[0]


def test_the_unsupervised_loss_is_the_sum_that_the_paper_writes() -> None:
    matching, (left, right) = example_matching(example_leaves(2)), random_pictures(1, 2, HEIGHT, WIDTH)
    terms = matching_terms(matching, left, right, KITTI, example_truth(2))
    assert list(terms) == ["photometric", "smoothness", "pam_photometric", "pam_smoothness", "pam_cycle"]
    for name, of_maps in (("pam_smoothness", attention_smoothness), ("pam_cycle", attention_cycle)):
        expected = sum(
            share * 5 * value(*of_maps(maps))
            for share, maps in zip((0.2, 0.3, 0.5), matching.maps, strict=True)
        )
        assert torch.allclose(total_loss(terms)[1][name], expected.detach(), rtol=1e-6)
    loss, values = total_loss(terms)
    assert torch.allclose(loss, torch.stack(list(values.values())).sum(), rtol=1e-6)
    assert not any(v.requires_grad for v in values.values())


def test_the_photometric_loss_counts_valid_pixels_of_stage_3() -> None:
    matching, (left, right) = example_matching(example_leaves(1)), random_pictures(1, 1, HEIGHT, WIDTH)
    weights = LossWeights(photometric=1)
    ((_, quotient),) = matching_terms(matching, left, right, weights, example_truth(1))["photometric"]
    valid = matching.maps[-1].valid_left
    assert quotient.count == 16 * valid.sum()
    rows, columns = torch.arange(HEIGHT) // 4, torch.arange(WIDTH) // 4
    by_hand = photometric_loss(left, right, matching.disparity, valid[:, rows][:, :, columns])
    assert torch.equal(quotient.total, by_hand.total)


@pytest.mark.parametrize("term", TERMS)
def test_a_term_of_weight_zero_is_left_out(term: str) -> None:
    matching, pictures = example_matching(example_leaves(1)), random_pictures(1, 1, HEIGHT, WIDTH)
    every, others = (
        set(matching_terms(matching, *pictures, weights, example_truth(1)))
        for weights in (EVERY_TERM, replace(EVERY_TERM, **{term: 0.0}))
    )
    assert others == every - {term}


def test_ground_truth_does_not_change_the_unsupervised_loss() -> None:
    matching, (left, right) = example_matching(example_leaves(2)), random_pictures(1, 2, HEIGHT, WIDTH)
    unknown = truth_of(torch.full((2, HEIGHT, WIDTH), NAN))
    one, other = (
        loss_of(matching_terms(matching, left, right, SCENEFLOW, truth))
        for truth in (example_truth(2), unknown)
    )
    assert torch.equal(one, other)


def test_the_authors_mask_counts_pixels_with_truth_in_range() -> None:
    matching, (left, right) = example_matching(example_leaves(1)), random_pictures(1, 1, HEIGHT, WIDTH)
    disparity = torch.full((1, HEIGHT, WIDTH), 50.0)
    disparity[..., :16], disparity[..., 16:32], disparity[..., 32:48] = 0, NAN, 192
    weights = LossWeights(photometric=1, pam_photometric=1, pam_cycle=1, mask_by_truth_below=192)
    terms = matching_terms(matching, left, right, weights, truth_of(disparity))
    assert terms["photometric"][0][1].count == 16 * matching.maps[-1].valid_left[..., 12:].sum()
    for stage, maps in enumerate(matching.maps):
        of_left, of_right = (quotient for _, quotient in terms["pam_photometric"][2 * stage : 2 * stage + 2])
        assert of_left.count == maps.valid_left[..., 3 * maps.valid_left.shape[-1] // 4 :].sum()
        assert of_right.count == maps.valid_right.sum()  # no truth of the right view: all of its pixels
        assert terms["pam_cycle"][2 * stage][1].count == maps.valid_left.sum()
    # As the examples of a data set give it that knows left truths alone.
    unlabelled = truth_of(disparity, torch.full_like(disparity, NAN))
    alike = matching_terms(matching, left, right, weights, unlabelled)["pam_photometric"]
    counts = [[float(quotient.count) for _, quotient in found] for found in (alike, terms["pam_photometric"])]
    assert counts[0] == counts[1]


def test_ground_truth_beyond_the_limit_is_not_learned_either() -> None:
    leaves = example_leaves(1)
    disparity = torch.full((1, HEIGHT, WIDTH), 8.0)
    disparity[..., 40:] = 30
    weights = replace(SUPERVISED, mask_by_truth_below=20.0)
    every = torch.ones_like(disparity, dtype=torch.bool)
    truth = truth_of(disparity, disparity.flip(-1))._replace(visible=every, right_visible=every)
    pictures = random_pictures(1, 1, HEIGHT, WIDTH)
    terms = matching_terms(example_matching(leaves), *pictures, weights, truth)
    assert terms["refined"][0][1].count == HEIGHT * 40
    for _, quotient in terms["likelihood"][-2:]:
        assert quotient.count == HEIGHT // 4 * (10 - 2)  # the outermost two columns match outside the row


def test_attention_terms_can_be_divided_by_the_columns() -> None:
    matching, (left, right) = example_matching(example_leaves(1)), random_pictures(1, 1, HEIGHT, WIDTH)
    paper, authors = (
        matching_terms(matching, left, right, replace(SCENEFLOW, pam_over_columns=divide), example_truth(1))
        for divide in (False, True)
    )
    for name in ("pam_smoothness", "pam_cycle"):
        ratios = [p / a for (p, _), (a, _) in zip(paper[name], authors[name], strict=True)]
        assert ratios == pytest.approx([4, 4, 8, 8, 16, 16])
    assert [w for w, _ in paper["pam_photometric"]] == [w for w, _ in authors["pam_photometric"]]


def test_unknown_and_occluded_pixels_teach_nothing() -> None:
    leaves, truth = example_leaves(2), example_truth(2)
    matching = example_matching(leaves)
    pictures = random_pictures(1, 2, HEIGHT, WIDTH)
    terms = matching_terms(matching, *pictures, LossWeights(refined=1), truth)
    (gradient,) = torch.autograd.grad(loss_of(terms), matching.disparity, retain_graph=True)
    counted = truth.known & truth.visible
    assert torch.all(gradient[:, 0][~counted] == 0)
    assert torch.all(gradient[:, 0][counted] != 0)

    maps = matching.maps[-1]
    right_counted = truth.right_disparity.isfinite() & truth.right_visible
    for weights, attention, where in (
        (LossWeights(initial=1), maps.right_to_left, counted),
        (LossWeights(likelihood=1), maps.right_to_left, counted),
        (LossWeights(likelihood=1), maps.left_to_right, right_counted),
    ):
        terms = matching_terms(matching, *pictures, weights, truth)
        (gradient,) = torch.autograd.grad(loss_of(terms), attention, retain_graph=True)
        taught = (gradient != 0).any(-1)
        assert not taught[~where[:, 2::4, 2::4]].any()
        assert taught.any()
        assert gradient.isfinite().all()


def test_occluded_pixels_have_their_own_weight() -> None:
    matching, truth = example_matching(example_leaves(1)), example_truth(1)
    found = {}
    for share in (0.0, 0.5, 1.0):
        weights = LossWeights(refined=1, occluded=share)
        terms = matching_terms(matching, *random_pictures(1, 1, HEIGHT, WIDTH), weights, truth)
        found[share] = terms["refined"][0][1]
    assert found[0.0].count == (truth.known & truth.visible).sum()
    assert found[0.5].count == found[1.0].count == truth.known.sum()
    torch.testing.assert_close(found[0.5].total, (found[0.0].total + found[1.0].total) / 2)


def test_occluded_pixels_are_found_where_nobody_names_them() -> None:
    disparity = torch.full((1, HEIGHT, WIDTH), 4.0)
    disparity[..., 30:40] = 12  # hides the eight columns to its left
    matching = example_matching(example_leaves(1))
    terms = matching_terms(
        matching, *random_pictures(1, 1, HEIGHT, WIDTH), LossWeights(refined=1), truth_of(disparity)
    )
    assert terms["refined"][0][1].count == HEIGHT * (WIDTH - 4 - 8)


def test_the_initial_disparity_is_compared_in_full_size_pixels() -> None:
    matching, truth = example_matching(example_leaves(1)), example_truth(1)
    terms = matching_terms(matching, *random_pictures(1, 1, HEIGHT, WIDTH), SUPERVISED, truth)
    counted = (truth.known & truth.visible)[:, 2::4, 2::4]
    estimate = 4 * regress_disparity(matching.maps[-1].right_to_left)
    expected = smooth_l1_loss(estimate[counted], truth.disparity[:, 2::4, 2::4][counted])
    ((weight, quotient),) = terms["initial"]
    assert weight == SUPERVISED.initial
    assert torch.allclose(value(quotient), expected)
    assert [weight for weight, _ in terms["likelihood"]] == [0.2, 0.2, 0.3, 0.3, 0.5, 0.5]


def test_a_batch_without_truth_gives_zero_gradients() -> None:
    leaves = example_leaves(1)
    nothing = torch.full((1, HEIGHT, WIDTH), NAN)
    pictures = random_pictures(1, 1, HEIGHT, WIDTH)
    for truth in (truth_of(nothing), truth_of(nothing, nothing)):
        loss = loss_of(matching_terms(example_matching(leaves), *pictures, SUPERVISED, truth))
        assert loss == 0
        for gradient in torch.autograd.grad(loss, [leaves[4], leaves[-1]]):
            assert torch.all(gradient == 0)


def test_unequal_parts_of_a_batch_add_up_to_the_whole() -> None:
    """Totals and counts are summed, as over two processes: value and gradient of the joined batch."""
    leaves, truth = example_leaves(3), example_truth(3)
    left, right = random_pictures(1, 3, HEIGHT, WIDTH)
    whole, whole_values = total_loss(matching_terms(example_matching(leaves), left, right, EVERY_TERM, truth))
    expected = torch.autograd.grad(whole, leaves)

    parts = [
        matching_terms(
            example_matching(leaves, images), left[images], right[images], EVERY_TERM, part(truth, images)
        )
        for images in (slice(0, 1), slice(1, 3))
    ]
    counts = [torch.stack([q.count for means in terms.values() for _, q in means]) for terms in parts]
    assert torch.all(counts[0] != counts[1])
    shares = [total_loss(terms, lambda own: own * 0 + counts[0] + counts[1]) for terms in parts]
    assert torch.allclose(shares[0][0] + shares[1][0], whole, rtol=1e-5)
    for name, term in whole_values.items():
        assert torch.allclose(shares[0][1][name] + shares[1][1][name], term, rtol=1e-5), name
    gradients = torch.autograd.grad(shares[0][0] + shares[1][0], leaves)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def test_gradients_flow_where_they_are_wanted_in_the_network() -> None:
    torch.manual_seed(0)
    net = PASMnet()
    left, right = random_pictures(1, 1, 64, 96)
    truth = truth_of(torch.full((1, 64, 96), 8.0))
    matching = net(left, right, all_stages=True)

    def taught(weights: LossWeights) -> set[str]:
        net.zero_grad()
        loss_of(matching_terms(matching, left, right, weights, truth)).backward(retain_graph=True)
        parameters = [(n, p.grad) for n, p in net.named_parameters() if p.grad is not None and p.grad.any()]
        assert all(gradient.isfinite().all() for _, gradient in parameters)
        return {name.partition(".")[0] for name, _ in parameters}

    everything = {"hourglass", "cas_pam", "refine"}
    assert taught(LossWeights(photometric=1)) == everything  # through the disparity that is filled
    assert taught(LossWeights(refined=1)) == everything
    for weights in (LossWeights(pam_cycle=1), LossWeights(initial=1), LossWeights(likelihood=1)):
        assert taught(weights) == {"hourglass", "cas_pam"}
