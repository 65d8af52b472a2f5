"""PASSRnet 2, as it learns and as it is prepared for inference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from random_networks import passrnet2, picture_pair

from pamcli.imaging.resize import imresize
from pamcli.losses.total import GroundTruth, superres_terms, total_loss
from pamcli.losses.weights import LossWeights
from pamcli.networks import passrnet2 as module
from pamcli.networks.bicubic import upscale_bicubic
from pamcli.networks.passrnet import SuperResolution
from pamcli.networks.passrnet2 import PASSRnet2, compute_maps, gather_both
from pamcli.networks.subpixel import DETAIL_GAIN, PHASES, _gather_detail, find_most_attended


def test_a_fresh_one_is_bicubic_enlargement_and_looks_at_one_view_alone() -> None:
    torch.manual_seed(0)
    network, views = PASSRnet2(4), picture_pair(12, 30)
    result = network(views[:1], views[1:], both=True)
    torch.testing.assert_close(result.left, upscale_bicubic(views[:1], 4))
    torch.nn.init.normal_(network.last.weight, std=0.1)
    result = network(views[:1], views[1:])
    assert (result.left - upscale_bicubic(views[:1], 4)).abs().mean() > 0.01
    assert torch.equal(result.left, network(views[:1], torch.rand_like(views[1:])).left)


def consistent(scale: int, views: torch.Tensor) -> SuperResolution:
    network = PASSRnet2(scale, consistency="bicubic").eval()
    network.load_state_dict(passrnet2(scale).state_dict())
    with torch.inference_mode():
        result: SuperResolution = network.prepare(torch.float32)(views[:1], views[1:], both=True)
    return result


@pytest.mark.parametrize("scale", [2, 3])
def test_a_consistent_result_downscaled_by_imresize_is_the_image_again(scale: int) -> None:
    views = picture_pair(13, 24)
    found = consistent(scale, views)
    for view, image in zip(views, (found.left, found.right), strict=True):
        low = imresize(image[0].permute(1, 2, 0).numpy().astype(np.float64), 1 / scale)
        difference = np.abs(low - view.permute(1, 2, 0).numpy())
        assert difference.max() < 0.02  # of up to 0.5: the correction reaches two pixels only
        assert np.sqrt(np.mean(difference**2)) < 0.004
    with torch.inference_mode():
        free = passrnet2(scale)(views[:1], views[1:]).left
    low = imresize(free[0].permute(1, 2, 0).numpy().astype(np.float64), 1 / scale)
    assert np.sqrt(np.mean((low - views[0].permute(1, 2, 0).numpy()) ** 2)) > 0.03


def test_crops_in_training_are_not_corrected() -> None:
    views, network = picture_pair(12, 30), PASSRnet2(2, consistency="bicubic")
    network.load_state_dict(passrnet2(2).state_dict())
    assert torch.equal(network.train()(views[:1], views[1:]).left, passrnet2(2)(views[:1], views[1:]).left)
    assert not torch.equal(network.eval()(views[:1], views[1:]).left, passrnet2(2)(views[:1], views[1:]).left)


def plain(network: PASSRnet2, views: torch.Tensor) -> SuperResolution:
    """Run a network as training does: with whole attention maps."""
    with torch.enable_grad():
        result: SuperResolution = network(views[:1], views[1:], both=True)
    return result


@pytest.mark.parametrize(
    ("scale", "height", "width"), [(2, 1, 1), (4, 1, 9), (3, 9, 1), (2, 17, 31), (4, 8, 8)]
)
def test_prepared_network_equals_the_plain_one(
    scale: int, height: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAP_BYTES", 4 * 31 * 31 * 5)
    network, views = passrnet2(scale), picture_pair(height, width, shift=3)
    expected, prepared = plain(network, views), network.prepare(torch.float32)
    with torch.inference_mode():
        found = prepared(views[:1], views[1:], both=True)
        unprepared = network(views[:1], views[1:], both=True)
    exported = plain(prepared, views)  # by the operations that are compiled and exported
    for each in (found, unprepared, exported):
        torch.testing.assert_close(each.left, expected.left, atol=1e-5, rtol=0)
        torch.testing.assert_close(each.right, expected.right, atol=1e-5, rtol=0)


def test_pairs_of_a_batch_are_independent() -> None:
    views = torch.cat([picture_pair(9, 12, seed=seed)[:, None] for seed in (3, 4)], 1)
    network = passrnet2(2).prepare(torch.float32)
    with torch.inference_mode():
        found = network(*views, both=True)
        for place in range(2):
            alone = network(*views[:, place : place + 1], both=True)
            torch.testing.assert_close(found.left[place : place + 1], alone.left)
            torch.testing.assert_close(found.right[place : place + 1], alone.right)


def test_features_of_16_bits_stay_close() -> None:
    views = picture_pair(16, 24, shift=3)
    with torch.inference_mode():
        found = passrnet2(2).prepare(torch.bfloat16)(views[:1], views[1:]).left
    assert found.dtype == torch.float32
    assert 0 < (found - plain(passrnet2(2), views).left).abs().mean() < 0.02


def test_maps_are_softmax_of_the_costs() -> None:
    network, views = passrnet2(2), picture_pair(16, 24, shift=3)
    expected = plain(network, views).maps
    with torch.inference_mode():
        found = network.prepare(torch.float32)(views[:1], views[1:]).maps
    torch.testing.assert_close(found.right_to_left, expected.right_to_left, atol=1e-4, rtol=0)
    torch.testing.assert_close(found.left_to_right, expected.left_to_right, atol=1e-4, rtol=0)
    assert torch.equal(found.valid_left, expected.left_to_right.sum(-2) > 0.1)


@pytest.mark.parametrize("largest", [1.0, 30.0, 75.0])
def test_attention_is_softmax_however_much_better_one_pixel_fits(largest: float) -> None:
    """Values are gathered from the same exponentials for both directions."""
    generator = torch.Generator().manual_seed(3)
    queries, keys = torch.randn(2, 1, 8, 2, 9, generator=generator).unbind()
    values = torch.randn(2, 8, 2, 9, generator=generator)
    queries[0, 0, 0, 4], keys[0, 0, 0, 6] = largest / 8, 8.0
    found, attended = gather_both(queries, keys, values, find_attended=True)
    assert attended is not None
    for view, map_ in enumerate(compute_maps(queries, keys)):
        expected = (map_ @ values[1 - view].permute(1, 2, 0)).permute(0, 3, 1, 2)[0]
        torch.testing.assert_close(found[view], expected, atol=1e-4, rtol=1e-3)
        for one, other in zip(attended[view], find_most_attended(map_), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


def test_a_pixel_whose_exponentials_vanish_gathers_nothing() -> None:
    queries, keys = torch.zeros(2, 1, 1, 1, 5)
    queries[..., 4], keys[..., 3] = 20, 20
    found, _ = gather_both(queries, keys, torch.ones(2, 1, 1, 5), find_attended=False)
    assert found[0].flatten().tolist() == [0, 0, 0, 0, 1]
    assert found[1].flatten().tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize(("consistency", "corrected"), [("none", 0), ("bicubic", 4)])
def test_a_band_with_its_halo_equals_the_whole_image(consistency: str, corrected: int) -> None:
    network = PASSRnet2(2, consistency=consistency).eval().requires_grad_(False)
    network.load_state_dict(passrnet2(2).state_dict())
    network, halo = network.prepare(torch.float32), network.HALO
    assert halo == 16 + 2 + corrected
    views = picture_pair(2 * halo + 20, 20, shift=3)
    with torch.inference_mode():
        whole = network(views[:1], views[1:]).left
        band = network(views[:1, :, 10:], views[1:, :, 10:]).left
    difference = (whole[:, :, 2 * 10 :] - band).abs().amax((0, 1, 3))
    assert difference[2 * halo :].max() < 1e-5
    assert difference[:2].max() > 1e-4


def test_exchanged_views_give_exchanged_images() -> None:
    views = picture_pair(11, 23)
    there = passrnet2(2)(views[:1], views[1:], both=True)
    back = passrnet2(2)(views[1:], views[:1], both=True)
    torch.testing.assert_close(there.left, back.right)
    torch.testing.assert_close(there.right, back.left)
    torch.testing.assert_close(there.maps.right_to_left, back.maps.left_to_right)
    assert passrnet2(2)(views[:1], views[1:]).right is None


def test_detail_is_what_the_other_view_has_beyond_interpolation_sorted_by_its_place() -> None:
    """Matches of a quarter of a pixel to the right, attended to by 3 : 1, in one row of a known image."""
    own = torch.tensor([0.2, 0.4, 0.2, 0.6]).expand(1, 3, 1, 4).contiguous()
    other = torch.tensor([0.9, 0.5, 0.1, 0.7]).expand(1, 3, 1, 4).contiguous()
    maps = torch.zeros(1, 1, 4, 4)
    maps[0, 0, 1] = torch.tensor([0, 0.2, 0.6, 0])  # its match is 1.75: pixel 2 lies 0.25 to its right
    maps[0, 0, [0, 2, 3], [0, 2, 3]] = 1  # exactly there
    found = _gather_detail(own, other, *find_most_attended(maps))[0, :, 0]
    weights, detail = found[:PHASES], found[PHASES:].view(3, PHASES, 4)
    torch.testing.assert_close(weights[:, 1], 0.8 * torch.tensor([0, 0, 0.5, 0.5]))  # centres 0.125 and 0.375
    torch.testing.assert_close(weights[:, 0], torch.tensor([0, 0.5, 0.5, 0]))
    beyond = 0.1 - (0.4 + 0.25 * (0.2 - 0.4))
    torch.testing.assert_close(detail[0, :, 1], DETAIL_GAIN * beyond * weights[:, 1])
    torch.testing.assert_close(detail[2, :, 3], DETAIL_GAIN * (0.7 - 0.6) * weights[:, 3])


def test_the_papers_losses_reach_every_weight() -> None:
    """Maps are those of the last exchange; the image's loss reaches all exchanges."""
    torch.manual_seed(1)
    network, views = PASSRnet2(2), picture_pair(16, 32)
    for parameter in network.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    result = network(views[:1], views[1:], both=True)
    maps = result.maps
    torch.testing.assert_close(maps.right_to_left.sum(-1), torch.ones(1, 16, 32))
    weights = LossWeights(
        super_resolution=1, pam=1, pam_photometric=1, pam_smoothness=1, pam_cycle=1, likelihood=1
    )
    high = torch.rand(2, 1, 3, 32, 64)
    every = torch.ones(1, 16, 32, dtype=torch.bool)
    truth = GroundTruth(3.0 * every, 3.0 * every, every, every, torch.tensor([False]))
    loss, values = total_loss(superres_terms(result, views[:1], views[1:], *high, weights, truth))
    assert len(values) >= 5
    loss.backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert len(network.exchanges) == 4
