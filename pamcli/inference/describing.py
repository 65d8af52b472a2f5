"""Determine the description of a foreign network by its shapes and by trials on the sample pair."""

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

ASPECTS = {  # aspects of a description that may be wrong: the meaning, and the options that set it
    "views": ("which input is the left image", '--set inputs=\'{NAME = "left", NAME = "right"}\''),
    "range": (
        "the values of black and white",
        "--set white=1 or 255, --set mean=[0.485,0.456,0.406], --set deviation=[0.229,0.224,0.225]",
    ),
    "channels": ("the order of the channels", "--set channels=RGB or BGR"),
    "sign": ("the sign of the disparity", "--set sign=1 or -1"),
    "unit": ("the unit of the disparity", "--set unit=pixels or width"),
}
CHOICES: dict[str, dict[str, dict[str, Any]]] = {  # values of each aspect except "views"
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
SWAPPED = {"left": "right", "left/2": "right/2", "left+right": "right+left"}
SWAPPED |= {right: left for left, right in SWAPPED.items()}
OF_SETTING = {"inputs": "views", "white": "range", "mean": "range", "deviation": "range"}


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
        return f"PSNR {_psnr(self.error):.2f} dB"

    def __str__(self) -> str:
        if self.description.task == "disparity":
            return f"{self.figure}, {100 * self.wrong:.1f} % of the pixels wrong by more than {WRONG_PX:g} px"
        return f"{self.figure}, bicubic interpolation {_psnr(self.error / self.wrong):.2f} dB"


RANK = operator.attrgetter("error", "wrong")  # the best `TrialResult` first


def _psnr(error: float) -> float:
    """Convert a root mean squared error in grey levels to PSNR, dB."""
    return 20 * float(np.log10(255 / max(error, 1e-9)))


def list_choices(description: Description, aspect: str) -> list[Description]:
    """Return a description with each value of an aspect."""
    if aspect == "views":
        swapped = {name: SWAPPED.get(content, content) for name, content in description.inputs.items()}
        return [description, description.with_values(inputs=swapped)]
    if aspect == "channels" and description.channels == "grey":
        return [description]
    return [description.with_values(**choice) for choice in CHOICES[aspect].values()]


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


def _explain_tie(chosen: TrialResult, other: TrialResult) -> str:
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


@dataclass(frozen=True)
class Findings:
    """A description as far as it could be determined."""

    result: TrialResult
    undecided: list[str]  # `ASPECTS` that shapes, settings and the sample pair leave open
    decided: list[str]  # aspects determined by trying, in words
    contradictions: list[str]  # evidence against the description, one line each, most important first
    close: list[str]  # descriptions of similar accuracy on the sample pair, one line each

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
        for aspect in self.undecided:
            choices: Mapping[str, Mapping[str, Any]] = CHOICES.get(aspect) or {
                " and ".join(name for name, content in each.inputs.items() if content.startswith("left")): {
                    "inputs": each.inputs
                }
                for each in list_choices(self.result.description, aspect)
            }
            yield (
                ASPECTS[aspect][0],
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
            unknown = "; ".join("{} ({})".format(*ASPECTS[each]) for each in self.undecided)
            what = f"the inputs and outputs of this network remain unclear, the best trial has {self.result}"
            raise UsageError(what, f"specify {unknown}")

    def render(self) -> NDArray[np.uint8]:
        """Return a check image (H, W, 3): left image, result, and its error (white: 3 px) or the target."""
        (left, _, truth), outputs = sample_pair(), self.result.outputs
        if self.result.description.task == "superres":
            return np.concatenate([outputs[0].astype(np.uint8), left[CROP]], axis=1)
        known = np.isfinite(truth) & (truth > 0)
        low, high = np.percentile(truth[known], (1, 99)).tolist()
        apart = np.clip(np.abs(outputs[0] - np.where(known, truth, 0)) / WRONG_PX, 0, 1)
        errors = (255 * np.where(known, apart, 0)).astype(np.uint8)[..., None].repeat(3, axis=2)
        return np.concatenate([left, colorize(outputs[0], low, high), errors], axis=1)


class Candidate:
    """A network to describe, which is tried on the sample pair, once with each distinct input."""

    def __init__(
        self,
        network: Path | None,
        network_from: str | None,
        settings: Mapping[str, str],
        *,
        device: str,
        description: Path,
    ) -> None:
        """Load an ONNX file, the network of a description, or the result of "module:function".

        `description`: the file to write; file names are relative to it.
        """
        named_by, self.base = network or "the description", None
        if network is not None and network.suffix == SUFFIX:
            self.base = read_description(network)
            network = Path(self.base.network) if self.base.network else None
        self.runner = open_runner(network, network_from, device, "auto", named_by)
        first = settings.get("initial") or (self.base.initial if self.base else "")
        self.initial = Session.load(Path(first), device) if first else None
        folder = description.parent.resolve()
        self.network, self.initial_name = (
            Path(os.path.relpath(Path(file).resolve(), folder)).as_posix() if file else ""
            for file in (network, first)
        )
        if self.base is not None:
            self.base = self.base.with_values(network=self.network, initial=self.initial_name)
        self.runs: dict[str, tuple[NDArray[Any], ...]] = {}

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
        decided |= {OF_SETTING.get(key, key) for key in settings} & {*ASPECTS}
        share = NEARLY_EQUAL if description.task == "disparity" else SLIGHTLY
        candidates = [description]
        for aspect in ("views", "range", "sign", "unit"):
            if aspect not in decided:
                candidates = [other for each in candidates for other in list_choices(each, aspect)]
        best, rival = self._find_simplest(candidates, share)
        close = [_explain_tie(best, rival)] if rival is not None else []
        if best.is_useful and "channels" not in decided:
            colours = list_choices(best.description, "channels")
            colours.sort(key=lambda each: each != best.description)
            best, rival = self._find_simplest(colours, SLIGHTLY)
            close += [_explain_tie(best, rival)] if rival is not None else []
        contradictions = [*self._find_contradictions(best, decided)]
        tried = [each for each in ASPECTS if each not in decided]
        if not best.is_useful and not contradictions and tried:
            return Findings(best, tried, [], contradictions, close)
        found = sorted(describe_aspect(best.description, each) for each in tried)
        return Findings(best, [], found, contradictions, close)

    def _find_simplest(
        self, candidates: Iterable[Description], share: float
    ) -> tuple[TrialResult, TrialResult | None]:
        """Return the first result within `share` of the smallest error, and the best other such one."""
        results = self._try(candidates)
        best = min(results, key=RANK)
        near = [each for each in results if each.is_useful and best.error >= share * each.error]
        return (near[0], min(near[1:], key=RANK, default=None)) if near else (best, None)

    def _find_contradictions(self, best: TrialResult, decided: set[str]) -> Iterator[str]:
        """Yield descriptions of values that would be clearly better than decided ones."""
        for aspect in (each for each in ASPECTS if each in decided):
            if best.description.task == "superres" and aspect in ("sign", "unit"):
                continue
            others = [each for each in list_choices(best.description, aspect) if each != best.description]
            if aspect == "unit" and best.description.resolution == 1:
                others = [each for each in others if each.unit != "output pixels"]
            try:
                other = min(self._try(others), key=RANK)
            except ModelError:
                continue
            limit = SLIGHTLY if aspect == "channels" else CLEARLY_BETTER
            is_better = other.is_useful and other.error < limit * best.error
            if is_better and (aspect != "channels" or other.wrong < best.wrong):
                yield (
                    f"on the sample pair, {describe_aspect(other.description, aspect)} is better than "
                    f"{describe_aspect(best.description, aspect)}: {other} ({ASPECTS[aspect][1]})"
                )

    def _try(self, candidates: Iterable[Description]) -> list[TrialResult]:
        """Return the results of all descriptions that can be run. Raises ModelError if there are none."""
        results, failure = [], ModelError("the network cannot be run")
        for each in candidates:
            try:
                rate = _rate_matcher if each.task == "disparity" else _rate_upscaler
                results.append(rate(each, self._run(each)))
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
                left, right, _ = sample_pair()
                self.runs[key] = (StereoMatcher(network, match_size="auto")(left, right).disparity,)
            else:
                self.runs[key] = StereoUpscaler(network)(*_downscale_pair(description.scale or 1))
        return self.runs[key]


def _rate_matcher(description: Description, outputs: tuple[NDArray[Any], ...]) -> TrialResult:
    (values,), truth = outputs, sample_pair().truth
    multiple, fixed = description.multiple, description.fixed_size
    columns = -(-values.shape[1] // multiple) * multiple if fixed is None else fixed[1]
    unit = {"pixels": 1.0, "output pixels": 1 / description.resolution, "width": float(columns)}
    disparity = values * np.float32(description.sign * unit[description.unit])
    errors = np.abs(disparity - truth)[np.isfinite(truth) & (truth > 0)]
    errors[~np.isfinite(errors)] = np.float32(1e6)
    return TrialResult(description, float(errors.mean()), float((errors > WRONG_PX).mean()), (disparity,))


def _rate_upscaler(description: Description, outputs: tuple[NDArray[Any], ...]) -> TrialResult:
    assert description.scale is not None
    truths = np.stack([view[CROP] for view in sample_pair()[:2]]).astype(np.float64)
    bicubic = tuple(imresize(view, description.scale) for view in _downscale_pair(description.scale))
    squares = (np.square(np.stack(views) - truths) for views in (outputs, bicubic))
    error, simple = (float(np.sqrt(each.mean())) for each in squares)
    return TrialResult(description, error, error / simple, outputs)


def _downscale_pair(scale: int) -> tuple[NDArray[Any], NDArray[Any]]:
    left, right = (imresize(view[CROP], 1 / scale) for view in sample_pair()[:2])
    return left, right


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
