"""Define the faster forms of PASMnet 2's parts for inference; shapes are those of `pasmnet2`."""

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import ParallaxAttentionBlock, pointwise
from pamcli.networks.fused import FusedConvolution
from pamcli.onednn import add_convolution


class MergedStage(nn.Module):
    """A stage whose query and key convolutions are one convolution L of the left features.

    The cost of left features f and right ones f' is L f . (f', 1): with queries W f + w and keys V f + v
    it is (W f + w) . (V f' + v) + (V f + v) . (W f' + w), over 2C.
    """

    def __init__(self, blocks: Sequence[ParallaxAttentionBlock], width: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(block.head for block in blocks)
        self.products = nn.ParameterList()  # weight and bias of L for each block
        for block in blocks:
            query, key = (cast("FusedConvolution", each[0]).layer for each in (block.query, block.key))
            assert query.bias is not None and key.bias is not None  # noqa: PT018
            W, V = query.weight[:, :, 0, 0].double(), key.weight[:, :, 0, 0].double()
            w, v = query.bias.double(), key.bias.double()
            vector = (W.T @ v + V.T @ w)[None]
            weight = torch.cat((W.T @ V + V.T @ W, vector))[..., None, None]
            bias = torch.cat((vector[0], 2 * (w @ v)[None]))
            self.products += [(weight / (2 * width)).float(), (bias / (2 * width)).float()]
        self.products.requires_grad_(False)

    def forward(self, views: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Compute (2B, C, h, w) to features (2B, C, h, w), and left and right features of the cost."""
        lefts, rights = [], []
        for place, head in enumerate(self.heads):
            f = head(views)
            views = views + f
            left, right = f.float().chunk(2)
            lefts.append(pointwise(left, *self.products[2 * place : 2 * place + 2]))
            rights.append(F.pad(right, (0, 0, 0, 0, 0, 1), value=1.0))
        return views, (torch.cat(lefts, 1), torch.cat(rights, 1))


class FusedUpdate(nn.Module):
    """An update whose convolutions add in place."""

    def __init__(self, update: Any) -> None:
        super().__init__()
        self.enc, self.a, self.b = update.enc, update.a, FusedConvolution(update.b[0].layer, 0)
        self.mix, self.out = update.mix[0].layer, FusedConvolution(update.out)

    def context_part(self, context: Tensor) -> Tensor:
        """Return the part of the mixing convolution that depends on the context (B, 48, h, w) only."""
        return pointwise(context, split_mixing(self.mix.weight, context)[1], self.mix.bias)

    def forward(self, seen: Sequence[Tensor], context: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the hidden state (B, 48, h, w) and mixing weights from parts seen (B, 36 or 57, h, w)."""
        seen_weight, _, hidden_weight = split_mixing(self.mix.weight, hidden)
        x = add_convolution(context.clone(), self.enc(join(seen, self.mix.weight.dtype)), seen_weight)
        x = add_convolution(x, hidden, hidden_weight, slope=0)
        hidden = self.b(self.a(x), add_to=x)
        return hidden, self.out(hidden)


def split_mixing(weight: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split an update's mixing weights into those of what it sees, the context, and the hidden state."""
    width = hidden.shape[1]
    seen, context, own = torch.split(weight, [weight.shape[1] - 2 * width, width, width], 1)
    return seen, context, own


def join(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Concatenate the channels of several (B, C, h, w) in channels last and `dtype`."""
    count, _, height, width = parts[0].shape
    joined = parts[0].new_empty((count, height, width, sum(part.shape[1] for part in parts)), dtype=dtype)
    place = 0
    for part in parts:
        joined[..., place : place + part.shape[1]].copy_(part.permute(0, 2, 3, 1))
        place += part.shape[1]
    return joined.permute(0, 3, 1, 2)
