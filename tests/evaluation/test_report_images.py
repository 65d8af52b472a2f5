"""Images of a report: reduced without mixing what must not be mixed, cut where it is worst."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from pamcli.data.source import Sample
from pamcli.evaluation.report_images import (
    ERROR_COLORS,
    MAX_WIDTH,
    Panel,
    draw_disparities,
    draw_error_map,
    draw_superres,
    encode_data_uri,
)
from pamcli.imaging.colormap import colorize


def decoded(panel: Panel) -> np.ndarray:
    uri, width, height = encode_data_uri(panel)
    head, _, data = uri.partition(";base64,")
    assert head == ("data:image/jpeg" if panel.kind == "photo" else "data:image/webp")
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
    assert pixels.shape == (height, width, 3)
    return pixels


def test_small_maps_and_crops_are_kept_to_the_bit() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
    for kind in ("map", "errors", "crop"):
        np.testing.assert_array_equal(decoded(Panel("t", pixels, kind)), pixels)


def test_photos_are_averaged_down_to_the_width() -> None:
    pixels = np.zeros((10, 2 * MAX_WIDTH, 3), np.uint8)
    pixels[::2] = 200
    small = decoded(Panel("t", pixels))
    assert small.shape == (5, MAX_WIDTH, 3)
    assert np.abs(small.astype(int) - 100).max() <= 2  # JPEG
    wider = np.zeros((11, 2 * MAX_WIDTH + 1, 3), np.uint8)
    assert decoded(Panel("t", wider)).shape == (4, 321, 3)


def test_sixteen_bits_become_eight() -> None:
    pixels = np.full((4, 4, 3), 65535, np.uint16)
    assert decoded(Panel("t", pixels)).min() == 255


def test_maps_keep_their_colours_and_sparse_pixels_when_they_are_reduced() -> None:
    pixels = np.zeros((4, 2 * MAX_WIDTH, 3), np.uint8)
    pixels[1, 1] = ERROR_COLORS[9]  # the last of its block
    pixels[2, 4] = ERROR_COLORS[0]  # the first of its block
    pixels[3, 5] = ERROR_COLORS[5]
    small = decoded(Panel("t", pixels, "errors"))
    assert tuple(small[0, 0]) == ERROR_COLORS[9]
    assert tuple(small[1, 2]) == ERROR_COLORS[0]
    assert np.count_nonzero(small.any(axis=2)) == 2


def test_disparity_and_ground_truth_share_their_colours() -> None:
    truth = np.tile(np.linspace(10.4, 59.6, 100, dtype=np.float32), (4, 1))
    estimate = truth + 1
    left = np.zeros((4, 100, 3), np.uint8)
    example = draw_disparities(Sample("a", left, left, disparity=truth), "c", {"one": estimate})
    photo, true, disparity, errors = example.panels
    assert (example.name, example.caption) == ("a", "c")
    assert photo.pixels is left
    assert true.title == "Ground truth, dark 10 to bright 60 px"
    assert disparity.title == "Disparity, same colours"
    np.testing.assert_array_equal(disparity.pixels, colorize(estimate, 10, 60))
    np.testing.assert_array_equal(true.pixels, colorize(truth, 10, 60))
    np.testing.assert_array_equal(errors.pixels, draw_error_map(estimate, truth))
    assert errors.kind == "errors"


def test_a_sparse_ground_truth_is_drawn_thicker_and_none_at_all_is_black() -> None:
    truth = np.full((5, 5), np.nan, np.float32)
    truth[2, 2] = 20
    estimate = np.full((5, 5), 20, np.float32)
    left = np.zeros((5, 5, 3), np.uint8)
    sample = Sample("a", left, left, disparity=truth)
    errors = draw_disparities(sample, "", {"one": estimate}).panels[3].pixels
    assert np.count_nonzero(errors.any(axis=2)) == 9
    unknown = Sample("a", left, left, disparity=np.full_like(truth, np.nan))
    assert not draw_disparities(unknown, "", {"one": estimate}).panels[3].pixels.any()


def test_super_resolution_is_shown_where_it_is_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pamcli.evaluation.report_images.CROP", (4, 5))
    truth = np.full((60, 90, 3), 100, np.uint8)
    result = truth.copy()
    result[31:35, 71:76] = 160
    bicubic = truth.copy()
    bicubic[0, 0] = 255
    example = draw_superres("a", "c", {"Bicubic": bicubic, "Result": result}, truth)
    left, *cuts = example.panels
    assert [panel.title for panel in cuts] == ["Bicubic", "Result", "Ground truth"]
    assert {panel.kind for panel in cuts} == {"crop"}
    for panel, value in zip(cuts, (100, 160, 100), strict=True):
        np.testing.assert_array_equal(panel.pixels, np.full((4, 5, 3), value))
    framed = (left.pixels != truth).any(axis=2)
    assert framed[29:37, 69:78].sum() == framed.sum() == 8 * 9 - 4 * 5
    assert (truth == 100).all()


def test_bicubic_alone_and_an_image_smaller_than_the_cut() -> None:
    truth = np.zeros((6, 8, 3), np.uint8)
    example = draw_superres("a", "c", {"Bicubic": truth + np.uint8(3)}, truth)
    assert [panel.title for panel in example.panels[1:]] == ["Bicubic", "Ground truth"]
    assert example.panels[1].pixels.shape == (6, 8, 3)
