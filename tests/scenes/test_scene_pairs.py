"""Whole scenes: exact truth, no two alike, and all that is promised to occur in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pamcli.scenes.render import Layer, Views, render
from pamcli.scenes.scene import Scene, make_scene, scene_pair
from pamcli.scenes.textures import LEAST_TEXELS, TextureLibrary, find_textures, read_texture

HEIGHT, WIDTH = 96, 192


def smooth(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """An image whose neighbouring pixels are alike, so that it can be compared at sub-pixel places."""
    coarse = Image.fromarray(rng.integers(0, 256, (height // 12, width // 12, 3), np.uint8))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> TextureLibrary:
    """Four photographs and three cut-outs."""
    folder, rng = tmp_path_factory.mktemp("textures"), np.random.default_rng(1)
    for number in range(4):
        Image.fromarray(smooth(rng, 180, 240)).save(folder / f"photo{number}.png")
    for number in range(3):
        alpha = np.hypot(*np.mgrid[-40:40, -30:30]) < 28
        cutout = np.concatenate([smooth(rng, 80, 60), 255 * alpha[..., None].astype(np.uint8)], axis=2)
        Image.fromarray(cutout).save(folder / f"cut{number}.png")
    return find_textures(folder)


def scene_of(library: TextureLibrary, number: int) -> Scene:
    return make_scene(np.random.default_rng((5, number)), library, HEIGHT, WIDTH)


def drawn(scene: Scene) -> Views:
    return render(scene.layers, HEIGHT, WIDTH, scene.drift)


def warped(picture: torch.Tensor, disparity: torch.Tensor, sign: int) -> torch.Tensor:
    """`picture` (3, H, W) at columns x + sign * disparity."""
    x = (torch.arange(WIDTH) + sign * disparity).clamp(0, WIDTH - 1)
    before = x.floor().clamp(max=WIDTH - 2).long()
    share = x - before
    rows = torch.arange(HEIGHT)[:, None]
    return picture[:, rows, before] * (1 - share) + picture[:, rows, before + 1] * share


def test_a_warped_image_is_the_other_one(library: TextureLibrary) -> None:
    agree: list[list[torch.Tensor]] = [[], []]
    hidden: list[list[torch.Tensor]] = [[], []]
    for number in range(3):
        views = render(scene_of(library, number).layers, HEIGHT, WIDTH)  # without drift
        assert min(views.disparity.min(), views.right_disparity.min()) >= 0, "nothing lies uncovered"
        there = torch.arange(WIDTH) - views.disparity
        difference = (warped(views.right, views.disparity, -1) - views.left).abs().mean(0)
        agree[0].append(difference[views.visible])
        hidden[0].append(difference[~views.visible & (there >= 0)])
        difference = (warped(views.left, views.right_disparity, 1) - views.right).abs().mean(0)
        match = (torch.arange(WIDTH) + views.right_disparity).round().long()
        left = views.disparity.gather(1, match.clamp(max=WIDTH - 1))
        consistent = (left - views.right_disparity).abs() < 0.5
        agree[1].append(difference[(match < WIDTH) & consistent])
        hidden[1].append(difference[(match < WIDTH) & ~consistent])
    for seen, unseen in zip(map(torch.cat, agree), map(torch.cat, hidden), strict=True):
        assert len(unseen) > 1000
        assert seen.median() < 0.005
        assert seen.mean() < 0.02
        assert unseen.mean() > 5 * seen.mean()


def test_ranges_reach_from_a_few_to_several_hundred_pixels(library: TextureLibrary) -> None:
    width, height = 1024, 16
    largest = []
    for number in range(9):
        scene = make_scene(np.random.default_rng((6, number)), library, height, width)
        views = render(scene.layers, height, width)
        largest.append(float(views.disparity.quantile(0.99)))
    assert min(largest) < 12
    assert max(largest) > 250
    assert max(largest) < 0.75 * width
    assert sum(20 < each < 150 for each in largest) > 3


def kinds(layer: Layer) -> set[str]:
    surface = layer.surface
    found = {"waved"} if surface.waves else set()
    if not layer.endless:
        holes = float((layer.texture[3] < 0.5).float().mean())
        return found | {"object", "thin"} if holes > 0.75 else found | {"object"}
    if surface.c > 0.01:
        found |= {"ground"}
    if surface.c < -0.01:
        found |= {"ceiling"}
    if abs(surface.b) > 0.01:
        found |= {"wall"}
    return found | ({"cut to size"} if layer.clips else set())


def test_all_kinds_of_surfaces_occur(library: TextureLibrary) -> None:
    scenes = [scene_of(library, number) for number in range(12)]
    found: dict[str, int] = {}
    for scene in scenes:
        for kind in set().union(*map(kinds, scene.layers)):
            found[kind] = found.get(kind, 0) + 1
    for kind in ("object", "ground", "wall", "ceiling", "cut to size", "thin", "waved"):
        assert found.get(kind, 0) >= 2, found
    drifts = [scene.drift for scene in scenes]
    assert 3 < sum(drift == (0, 0) for drift in drifts) < 9
    assert sum(any(layer.reflection for layer in scene.layers) for scene in scenes) > 5
    assert sum(any(layer.decals for layer in scene.layers) for scene in scenes) > 5
    assert max(abs(offset) for drift in drifts for offset in drift) <= 1


def test_cut_outs_keep_their_shape_and_lose_their_margin(tmp_path: Path) -> None:
    pixels = np.zeros((200, 200, 4), np.uint8)
    pixels[40:140, 90:110] = 255  # 100 rows, 20 columns
    Image.fromarray(pixels).save(tmp_path / "tall.png")
    assert read_texture(tmp_path / "tall.png").shape == (4, 100, 20)
    library = find_textures(tmp_path)
    shapes = []
    for number in range(8):
        for layer in scene_of(library, number).layers:
            if layer.texture.shape == (4, 100, 20):
                pixels_per_texel = np.linalg.norm(np.linalg.inv(layer.homography[:2, :2]), axis=0)
                shapes.append(100 * pixels_per_texel[1] / (20 * pixels_per_texel[0]))
    assert len(shapes) > 8
    assert 5 / 2 < np.median(shapes) < 5 * 2


@pytest.mark.parametrize(
    ("mode", "suffix", "is_cutout"),
    [("RGB", ".jpg", False), ("RGBA", ".webp", True), ("LA", ".png", True), ("I;16", ".png", False)],
)
def test_images_of_any_kind_become_textures(tmp_path: Path, mode: str, suffix: str, is_cutout: bool) -> None:
    grey = Image.fromarray(np.full((20, 30), 51, np.uint8))
    if mode == "I;16":
        picture = Image.fromarray(np.full((20, 30), 257 * 51, np.uint16))
    else:
        picture = grey.convert(mode)
    if is_cutout:
        picture.putalpha(200)
    picture.save(tmp_path / f"a{suffix}", lossless=True)
    files = find_textures(tmp_path)
    assert (len(files.photos), len(files.cutouts)) == ((0, 1) if is_cutout else (1, 0))
    texture = read_texture((files.photos + files.cutouts)[0])
    assert texture.shape == (4 if is_cutout else 3, 20, 30)
    assert abs(int(texture[0, 5, 5]) - 51) <= 1


def test_a_palette_with_a_transparent_colour_is_a_cut_out(tmp_path: Path) -> None:
    picture = Image.fromarray(np.repeat([[0], [1]], LEAST_TEXELS, axis=0).repeat(20, axis=1).astype(np.uint8))
    palette = picture.convert("P")
    palette.save(tmp_path / "a.png", transparency=0)
    assert find_textures(tmp_path).cutouts == (tmp_path / "a.png",)
    assert read_texture(tmp_path / "a.png").shape == (4, LEAST_TEXELS, 20)


def test_images_that_lie_on_their_side_are_turned_up(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "a.jpg", exif=exif)
    assert read_texture(tmp_path / "a.jpg").shape == (3, 30, 20)


def test_one_narrow_photograph_is_enough_for_any_scene(tmp_path: Path) -> None:
    Image.fromarray(smooth(np.random.default_rng(0), 24, 400)[:16]).save(tmp_path / "a.png")
    library = find_textures(tmp_path)
    for number in range(2):
        assert drawn(scene_of(library, number)).left.isfinite().all()


def test_cameras_differ_in_light_and_noise(library: TextureLibrary) -> None:
    differences = []
    for number in range(3):
        pair = scene_pair(library, 5, number, HEIGHT, WIDTH)
        rendered = drawn(scene_of(library, number))
        assert np.array_equal(pair.disparity, rendered.disparity.numpy())
        left = (255 * rendered.left).permute(1, 2, 0).numpy()
        differences.append(np.abs(pair.left - left).mean())
        assert np.corrcoef(pair.left.ravel(), left.ravel())[0, 1] > 0.8
    assert min(differences) > 0.5
    assert max(differences) < 90
