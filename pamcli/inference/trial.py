"""Try descriptions of a foreign network on the sample pair and compare their errors."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import ModelError
from pamcli.imaging.resize import imresize
from pamcli.inference.foreign import ForeignModel
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.runners import Runner, Session
from pamcli.inference.sample_pair import sample_pair
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.description import Description, format_setting

FAR = 3.0
"""Error above which a pixel is wrong, px."""
WORKING = 0.4
"""Maximum share of wrong pixels for a network to work on the sample pair; with wrong input nearly every pixel
is wrong."""
CLEARLY = 0.7
"""Error ratio up to which an alternative description is clearly better."""
NEARLY = 0.85
"""Error ratio above which the plainer of two descriptions is chosen."""
SLIGHTLY = 0.97
"""Both ratios for channel order, which matters little, and for super-resolution: 0.26 dB."""
CROP = slice(120, 376), slice(180, 564)
"""Rows and columns of the sample pair for super-resolution; sides are multiples of 16."""

NONE, ONE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
HALF = (0.5, 0.5, 0.5)

Choice = Mapping[str, Any]
RANGES: dict[str, Choice] = {
    "0 to 1": {"white": 1, "mean": NONE, "deviation": ONE},
    "0 to 255": {"white": 255, "mean": NONE, "deviation": ONE},
    "by ImageNet's mean and deviation": {"white": 1, "mean": IMAGE_MEAN, "deviation": IMAGE_STD},
    "-1 to 1": {"white": 1, "mean": HALF, "deviation": HALF},
}
CHANNELS: dict[str, Choice] = {"RGB": {"channels": "RGB"}, "BGR": {"channels": "BGR"}}
SIGNS: dict[str, Choice] = {"positive": {"sign": 1}, "negative": {"sign": -1}}
UNITS: dict[str, Choice] = {each: {"unit": each} for each in ("pixels", "output pixels", "width")}
CHOICES = {"range": RANGES, "channels": CHANNELS, "sign": SIGNS, "unit": UNITS}
"""Possible values of each aspect."""
SWAPPED = {"left": "right", "right": "left", "left/2": "right/2", "right/2": "left/2"}
SWAPPED |= {"left+right": "right+left", "right+left": "left+right"}

ASPECTS = {
    "views": "which input is the left image",
    "range": "the values of black and white",
    "channels": "the order of the channels",
    "sign": "the sign of the disparity",
    "unit": "the unit of the disparity",
}
"""Aspects of a description that may be wrong, with their meanings."""

SET = {
    "views": '--set inputs=\'{NAME = "left", NAME = "right"}\'',
    "range": "--set white=1 or 255, --set mean=[0.485,0.456,0.406], --set deviation=[0.229,0.224,0.225]",
    "channels": "--set channels=RGB or BGR",
    "sign": "--set sign=1 or -1",
    "unit": "--set unit=pixels or width",
}
"""The command-line settings for each aspect."""


@dataclass(frozen=True)
class TrialResult:
    """A description and the network's result for the sample pair."""

    description: Description
    error: float
    """Matching: mean error, px; super-resolution: root mean squared error, grey levels."""
    wrong: float
    """Matching: share of pixels with an error above `FAR`; super-resolution: `error` relative to bicubic."""
    outputs: tuple[NDArray[Any], ...]
    """The disparity map, or both upscaled images."""

    @property
    def is_useful(self) -> bool:
        """True if the result is useful."""
        return self.wrong < (WORKING if self.description.task == "disparity" else 1.0)

    @property
    def rank_key(self) -> tuple[float, float]:
        """Sort key of the result; the best result has the smallest key."""
        return self.error, self.wrong

    @property
    def figure(self) -> str:
        """Error for people."""
        if self.description.task == "disparity":
            return f"mean error {self.error:.2f} px"
        return f"PSNR {psnr(self.error):.2f} dB"

    def __str__(self) -> str:
        if self.description.task == "disparity":
            return f"{self.figure}, {100 * self.wrong:.1f} % of the pixels wrong by more than {FAR:g} px"
        return f"{self.figure}, bicubic interpolation {psnr(self.error / self.wrong):.2f} dB"


def psnr(error: float) -> float:
    """Convert a root mean squared error in grey levels to PSNR, dB."""
    return 20 * float(np.log10(255 / max(error, 1e-9)))


def list_alternatives(description: Description, aspect: str) -> Iterator[Description]:
    """Yield the description with each other value of an aspect."""
    if aspect == "views":
        swapped = {name: SWAPPED.get(content, content) for name, content in description.inputs.items()}
        yield description.with_values(inputs=swapped)
    elif aspect != "channels" or description.channels != "grey":
        for choice in CHOICES[aspect].values():
            if (other := description.with_values(**choice)) != description:
                yield other


def describe_aspect(description: Description, aspect: str) -> str:
    """Describe the value of an aspect for people."""
    if aspect == "views":
        return f"inputs {', '.join(f'{name} is {content}' for name, content in description.inputs.items())}"
    if aspect == "range":
        values = {key: getattr(description, key) for key in ("white", "mean", "deviation")}
        named = [name for name, choice in RANGES.items() if choice == values]
        return f"images {named[0]}" if named else f"white {description.white}, mean {description.mean}"
    if aspect == "sign":
        return "disparities positive" if description.sign == 1 else "disparities negative"
    return f"disparity in {description.unit}" if aspect == "unit" else f"channels {description.channels}"


def explain_tie(chosen: TrialResult, other: TrialResult) -> str:
    """Explain that two descriptions are equally accurate, and how to choose the other one."""
    one, two = chosen.description, other.description
    pairs = [(describe_aspect(one, each), describe_aspect(two, each)) for each in ASPECTS]
    here, there = zip(*(pair for pair in pairs if pair[0] != pair[1]), strict=True)
    values = {each.name: getattr(two, each.name) for each in fields(two)}  # type: ignore[arg-type]
    changes = [
        f"--set {shlex.quote(f'{name}={value if isinstance(value, str) else format_setting(value)}')}"
        for name, value in values.items()
        if value != getattr(one, name)
    ]
    return (
        f"{', '.join(there)} ({other.figure}) is nearly as accurate as the chosen {', '.join(here)} "
        f"({chosen.figure}); to choose it, add {' '.join(changes)}"
    )


class Trials:
    """Runs descriptions of one network on the sample pair, each distinct input once."""

    def __init__(self, runner: Runner, initial: Session | None) -> None:
        self.runner, self.initial = runner, initial
        self.runs: dict[str, tuple[NDArray[Any], ...]] = {}

    def find_simplest(
        self, candidates: Iterable[Description], share: float
    ) -> tuple[TrialResult, TrialResult | None]:
        """Return the first result within `share` of the smallest error, and an equally accurate one.

        `candidates`: plainest first. The second value is the best other result that is not clearly worse, or
        None. Raises ModelError: no description runs.
        """
        results = self._run_all(candidates)
        best = min(results, key=lambda result: result.rank_key)
        near = [each for each in results if each.is_useful and best.error >= share * each.error]
        if not near:
            return best, None
        return near[0], min(near[1:], key=lambda result: result.rank_key, default=None)

    def find_contradictions(self, best: TrialResult, decided: set[str]) -> Iterator[str]:
        """Yield descriptions of values that would be clearly better than decided ones."""
        for aspect in (each for each in ASPECTS if each in decided):
            if best.description.task == "superres" and aspect in ("sign", "unit"):
                continue
            others = list(list_alternatives(best.description, aspect))
            if aspect == "unit" and best.description.resolution == 1:
                others = [each for each in others if each.unit != "output pixels"]
            try:
                other = min(self._run_all(others), key=lambda result: result.rank_key)
            except ModelError:
                continue
            limit = SLIGHTLY if aspect == "channels" else CLEARLY
            is_better = other.is_useful and other.error < limit * best.error
            if is_better and (aspect != "channels" or other.wrong < best.wrong):
                yield (
                    f"on the sample pair, {describe_aspect(other.description, aspect)} is better than "
                    f"{describe_aspect(best.description, aspect)}: {other} ({SET[aspect]})"
                )

    def _run_all(self, candidates: Iterable[Description]) -> list[TrialResult]:
        results, failure = [], ModelError("the network cannot be run")
        for each in candidates:
            try:
                is_matcher = each.task == "disparity"
                results.append(self._try_matcher(each) if is_matcher else self._try_upscaler(each))
            except ModelError as error:
                failure = error
        if not results:
            raise failure
        return results

    def _run(self, description: Description) -> tuple[NDArray[Any], ...]:
        plain = description.with_values(sign=1, unit="pixels", larger="tiles")
        if (key := repr(plain)) not in self.runs:
            network = ForeignModel(plain, self.runner, self.initial)
            network.signed = True
            if description.task == "disparity":
                pair = sample_pair()
                result = StereoMatcher(network, match_size="auto")(pair.left, pair.right)
                self.runs[key] = (result.disparity,)
            else:
                self.runs[key] = StereoUpscaler(network)(*_downscale_pair(description.scale or 1))
        return self.runs[key]

    def _try_matcher(self, description: Description) -> TrialResult:
        (values,) = self._run(description)
        multiple, fixed = description.multiple, description.fixed_size
        columns = -(-values.shape[1] // multiple) * multiple if fixed is None else fixed[1]
        unit = {"pixels": 1.0, "output pixels": 1 / description.resolution, "width": float(columns)}
        disparity = values * np.float32(description.sign * unit[description.unit])
        truth = sample_pair().truth
        errors = np.abs(disparity - truth)[np.isfinite(truth) & (truth > 0)]
        errors[~np.isfinite(errors)] = np.float32(1e6)
        return TrialResult(description, float(errors.mean()), float((errors > FAR).mean()), (disparity,))

    def _try_upscaler(self, description: Description) -> TrialResult:
        made = self._run(description)
        assert description.scale is not None
        pair = sample_pair()
        truths = np.stack([view[CROP] for view in (pair.left, pair.right)]).astype(np.float64)
        bicubic = tuple(imresize(view, description.scale) for view in _downscale_pair(description.scale))
        squares = (np.square(np.stack(views) - truths) for views in (made, bicubic))
        error, simple = (float(np.sqrt(each.mean())) for each in squares)
        return TrialResult(description, error, error / simple, made)


def _downscale_pair(scale: int) -> tuple[NDArray[Any], NDArray[Any]]:
    pair = sample_pair()
    left, right = (imresize(view[CROP], 1 / scale) for view in (pair.left, pair.right))
    return left, right
