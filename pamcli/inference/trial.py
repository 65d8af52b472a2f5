"""Try descriptions of a network on the sample pair and compare their errors."""

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
from pamcli.registry.description import Description, as_setting

FAR = 3.0
"""Error above which a pixel is wrong, px."""
FOUND = 0.4
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
    "views": "which of the two inputs the left view is",
    "range": "which numbers stand for black and white",
    "channels": "the order of the colours",
    "sign": "whether disparities are positive",
    "unit": "in what the disparity is counted",
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
class Tried:
    """A description and the network's result for the sample pair."""

    description: Description
    error: float
    """Matching: mean error, px; super-resolution: root mean squared error, grey levels."""
    wrong: float
    """Matching: share of pixels with an error above `FAR`; super-resolution: `error` relative to bicubic."""
    found: tuple[NDArray[Any], ...]
    """The disparity map, or both upscaled images."""

    @property
    def works(self) -> bool:
        """True if the result is useful."""
        return self.wrong < (FOUND if self.description.task == "disparity" else 1.0)

    @property
    def figure(self) -> str:
        """Error for people."""
        if self.description.task == "disparity":
            return f"mean error {self.error:.2f} px"
        return f"PSNR {psnr(self.error):.2f} dB"

    def __str__(self) -> str:
        if self.description.task == "disparity":
            return f"{self.figure}, {100 * self.wrong:.1f} % of the pixels off by more than {FAR:g} px"
        return f"{self.figure}, bicubic interpolation {psnr(self.error / self.wrong):.2f} dB"


def psnr(error: float) -> float:
    """Convert a root mean squared error in grey levels to PSNR, dB."""
    return 20 * float(np.log10(255 / max(error, 1e-9)))


def alternatives(described: Description, aspect: str) -> Iterator[Description]:
    """Yield the description with each other value of an aspect."""
    if aspect == "views":
        swapped = {name: SWAPPED.get(given, given) for name, given in described.inputs.items()}
        yield described.with_values(inputs=swapped)
        return
    if aspect == "channels" and described.channels == "grey":
        return
    for choice in CHOICES[aspect].values():
        if (other := described.with_values(**choice)) != described:
            yield other


def words(described: Description, aspect: str) -> str:
    """Describe the value of an aspect for people."""
    if aspect == "views":
        return f"inputs {', '.join(f'{name} is {given}' for name, given in described.inputs.items())}"
    if aspect == "range":
        values = {key: getattr(described, key) for key in ("white", "mean", "deviation")}
        named = [name for name, choice in RANGES.items() if choice == values]
        return f"pictures {named[0]}" if named else f"white {described.white}, mean {described.mean}"
    if aspect == "sign":
        return "disparities positive" if described.sign == 1 else "disparities negative"
    if aspect == "unit":
        return f"disparity in {described.unit}"
    return f"channels {described.channels}"


def hardly_told(taken: Tried, other: Tried) -> str:
    """Explain that two descriptions are equally accurate, and how to choose the other one."""
    one, two = taken.description, other.description
    said = [(words(one, each), words(two, each)) for each in ASPECTS]
    apart = [(here, there) for here, there in said if here != there]
    values = {each.name: getattr(two, each.name) for each in fields(two)}  # type: ignore[arg-type]
    changes = [
        f"--set {shlex.quote(f'{name}={value if isinstance(value, str) else as_setting(value)}')}"
        for name, value in values.items()
        if value != getattr(one, name)
    ]
    return (
        f"{', '.join(here for here, _ in apart)} ({taken.figure}) can hardly be told from "
        f"{', '.join(there for _, there in apart)} ({other.figure}), which {' '.join(changes)} takes"
    )


def _badness(tried: Tried) -> tuple[float, float]:
    return tried.error, tried.wrong


class Trial:
    """A runner of descriptions on the sample pair, which runs each distinct input once."""

    def __init__(self, runner: Runner, initial: Session | None) -> None:
        self.runner, self.initial = runner, initial
        self.runs: dict[str, tuple[NDArray[Any], ...]] = {}

    def best(self, candidates: Iterable[Description]) -> Tried:
        """Return the result with the smallest error; raise ModelError if no description runs."""
        return min(self._every(candidates), key=_badness)

    def plainest(self, candidates: Iterable[Description], share: float) -> tuple[Tried, Tried | None]:
        """Return the first result within `share` of the smallest error, and an equally accurate one.

        `candidates`: plainest first. The second value is the best other result that is not clearly worse, or
        None. Raises ModelError: no description runs.
        """
        tried = self._every(candidates)
        least = min(tried, key=_badness)
        near = [each for each in tried if each.works and least.error >= share * each.error]
        if not near:
            return least, None
        return near[0], min(near[1:], key=_badness, default=None)

    def _every(self, candidates: Iterable[Description]) -> list[Tried]:
        tried, failure = [], None
        for each in candidates:
            try:
                tried.append(self.tried(each))
            except ModelError as error:
                failure = error
        if not tried:
            assert failure is not None
            raise failure
        return tried

    def tried(self, described: Description) -> Tried:
        return self._matched(described) if described.task == "disparity" else self._enlarged(described)

    def contradictions(self, best: Tried, decided: set[str]) -> Iterator[str]:
        """Yield descriptions of values that would be clearly better than decided ones."""
        for aspect in (each for each in ASPECTS if each in decided):
            if best.description.task == "superres" and aspect in ("sign", "unit"):
                continue
            others = list(alternatives(best.description, aspect))
            if aspect == "unit" and best.description.resolution == 1:
                others = [each for each in others if each.unit != "output pixels"]
            try:
                other = self.best(others) if others else None
            except ModelError:
                continue
            limit = SLIGHTLY if aspect == "channels" else CLEARLY
            better = other is not None and other.works and other.error < limit * best.error
            if aspect == "channels" and other is not None:
                better &= other.wrong < best.wrong
            if other is not None and better:
                yield (
                    f"the sample pair says otherwise: {words(other.description, aspect)} instead of "
                    f"{words(best.description, aspect)} has {other} ({SET[aspect]})"
                )

    def _run(self, described: Description) -> tuple[NDArray[Any], ...]:
        plain = described.with_values(sign=1, unit="pixels", larger="tiles")
        if (key := repr(plain)) not in self.runs:
            network = ForeignModel(plain, self.runner, self.initial)
            network.signed = True
            if described.task == "disparity":
                pair = sample_pair()
                matcher = StereoMatcher(network, match_size="auto")
                found = matcher(pair.left, pair.right, extras=())
                self.runs[key] = (found.disparity,)
            else:
                larger = StereoUpscaler(network)
                self.runs[key] = larger(*reduced(described.scale or 1))
        return self.runs[key]

    def _matched(self, described: Description) -> Tried:
        (values,) = self._run(described)
        multiple, fixed = described.multiple, described.fixed_size
        columns = -(-values.shape[1] // multiple) * multiple if fixed is None else fixed[1]
        unit = {"pixels": 1.0, "output pixels": 1 / described.resolution, "width": float(columns)}
        disparity = values * np.float32(described.sign * unit[described.unit])
        truth = sample_pair().truth
        known = np.isfinite(truth) & (truth > 0)
        apart = np.abs(disparity - truth)[known]
        apart[~np.isfinite(apart)] = np.float32(1e6)
        return Tried(described, float(apart.mean()), float((apart > FAR).mean()), (disparity,))

    def _enlarged(self, described: Description) -> Tried:
        found = self._run(described)
        assert described.scale is not None
        pair, small = sample_pair(), reduced(described.scale)
        truths = np.stack([view[CROP] for view in (pair.left, pair.right)]).astype(np.float64)
        plain = tuple(imresize(view, described.scale) for view in small)
        squares = (np.square(np.stack(views) - truths) for views in (found, plain))
        error, simple = (float(np.sqrt(each.mean())) for each in squares)
        return Tried(described, error, error / simple, found)


def reduced(scale: int) -> tuple[NDArray[Any], NDArray[Any]]:
    pair = sample_pair()
    left, right = (imresize(view[CROP], 1 / scale) for view in (pair.left, pair.right))
    return left, right
