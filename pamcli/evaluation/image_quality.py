"""Score images without a reference, for the paper's table of data sets: CNNIQA and SR-metric.

CNNIQA (Kang et al., CVPR 2014; lower is better) needs weights trained by others. SR-metric (Ma et al., 2017;
higher is better) needs the package pyiqa.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from pamcli.data.source import Source
from pamcli.errors import InputError, ModelError
from pamcli.imaging.images import to_uint8
from pamcli.registry.convert import read_state_dict

Score = Callable[[NDArray[np.uint8]], float]  # from an image (H, W, 3)

_SIDE = 32  # px, side of a patch


class CNNIQA(nn.Module):
    """The network of Kang et al.; layers are named as in lidq92/CNNIQA."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 50, 7)
        self.fc1, self.fc2, self.fc3 = nn.Linear(100, 800), nn.Linear(800, 800), nn.Linear(800, 1)

    def forward(self, patches: Tensor) -> Tensor:
        """Return the scores (N, 1) of normalised grey patches (N, 1, 32, 32)."""
        features = self.conv1(patches)
        extremes = torch.cat([features.amax((2, 3)), features.amin((2, 3))], dim=1)
        scores: Tensor = self.fc3(F.relu(self.fc2(F.relu(self.fc1(extremes)))))
        return scores

    def score(self, image: NDArray[np.uint8]) -> float:
        """Return the score of an image (H, W, 3); NaN if both sides are not above 32 px."""
        grey = torch.from_numpy(np.array(Image.fromarray(image).convert("L"), np.float32) / 255)
        # The publisher's loop leaves out the last patch of a side that is a multiple of 32.
        rows, columns = ((side - 1) // _SIDE for side in grey.shape)
        cut = grey[: rows * _SIDE, : columns * _SIDE].reshape(rows, _SIDE, columns, _SIDE)
        patches = cut.transpose(1, 2).reshape(-1, 1, _SIDE, _SIDE)
        # Subtract the mean of 3x3 px and divide by their deviation plus 1; borders are mirrored.
        padded = F.pad(patches, (1, 1, 1, 1), mode="replicate")
        mean = F.avg_pool2d(padded, 3, stride=1)
        deviation = (F.avg_pool2d(padded**2, 3, stride=1) - mean**2).clamp(min=0).sqrt()
        with torch.no_grad():
            return float(self((patches - mean) / (deviation + 1)).mean())


def load_cnniqa(path: Path) -> CNNIQA:
    """Load the weights of CNNIQA from a PyTorch or safetensors file. Raises ModelError."""
    network, state = CNNIQA(), read_state_dict(path)
    expected = network.state_dict()
    if {key: value.shape for key, value in state.items()} != {key: v.shape for key, v in expected.items()}:
        raise ModelError(f"{path} does not hold the weights of CNNIQA", "pam guide patches")
    network.load_state_dict({key: value.float() for key, value in state.items()})
    return network.eval()


def load_scores(cnniqa: Path | None) -> dict[str, Score]:
    """Return CNNIQA, if its weights are given, and SR-metric, if pyiqa is installed. Raises ModelError."""
    scores: dict[str, Score] = {} if cnniqa is None else {"cnniqa": load_cnniqa(cnniqa).score}
    if find_spec("pyiqa") is not None:
        try:
            metric: Any = import_module("pyiqa").create_metric("nrqm")
        except Exception as error:  # it downloads its forests when first used
            raise ModelError(f"pyiqa cannot load its metric nrqm: {error}", "try again online") from error
        scores["sr_metric"] = lambda image: float(metric(torch.tensor(image).permute(2, 0, 1)[None] / 255))
    return scores


def measure_quality(
    source: Source,
    indices: Sequence[int],
    scores: Mapping[str, Score],
    advance: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Return the mean scores of samples: NAME_left, NAME_right and NAME for both. Skips damaged samples."""
    found: dict[str, list[float]] = {f"{name}_{side}": [] for name in scores for side in ("left", "right")}
    for index in indices:
        try:
            sample = source.load(index)
        except InputError:
            continue  # reported by `measure_data_set`
        for name, score in scores.items():
            found[f"{name}_left"].append(score(to_uint8(sample.left)))
            found[f"{name}_right"].append(score(to_uint8(sample.right)))
        advance()
    means = {key: float(np.mean(values)) if values else float("nan") for key, values in found.items()}
    return means | {name: (means[f"{name}_left"] + means[f"{name}_right"]) / 2 for name in scores}
