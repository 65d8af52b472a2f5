"""Determine the description of a foreign network by its shapes and by trials on the sample pair."""

import itertools
import operator
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import ModelError, UsageError
from pamcli.imaging.colormap import colorize
from pamcli.imaging.resize import imresize
from pamcli.inference.foreign import ForeignModel, recognise_session
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.runners import Runner, Session, open_runner
from pamcli.inference.sample_pair import sample_pair
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.description import SUFFIX, Description, apply_settings, format_setting, read_description
from pamcli.registry.families import guess_values

WRONG_PX = 3.0  # error above which a pixel is wrong, px
WORKING = 0.4  # maximum share of wrong pixels of a working network; with wrong input nearly all are
CLEARLY_BETTER = 0.7  # error ratio up to which an alternative description is clearly better
NEARLY_EQUAL = 0.85  # error ratio above which the plainer of two descriptions is chosen
SLIGHTLY = 0.97  # both ratios for channel order, which matters little, and for super-resolution: 0.26 dB
CROP = slice(120, 376), slice(180, 564)  # rows and columns for super-resolution, multiples of 16

NONE, HALF, ONE = ((each,) * 3 for each in (0.0, 0.5, 1.0))

CHOICES: dict[str, dict[str, dict[str, Any]]] = {  # values of each aspect
    "range": {
        "0 to 1": {"white": 1, "mean": NONE, "deviation": ONE},
        "0 to 255": {"white": 255, "mean": NONE, "deviation": ONE},
        "by ImageNet's mean and deviation": {"white": 1, "mean": IMAGE_MEAN, "deviation": IMAGE_STD},
        "-1 to 1": {"white": 1, "mean": HALF, "deviation": HALF},
    },
    "channels": {"RGB": {"channels": "RGB"}, "BGR": {"channels": "BGR"}},
    "sign": {"positive": {"sign": 1}, "negative": {"sign": -1}},
    "unit": {each: {"unit": each} for each in ("pixels", "output pixels", "width")},
}
SWAPPED = {"left": "right", "right": "left", "left/2": "right/2", "right/2": "left/2"}
SWAPPED |= {"left+right": "right+left", "right+left": "left+right"}

ASPECTS = {  # aspects of a description that may be wrong, with their meanings
    "views": "which input is the left image",
    "range": "the values of black and white",
    "channels": "the order of the channels",
    "sign": "the sign of the disparity",
    "unit": "the unit of the disparity",
}

SET = {  # the command-line settings for each aspect
    "views": '--set inputs=\'{NAME = "left", NAME = "right"}\'',
    "range": "--set white=1 or 255, --set mean=[0.485,0.456,0.406], --set deviation=[0.229,0.224,0.225]",
    "channels": "--set channels=RGB or BGR",
    "sign": "--set sign=1 or -1",
    "unit": "--set unit=pixels or width",
}


@dataclass(frozen=True)
class TrialResult:
    """A description and the network's result for the sample pair."""

    description: Description
    error: float  # matching: mean error, px; super-resolution: root mean squared error, grey levels
    wrong: float  # matching: share of pixels off by more than `WRONG_PX`; else `error` relative to bicubic
    outputs: tuple[NDArray[Any], ...]  # the disparity map, or both upscaled images

    @property
    def is_useful(self) -> bool:
        return self.wrong < (WORKING if self.description.task == "disparity" else 1.0)

    @property
    def figure(self) -> str:
        if self.description.task == "disparity":
            return f"mean error {self.error:.2f} px"
        return f"PSNR {psnr(self.error):.2f} dB"

    def __str__(self) -> str:
        if self.description.task == "disparity":
            return f"{self.figure}, {100 * self.wrong:.1f} % of the pixels wrong by more than {WRONG_PX:g} px"
        return f"{self.figure}, bicubic interpolation {psnr(self.error / self.wrong):.2f} dB"


RANK = operator.attrgetter("error", "wrong")  # the best `TrialResult` first


def psnr(error: float) -> float:
    """Convert a root mean squared error in grey levels to PSNR, dB."""
    return 20 * float(np.log10(255 / max(error, 1e-9)))


def list_alternatives(description: Description, aspect: str) -> Iterator[Description]:
    if aspect == "views":
        swapped = {name: SWAPPED.get(content, content) for name, content in description.inputs.items()}
        yield description.with_values(inputs=swapped)
    elif aspect != "channels" or description.channels != "grey":
        for choice in CHOICES[aspect].values():
            if (other := description.with_values(**choice)) != description:
                yield other


def describe_aspect(description: Description, aspect: str) -> str:
    if aspect == "views":
        return f"inputs {', '.join(f'{name} is {content}' for name, content in description.inputs.items())}"
    if aspect == "range":
        values = {key: getattr(description, key) for key in ("white", "mean", "deviation")}
        named = [name for name, choice in CHOICES["range"].items() if choice == values]
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
    accuracy = "slightly more accurate than" if other.error < chosen.error else "nearly as accurate as"
    return (
        f"{', '.join(there)} ({other.figure}) is {accuracy} the chosen {', '.join(here)} "
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
        """Return the first result within `share` of the smallest error, and the best other such one."""
        results = self._run_all(candidates)
        best = min(results, key=RANK)
        near = [each for each in results if each.is_useful and best.error >= share * each.error]
        if not near:
            return best, None
        return near[0], min(near[1:], key=RANK, default=None)

    def find_contradictions(self, best: TrialResult, decided: set[str]) -> Iterator[str]:
        """Yield descriptions of values that would be clearly better than decided ones."""
        for aspect in (each for each in ASPECTS if each in decided):
            if best.description.task == "superres" and aspect in ("sign", "unit"):
                continue
            others = list(list_alternatives(best.description, aspect))
            if aspect == "unit" and best.description.resolution == 1:
                others = [each for each in others if each.unit != "output pixels"]
            try:
                other = min(self._run_all(others), key=RANK)
            except ModelError:
                continue
            limit = SLIGHTLY if aspect == "channels" else CLEARLY_BETTER
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
        return TrialResult(description, float(errors.mean()), float((errors > WRONG_PX).mean()), (disparity,))

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


@dataclass(frozen=True)
class Findings:
    """A description as far as it could be determined."""

    result: TrialResult
    undecided: tuple[str, ...]  # `ASPECTS` that shapes, settings and the sample pair leave open
    contradictions: tuple[str, ...]  # evidence against the description, one line each, most important first
    decided: tuple[str, ...] = ()  # aspects determined by trying, in words
    close: tuple[str, ...] = ()  # list_alternatives with similar accuracy on the sample pair, one line each

    def warnings(self) -> Iterator[str]:
        """Yield arguments against the description or for another one, one line each."""
        yield from (*self.contradictions, *self.close)
        if not self.result.is_useful:
            yield (
                "the network does not work on the sample pair with this description: it may be for other "
                "images, or another value is wrong"
            )

    def questions(self) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
        """Yield a question for each undecided aspect, with answers and the settings that express them."""
        description = self.result.description
        for aspect in self.undecided:
            choices: Mapping[str, Mapping[str, Any]] = CHOICES.get(aspect) or {
                " and ".join(name for name, content in each.inputs.items() if content.startswith("left")): {
                    "inputs": each.inputs
                }
                for each in (description, *list_alternatives(description, aspect))
            }
            yield (
                ASPECTS[aspect],
                {
                    choice: {key: format_setting(value) for key, value in values.items()}
                    for choice, values in choices.items()
                },
            )

    def check(self) -> None:
        """Raise ModelError if the sample pair contradicts, UsageError if an aspect is undecided."""
        if self.contradictions and not self.result.is_useful:
            raise ModelError(self.contradictions[0])
        if self.undecided:
            unknown = "; ".join(f"{ASPECTS[each]} ({SET[each]})" for each in self.undecided)
            what = f"the inputs and outputs of this network remain unclear, the best trial has {self.result}"
            raise UsageError(what, f"specify {unknown}")

    def render(self) -> NDArray[np.uint8]:
        """Return a check image (H, W, 3): left image, result, and its error (white: 3 px) or the target."""
        pair, outputs = sample_pair(), self.result.outputs
        if self.result.description.task == "superres":
            return np.concatenate([outputs[0].astype(np.uint8), pair.left[CROP]], axis=1)
        known = np.isfinite(pair.truth) & (pair.truth > 0)
        low, high = np.percentile(pair.truth[known], (1, 99)).tolist()
        apart = np.clip(np.abs(outputs[0] - np.where(known, pair.truth, 0)) / WRONG_PX, 0, 1)
        errors = (255 * np.where(known, apart, 0)).astype(np.uint8)[..., None].repeat(3, axis=2)
        return np.concatenate([pair.left, colorize(outputs[0], low, high), errors], axis=1)


@dataclass(frozen=True)
class Candidate:
    """A network to describe."""

    runner: Runner
    network: str  # its file, as named in the description
    base: Description | None  # description to check; None = none exists yet
    initial: Session | None  # network that estimates the initial flow, if required
    initial_name: str = ""  # its file, as named in the description

    @classmethod
    def load(
        cls,
        network: Path | None,
        network_from: str | None,
        settings: Mapping[str, str],
        *,
        device: str,
        description: Path,
    ) -> "Candidate":
        """Load an ONNX file, the network of a description, or the result of "module:function"."""
        # `description`: the file to write; file names are relative to it.
        base, named_by = None, network or "the description"
        if network is not None and network.suffix == SUFFIX:
            base = read_description(network)
            network = Path(base.network) if base.network else None
        runner = open_runner(network, network_from, device, "auto", named_by)
        first = settings.get("initial") or (base.initial if base else "")
        initial = Session.load(Path(first), device) if first else None
        name, initial_name = (
            Path(os.path.relpath(Path(file).resolve(), description.parent.resolve())).as_posix()
            if file
            else ""
            for file in (network, first)
        )
        if base is not None:
            base = base.with_values(network=name, initial=initial_name)
        return cls(runner, name, base, initial, initial_name)

    def describe(self, settings: Mapping[str, str]) -> Findings:
        """Determine inputs and outputs with known `settings`; try undecided aspects on the sample pair."""
        if self.initial_name:
            settings = {**settings, "initial": self.initial_name}
        known, decided = self.base, {*ASPECTS}
        if known is None and isinstance(self.runner, Session):
            known = recognise_session(self.runner, self.network, settings.get("initial", ""))
        if known is None:
            known, decided = _guess(self.runner, self.network, settings)
        description = apply_settings(known, {**settings})
        keys = {"inputs": "views", "white": "range", "mean": "range", "deviation": "range"}
        decided |= {keys.get(key, key) for key in settings} & {*ASPECTS}
        trials = Trials(self.runner, self.initial)
        share = NEARLY_EQUAL if description.task == "disparity" else SLIGHTLY
        candidates = _combine(description, {"views", "range", "sign", "unit"} - decided)
        best, rival = trials.find_simplest(candidates, share)
        close = [explain_tie(best, rival)] if rival is not None else []
        if best.is_useful and "channels" not in decided:
            colours = [best.description, *list_alternatives(best.description, "channels")]
            best, rival = trials.find_simplest(colours, SLIGHTLY)
            close += [explain_tie(best, rival)] if rival is not None else []
        contradictions = tuple(trials.find_contradictions(best, decided))
        open_aspects = {*ASPECTS} - decided
        if not best.is_useful and not contradictions and open_aspects:
            undecided = tuple(each for each in ASPECTS if each in open_aspects)
            return Findings(best, undecided, contradictions, close=tuple(close))
        found = sorted(describe_aspect(best.description, each) for each in open_aspects)
        return Findings(best, (), contradictions, tuple(found), tuple(close))


def _guess(runner: Runner, network: str, settings: Mapping[str, str]) -> tuple[Description, set[str]]:
    """Return a description based on shapes alone, and the aspects that are certain."""
    decided: set[str] = set()
    try:
        interface, scale = runner.probe()
        values = guess_values(interface, scale)
    except ModelError:
        if isinstance(runner, Session):
            raise
        # The network may need the size, or the number of images, that the settings state.
        values = {"task": "unknown", "inputs": {"left": "left", "right": "right"}, "multiple": 32}
    if values["task"] == "disparity":
        chosen = next(p for p in interface.outputs if values["outputs"].get(p.name) == "disparity")
        first = interface.outputs[0]
        if first.name == "0" and first.sides == chosen.sides:  # of unnamed maps, the first
            chosen, values["outputs"] = first, {"0": "disparity"}
        given = next(port for port in interface.inputs if port.image_shape is not None)
        columns = (given.image_shape or (0, 0, 0))[2] or runner.side
        values["resolution"] = chosen.sides[1] / columns
        if values["resolution"] == 1:
            decided |= {"unit"}
    if values["task"] != settings.get("task", values["task"]) or values["task"] == "unknown":
        values |= {"task": "disparity", "outputs": {"0": "disparity"}, "resolution": 1.0}
        if settings.get("task") == "superres":
            values |= {"task": "superres", "outputs": {"0": "left", "1": "right"}, "scale": 2}
        decided |= {"unit"}
    values["network"] = network
    if values["task"] == "superres" or settings.get("task") == "superres":
        decided |= {"sign", "unit"}
    if values.get("channels") == "grey":
        decided |= {"channels"}
    if any("left" in name.lower() and content == "left" for name, content in values["inputs"].items()):
        decided |= {"views"}
    return Description(**values), decided


def _combine(description: Description, undecided: set[str]) -> Iterator[Description]:
    views = [description, *list_alternatives(description, "views")] if "views" in undecided else [description]
    choices: list[list[dict[str, Any]]] = [
        [*CHOICES[aspect].values()] if aspect in undecided else [{}] for aspect in ("range", "sign", "unit")
    ]
    for view, *changes in itertools.product(views, *choices):
        yield view.with_values(**{key: value for change in changes for key, value in change.items()})
