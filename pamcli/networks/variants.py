"""Define the parts of the paper's ablation studies (Tables 1, 2, 4, 10 and 11).

Each is a subclass of the part that it replaces, with the same interface. Shapes: as in `pasmnet` and
`passrnet`; D disparities of a cost volume, in pixels of its scale.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import SLOPE, conv_unit, upsample, upsample_cost
from pamcli.networks.parallax import ParallaxMaps, parallax_maps
from pamcli.networks.pasmnet import (
    STAGE_STRIDES,
    CascadedParallaxAttention,
    Costs,
    Hourglass,
    PASMnet,
    Refinement,
    Stage,
)
from pamcli.networks.passrnet import (
    WIDTH,
    JoiningConv,
    ParallaxAttention,
    PASSRnet,
    ResidualASPP,
    SuperResolution,
)


def build_pasmnet(features: str, scales: int, blocks: int, refinement: str, volume: int | str) -> PASMnet:
    hourglass = Hourglass() if features == "hourglass" else Pyramid()
    if isinstance(volume, int):
        cascade: CascadedParallaxAttention = CostVolumes(volume)
    else:
        cascade = CascadedParallaxAttention(blocks) if scales == 3 else SingleScale(blocks)
    return PASMnet(hourglass, cascade, Refinement() if refinement == "hourglass" else NoRefinement())


def build_passrnet(
    scale: int, views: str, pyramid: str, matching: str, transition: str, volume: int | str
) -> PASSRnet:
    kind = {"both": PASSRnet, "left": SingleImage, "twice": SameImage}[views]
    groups = {"residual": ResidualASPP, "cascaded": CascadedASPP, "plain": PlainASPP}[pyramid]
    pam: ParallaxAttention | None = None
    if isinstance(volume, int):
        pam = CostVolume(volume)
    elif matching == "stacked":
        pam = StackedFeatures()
    elif transition == "none":
        pam = NoTransition()
    return kind(scale, groups, pam)  # type: ignore[no-any-return]


class Pyramid(Hourglass):
    """Encoder features of each scale, without information from coarser ones."""

    def __init__(self) -> None:
        super().__init__()
        del self.E4, self.D0, self.D1, self.D2, self.D3

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x1 = self.E1(self.E0(views))  # H/4
        x2 = self.E2(x1)  # H/8
        return self.E3(x2), x2, x1, x1


class SingleScale(CascadedParallaxAttention):
    """Matching costs at a quarter of the size only."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        del self.stage1, self.stage2, self.b2, self.b3

    def forward(self, f1: Tensor, f2: Tensor, f3: Tensor) -> tuple[Costs, Tensor]:
        views, *cost = self.stage3(f3)
        return [(cost[0], cost[1])], views


class NoRefinement(Refinement):
    """The upsampled initial disparity."""

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, initial: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        disparity = 4 * upsample(initial, 4)
        return disparity, disparity


class CostVolumes(CascadedParallaxAttention):
    """Costs of a fixed disparity range by 3D convolutions, from coarse to fine."""

    def __init__(self, max_disparity: int) -> None:
        super().__init__(blocks=0)
        counts = [max_disparity // stride for stride in STAGE_STRIDES]
        self.stage1, self.stage2, self.stage3 = map(VolumeStage, (128, 96, 64), counts)

    def forward(self, f1: Tensor, f2: Tensor, f3: Tensor) -> tuple[Costs, Tensor]:
        volume1 = self.stage1(f1)
        views = self.b2(f1, f2)
        volume2 = self.stage2(views) + upsample_cost(volume1)
        views = self.b3(views, f3)
        volume3 = self.stage3(views) + upsample_cost(volume2)
        return [_convert_volume(volume) for volume in (volume1, volume2, volume3)], views


class VolumeStage(Stage):
    """Four 3D convolutions over both views' features; their width keeps the size of the network."""

    def __init__(self, width: int, disparities: int) -> None:
        nn.Module.__init__(self)
        self.disparities = disparities
        inner = 13 * width // 16
        self.head = conv_unit(width, inner, 1)
        layers: list[nn.Module] = []
        for inputs in (2 * inner, inner, inner):
            layers += [_conv3d(inputs, inner), nn.BatchNorm3d(inner), nn.LeakyReLU(SLOPE)]
        self.body = nn.Sequential(*layers, _conv3d(inner, 1))

    def forward(self, views: Tensor) -> Tensor:  # type: ignore[override]
        left, right = self.head(views).float().chunk(2)
        slices = [torch.cat((left, _shift(right, d)), 1) for d in range(self.disparities)]
        costs: Tensor = self.body(torch.stack(slices, 2))[:, 0]  # of (B, 2C', D, H, W)
        return costs.float()


def _conv3d(inputs: int, outputs: int) -> nn.Conv3d:
    return nn.Conv3d(inputs, outputs, 3, padding=1, bias=False)


def _shift(right: Tensor, disparity: int) -> Tensor:
    """Move column j - d of the right view to column j, with zeros outside."""
    return F.pad(right, (disparity, 0))[..., : right.shape[-1]]


def _convert_volume(volume: Tensor) -> tuple[Tensor, Tensor]:
    """Convert costs (B, D, H, W) to right->left and left->right (B, H, W, W), -inf beyond the range."""
    count, disparities, height, width = volume.shape
    column = torch.arange(width, device=volume.device)
    d = column[:, None] - column  # (W, V)
    places = d.clamp(0, disparities - 1).expand(count, height, width, width)
    costs = volume.permute(0, 2, 3, 1).gather(-1, places)
    costs = costs.masked_fill((d < 0) | (d >= disparities), -torch.inf)
    return costs, costs.transpose(2, 3)


class CascadedASPP(ResidualASPP):
    """Groups of dilated convolutions without residual connections."""

    def forward(self, x: Tensor) -> Tensor:
        for group in (1, 2, 3):
            x = self.group(x, group)
        return x


class PlainASPP(ResidualASPP):
    """Convolutions without dilation."""

    dilations = (1, 1, 1)


class NoTransition(ParallaxAttention):
    """Queries and keys from the fused features directly."""

    def __init__(self) -> None:
        super().__init__()
        self.rb = nn.Identity()  # type: ignore[assignment]


class StackedFeatures(ParallaxAttention):
    """Features of both views, fused without attention."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.fusion = JoiningConv(2 * WIDTH, bias=True)

    def forward(self, views: Tensor, *, both: bool) -> tuple[Tensor, Callable[[], ParallaxMaps] | None]:
        left, right = views.chunk(2)
        own, other = (views, torch.cat((right, left))) if both else (left, right)
        return self.fusion(other, own), None


class CostVolume(ParallaxAttention):
    """Costs by two 3D convolutions over the difference of the views at each disparity."""

    def __init__(self, disparities: int) -> None:
        nn.Module.__init__(self)
        self.disparities = disparities
        self.body = nn.Sequential(_conv3d(WIDTH, WIDTH), nn.LeakyReLU(SLOPE), _conv3d(WIDTH, WIDTH))
        self.b3 = nn.Identity()  # type: ignore[assignment]
        self.fusion = JoiningConv(2 * WIDTH + 1, bias=True)

    def forward(self, views: Tensor, *, both: bool) -> tuple[Tensor, Callable[[], ParallaxMaps] | None]:
        """Fuse as `ParallaxAttention` does; 3D convolutions and whole maps are float32."""
        left, right = views.float().chunk(2)
        volume = torch.stack([left - _shift(right, d) for d in range(self.disparities)], 2)
        costs = _convert_volume(self.body(volume).float().mean(1))
        maps = parallax_maps(*costs, ordered=True, pad_closing=True)
        return self.join(views, maps, both=both), lambda: maps


class SingleImage(PASSRnet):
    """Upscales each image separately."""

    def __init__(self, scale: int, pyramid: type[ResidualASPP], pam: ParallaxAttention | None) -> None:
        super().__init__(scale, pyramid, pam)
        del self.pam

    def forward(self, left: Tensor, right: Tensor, *, both: bool = False) -> SuperResolution:
        features = self.init_feature(torch.cat((left, right)) if both else left)
        images = self.upscale(features).float().chunk(2 if both else 1)
        return SuperResolution(images[0], images[1] if both else None)


class SameImage(PASSRnet):
    """The published network with the same image as both views."""

    def forward(self, left: Tensor, right: Tensor, *, both: bool = False) -> SuperResolution:
        found = super().forward(left, left)
        return replace(found, right=super().forward(right, right).left) if both else found
