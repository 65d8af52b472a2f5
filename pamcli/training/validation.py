"""Validate a network in training with the code of `pam eval`, on the weights as they are saved."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pamcli.data.open import open_data, parse_data
from pamcli.data.source import DataSpec, Sample, Source
from pamcli.errors import InputError
from pamcli.evaluation.disparity import Disparity
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.evaluation.loop import measure
from pamcli.evaluation.methods import BICUBIC, MatcherMethod, UpscalerMethod
from pamcli.evaluation.superres import Superres
from pamcli.evaluation.superres_metrics import SuperresPair, Upscaled
from pamcli.files.paths import quote
from pamcli.imaging.colormap import colorize
from pamcli.imaging.images import to_uint8
from pamcli.inference.device import Compute
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.model import TorchModel
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.catalog import ModelSpec
from pamcli.registry.load import build_network, to_half
from pamcli.training.labels import UnlabelledPairs

SAMPLES = 2  # images of each data set to save per validation
CROP = (160, 240)  # height and width of saved super-resolution crops, at high resolution
MOST_CHECKED_PAIRS = 100  # number of pairs to check per data set before a run


@dataclass(frozen=True)
class ValidationResult:
    """The accuracy of weights on the validation sets."""

    figure: float  # the value that selects the best weights: the mean over the data sets
    # by data set label: D1 and EPE; or PSNR, that of bicubic, and the gain from the second image, dB
    figures: dict[str, dict[str, float]]
    # (H, W, 3) by name: left image above the coloured disparity map; or a bicubic crop beside the network's
    images: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        formats = {"D1": "{:.2f} %", "EPE": "{:.2f} px", "second view": "{:+.3f} dB"}
        lines = []
        for label, figures in self.figures.items():
            texts = [f"{name} {formats.get(name, '{:.2f} dB').format(one)}" for name, one in figures.items()]
            lines.append(f"{label}: {', '.join(texts)}")
        return lines


def round_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy the weights in half precision, as in weights files; tensors beyond its range stay float32."""
    return {key: to_half(value).detach().clone() for key, value in state.items()}


class Validator:
    """A validator on fixed data sets."""

    def __init__(
        self, sets: Sequence[tuple[DataSpec, Source]], scale: int | None, remark: str = "", clearly: float = 0
    ) -> None:
        """Use these sets; `remark`: suffix of their names, `clearly`: decrease of D1 that counts."""
        self.sets, self.scale, self.remark, self.clearly = sets, scale, remark, clearly

    @classmethod
    def open(cls, texts: Sequence[str], scale: int | None) -> "Validator":
        """Open validation sets; raise UsageError or InputError if they are missing or lack ground truth."""
        sets = []
        for text in texts:
            spec = parse_data(text)
            source = open_data(spec)
            # Check them now: a damaged file would end the run after hours, and every resumed run.
            for index in source.spread(1 if source.endless else MOST_CHECKED_PAIRS):
                sample = source.load(index)
                if scale is not None:
                    Superres(scale).make_case(sample)
                elif index == 0 and sample.disparity is None:
                    hint = "validate on a data set with ground truth"
                    raise InputError(f"{text} has no ground truth", hint)
            sets.append((spec, source))
        return cls(sets, scale)

    def is_better(self, figure: float, earlier: Mapping[int, float]) -> bool:
        """Return whether a value beats those of earlier steps: low D1, or high PSNR."""
        if self.scale is not None:
            return all(figure > one for one in earlier.values())
        return all(figure < one * (1 if step else 1 - self.clearly) for step, one in earlier.items())

    def measure(
        self, weights: dict[str, Tensor], spec: ModelSpec, compute: Compute, advance: Callable[[], None]
    ) -> ValidationResult:
        """Measure weights of `round_weights`, in float32; call `advance` after each pair."""
        network = build_network(spec, "meta")
        exact = {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}
        network.load_state_dict(exact, assign=True)
        network.eval().requires_grad_(False)
        model = TorchModel(network, spec, Compute(compute.device, "fp32"))
        found: dict[str, dict[str, float]] = {}
        images: dict[str, NDArray[np.uint8]] = {}
        for data, source in self.sets:
            label = data.label + self.remark
            label = label if label not in found else data.text + self.remark
            if spec.row.task == "disparity":
                # Held-out pairs are at matching resolution already.
                size = 1.0 if isinstance(source, UnlabelledPairs) else spec.row.match_size
                matcher = StereoMatcher(model, spec.max_disparity, match_size=size)
                found[label], samples = _measure_disparity(matcher, source, advance)
            else:
                found[label], samples = _measure_superres(StereoUpscaler(model), source, advance)
            images |= {f"{len(found)}-{data.info.name}-{i + 1}": one for i, one in enumerate(samples)}
        main = "D1" if self.scale is None else "PSNR"
        figure = sum(figures[main] for figures in found.values()) / len(found)
        return ValidationResult(figure, found, images)


@dataclass(frozen=True)
class Gain:
    """The improvement of a run over its initial weights."""

    before: float  # D1, percent, or PSNR, dB
    after: float  # best value since
    step: int  # number of steps at that value
    better: bool
    metric: str = "D1"  # or "PSNR"

    def describe(self, best: Path, last: Path) -> str:
        """Return a message on the result and on the files of the best and last weights."""
        unit = "%" if self.metric == "D1" else "dB"
        before = f"and was {self.before:.2f} {unit}; {quote(best)} has"
        after = f"{self.metric} is {self.after:.2f} {unit}"
        if self.better:
            return f"better: {after} after {self.step} steps, {before} these weights"
        both = f"the initial weights, {quote(last)} the new ones"
        return f"not clearly better: {after} at best, {before} {both}"


def measure_gain(entries: Iterable[Mapping[str, Any]], validator: Validator) -> Gain | None:
    """Return the improvement in a log, None without measurements before and after the first step."""
    figures = read_figures(entries)
    before = figures.pop(0, None)
    if before is None or not figures:
        return None
    choose, metric = (min, "D1") if validator.scale is None else (max, "PSNR")
    step = choose(figures, key=lambda one: figures[one])
    return Gain(before, figures[step], step, validator.is_better(figures[step], {0: before}), metric)


def read_figures(entries: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    return {entry["step"]: entry["figure"] for entry in entries if entry.get("figure") is not None}


def _measure_disparity(
    matcher: StereoMatcher, source: Source, advance: Callable[[], None]
) -> tuple[dict[str, float], list[NDArray[np.uint8]]]:
    images: list[NDArray[np.uint8]] = []

    def estimate(sample: Sample) -> Estimate:
        found = MatcherMethod(matcher, extras=False).run(sample)
        if len(images) < SAMPLES:
            # Colours span the range of the ground truth, so that validations are comparable.
            assert sample.disparity is not None
            known = sample.disparity[np.isfinite(sample.disparity)]
            high = float(np.percentile(known, 99)) if known.size else float(found.disparity.max())
            coloured = colorize(found.disparity, 0.0, max(high, 1.0))
            images.append(np.concatenate([to_uint8(sample.left), coloured]))
        return found

    pooled = measure(Disparity(), source, {"network": estimate}, advance=advance).meter.pooled_metrics["all"]
    return {"D1": pooled["d1"], "EPE": pooled["epe"]}, images


def _measure_superres(
    upscaler: StereoUpscaler, source: Source, advance: Callable[[], None]
) -> tuple[dict[str, float], list[NDArray[np.uint8]]]:
    images: list[NDArray[np.uint8]] = []

    def upscale(pair: SuperresPair) -> Upscaled:
        found = UpscalerMethod(upscaler, right_view="both").run(pair)
        if len(images) < SAMPLES:
            height, width = map(min, found.left.shape[:2], CROP)
            top, left = (found.left.shape[0] - height) // 2, (found.left.shape[1] - width) // 2
            middle = slice(top, top + height), slice(left, left + width)
            images.append(np.concatenate([pair.bicubic().left[middle], found.left[middle]], axis=1))
        return found

    task, methods = Superres(int(upscaler.scale)), {BICUBIC: SuperresPair.bicubic, "network": upscale}
    measured = measure(task, source, methods, advance=advance)
    psnr = {method: total.image_means["left"]["psnr"] for method, total in measured.methods.items()}
    worth = measured.meter.second_view
    assert worth is not None
    return {"PSNR": psnr["network"], "bicubic": psnr[BICUBIC], "second view": worth}, images
