"""PASSRnet 2: the parallax attention of PASSRnet between gated blocks of today, at several depths.

Shapes: B batch, C channels (`WIDTH`), H rows, W columns of the low-resolution pictures; `views` holds both
views joined in the batch, left first: (2B, C, H, W). Whatever happens to a view happens to both, with the
same weights, so both are enlarged in one pass. Every layer but the 3x3 convolutions works on pixels or on
rows alone, so that the network can run in strips.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import conv, learns_on_cpu, pointwise_dilation
from pamcli.networks.parallax import (
    VALID_MASS,
    ParallaxMaps,
    attention,
    gather_features,
    matching_cost,
    received_mass,
)
from pamcli.networks.passrnet import SuperResolution

WIDTH = 64
BLOCKS = 16
EXCHANGES = 4  # times that the views exchange features, behind equal numbers of blocks
PHASES = 4  # positions between two pixels that `SubpixelDetail` tells apart
DETAIL_GAIN = 10.0
"""What is left of colours in [0, 1] beyond interpolation is small: brought to the size of features."""


class PASSRnet2(nn.Module):
    """Enlarges both views of a rectified pair by `scale`: their bicubic enlargement, and what is learned."""

    def __init__(self, scale: int, blocks: int = BLOCKS) -> None:
        """blocks: a multiple of `EXCHANGES`."""
        super().__init__()
        self.scale = scale
        self.first = conv(3, WIDTH, bias=True)
        self.blocks = nn.ModuleList(GatedBlock() for _ in range(blocks))
        self.exchange_behind = [blocks * (place + 1) // EXCHANGES - 1 for place in range(EXCHANGES)]
        """Blocks, counted from 0, behind which the views exchange features."""
        self.detail_behind = self.exchange_behind[1]
        """The exchange whose attention says where the other view's pixels lie between those of this one."""
        self.exchanges = nn.ModuleDict({str(depth): Exchange() for depth in self.exchange_behind})
        self.detail = SubpixelDetail()
        self.last = conv(WIDTH, 3 * scale**2, bias=True)
        for parameter in self.last.parameters():  # it begins as bicubic enlargement
            nn.init.zeros_(parameter)

    def forward(self, left: Tensor, right: Tensor, *, both: bool = False) -> SuperResolution:
        """`left`, `right` (B, 3, H, W), RGB in [0, 1], any size. The maps are those of the last exchange."""
        pictures = torch.cat((left, right))
        views = self.first(pictures)  # (2B, C, H, W)
        for depth, block in enumerate(self.blocks):
            views = block(views)
            if depth in self.exchange_behind:
                views, maps = self.exchanges[str(depth)](views)
            if depth == self.detail_behind:
                views = views + self.detail(pictures, maps)
        learned = F.pixel_shuffle(self.last(views).float(), self.scale)
        enlarged = (learned + bicubic(pictures.float(), self.scale)).chunk(2)
        return SuperResolution(enlarged[0], enlarged[1] if both else None, _with_masks(*maps))


def bicubic(pictures: Tensor, scale: int) -> Tensor:
    """(B, 3, H, W) to (B, 3, scale H, scale W)."""
    return F.interpolate(pictures.contiguous(), scale_factor=scale, mode="bicubic", align_corners=False)


class PixelNorm(nn.Module):
    """Layer norm over the channels of each pixel, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        normal = F.layer_norm(x.permute(0, 2, 3, 1), (WIDTH,), self.weight, self.bias, 1e-6)
        return normal.to(x.dtype).permute(0, 3, 1, 2)


class GatedBlock(nn.Module):
    """The block of NAFNet without its channel attention, which would look at the whole picture.

    x + b conv1(gate(depthwise(conv1(norm x)))), then the same without the 3x3 convolution; a gate is the
    product of two halves of the channels.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = PixelNorm(), PixelNorm()
        self.widen = conv(WIDTH, 2 * WIDTH, 1, bias=True)
        self.mix = nn.Conv2d(2 * WIDTH, 2 * WIDTH, 3, padding=1, groups=2 * WIDTH)
        self.narrow = conv(WIDTH, WIDTH, 1, bias=True)
        self.widen2 = conv(WIDTH, 2 * WIDTH, 1, bias=True)
        self.narrow2 = conv(WIDTH, WIDTH, 1, bias=True)
        self.scale1 = nn.Parameter(torch.full((WIDTH, 1, 1), 0.1))
        self.scale2 = nn.Parameter(torch.full((WIDTH, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        x = pointwise(self.narrow, self._gate(self.norm1(x), self.widen, self.mix), self.scale1).add_(x)
        return pointwise(self.narrow2, self._gate(self.norm2(x), self.widen2), self.scale2).add_(x)

    def _gate(self, x: Tensor, widen: nn.Conv2d, mix: nn.Conv2d | None = None) -> Tensor:
        """The product of two halves (B, C, H, W) of what one or two layers make of x."""
        # Where a processor learns, each half lies by itself: a step takes a tenth less time.
        parts = 2 if learns_on_cpu(x) else 1
        made: list[Tensor] = []
        for part in range(parts):
            wide = pointwise(widen, x, part=part, parts=parts)
            if mix is not None:
                weight, bias = _part(mix, part, parts)
                wide = F.conv2d(wide, weight, bias, padding=1, groups=len(weight))
            made += wide.chunk(2 // parts, 1)
        one, other = made
        return one * other


def pointwise(
    layer: nn.Conv2d, x: Tensor, scale: Tensor | None = None, part: int = 0, parts: int = 1
) -> Tensor:
    """scale (C, 1, 1) times what a 1x1 convolution makes of x: its weights are scaled, which is less work.

    Of `parts` equal parts of the channels that it makes, `part` alone is made.
    """
    weight, bias = _part(layer, part, parts)
    if scale is not None:
        weight, bias = weight * scale[..., None], bias * scale[:, 0, 0]
    return F.conv2d(x, weight, bias, dilation=pointwise_dilation(x))


def _part(layer: nn.Conv2d, part: int, parts: int) -> tuple[Tensor, Tensor]:
    """Weight and bias of one of so many equal parts of the channels that a layer makes."""
    assert layer.bias is not None
    if parts == 1:
        return layer.weight, layer.bias
    return layer.weight.chunk(parts)[part], layer.bias.chunk(parts)[part]


class Exchange(nn.Module):
    """Parallax attention in both directions: each view is given what the other has along its row.

    One product of queries and keys serves both. What is gathered is scaled by what begins at zero, so that
    the network begins as two single ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm = PixelNorm()
        self.describe = conv(WIDTH, WIDTH, 1, bias=True)
        self.value = conv(WIDTH, WIDTH, 1, bias=True)
        self.scale = nn.Parameter(torch.zeros(WIDTH, 1, 1))

    def forward(self, views: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(2B, C, H, W) to the same, and both attention maps: (B, H, W, V), (B, H, V, W)."""
        cost = matching_cost(*self.described(views))  # (B, H, W, V)
        maps = attention(cost), cost.softmax(2).transpose(2, 3)
        values_left, values_right = self.values(views)
        from_right = gather_features(maps[0], values_right)
        from_left = gather_features(maps[1], values_left)
        return views + torch.cat((from_right, from_left)), maps

    def described(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """Queries of the left view and keys of the right one (B, C, H, W)."""
        left, right = pointwise(self.describe, self.norm(views)).chunk(2)
        return left * WIDTH**-0.5, right

    def values(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """What the left and the right view give to the other one (B, C, H, W)."""
        left, right = pointwise(self.value, views, self.scale).chunk(2)
        return left, right


class SubpixelDetail(nn.Module):
    """What the other view shows between the pixels of this one: what an enlargement lacks.

    The pixel of the other view that is attended to most lies beside this pixel by a part of a pixel (its
    phase), which the attention on it and its neighbours tells. Its colour less what this view, interpolated
    there, has is what interpolation misses; it is sorted by phase, weighted by the attention that tells it,
    and joined to the features by what begins at zero.
    """

    def __init__(self) -> None:
        super().__init__()
        self.join = nn.Conv2d(4 * PHASES, WIDTH, 1)
        nn.init.zeros_(self.join.weight)
        nn.init.zeros_(self.join.bias)  # type: ignore[arg-type]

    def forward(self, pictures: Tensor, maps: tuple[Tensor, Tensor]) -> Tensor:
        """`pictures` (2B, 3, H, W) in [0, 1] and both maps of an `Exchange` to features (2B, C, H, W)."""
        detail = self.sorted(pictures, (most_attended(maps[0]), most_attended(maps[1])))
        return self.join(detail.to(self.join.weight.dtype))  # type: ignore[no-any-return]

    def sorted(self, pictures: Tensor, attended: tuple["Attended", "Attended"]) -> Tensor:
        """Weights and detail by phase (2B, 4 PHASES, H, W), given what both views attend to most."""
        left, right = pictures.float().chunk(2)
        return torch.cat((_between(left, right, *attended[0]), _between(right, left, *attended[1])))


Attended = tuple[Tensor, Tensor]
"""Columns that pixels attend to most (B, H, W, 1); attention on these and on both neighbours (B, H, W, 3)."""


def most_attended(attention_map: Tensor) -> Attended:
    """What the pixels of a map (B, H, W, V) attend to most."""
    attention_map = attention_map.contiguous()
    attended = attention_map.argmax(-1, keepdim=True)
    beside = attended + torch.arange(-1, 2, device=attended.device)
    near = beside.clamp(0, attention_map.shape[-1] - 1)
    return attended, attention_map.gather(-1, near) * (near == beside)


def _between(own: Tensor, other: Tensor, attended: Tensor, weights: Tensor) -> Tensor:
    """Views (B, 3, H, W), what `own` attends to: weights and detail by phase (B, 4 PHASES, H, W)."""
    near = attended + torch.arange(-1, 2, device=own.device)
    mass = weights.sum(-1)
    phase = (attended[..., 0] - (weights * near).sum(-1) / mass).clamp(-0.5, 0.5)[:, None]
    seen = other.gather(3, attended[..., 0][:, None].expand_as(own))
    padded = F.pad(own, (1, 1, 0, 0), mode="replicate")
    slope = torch.where(phase > 0, padded[..., 2:] - own, own - padded[..., :-2])
    beyond = DETAIL_GAIN * (seen - (own + phase * slope))
    centres = ((torch.arange(PHASES, device=own.device) + 0.5) / PHASES - 0.5).view(-1, 1, 1)
    distance = (phase.clamp(0.5 / PHASES - 0.5, 0.5 - 0.5 / PHASES) - centres).abs()
    by_phase = (1 - PHASES * distance).clamp(min=0) * mass[:, None]  # (B, PHASES, H, W)
    return torch.cat((by_phase, (beyond[:, :, None] * by_phase[:, None]).flatten(1, 2)), 1)


def _with_masks(right_to_left: Tensor, left_to_right: Tensor) -> ParallaxMaps:
    """The masks of Equation 4 as they are, not cleaned up: the network does not use them, the losses may."""
    return ParallaxMaps(
        right_to_left,
        left_to_right,
        valid_left=received_mass(left_to_right) > VALID_MASS,
        valid_right=received_mass(right_to_left) > VALID_MASS,
    )
