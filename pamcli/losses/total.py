"""Sum the loss terms of both tasks (Equations 12, 16 and 18); images are (B, 3, H, W)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor

from pamcli.losses.supervised import (
    Quotient,
    attention_likelihood,
    error_likelihood,
    sample_truth,
    smooth_l1,
)
from pamcli.losses.unsupervised import (
    attention_cycle,
    attention_photometric,
    attention_smoothness,
    charbonnier_loss,
    downsample,
    photometric_loss,
    psnr_loss,
    smoothness_loss,
    squared_error_loss,
)
from pamcli.losses.weights import LossWeights
from pamcli.networks.parallax import ParallaxMaps, regress_disparity
from pamcli.networks.pasmnet import STAGE_STRIDES
from pamcli.networks.pasmnet import Matching as PASMnetMatching
from pamcli.networks.pasmnet2 import PASMnet2Matching
from pamcli.networks.passrnet import SuperResolution
from pamcli.networks.symmetric_attention import SymmetricAttention

Matching = PASMnetMatching | PASMnet2Matching

STAGE_WEIGHTS = (0.2, 0.3, 0.5)  # shares of the three stages in the PAM loss (Equation 16)

UPDATE_SHARES = (0.5, 0.7, 1.0)  # weights of PASMnet 2's three scales in the loss of its updates
UPDATE_DECAY = 0.8  # weight of an update relative to the next one of its scale

Terms = dict[str, list[tuple[float, Quotient]]]
"""Terms by their names in `LossWeights`: weighted means to be added."""

_Entry = tuple[str, float, *tuple[Quotient, ...]]  # part of a term: its name, and the weight of each mean


class GroundTruth(NamedTuple):
    """The ground truth of a batch: (B, H, W), px of the input images, positive in both; NaN = unknown."""

    disparity: Tensor
    right_disparity: Tensor
    visible: Tensor  # bool: visible in both images; undefined where the disparity is unknown
    right_visible: Tensor
    left_only: Tensor  # (B,) bool: pairs of data sets with left ground truth only

    @property
    def known(self) -> Tensor:
        """Mask of known left disparities, bool."""
        return self.disparity.isfinite()

    def below(self, limit: float) -> "GroundTruth":
        """Mark disparities from `limit` on as unknown."""
        left, right = (torch.where(each < limit, each, torch.nan) for each in self[:2])
        return self._replace(disparity=left, right_disparity=right)


def matching_terms(
    matching: Matching, left: Tensor, right: Tensor, weights: LossWeights, truth: GroundTruth
) -> Terms:
    """Return the terms of a matcher: L_unsup (Equation 16) and the supervised terms, according to `weights`.

    The set of terms depends on the weights only, never on the batch, so that processes can join them.
    """
    unsupervised = _unsupervised_matching(matching, left, right, weights, truth)
    return _collect([*unsupervised, *_supervised_matching(matching, weights, truth)])


def superres_terms(
    result: SuperResolution,
    left_low: Tensor,
    right_low: Tensor,
    left_high: Tensor,
    right_high: Tensor | None,
    weights: LossWeights,
    truth: GroundTruth,
) -> Terms:
    """Return PASSRnet's terms: L_SR + lambda L_PAM (Equation 18), and the likelihood of its attention.

    `*_low`: (B, 3, H, W), the network's inputs; `*_high`: (B, 3, scale H, scale W); all in [0, 1].
    """
    views = [(result.left, left_high)]
    if result.right is not None:
        assert right_high is not None, "a right result and nothing to compare it with"
        views.append((result.right, right_high))
    entries: list[_Entry] = []
    for name, weight, error in (
        ("super_resolution", weights.super_resolution, squared_error_loss),
        ("charbonnier", weights.charbonnier, charbonnier_loss),
        ("psnr", weights.psnr, psnr_loss),
    ):
        if weight:
            entries.append((name, weight / len(views), *(error(*view) for view in views)))
    if result.maps is not None:
        entries += _pam_terms(result.maps, left_low, right_low, 1, weights, weights.pam, truth)
        if weights.likelihood:
            if weights.mask_by_truth_below is not None:
                truth = truth.below(weights.mask_by_truth_below)
            entries += _likelihood_terms(result.maps, 1, weights.likelihood, weights, truth)
    return _collect(entries)


def total_loss(
    terms: Terms, reduce_count: Callable[[Tensor], Tensor] = lambda counts: counts
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the scalar to differentiate and the weighted value of each term, detached; they add up to it.

    `reduce_count` sums the counts (n,) over the processes. A count of zero divides as one. With several
    processes every result is this process's share: the SUM of values and gradients is the joined batch's.
    """
    counts = []
    for means in terms.values():
        for _, quotient in means:
            counts.append(quotient.count)
    joined = iter(reduce_count(torch.stack(counts)).clamp(min=1))
    shares: list[Tensor] = []
    values: dict[str, Tensor] = {}
    for name, means in terms.items():
        for weight, quotient in means:
            share = weight * quotient.total / next(joined)
            shares.append(share)
            values[name] = values[name] + share.detach() if name in values else share.detach()
    return torch.stack(shares).sum(), values


def _collect(entries: Iterable[_Entry]) -> Terms:
    terms: Terms = {}
    for name, weight, *quotients in entries:
        for quotient in quotients:
            terms.setdefault(name, []).append((weight, quotient))
    return terms


def _unsupervised_matching(
    matching: Matching, left: Tensor, right: Tensor, weights: LossWeights, truth: GroundTruth
) -> Iterator[_Entry]:
    """Yield L_unsup (Equation 16): L_p + lambda_s L_s + lambda_PAM (weighted L_PAM of all stages)."""
    if weights.photometric:
        stride = STAGE_STRIDES[-1]
        valid = matching.maps[-1].valid_left.repeat_interleave(stride, -1).repeat_interleave(stride, -2)
        if weights.mask_by_truth_below is not None:
            valid = valid & truth.below(weights.mask_by_truth_below).known & (truth.disparity > 0)
        yield "photometric", weights.photometric, photometric_loss(left, right, matching.disparity, valid)
    if weights.smoothness:
        yield "smoothness", weights.smoothness, smoothness_loss(matching.disparity, left)
    if weights.uses_attention:
        for maps, stride, share in _iterate_stages(matching, STAGE_WEIGHTS):
            yield from _pam_terms(maps, left, right, stride, weights, weights.pam * share, truth)


def _iterate_stages(matching: Matching, shares: Sequence[float]) -> Iterator[tuple[ParallaxMaps, int, float]]:
    """Yield maps, stride and share of each stage; a single-scale variant gets the sum of all shares."""
    count = len(matching.maps)
    if count == 1:
        shares = [sum(shares)]
    return zip(matching.maps, STAGE_STRIDES[-count:], shares, strict=True)


def _pam_terms(
    maps: ParallaxMaps,
    left: Tensor,
    right: Tensor,
    stride: int,
    weights: LossWeights,
    factor: float,
    truth: GroundTruth,
) -> Iterator[_Entry]:
    """Yield L_PAM of one scale (Equation 12) times `factor`; images and `truth` are `stride` times larger."""
    if factor and weights.pam_photometric:
        counted = maps
        if weights.mask_by_truth_below is not None:
            counted = _mask_by_truth(maps, truth, weights.mask_by_truth_below, stride)
        small = downsample(left, stride), downsample(right, stride)
        yield "pam_photometric", factor * weights.pam_photometric, *attention_photometric(counted, *small)
    if weights.pam_over_columns:
        factor /= maps.right_to_left.shape[-1]
    if factor and weights.pam_smoothness:
        yield "pam_smoothness", factor * weights.pam_smoothness, *attention_smoothness(maps)
    if factor and weights.pam_cycle:
        yield "pam_cycle", factor * weights.pam_cycle, *attention_cycle(maps)


def _supervised_matching(matching: Matching, weights: LossWeights, truth: GroundTruth) -> Iterator[_Entry]:
    if not weights.is_supervised:
        return
    if weights.mask_by_truth_below is not None:
        truth = truth.below(weights.mask_by_truth_below)
    counts = torch.where(truth.visible, 1.0, weights.occluded) * truth.known
    clamp = None
    if weights.clamp_pseudo_labels is not None:
        clamp = torch.where(truth.left_only, weights.clamp_pseudo_labels, torch.inf)
    limits = weights.logarithmic_beyond, clamp
    if weights.refined:
        yield "refined", weights.refined, smooth_l1(matching.disparity, truth.disparity, counts, *limits)
    if weights.updates:
        for scale, stride, share in zip(matching.scales, STAGE_STRIDES, UPDATE_SHARES, strict=False):
            disparity, _ = sample_truth(truth.disparity, truth.known, stride)
            middle = slice(stride // 2, None, stride)
            for before_last, found in enumerate(reversed(scale.updates)):
                error = smooth_l1(found * stride, disparity * stride, counts[:, middle, middle], *limits)
                yield "updates", weights.updates * share * UPDATE_DECAY**before_last, error
    stride = STAGE_STRIDES[-1]
    if weights.confidence and matching.log_expected_error is not None:
        middle = slice(stride // 2, None, stride)
        here = slice(None), middle, middle
        at = matching.disparity[:, 0][here], truth.disparity[here], truth.known[here]
        yield "confidence", weights.confidence, error_likelihood(matching.log_expected_error, *at)
    if weights.estimate and matching.estimate is not None:
        error = smooth_l1(matching.estimate, truth.disparity, truth.visible & truth.known)
        yield "estimate", weights.estimate, error
    if weights.initial:
        disparity, counted = sample_truth(truth.disparity, truth.visible, stride)
        # Use the attention itself: where its mask says occluded, `matching.initial` copies a neighbour.
        estimate = regress_disparity(matching.maps[-1].right_to_left)
        yield "initial", weights.initial, smooth_l1(estimate * stride, disparity * stride, counted)
    if weights.likelihood:
        stages: Iterable[tuple[ParallaxMaps | SymmetricAttention, int, float]]
        if matching.scales:
            attentions = map(attrgetter("attention"), matching.scales)
            stages = zip(attentions, STAGE_STRIDES, weights.likelihood_shares, strict=True)
        else:
            stages = _iterate_stages(matching, weights.likelihood_shares)
        for maps, stride, share in stages:
            if share:
                yield from _likelihood_terms(maps, stride, weights.likelihood * share, weights, truth)


def _likelihood_terms(
    maps: ParallaxMaps | SymmetricAttention,
    stride: int,
    weight: float,
    weights: LossWeights,
    truth: GroundTruth,
) -> Iterator[_Entry]:
    left, right = (truth.disparity, truth.visible), (truth.right_disparity, truth.right_visible)
    of_left, of_right = attention_likelihood(maps, stride, left, right)
    yield "likelihood", weight, of_left
    if weights.likelihood_right:
        yield "likelihood", weight * weights.likelihood_right, of_right


def _mask_by_truth(maps: ParallaxMaps, truth: GroundTruth, limit: float, stride: int) -> ParallaxMaps:
    """Restrict the masks of the maps to pixels of known, positive disparity below the limit."""
    known = []
    for each in truth.below(limit)[:2]:
        disparity, finite = sample_truth(each, each.isfinite(), stride)
        known.append(finite & (disparity > 0))
    unlabelled = ~truth.right_disparity.isfinite().flatten(1).any(1)  # pairs without right ground truth
    valid_right = maps.valid_right & (unlabelled[:, None, None] | known[1])
    return replace(maps, valid_left=maps.valid_left & known[0], valid_right=valid_right)
