"""What a network wants, found out on the sample pair: descriptions are tried, and wrong ones are caught."""

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import ModelError, UsageError
from pamcli.imaging.colormap import colorize
from pamcli.imaging.resize import imresize
from pamcli.inference.foreign import ForeignNetwork, recognised
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.runners import Module, Runner, Session
from pamcli.inference.sample_pair import sample_pair
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.description import SUFFIX, Description, read_description, with_settings
from pamcli.registry.guessing import columns_of, guessed

FAR = 3.0
"""Pixels of error above which a pixel is wrong."""
FOUND = 0.4
"""A network finds something on the sample pair where a smaller share of its pixels is wrong; one that is fed
wrongly is wrong nearly everywhere."""
CLEARLY = 0.7
"""Another description is the right one where it leaves at most this share of the error."""
SLIGHTLY = 0.995
"""The order of the channels matters little: a better one leaves at most this share of the error."""
CROP = slice(120, 376), slice(180, 564)
"""Rows and columns of the sample pair that super-resolution is tried on, its sides multiples of 16."""

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
"""Values that aspects can have."""
SWAPPED = {"left": "right", "right": "left", "left/2": "right/2", "right/2": "left/2"}
SWAPPED |= {"left+right": "right+left", "right+left": "left+right"}

ASPECTS = {
    "views": "which of the two inputs the left view is",
    "range": "which numbers stand for black and white",
    "channels": "the order of the colours",
    "sign": "whether disparities are positive",
    "unit": "in what the disparity is counted",
}
"""What a description may have wrong, and what it means."""

SET = {
    "views": '--set inputs=\'{NAME = "left", NAME = "right"}\'',
    "range": "--set white=1 or 255, --set mean=[0.485,0.456,0.406], --set deviation=[0.229,0.224,0.225]",
    "channels": "--set channels=RGB or BGR",
    "sign": "--set sign=1 or -1",
    "unit": "--set unit=pixels or width",
}
"""How the command line says it."""


@dataclass(frozen=True)
class Tried:
    """A description and what its network found on the sample pair."""

    description: Description
    error: float
    """Matching: mean error, pixels; super-resolution: root of the mean squared error, grey levels."""
    wrong: float
    """Matching: share of the pixels that are off by more than `FAR`; super-resolution: `error` in parts of
    bicubic interpolation's."""
    found: tuple[NDArray[Any], ...]
    """The disparity, or both larger pictures."""

    @property
    def works(self) -> bool:
        """Whether the network finds something."""
        return self.wrong < (FOUND if self.description.task == "disparity" else 1.0)

    def __str__(self) -> str:
        if self.description.task == "disparity":
            wrong = f"{100 * self.wrong:.1f} % of the pixels off by more than {FAR:g} px"
            return f"mean error {self.error:.2f} px, {wrong}"
        return f"PSNR {psnr(self.error):.2f} dB, bicubic interpolation {psnr(self.error / self.wrong):.2f} dB"


@dataclass(frozen=True)
class Described:
    """A description as far as it could be told."""

    tried: Tried
    undecided: tuple[str, ...]
    """`ASPECTS` that neither shapes nor settings nor the sample pair tell."""
    contradictions: tuple[str, ...]
    """What the sample pair says against the description, a line each; the first one counts most."""
    settled: tuple[str, ...] = ()
    """What was found out by trying, in words."""


def psnr(error: float) -> float:
    """Decibels, of a root of the mean squared error in grey levels."""
    return 20 * float(np.log10(255 / max(error, 1e-9)))


@dataclass(frozen=True)
class Asked:
    """A network that is to be described."""

    runner: Runner
    network: str
    """Its file, as the description names it."""
    base: Description | None
    """What is to be checked; None: there is no description yet."""
    initial: Session | None
    """What finds the initial flow, where the network takes one."""

    def describe(self, settings: Mapping[str, str]) -> Described:
        """Find out how the network is fed and read; what cannot be seen is tried on the sample pair.

        settings: values that are known, KEY and VALUE as text. Raises ModelError: no stereo network, or one
        that does not run; UsageError: settings that cannot be.
        """
        return _describe(self.runner, self.network, settings, self.base, self.initial)


def opened(
    network: Path | None, network_from: str | None, settings: Mapping[str, str], *, device: str, beside: Path
) -> Asked:
    """Load what is to be described: an ONNX file, a description of one, or what "module:function" makes.

    beside: the description that is to be written, which names files as they lie from there. Raises
    ModelError, DeviceError, UsageError.
    """
    base = None
    if network is not None and network.suffix == SUFFIX:
        base = read_description(network)
        network = Path(base.network) if base.network else None
    if network_from is not None:
        runner: Runner = Module.load(network_from, device, "auto")
    elif network is None:
        raise UsageError("the description names no network", "`network_from` MODULE:FUNCTION makes it")
    else:
        runner = Session.load(network, device)
    first = settings.get("initial") or (base.initial if base else "")
    initial = Session.load(Path(first), device) if first else None
    name = "" if network is None else _seen_from(beside.parent, network)
    if base is not None:
        base = base.with_values(network=name)
    return Asked(runner, name, base, initial)


def _seen_from(folder: Path, file: Path) -> str:
    """A file by its name from a folder."""
    return Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix()


def _describe(
    runner: Runner,
    network: str,
    settings: Mapping[str, str],
    base: Description | None,
    initial: Session | None,
) -> Described:
    known = base
    if known is None and isinstance(runner, Session):
        known = recognised(runner, network, settings.get("initial", ""))
    decided = {*ASPECTS} if known is not None else set()
    if known is None:
        known, decided = _guess(runner, network, settings)
    described = with_settings(known, {**settings})
    keys = {"inputs": "views", "white": "range", "mean": "range", "deviation": "range"}
    decided |= {keys.get(key, key) for key in settings} & {*ASPECTS}
    trial = _Trial(runner, initial)
    best = trial.best(_combined(described, {"views", "range", "sign", "unit"} - decided))
    if best.works and "channels" not in decided:
        best = trial.best([best.description, *_others(best.description, "channels")])
    contradictions = tuple(trial.contradictions(best, decided))
    told = best.works or contradictions
    undecided = () if told else tuple(each for each in ASPECTS if each not in decided)
    settled = () if undecided else tuple(_words(best.description, each) for each in {*ASPECTS} - decided)
    return Described(best, undecided, contradictions, tuple(sorted(filter(None, settled))))


def _guess(runner: Runner, network: str, settings: Mapping[str, str]) -> tuple[Description, set[str]]:
    """A description by shapes alone, and what of it is certain."""
    decided: set[str] = set()
    if isinstance(runner, Session):
        interface, scale = runner.probed()
        values = guessed(interface, scale)
        if values["task"] == "disparity":
            chosen = next(
                port for port in interface.outputs if values["outputs"].get(port.name) == "disparity"
            )
            given = next(port for port in interface.inputs if port.picture is not None)
            columns = (given.picture or (0, 0, 0))[2] or 64
            values["resolution"] = columns_of(chosen) / columns
            if values["resolution"] == 1:
                decided |= {"unit"}
    else:
        values = {"task": "disparity", "inputs": {"left": "left", "right": "right"}, "multiple": 32}
        values["outputs"] = {"0": "disparity"}
        if settings.get("task") == "superres":
            values |= {"outputs": {"0": "left", "1": "right"}, "scale": int(settings.get("scale", 2))}
        decided |= {"unit"}
    if values["task"] == "superres" or settings.get("task") == "superres":
        decided |= {"sign", "unit"}
    if values.get("channels") == "grey":
        decided |= {"channels"}
    if any("left" in name.lower() and given == "left" for name, given in values["inputs"].items()):
        decided |= {"views"}
    values["network"] = network if isinstance(runner, Session) else ""
    return Description(**values), decided


def _combined(described: Description, undecided: set[str]) -> Iterator[Description]:
    """Every combination of what is not decided."""
    each = [[described, *_others(described, "views")] if "views" in undecided else [described]]
    for aspect, choices in (("range", RANGES), ("sign", SIGNS), ("unit", UNITS)):
        each.append([*choices.values()] if aspect in undecided else [{}])  # type: ignore[list-item]
    for views, *changes in itertools.product(*each):
        values = {key: value for change in changes for key, value in change.items()}  # type: ignore[attr-defined]
        yield views.with_values(**values)


def _others(described: Description, aspect: str) -> Iterator[Description]:
    """The description with another value of an aspect, one after the other."""
    if aspect == "views":
        swapped = {name: SWAPPED.get(given, given) for name, given in described.inputs.items()}
        yield described.with_values(inputs=swapped)
        return
    if aspect == "channels" and described.channels == "grey":
        return
    for choice in CHOICES[aspect].values():
        if (other := described.with_values(**choice)) != described:
            yield other


def _words(described: Description, aspect: str) -> str:
    """What a description says of an aspect, for people."""
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


class _Trial:
    """Runs descriptions on the sample pair, each way of feeding once."""

    def __init__(self, runner: Runner, initial: Session | None) -> None:
        self.runner, self.initial = runner, initial
        self.runs: dict[str, tuple[NDArray[Any], ...]] = {}

    def best(self, candidates: Any) -> Tried:
        """The one with the smallest error. Raises ModelError where none runs."""
        tried, failure = [], None
        for each in candidates:
            try:
                tried.append(self.tried(each))
            except ModelError as error:
                failure = error
        if not tried:
            assert failure is not None
            raise failure
        return min(tried, key=lambda each: (each.error, each.wrong))

    def tried(self, described: Description) -> Tried:
        return self._matched(described) if described.task == "disparity" else self._enlarged(described)

    def contradictions(self, best: Tried, decided: set[str]) -> Iterator[str]:
        """What would be clearly better than what was decided."""
        for aspect in (each for each in ASPECTS if each in decided):
            if best.description.task == "superres" and aspect in ("sign", "unit"):
                continue
            others = list(_others(best.description, aspect))
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
                    f"the sample pair says otherwise: {_words(other.description, aspect)} instead of "
                    f"{_words(best.description, aspect)} has {other} ({SET[aspect]})"
                )

    def _run(self, described: Description) -> tuple[NDArray[Any], ...]:
        plain = described.with_values(sign=1, unit="pixels", larger="tiles")
        if (key := repr(plain)) not in self.runs:
            network = ForeignNetwork(plain, self.runner, self.initial)
            if described.task == "disparity":
                pair = sample_pair()
                matcher = StereoMatcher(network, plain, network.compute, match_size="auto")
                found = matcher(pair.left, pair.right, extras=())
                self.runs[key] = (found.disparity,)
            else:
                larger = StereoUpscaler(network, plain, network.compute)
                self.runs[key] = larger(*_reduced(described.scale or 1))
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
        pair, small = sample_pair(), _reduced(described.scale)
        truths = [view[CROP] for view in (pair.left, pair.right)]
        plain = [imresize(view, described.scale) for view in small]
        error, simple = (
            float(
                np.sqrt(
                    np.mean(
                        [
                            np.square(np.float64(one) - two).mean()
                            for one, two in zip(views, truths, strict=True)
                        ]
                    )
                )
            )
            for views in (found, plain)
        )
        return Tried(described, error, error / simple, found)


def _reduced(scale: int) -> tuple[NDArray[Any], NDArray[Any]]:
    pair = sample_pair()
    left, right = (imresize(view[CROP], 1 / scale) for view in (pair.left, pair.right))
    return left, right


def picture_of(tried: Tried) -> NDArray[np.uint8]:
    """What to look at, (H, W, 3) RGB: left view, disparity, and its error, white from 3 px on, side by side.

    Of super-resolution the left view as it was enlarged, and as it should be.
    """
    pair = sample_pair()
    if tried.description.task == "superres":
        return np.concatenate([tried.found[0].astype(np.uint8), pair.left[CROP]], axis=1)
    (disparity,) = tried.found
    known = np.isfinite(pair.truth) & (pair.truth > 0)
    low, high = np.percentile(pair.truth[known], (1, 99)).tolist()
    apart = np.where(known, np.clip(np.abs(disparity - np.where(known, pair.truth, 0)) / FAR, 0, 1), 0)
    errors = (255 * apart).astype(np.uint8)[..., None].repeat(3, axis=2)
    return np.concatenate([pair.left, colorize(disparity, low, high), errors], axis=1)


def require_settled(found: Described) -> None:
    """Raise UsageError where something could not be told."""
    if found.undecided:
        unknown = "; ".join(f"{ASPECTS[each]} ({SET[each]})" for each in found.undecided)
        raise UsageError(
            f"the sample pair does not tell how this network is fed, at best {found.tried}: say {unknown}"
        )
