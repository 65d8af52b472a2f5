"""Compute the paper's loss terms without ground truth (Sections 4.2 and 5.2), one function per term.

Shapes: B batch, H rows, W columns. Images are (B, 3, H, W), the network's inputs: ImageNet-normalised for
PASMnet, in [0, 1] for PASSRnet. Where the paper writes the norm of a colour or colour gradient, the mean over
the three channels is used, as in the authors' code. Everything is computed in float32, also under autocast,
and nothing is copied to the host.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pamcli.losses.supervised import Quotient, masked_mean
from pamcli.networks.parallax import ParallaxMaps, cycle_map, gather_features

SSIM_SHARE = 0.85  # alpha of Equation 10

_WINDOW, _SIGMA = 11, 1.5  # of SSIM, px
_C1, _C2 = 0.01**2, 0.03**2


def photometric_loss(left: Tensor, right: Tensor, disparity: Tensor, valid: Tensor) -> Quotient:
    """Compute L_p (Equation 10) over valid pixels (B, H, W): left image minus the warped right image."""
    return masked_mean(appearance_loss(left, warp_right_to_left(right, disparity)), valid)


def appearance_loss(image: Tensor, warped: Tensor) -> Tensor:
    """Compute alpha (1 - SSIM) / 2 + (1 - alpha) |difference| per pixel: two (B, 3, H, W) give (B, H, W)."""
    image, warped = image.float(), warped.float()
    dissimilar = (1 - _ssim(image, warped)) / 2
    difference = (image - warped).abs()
    return (SSIM_SHARE * dissimilar + (1 - SSIM_SHARE) * difference).mean(1)


def warp_right_to_left(right: Tensor, disparity: Tensor) -> Tensor:
    """Warp the right image (B, 3, H, W) to the left one, W(I_right, D) of Equation 10: column x - d."""
    right, disparity = right.float(), disparity.float()
    width = right.shape[-1]
    position = (torch.arange(width, device=right.device) - disparity).clamp(0, width - 1)
    # NaN of a diverged network must reach the loss, where it is detected, but not an index.
    before = position.detach().nan_to_num(0).floor().clamp(max=max(width - 2, 0)).long()
    share = position - before
    before = before.expand(-1, right.shape[1], -1, -1)
    return torch.lerp(right.gather(-1, before), right.gather(-1, (before + 1).clamp(max=width - 1)), share)


def smoothness_loss(disparity: Tensor, left: Tensor) -> Quotient:
    """Compute L_s (Equation 11): disparity gradients, weighted down at edges of the left image.

    N is the number of all pixels. (The authors divide by the sum of the edge weights instead.)
    """
    left, disparity = left.float(), disparity.float()
    total = sum(
        (disparity.diff(dim=axis).abs() * torch.exp(-left.diff(dim=axis).abs().mean(1, keepdim=True))).sum()
        for axis in (-1, -2)
    )
    assert isinstance(total, Tensor)
    return Quotient(total, _fill(disparity.numel(), disparity))


def attention_photometric(maps: ParallaxMaps, left: Tensor, right: Tensor) -> tuple[Quotient, Quotient]:
    """Compute L_PAM-p of one scale (Equation 13): each image minus the other, warped by attention."""
    left, right = left.float(), right.float()
    with torch.autocast(left.device.type, enabled=False):
        from_right = gather_features(maps.right_to_left, right)
        from_left = gather_features(maps.left_to_right, left)
    return (
        masked_mean((left - from_right).abs().mean(1), maps.valid_left),
        masked_mean((right - from_left).abs().mean(1), maps.valid_right),
    )


def attention_smoothness(maps: ParallaxMaps) -> tuple[Quotient, Quotient]:
    """Compute L_PAM-s of one scale (Equation 14): vertical and diagonal differences of both maps.

    N is the number of pixels of one image. (The authors divide by the number of matrix entries.)
    """
    both = (maps.right_to_left.float(), maps.left_to_right.float())
    vertical = sum((M[:, 1:] - M[:, :-1]).abs().sum() for M in both)
    diagonal = sum((M[:, :, 1:, 1:] - M[:, :, :-1, :-1]).abs().sum() for M in both)
    assert isinstance(vertical, Tensor)
    assert isinstance(diagonal, Tensor)
    count = _fill(math.prod(both[0].shape[:3]), both[0])
    return Quotient(vertical, count), Quotient(diagonal, count)


def attention_cycle(maps: ParallaxMaps) -> tuple[Quotient, Quotient]:
    """Compute L_PAM-c of one scale (Equation 15): row sums |M_cycle - I| over valid pixels, in [0, 2].

    (The authors average over the W entries of the row.)
    """
    there, back = maps.right_to_left.float(), maps.left_to_right.float()
    with torch.autocast(there.device.type, enabled=False):
        return (
            masked_mean(_sum_deviations(cycle_map(there, back)), maps.valid_left),
            masked_mean(_sum_deviations(cycle_map(back, there)), maps.valid_right),
        )


def squared_error_loss(image: Tensor, truth: Tensor) -> Quotient:
    """Compute L_SR (Equation 17): the mean squared error over pixels and channels of two (B, 3, H, W)."""
    error = (image.float() - truth.float()).square()
    return Quotient(error.sum(), _fill(error.numel(), error))


def charbonnier_loss(image: Tensor, truth: Tensor, epsilon: float = 1e-3) -> Quotient:
    """Compute the mean of sqrt(difference^2 + epsilon^2), close to the absolute error; not in the paper."""
    error = ((image.float() - truth.float()).square() + epsilon**2).sqrt()
    return Quotient(error.sum(), _fill(error.numel(), error))


def psnr_loss(image: Tensor, truth: Tensor, floor: float = 1e-3) -> Quotient:
    """Compute the mean over B images of log(1 + mean squared error / floor), as PSNR; not in the paper."""
    error = (image.float() - truth.float()).square().mean(dim=(1, 2, 3))
    return Quotient(torch.log1p(error / floor).sum(), _fill(len(error), error))


def downsample(image: Tensor, stride: int) -> Tensor:
    """Downsample to (B, C, H/stride, W/stride), bilinear without antialiasing, as L_PAM-p needs."""
    if stride == 1:
        return image
    size = (image.shape[-2] // stride, image.shape[-1] // stride)
    return F.interpolate(image.float(), size, mode="bilinear", align_corners=False)


def _ssim(x: Tensor, y: Tensor) -> Tensor:
    """Compute the structural similarity per pixel and channel, zero beyond the borders: (B, C, H, W)."""
    blurred = _Blur.apply(torch.cat((x, y, x * x + y * y, x * y)))  # type: ignore[no-untyped-call]
    mean_x, mean_y, mean_squares, mean_product = blurred.chunk(4)
    product, squares = mean_x * mean_y, mean_x.square() + mean_y.square()
    luminance = (2 * product + _C1) / (squares + _C1)
    structure = (2 * (mean_product - product) + _C2) / (mean_squares - squares + _C2)
    ssim: Tensor = luminance * structure
    return ssim


class _Blur(torch.autograd.Function):
    """A Gaussian blur of (B, C, H, W) by shifted copies: TF32 convolutions destroy E[x^2] - E[x]^2."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return _blur(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _blur(gradients[0])


def _blur(values: Tensor) -> Tensor:
    reach = _WINDOW // 2
    window = [math.exp(-((i - reach) ** 2) / (2 * _SIGMA**2)) for i in range(_WINDOW)]
    for axis in (-1, -2):
        size = values.shape[axis]
        padded = F.pad(values, (reach, reach, 0, 0) if axis == -1 else (0, 0, reach, reach))
        values = torch.zeros_like(values)
        for i, weight in enumerate(window):
            values.add_(padded.narrow(axis, i, size), alpha=weight / sum(window))
    return values


def _sum_deviations(cycle: Tensor) -> Tensor:
    """Return row sums of |M - I|: (B, H, W, W) to (B, H, W)."""
    return (cycle - torch.eye(cycle.shape[-1], device=cycle.device)).abs().sum(-1)


def _fill(value: float, like: Tensor) -> Tensor:
    """Return a scalar on the device of `like`, filled there without a copy."""
    return torch.full((), value, dtype=torch.float32, device=like.device)
