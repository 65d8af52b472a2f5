"""Determine the description of a foreign network by its shapes and by trials on the sample pair."""

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
from pamcli.inference.foreign import recognise_session
from pamcli.inference.runners import Runner, Session, open_runner
from pamcli.inference.sample_pair import sample_pair
from pamcli.inference.trial import (
    ASPECTS,
    CHOICES,
    CROP,
    FAR,
    NEARLY,
    RANGES,
    SET,
    SIGNS,
    SLIGHTLY,
    UNITS,
    TrialResult,
    Trials,
    describe_aspect,
    explain_tie,
    list_alternatives,
)
from pamcli.registry.description import SUFFIX, Description, apply_settings, format_setting, read_description
from pamcli.registry.guessing import guess_values


@dataclass(frozen=True)
class Findings:
    """A description as far as it could be determined."""

    result: TrialResult
    undecided: tuple[str, ...]
    """`ASPECTS` that shapes, settings and the sample pair leave open."""
    contradictions: tuple[str, ...]
    """Evidence of the sample pair against the description, one line each, most important first."""
    decided: tuple[str, ...] = ()
    """Aspects determined by trying, in words."""
    close: tuple[str, ...] = ()
    """Alternatives with similar accuracy on the sample pair, one line each."""

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
            raise UsageError(
                f"the inputs and outputs of this network remain unclear, the best trial has {self.result}",
                f"specify {unknown}",
            )

    def render(self) -> NDArray[np.uint8]:
        """Return a check image (H, W, 3) RGB: left image, disparity map and its error, white from 3 px.

        For super-resolution: the upscaled left image and its target.
        """
        pair, outputs = sample_pair(), self.result.outputs
        if self.result.description.task == "superres":
            return np.concatenate([outputs[0].astype(np.uint8), pair.left[CROP]], axis=1)
        known = np.isfinite(pair.truth) & (pair.truth > 0)
        low, high = np.percentile(pair.truth[known], (1, 99)).tolist()
        apart = np.clip(np.abs(outputs[0] - np.where(known, pair.truth, 0)) / FAR, 0, 1)
        errors = (255 * np.where(known, apart, 0)).astype(np.uint8)[..., None].repeat(3, axis=2)
        return np.concatenate([pair.left, colorize(outputs[0], low, high), errors], axis=1)


@dataclass(frozen=True)
class Candidate:
    """A network to describe."""

    runner: Runner
    network: str
    """Its file, as named in the description."""
    base: Description | None
    """Description to check; None = none exists yet."""
    initial: Session | None
    """Network that estimates the initial flow, if required."""
    initial_name: str = ""
    """Its file, as named in the description."""

    @classmethod
    def load(
        cls,
        network: Path | None,
        network_from: str | None,
        settings: Mapping[str, str],
        *,
        device: str,
        beside: Path,
    ) -> "Candidate":
        """Load an ONNX file, the network of a description, or the result of "module:function".

        `beside`: the description to write; file names are relative to it. Raises ModelError, DeviceError,
        UsageError.
        """
        base, named_by = None, network or "the description"
        if network is not None and network.suffix == SUFFIX:
            base = read_description(network)
            network = Path(base.network) if base.network else None
        runner = open_runner(network, network_from, device, "auto", named_by)
        first = settings.get("initial") or (base.initial if base else "")
        initial = Session.load(Path(first), device) if first else None
        name, initial_name = (
            Path(os.path.relpath(Path(file).resolve(), beside.parent.resolve())).as_posix() if file else ""
            for file in (network, first)
        )
        if base is not None:
            base = base.with_values(network=name, initial=initial_name)
        return cls(runner, name, base, initial, initial_name)

    def describe(self, settings: Mapping[str, str]) -> Findings:
        """Determine the network's inputs and outputs; try undecided aspects on the sample pair.

        `settings`: known values, KEY and VALUE as text. Raises ModelError: not a stereo network, or it does
        not run; UsageError: invalid settings.
        """
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
        share = NEARLY if description.task == "disparity" else SLIGHTLY
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
    if isinstance(runner, Session):
        interface, scale = runner.probe()
        values = guess_values(interface, scale)
        if values["task"] == "disparity":
            chosen = next(p for p in interface.outputs if values["outputs"].get(p.name) == "disparity")
            given = next(port for port in interface.inputs if port.image_shape is not None)
            columns = (given.image_shape or (0, 0, 0))[2] or 64
            values["resolution"] = chosen.sides[1] / columns
            if values["resolution"] == 1:
                decided |= {"unit"}
        values["network"] = network
    else:
        values = {"task": "disparity", "inputs": {"left": "left", "right": "right"}, "multiple": 32}
        values["outputs"] = {"0": "disparity"}
        if settings.get("task") == "superres":
            values["task"] = "superres"
            values |= {"outputs": {"0": "left", "1": "right"}, "scale": 2}  # user settings take precedence
        decided |= {"unit"}
    if values["task"] == "superres" or settings.get("task") == "superres":
        decided |= {"sign", "unit"}
    if values.get("channels") == "grey":
        decided |= {"channels"}
    if any("left" in name.lower() and content == "left" for name, content in values["inputs"].items()):
        decided |= {"views"}
    return Description(**values), decided


def _combine(description: Description, undecided: set[str]) -> Iterator[Description]:
    """Yield the description with every combination of values of undecided aspects."""
    views = [description, *list_alternatives(description, "views")] if "views" in undecided else [description]
    choices: list[list[Mapping[str, Any]]] = [
        [*values.values()] if aspect in undecided else [{}]
        for aspect, values in (("range", RANGES), ("sign", SIGNS), ("unit", UNITS))
    ]
    for view, *changes in itertools.product(views, *choices):
        yield view.with_values(**{key: value for change in changes for key, value in change.items()})
