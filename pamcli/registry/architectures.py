"""Describe the supported networks, one row each, from `architectures.toml`. Does not import torch."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, NamedTuple

from pamcli.errors import UsageError, did_you_mean
from pamcli.registry.resolution import MatchSize

Task = Literal["disparity", "superres"]

SCALES = (2, 3, 4, 8)  # factors of trainable super-resolution networks; shipped ones upscale by 2 and 4

UPSCALING_TERMS = "super_resolution", "charbonnier", "psnr"
MATCHING_TERMS = "photometric", "smoothness", "refined", "updates", "estimate", "initial", "confidence"
"""Loss terms that only networks of one task have."""

IMAGE_MEAN = (0.485, 0.456, 0.406)
IMAGE_STD = (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's channels, which normalise images in [0, 1] for matching."""

PAPER = "paper"  # the published or default network, from which every other variant differs


WITHOUT_WEIGHTS = ("consistency",)  # keys of variants that have the same weights


class Variant(NamedTuple):
    """The building blocks of a network."""

    values: Mapping[str, str | int]
    changes: list[str]  # differences from the published network, as KEY=VALUE
    text: str  # the same, as weights files name it
    weights_variant: str  # the variant of the same weights that differs least from the published network


@dataclass(frozen=True)
class Architecture:
    """A network architecture: its task, its classes, and its particular properties."""

    name: str  # name in weights files, in recipes and for `--network`
    task: Task
    network: str
    """Class or factory, "module:attribute", called with the scale for super-resolution and with the fields of
    the variant. Matching: called with two images, `max_disparity`, `all_stages` and `confidence`, it
    returns `disparity`, `initial`, `maps`, `attention_mass` and `confidence`. Super-resolution: called with
    two images and `both`, it returns a `passrnet.SuperResolution`. `prepare` makes it ready for inference;
    `HALO` is the halo of `inference.model.StereoModel`."""
    memory: tuple[float, float]  # peak bytes per pixel, and per pixel and column (scripts/measure_memory.py)
    parts: tuple[str, ...]  # separately trainable parts: first components of keys, mapped by `members`
    members: Mapping[str, str] = field(default_factory=dict)  # first components of keys of other parts
    other_terms: tuple[str, ...] = ()  # loss terms of its task that the network does not have
    recipe: str = ""  # default recipe with ground truth
    recipe_from_nothing: str | None = None  # recipe for random weights; None = `recipe`
    signature: tuple[str, ...] = ()  # weight keys that identify its checkpoints, if there are foreign ones
    variants: Mapping[str, Sequence[str | int]] = field(default_factory=dict)
    """Values of each building block, that of the published network first."""
    published: Mapping[str, str | int] = field(default_factory=dict)  # those of the published network
    exclusive: Sequence[Sequence[str]] = ()  # changes of which a variant has at most one, as KEY or KEY=VALUE
    variant_key: tuple[str, int, str] | None = None
    """A weight, its number of rows, and the variant that this number shows, for files that do not name it."""
    scale_key: str | None = None  # super-resolution: weight with 64 rows per upscaled pixel
    changed: str | None = None  # message for weights of an earlier network of the same name
    normalised: bool = False  # expect inputs normalised with `IMAGE_MEAN` and `IMAGE_STD`, else in [0, 1]
    multiple: int = 1  # input sides must be multiples of this
    sixteen_bits: bool = True  # allow `auto` to choose bf16, which changes the results very little
    begins_as_upscaler: bool = False  # can begin as interpolation, see `recipe.initialisation`
    match_size: MatchSize = 1.0  # default matching resolution, as a factor of the image size
    searched_beyond: int = 0
    """Matching: px to search beyond the user's maximum disparity, a multiple of 16; interpolation between
    coarse attention columns needs both neighbours."""
    shipped: Mapping[str, str] = field(default_factory=dict)  # weights shipped with pam: descriptions
    defaults: Mapping[int, str] = field(default_factory=dict)  # weights by scale (matching: 1)
    camera_defaults: Mapping[int, str] = field(default_factory=dict)  # likewise for camera images

    def get_part(self, key: str) -> str:
        """Return the part that a weight or module key belongs to; a part's own name is also a key."""
        first = key.split(".")[0]
        return self.members.get(first, first)


def _make_row(name: str, table: Mapping[str, Any]) -> Architecture:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    values["members"] = {key: part for part, keys in table.get("members", {}).items() for key in keys.split()}
    values["published"] = {key: choices[0] for key, choices in table.get("variants", {}).items()}
    for key in ("defaults", "camera_defaults"):
        values[key] = {int(scale): weights for scale, weights in table.get(key, {}).items()}
    return Architecture(name, **values)


_TEXT = resources.files("pamcli.registry").joinpath("architectures.toml").read_text(encoding="utf-8")
ARCHITECTURES: Mapping[str, Architecture] = {
    name: _make_row(name, table) for name, table in tomllib.loads(_TEXT).items()
}

# networks to train by default: the paper's
TRAINED: Mapping[Task, str] = {"disparity": "pasmnet", "superres": "passrnet"}

NETWORKS: Mapping[Task, tuple[str, ...]] = {
    task: tuple(row.name for row in ARCHITECTURES.values() if row.task == task) for task in TRAINED
}


def default_weights(task: Task, scale: int = 1) -> str:
    rows = ARCHITECTURES.values()
    return next(row.defaults[scale] for row in rows if row.task == task and scale in row.defaults)


def parse_variant(architecture: str, text: str) -> Variant:
    """Return the variant for a text such as "blocks=2,refinement=none" or "paper"."""
    row = ARCHITECTURES[architecture]
    known, values = row.variants, dict(row.published)
    for part in text.split(",") if text != PAPER else ():
        key, equals, given = (each.strip() for each in part.partition("="))
        if not equals or key not in known:
            what = f"a variant of {architecture} must be KEY=VALUE,..., got {part.strip()!r}"
            raise UsageError(what, f"{did_you_mean(key, known)}keys: {', '.join(known)}")
        chosen = [value for value in known[key] if str(value) == given]
        if not chosen:
            allowed = ", ".join(map(str, known[key]))
            raise UsageError(f"{key} of {architecture} must be one of {allowed}, got {given!r}")
        values[key] = chosen[0]
    changes, stored = [], []
    for key, value in values.items():
        if value != row.published[key]:
            changes.append(f"{key}={value}")
            stored += changes[-1:] if key not in WITHOUT_WEIGHTS else []
    for group in row.exclusive:
        both = [each for each in changes if {each, each.partition("=")[0]} & {*group}]
        if len(both) > 1:
            raise UsageError(f"{both[0]} cannot be combined with {both[1]}", "use only one of them")
    return Variant(values, changes, ",".join(changes) or PAPER, ",".join(stored) or PAPER)
