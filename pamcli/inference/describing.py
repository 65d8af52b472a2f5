"""Determine the description of a foreign network by trying candidates on the sample pair."""

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
from pamcli.inference.foreign import recognised
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
    Trial,
    Tried,
    alternatives,
    hardly_told,
    words,
)
from pamcli.registry.description import SUFFIX, Description, as_setting, read_description, with_settings
from pamcli.registry.guessing import guessed


@dataclass(frozen=True)
class Described:
    """A description as far as it could be determined."""

    tried: Tried
    undecided: tuple[str, ...]
    """`ASPECTS` that shapes, settings and the sample pair leave open."""
    contradictions: tuple[str, ...]
    """Evidence of the sample pair against the description, one line each, most important first."""
    settled: tuple[str, ...] = ()
    """Aspects determined by trying, in words."""
    close: tuple[str, ...] = ()
    """Alternatives with similar accuracy on the sample pair, one line each."""

    def doubts(self) -> Iterator[str]:
        """Yield arguments against the description or for another one, one line each."""
        yield from (*self.contradictions, *self.close)
        if not self.tried.works:
            yield (
                "on the sample pair the network finds nothing so: is it for other pictures, or is something "
                "else of its description wrong?"
            )

    def questions(self) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
        """Yield a question for each undecided aspect, with answers and the settings that express them."""
        described = self.tried.description
        for aspect in self.undecided:
            choices: Mapping[str, Mapping[str, Any]] = CHOICES.get(aspect) or {
                " and ".join(name for name, given in each.inputs.items() if given.startswith("left")): {
                    "inputs": each.inputs
                }
                for each in (described, *alternatives(described, aspect))
            }
            answers = {
                choice: {key: as_setting(value) for key, value in values.items()}
                for choice, values in choices.items()
            }
            yield ASPECTS[aspect], answers


@dataclass(frozen=True)
class Asked:
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

    def describe(self, settings: Mapping[str, str]) -> Described:
        """Determine the network's inputs and outputs; try undecided aspects on the sample pair.

        `settings`: known values, KEY and VALUE as text. Raises ModelError: not a stereo network, or it does
        not run; UsageError: invalid settings.
        """
        if self.initial_name:
            settings = {**settings, "initial": self.initial_name}
        known = self.base
        if known is None and isinstance(self.runner, Session):
            known = recognised(self.runner, self.network, settings.get("initial", ""))
        decided = {*ASPECTS}
        if known is None:
            known, decided = _guess(self.runner, self.network, settings)
        described = with_settings(known, {**settings})
        keys = {"inputs": "views", "white": "range", "mean": "range", "deviation": "range"}
        decided |= {keys.get(key, key) for key in settings} & {*ASPECTS}
        trial = Trial(self.runner, self.initial)
        share = NEARLY if described.task == "disparity" else SLIGHTLY
        combined = _combined(described, {"views", "range", "sign", "unit"} - decided)
        best, rival = trial.plainest(combined, share)
        close = [hardly_told(best, rival)] if rival is not None else []
        if best.works and "channels" not in decided:
            colours = [best.description, *alternatives(best.description, "channels")]
            best, rival = trial.plainest(colours, SLIGHTLY)
            close += [hardly_told(best, rival)] if rival is not None else []
        contradictions = tuple(trial.contradictions(best, decided))
        told = best.works or contradictions
        undecided = () if told else tuple(each for each in ASPECTS if each not in decided)
        settled = () if undecided else tuple(words(best.description, each) for each in {*ASPECTS} - decided)
        return Described(best, undecided, contradictions, tuple(sorted(filter(None, settled))), tuple(close))


def opened(
    network: Path | None, network_from: str | None, settings: Mapping[str, str], *, device: str, beside: Path
) -> Asked:
    """Load the network to describe: an ONNX file, a description, or the result of "module:function".

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

    def named(file: Path) -> str:
        return Path(os.path.relpath(file.resolve(), beside.parent.resolve())).as_posix()

    name = "" if network is None else named(network)
    initial_name = named(Path(first)) if first else ""
    if base is not None:
        base = base.with_values(network=name, initial=initial_name)
    return Asked(runner, name, base, initial, initial_name)


def _guess(runner: Runner, network: str, settings: Mapping[str, str]) -> tuple[Description, set[str]]:
    """Return a description based on shapes alone, and the aspects that are certain."""
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
            values["resolution"] = chosen.sides[1] / columns
            if values["resolution"] == 1:
                decided |= {"unit"}
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
    if any("left" in name.lower() and given == "left" for name, given in values["inputs"].items()):
        decided |= {"views"}
    values["network"] = network if isinstance(runner, Session) else ""
    return Description(**values), decided


def _combined(described: Description, undecided: set[str]) -> Iterator[Description]:
    each = [[described, *alternatives(described, "views")] if "views" in undecided else [described]]
    for aspect, choices in (("range", RANGES), ("sign", SIGNS), ("unit", UNITS)):
        each.append([*choices.values()] if aspect in undecided else [{}])  # type: ignore[list-item]
    for views, *changes in itertools.product(*each):
        values = {key: value for change in changes for key, value in change.items()}  # type: ignore[attr-defined]
        yield views.with_values(**values)


def picture_of(tried: Tried) -> NDArray[np.uint8]:
    """Return a check image (H, W, 3) RGB: left image, disparity map and its error, white from 3 px.

    For super-resolution: the upscaled left image and its target.
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
    """Raise ModelError if the sample pair contradicts, UsageError if an aspect is undecided."""
    if found.contradictions and not found.tried.works:
        raise ModelError(found.contradictions[0])
    if found.undecided:
        unknown = "; ".join(f"{ASPECTS[each]} ({SET[each]})" for each in found.undecided)
        raise UsageError(
            f"the sample pair does not tell how this network is fed, at best {found.tried}: say {unknown}"
        )
