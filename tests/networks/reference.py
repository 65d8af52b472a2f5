"""A plain transcription of the authors' order of operations, the yardstick for every faster path.

Four products a stage, one view after the other, batch norm as it stands, whole maps, region by region and
pixel by pixel. It borrows the layers (with their weights) of our networks, never their `forward`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import Decoder
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.passrnet import PASSRnet


@dataclass
class StageMaps:
    right_to_left: Tensor
    left_to_right: Tensor
    valid_left: Tensor
    valid_right: Tensor


@dataclass
class ReferenceMatching:
    disparity: Tensor
    stages: list[StageMaps]


def reference_matching(
    net: PASMnet, left: Tensor, right: Tensor, max_disparity: int | None = None
) -> ReferenceMatching:
    features_left, features_right = _hourglass(net, left), _hourglass(net, right)
    x_left, x_right = features_left[0], features_right[0]
    stages: list[StageMaps] = []
    cost_rl = cost_lr = torch.zeros(())
    cascade = net.cas_pam
    for index, stage in enumerate((cascade.stage1, cascade.stage2, cascade.stage3)):
        if index:
            joint = (cascade.b2, cascade.b3)[index - 1]
            x_left = _run_layers(joint, torch.cat((_up(x_left), features_left[index]), 1))
            x_right = _run_layers(joint, torch.cat((_up(x_right), features_right[index]), 1))
            cost_rl, cost_lr = _up_cost(cost_rl), _up_cost(cost_lr)
        for block in (stage.pab1, stage.pab2, stage.pab3, stage.pab4):
            f_left, f_right = block.head(x_left), block.head(x_right)
            channels = f_left.shape[1]
            q_left, k_left = block.query(f_left), block.key(f_left)
            q_right, k_right = block.query(f_right), block.key(f_right)
            cost_rl = torch.einsum("bchw,bchv->bhwv", q_left, k_right) / channels + cost_rl
            cost_lr = torch.einsum("bchw,bchv->bhwv", q_right, k_left) / channels + cost_lr
            x_left, x_right = x_left + f_left, x_right + f_right
        limit = None if max_disparity is None else max_disparity // (16, 8, 4)[index]
        m_rl = _banded_softmax(cost_rl, limit, towards_left=True)
        m_lr = _banded_softmax(cost_lr, limit, towards_left=False)
        stages.append(
            StageMaps(
                m_rl,
                m_lr,
                valid_left=reference_clean_mask(m_lr.sum(-2) > 0.1),
                valid_right=reference_clean_mask(m_rl.sum(-2) > 0.1),
            )
        )
    width = m_rl.shape[-1]
    initial = torch.arange(width) - (m_rl * torch.arange(width)).sum(-1)
    initial = reference_filling(initial, stages[-1].valid_left)
    return ReferenceMatching(_refine(net, initial[:, None], features_left[3]), stages)


def reference_super_resolution(net: PASSRnet, left: Tensor, right: Tensor) -> Tensor:
    x_left, x_right = net.init_feature(left), net.init_feature(right)
    pam = net.pam
    a_left, a_right = pam.rb(x_left), pam.rb(x_right)
    m_rl = torch.einsum("bchw,bchv->bhwv", pam.b1(a_left), pam.b2(a_right)).softmax(-1)
    m_lr = torch.einsum("bchw,bchv->bhwv", pam.b1(a_right), pam.b2(a_left)).softmax(-1)
    valid_left = reference_clean_mask(m_lr.sum(-2) > 0.1, pad=True)
    gathered = torch.einsum("bhwv,bchv->bchw", m_rl, pam.b3(x_right))
    fused = pam.fusion(torch.cat((gathered, x_left, valid_left[:, None].float()), 1))
    out: Tensor = net.upscale(fused)
    return out


def reference_clean_mask(valid: Tensor, pad: bool = False) -> Tensor:
    return torch.stack([torch.from_numpy(_clean_one(mask.numpy(), pad)) for mask in valid])


def reference_filling(disparity: Tensor, valid: Tensor) -> Tensor:
    """One step of the authors' partial convolution at a time: to the right, then to the left."""
    filled = disparity.clone()
    for row, known in zip(filled.view(-1, filled.shape[-1]), valid.view(-1, valid.shape[-1]), strict=True):
        seen = known.clone()
        order = range(1, len(row))
        for j in order:
            if not seen[j] and seen[j - 1]:
                row[j], seen[j] = row[j - 1] / (1 + 1e-4), True
        for j in reversed(order):
            if not seen[j - 1] and seen[j]:
                row[j - 1], seen[j - 1] = row[j] / (1 + 1e-4), True
    return filled


def _hourglass(net: PASMnet, view: Tensor) -> list[Tensor]:
    h = net.hourglass
    e0 = h.E0.body(view)
    e1 = h.E1.body(e0)
    e2 = h.E2.body(e1)
    e3 = h.E3.body(e2)
    d0 = h.D0.body(h.E4.body(e3))
    d1 = _decode(h.D1, d0, e3)
    d2 = _decode(h.D2, d1, e2)
    d3 = _decode(h.D3, d2, e1)
    return [d1, d2, d3, e1]


def _refine(net: PASMnet, initial: Tensor, features: Tensor) -> Tensor:
    r = net.refine
    e0 = r.E0.body(torch.cat((initial / 32, features), 1))
    e1 = r.E1.body(e0)
    e2 = r.E2.body(e1)
    d0 = r.D0.body(r.E3.body(e2))
    d3 = _decode(r.D3, _decode(r.D2, _decode(r.D1, d0, e2), e1), e0)
    d5 = _decode(r.D5, _decode(r.D4, d3))
    blend, residual = r.confidence(d5), r.disp(d5).clamp(min=0)
    coarse = F.interpolate(initial / 32, scale_factor=4, mode="bilinear", align_corners=False)
    out: Tensor = ((1 - blend) * coarse + blend * residual) * 128
    return out


def _decode(layer: Decoder, deeper: Tensor, *skip: Tensor) -> Tensor:
    unit, residual = layer.body
    out: Tensor = residual(_run_layers(unit, torch.cat((_up(deeper), *skip), 1)))
    return out


def _run_layers(unit: nn.Sequential, x: Tensor) -> Tensor:
    for layer in unit:
        x = layer(x)
    return x


def _up(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def _up_cost(cost: Tensor) -> Tensor:
    return F.interpolate(cost[:, None], scale_factor=2, mode="trilinear", align_corners=False)[:, 0]


def _banded_softmax(cost: Tensor, limit: int | None, towards_left: bool) -> Tensor:
    width = cost.shape[-1]
    j, k = torch.meshgrid(torch.arange(width), torch.arange(width), indexing="ij")
    disparity = j - k if towards_left else k - j
    keep = disparity >= 0
    if limit is not None:
        keep &= disparity < limit
    exponential = torch.exp(cost - cost.masked_fill(~keep, -torch.inf).amax(-1, keepdim=True)) * keep
    return exponential / exponential.sum(-1, keepdim=True)


def _clean_one(valid: np.ndarray, pad: bool) -> np.ndarray:
    invalid = ~valid
    for region in _regions(invalid):
        if len(region) < 20:
            invalid[tuple(zip(*region, strict=True))] = False
    for hole in _regions(~invalid):
        if len(hole) < 10:
            invalid[tuple(zip(*hole, strict=True))] = True
    if pad:
        invalid = np.pad(invalid, 3)
    disc = [(y, x) for y in range(-3, 4) for x in range(-3, 4) if x * x + y * y <= 9]
    height, width = invalid.shape

    def under_disc(mask: np.ndarray, outside: bool) -> list[np.ndarray]:
        around = np.pad(mask, 3, constant_values=outside)
        return [around[3 + y : 3 + y + height, 3 + x : 3 + x + width] for y, x in disc]

    dilated = np.any(under_disc(invalid, outside=False), axis=0)
    closed: np.ndarray = np.all(under_disc(dilated, outside=True), axis=0)
    return ~(closed[3:-3, 3:-3] if pad else closed)


def _regions(mask: np.ndarray) -> list[list[tuple[int, int]]]:
    """8-connected regions by flood filling."""
    left = mask.copy()
    found = []
    for start in zip(*np.nonzero(mask), strict=True):
        if not left[start]:
            continue
        left[start] = False
        region, queue = [], deque([start])
        while queue:
            y, x = queue.popleft()
            region.append((int(y), int(x)))
            for v in range(max(y - 1, 0), min(y + 2, mask.shape[0])):
                for u in range(max(x - 1, 0), min(x + 2, mask.shape[1])):
                    if left[v, u]:
                        left[v, u] = False
                        queue.append((v, u))
        found.append(region)
    return found
