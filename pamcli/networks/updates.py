"""Update and upsample the disparities (B, h, w) of PASMnet 2, and estimate their error."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import conv

ROWS = 8  # rows to upsample at a time on CPUs, so that the weights stay in the cache

CORRECT = 3.0  # confidence is the probability of an error below this, px of the images

SURROUNDINGS = 6  # distance to each side over which expected errors are averaged, px of the scale

SMALLEST_NEAR = 1e-7  # lower bound of attention
LARGEST_LOG_SCALE = 5.0


def repeat_edges(values: Tensor, reach: int) -> Tensor:
    """Repeat edge values `reach` times: (B, h, w) to (B, h + 2 reach, w + 2 reach)."""
    return F.pad(values[:, None], (reach,) * 4, mode="replicate")[:, 0]


def neighbours(padded: Tensor, reach: int, dilation: int) -> Tensor:
    """Return the 3 x 3 values around each, row by row: (B, h + 2 reach, w + 2 reach) to (B, 9, h, w)."""
    height, width = padded.shape[-2] - 2 * reach, padded.shape[-1] - 2 * reach
    beyond = reach - dilation
    places = [beyond + step * dilation for step in range(3)]
    rows = [padded.narrow(1, place, height) for place in places]
    return torch.stack([row.narrow(2, place, width) for row in rows for place in places], 1)


def signed_log(x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # ONNX lacks the operations below, which make fewer passes over memory
        return x.sign() * x.abs().log1p()
    return x.abs().add_(1).log_().copysign_(x)


def mix(candidates: Tensor, mixing: Tensor) -> Tensor:
    """Return the mean of candidates (B, n, h, w), weighted by softmax, plus a correction: (B, h, w)."""
    # mixing: (B, n + 1, h, w), weights before the softmax, and the correction as the last channel.
    pixels = mixing.permute(0, 2, 3, 1).float()
    mean = torch.einsum("bhwn,bnhw->bhw", pixels[..., :-1].softmax(-1), candidates)
    return (mean + pixels[..., -1]).clamp(min=0)


def convex_upsample(disparity: Tensor, mixture: Tensor) -> Tensor:
    """Upsample (B, h + 2, w + 2) to (B, 1, 4h, 4w): each pixel is a convex mixture of the 3 x 3 around it."""
    # mixture: (B, 9 * 16, h, w), weights before the softmax.
    around = neighbours(4 * disparity, 1, 1).permute(0, 2, 3, 1)[..., None]  # (B, h, w, 9, 1)
    weights = mixture.permute(0, 2, 3, 1)
    pieces = [(weights, around)]
    if not mixture.is_cuda and not torch.compiler.is_compiling():
        pieces = [*zip(weights.split(ROWS, 1), around.split(ROWS, 1), strict=True)]  # type: ignore[no-untyped-call]
    parts = []
    for some, near in pieces:
        shares = torch.unflatten(some.float(), -1, (9, 16)).softmax(-2)
        pixels = (shares * near).sum(-2).unflatten(-1, (4, 4))  # type: ignore[no-untyped-call]
        parts.append(pixels.transpose(2, 3).flatten(3).flatten(1, 2))
    return torch.cat(parts, 1)[:, None]


class ErrorScale(nn.Module):
    """Expected error of a disparity, as the scale of a Laplace distribution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.see = conv(width + 3, width, 1, bias=True)
        self.out = conv(width, 1, 1, bias=True)

    def forward(self, hidden: Tensor, near: Tensor, disparity: Tensor, coarser: Sequence[Tensor]) -> Tensor:
        """Return the logarithm of the scale in pixels of the images, (B, h, w) float32."""
        # near: attention near the disparity. coarser: disparities of the coarser scales, in px of this one.
        attention = near.clamp(min=SMALLEST_NEAR).log() / 4
        apart = [signed_log(disparity - other) for other in coarser]
        seen = torch.cat((hidden, torch.stack((attention, *apart), 1).to(hidden.dtype)), 1)
        scale: Tensor = self.out(F.relu(self.see(seen.to(self.see.weight.dtype))))
        return scale[:, 0].float().clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)


def average_surroundings(error_scale: Tensor) -> Tensor:
    """Average a pixel's scale with the mean around it, as logarithms: (B, h + 2 r, w + 2 r) to (B, h, w)."""
    # Errors come in patches, in which a single pixel may look correct.
    scale, r = error_scale.exp(), SURROUNDINGS
    around = F.avg_pool2d(scale[:, None], 2 * r + 1, stride=1)[:, 0]
    return ((scale[:, r:-r, r:-r] + around) / 2).log()


def to_confidence(error_scale: Tensor) -> Tensor:
    """Return the probability of an error below `CORRECT` px, from the logarithm of the scale."""
    return 1 - torch.exp(-CORRECT * torch.exp(-error_scale))
