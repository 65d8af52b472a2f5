"""Our networks compute the authors' numbers (tolerances: the vectors' own, float32)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from formulas import formula_images, formula_state, golden, layout
from reference import reference_matching, reference_super_resolution
from torch import Tensor, nn

from pamcli.networks.pasmnet import Matching, PASMnet
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.networks.passrnet import PASSRnet, SuperResolution
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD

Case = tuple[dict[str, np.ndarray], nn.Module, Tensor, Tensor]


def prepare(name: str, net: nn.Module) -> Case:
    g = golden(name)
    seed, n, h, w, shift = (int(g[key]) for key in ("seed", "n", "h", "w", "shift"))
    net.load_state_dict(formula_state(name, seed, float(g["query_gain"])), strict=True)
    left, right = formula_images(seed, n, h, w, shift)
    return g, net.eval(), left, right


@pytest.fixture(scope="module")
def pasmnet() -> Case:
    g, net, left, right = prepare("pasmnet", PASMnet())
    mean, std = torch.tensor(IMAGE_MEAN).view(3, 1, 1), torch.tensor(IMAGE_STD).view(3, 1, 1)
    return g, net, (left - mean) / std, (right - mean) / std


@pytest.fixture(scope="module")
def matching(pasmnet: Case) -> Matching:
    _, net, left, right = pasmnet
    with torch.inference_mode():
        result: Matching = net(left, right, all_stages=True)
    return result


@pytest.fixture(scope="module", params=[2, 4])
def passrnet(request: pytest.FixtureRequest) -> Case:
    return prepare(f"passrnet_x{request.param}", PASSRnet(request.param))


@pytest.fixture(scope="module")
def superres(passrnet: Case) -> SuperResolution:
    _, net, left, right = passrnet
    with torch.inference_mode():
        result: SuperResolution = net(left, right, both=True)
    return result


def close(ours: Tensor, theirs: np.ndarray, tolerance: float) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours.numpy() - theirs.astype(np.float32)).max() < tolerance


@pytest.mark.parametrize(
    ("name", "net"),
    [
        ("pasmnet", PASMnet()),
        ("pasmnet2", PASMnet2("wide")),
        ("passrnet_x2", PASSRnet(2)),
        ("passrnet_x4", PASSRnet(4)),
    ],
)
def test_keys_and_shapes_are_those_of_the_authors(name: str, net: nn.Module) -> None:
    shapes = {key: tuple(value.shape) for key, value in net.state_dict().items()}
    # The prototype of PASMnet 2 did not say how far off it may be.
    assert {key: shape for key, shape in shapes.items() if not key.startswith("error_scale.")} == layout(name)


def test_disparity(pasmnet: Case, matching: Matching) -> None:
    close(matching.disparity, pasmnet[0]["disparity"], 5e-4)
    close(matching.disparity, pasmnet[0]["train_disparity"], 5e-4)


def test_disparity_with_prior(pasmnet: Case, matching: Matching) -> None:
    g, net, left, right = pasmnet
    with torch.inference_mode():
        limited = net(left, right, 64, all_stages=True)
    close(limited.disparity, g["disparity_maxdisp64"], 5e-4)
    assert (limited.disparity - matching.disparity).abs().max() > 0.1  # the prior matters in this vector
    m = limited.maps[-1]
    assert torch.all(m.right_to_left.tril(-64 // 4) == 0)
    assert torch.all(m.left_to_right.triu(64 // 4) == 0)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_attention_and_masks_of_every_stage(pasmnet: Case, matching: Matching, stage: int) -> None:
    g, m = pasmnet[0], matching.maps[stage - 1]
    tolerance = 1e-3 if stage == 3 else 1e-5  # the third is stored in half precision
    close(m.right_to_left, g[f"att_right2left_s{stage}"], tolerance)
    close(m.left_to_right, g[f"att_left2right_s{stage}"], tolerance)
    assert np.array_equal(m.valid_left.numpy(), g[f"valid_left_s{stage}"][:, 0].astype(bool))
    assert np.array_equal(m.valid_right.numpy(), g[f"valid_right_s{stage}"][:, 0].astype(bool))


def test_training_mode_keeps_the_gradient_of_the_filled_disparity(pasmnet: Case) -> None:
    _, net, left, right = pasmnet
    net.zero_grad()
    result = net(left[:1], right[:1], all_stages=True)
    result.initial.sum().backward()
    gradient = net.hourglass.E0.body[0][0].weight.grad  # type: ignore[union-attr, index]
    assert gradient is not None
    assert gradient.abs().sum() > 0
    assert not result.maps[-1].valid_left.requires_grad
    net.zero_grad()


def test_super_resolved_left_view(passrnet: Case, superres: SuperResolution) -> None:
    close(superres.left, passrnet[0]["sr_left"], 1e-4)


def test_super_resolution_attention_and_masks(passrnet: Case, superres: SuperResolution) -> None:
    g, m = passrnet[0], superres.maps
    close(m.right_to_left, g["att_right2left"], 1e-3)  # stored in half precision
    close(m.left_to_right, g["att_left2right"], 1e-3)
    assert np.array_equal(m.valid_left.numpy(), g["valid_left"][:, 0].astype(bool))
    assert np.array_equal(m.valid_right.numpy(), g["valid_right"][:, 0].astype(bool))


def test_right_view_is_the_left_view_of_the_exchanged_pair(passrnet: Case, superres: SuperResolution) -> None:
    _, net, left, right = passrnet
    with torch.inference_mode():
        exchanged = net(right, left)
    assert superres.right is not None
    assert (exchanged.left - superres.right).abs().max() < 1e-5


def test_pasmnet_equals_the_authors_order_of_operations(pasmnet: Case) -> None:
    _, net, left, right = pasmnet
    assert isinstance(net, PASMnet)
    with torch.inference_mode():
        for prior in (None, 32):
            ours = net(left, right, prior, all_stages=True)
            plain = reference_matching(net, left, right, prior)
            assert (ours.disparity - plain.disparity).abs().max() < 5e-4
            for m, r in zip(ours.maps, plain.stages, strict=True):
                assert (m.right_to_left - r.right_to_left).abs().max() < 1e-5
                assert (m.left_to_right - r.left_to_right).abs().max() < 1e-5
                assert torch.equal(m.valid_left, r.valid_left)
                assert torch.equal(m.valid_right, r.valid_right)


def test_passrnet_equals_the_authors_order_of_operations(passrnet: Case, superres: SuperResolution) -> None:
    _, net, left, right = passrnet
    assert isinstance(net, PASSRnet)
    with torch.inference_mode():
        assert (reference_super_resolution(net, left, right) - superres.left).abs().max() < 1e-5


def test_masks_and_results_are_per_image(pasmnet: Case) -> None:
    """A pair's result does not depend on its neighbours in the batch (the authors' clean-up joins them)."""
    _, net, left, right = pasmnet
    with torch.inference_mode():
        together = net(left, right, all_stages=True)
        alone = net(left[1:], right[1:], all_stages=True)
    assert torch.equal(together.maps[-1].valid_left[1:], alone.maps[-1].valid_left)
    assert (together.disparity[1:] - alone.disparity).abs().max() < 1e-4
