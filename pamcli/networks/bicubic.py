"""Upscale by bicubic interpolation, and make upscaled images consistent with bicubic downscaling.

Shapes: B batch, H rows, W columns of the low-resolution images.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CUBIC_REACH = 2  # rows and columns on each side in bicubic upscaling, and in bicubic downscaling
CORRECTION_REACH = 2  # likewise for `Consistency`, beyond which less than 4 % of a correction would lie


def upscale_bicubic(images: Tensor, scale: int, difference: Tensor | None = None) -> Tensor:
    """Upscale (B, 3, H, W) and add a `difference`; on CPUs a convolution takes a sixth of the time."""
    if images.device.type != "cpu" or torch.compiler.is_compiling():
        size = [scale * side for side in images.shape[2:]]  # not a scale factor, which export rounds
        upscaled = F.interpolate(images.contiguous(), size, mode="bicubic", align_corners=False)
        return upscaled if difference is None else upscaled + F.pixel_shuffle(difference, scale)
    padded = F.pad(images, (CUBIC_REACH,) * 4, mode="replicate")
    made = F.conv2d(padded.contiguous(memory_format=torch.channels_last), _bicubic_kernel(scale))
    return F.pixel_shuffle(made if difference is None else made.add_(difference), scale)


def _bicubic_kernel(scale: int) -> Tensor:
    """Compute the upscaling convolution (3 scale^2, 3, 5, 5) from the result for a single pixel."""
    middle, size = 2 * CUBIC_REACH, 4 * CUBIC_REACH + 1
    impulse = torch.zeros(1, 1, size, size)
    impulse[..., middle, middle] = 1
    made = F.interpolate(impulse, scale_factor=scale, mode="bicubic", align_corners=False)
    near = made.view(size, scale, size, scale)[CUBIC_REACH:-CUBIC_REACH, :, CUBIC_REACH:-CUBIC_REACH]
    kernel = near.permute(1, 3, 0, 2).flatten(0, 1).flip(1, 2)  # (scale^2, 5, 5)
    return torch.einsum("cd,skl->csdkl", torch.eye(3), kernel).flatten(0, 1)


class Consistency(nn.Module):
    """The smallest change after which bicubic downscaling of the upscaled images gives the images again.

    This is a projection: the range-null space decomposition of DDNM (Wang et al. 2023). If the images
    were made by bicubic downscaling, the true results are consistent, and the change can only reduce errors.
    """

    HALO = CUBIC_REACH + CORRECTION_REACH  # rows of the image above and below that affect a row
    down: Tensor  # (1, 1, K, K): the filter of MATLAB's `imresize`
    up: Tensor  # (scale^2, 1, 5, 5): its pseudo-inverse

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale
        count = 41  # low-resolution pixels of a line whose ends do not affect the middle
        middle = count // 2
        line = torch.eye(count * scale, device="cpu")[None, None]  # also for networks on "meta"
        matrix = F.interpolate(line, (count * scale, count), mode="bicubic", antialias=True)[0, 0].T.double()
        (used,) = matrix[middle].nonzero(as_tuple=True)
        taps = matrix[middle, used[0] : used[-1] + 1]
        near = slice(middle - CORRECTION_REACH, middle + CORRECTION_REACH + 1)
        back = torch.linalg.pinv(matrix)[:, middle].view(count, scale)[near].flip(0)
        back *= scale / back.sum()  # a uniform difference disappears completely
        self.register_buffer("down", torch.outer(taps, taps).float()[None, None], persistent=False)
        up = torch.einsum("ks,lt->stkl", back, back).flatten(0, 1).float()
        self.register_buffer("up", up[:, None], persistent=False)

    def forward(self, upscaled: Tensor, images: Tensor) -> Tensor:
        """Clip (2B, 3, scale H, scale W) to [0, 1] and make it consistent with (2B, 3, H, W), in place."""
        upscaled.clamp_(0, 1)  # before the change, which then also corrects what clipping removed
        reach = (self.down.shape[-1] - self.scale) // 2
        with torch.autocast(images.device.type, enabled=False):
            planes = images.flatten(0, 1)[:, None]  # (6B, 1, H, W)
            padded = pad_symmetric(upscaled.flatten(0, 1)[:, None], reach)
            rest = planes - F.conv2d(padded, self.down, stride=self.scale)
            del padded
            change = F.conv2d(pad_symmetric(rest, CORRECTION_REACH), self.up)
            return upscaled.add_(F.pixel_shuffle(change, self.scale).view_as(upscaled))


def pad_symmetric(x: Tensor, reach: int) -> Tensor:
    """Continue (B, C, H, W) on all sides by its mirror image, the outermost pixels included."""
    for axis in (2, 3):
        first, last = x.narrow(axis, 0, reach), x.narrow(axis, x.shape[axis] - reach, reach)
        x = torch.cat((first.flip(axis), x, last.flip(axis)), axis)
    return x
