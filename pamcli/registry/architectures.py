"""Describe the supported networks, one row each, from `architectures.toml`. Does not import torch."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from typing import Any, Literal, get_args, get_type_hints

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


@dataclass(frozen=True)
class Variant:
    """The building blocks of a network; raises UsageError for incompatible parts."""

    @property
    def changes(self) -> list[str]:
        """Differences from the published network, as KEY=VALUE."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return [f"{field.name}={value}" for field, value in values if value != field.default]

    def __str__(self) -> str:
        return ",".join(self.changes) or PAPER

    @property
    def weights_variant(self) -> "Variant":
        """The variant of the same weights that differs least from the published network."""
        return self

    @property
    def missing_parts(self) -> list[str]:
        absent = {"refinement=none": "refine", "views=left": "pam"}
        return [absent[change] for change in self.changes if change in absent]

    @property
    def has_attention(self) -> bool:
        """True if the losses have attention maps; cost volumes are converted to maps too."""
        return not {"views=left", "matching=stacked"} & {*self.changes}


@dataclass(frozen=True)
class PASMnetVariant(Variant):
    """The variants of Tables 1, 2 and 4."""

    features: Literal["hourglass", "pyramid"] = "hourglass"  # pyramid: only encoder features of each scale
    scales: Literal[3, 1] = 3  # 1: match at a quarter of the size only, not coarse to fine
    blocks: Literal[4, 3, 2, 1] = 4  # number of parallax-attention blocks per stage
    refinement: Literal["hourglass", "none"] = "hourglass"  # none: only upsample the initial disparity
    volume: Literal["none", 64, 96, 128, 192, 256] = "none"
    """Disparities, px, of 4D cost volumes with four 3D convolutions each that replace the attention."""

    def __post_init__(self) -> None:
        if self.volume != "none" and (self.scales, self.blocks) != (3, 4):
            raise UsageError("`volume` cannot be combined with `scales` or `blocks`", "omit these")
        if (self.features, self.scales) == ("pyramid", 1):
            raise UsageError("`features` pyramid cannot be combined with `scales` 1", "change one of them")


@dataclass(frozen=True)
class PASMnet2Variant(Variant):
    """The widths of PASMnet 2 (not in the paper)."""

    inner: Literal["narrow", "wide"] = "narrow"  # channels inside blocks; wide: as in versions 3 to 16


@dataclass(frozen=True)
class PASSRnetVariant(Variant):
    """The variants of Tables 10 and 11."""

    views: Literal["both", "left", "twice"] = "both"
    """left: upscale each image separately. twice: also use each image as the other one."""
    pyramid: Literal["residual", "cascaded", "plain"] = "residual"
    """cascaded: groups of dilated convolutions without residual connections. plain: without dilation."""
    matching: Literal["attention", "stacked"] = "attention"  # stacked: concatenate features
    transition: Literal["block", "none"] = "block"  # none: no separate residual block
    volume: Literal["none", 16, 32, 64] = "none"
    """Disparities, low-resolution px, of a 4D cost volume that replaces the attention."""

    def __post_init__(self) -> None:
        others = {"pyramid=cascaded", "pyramid=plain", "views=twice"}
        if len({*self.changes} - others) > 1:
            raise UsageError("views=left, matching, transition and volume cannot be combined", "use only one")


@dataclass(frozen=True)
class PASSRnet2Variant(Variant):
    """The depths of PASSRnet 2 (not in the paper); the default has 16 blocks."""

    blocks: Literal[16, 32] = 16  # 32 take 1.7 times as long as 16, whose weights can start them
    consistency: Literal["none", "bicubic"] = "none"
    """bicubic: bicubic downscaling of the result gives the input again, noise and JPEG artefacts included."""

    @property
    def weights_variant(self) -> "PASSRnet2Variant":
        return replace(self, consistency="none")


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
    variants: type[Variant] = Variant  # class of its variants
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

    @property
    def missing_terms(self) -> tuple[str, ...]:
        """Loss terms that the network does not have, also those of the other task."""
        return self.other_terms + (UPSCALING_TERMS if self.task == "disparity" else MATCHING_TERMS)

    def find_variant(self, shapes: Mapping[str, Sequence[int]]) -> str:
        """Return the variant that the shapes of tensors show; `PAPER` if they show none."""
        if self.variant_key is not None:
            key, rows, variant = self.variant_key
            if key in shapes and shapes[key][:1] == (rows,):
                return variant
        return PAPER

    def get_part(self, key: str) -> str:
        """Return the part that a weight or module key belongs to; a part's own name is also a key."""
        first = key.split(".")[0]
        return self.members.get(first, first)


def _make_row(name: str, table: Mapping[str, Any]) -> Architecture:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    values["members"] = {key: part for part, keys in table.get("members", {}).items() for key in keys.split()}
    for key in ("defaults", "camera_defaults"):
        values[key] = {int(scale): weights for scale, weights in table.get(key, {}).items()}
    kinds = {kind.__name__: kind for kind in Variant.__subclasses__()}
    values["variants"] = kinds.get(table.get("variants", ""), Variant)
    return Architecture(name, **values)


_TEXT = resources.files("pamcli.registry").joinpath("architectures.toml").read_text(encoding="utf-8")
ARCHITECTURES: Mapping[str, Architecture] = {
    name: _make_row(name, table) for name, table in tomllib.loads(_TEXT).items()
}

# networks to train by default: the paper's
TRAINED: Mapping[Task, str] = {"disparity": "pasmnet", "superres": "passrnet"}


def list_architectures(task: Task) -> tuple[str, ...]:
    return tuple(row.name for row in ARCHITECTURES.values() if row.task == task)


def default_weights(task: Task, scale: int = 1) -> str:
    rows = ARCHITECTURES.values()
    return next(row.defaults[scale] for row in rows if row.task == task and scale in row.defaults)


def parse_variant(architecture: str, text: str) -> Variant:
    """Return the variant for a text such as "blocks=2,refinement=none" or "paper"."""
    kind = ARCHITECTURES[architecture].variants
    if text == PAPER:
        return kind()
    known = {name: get_args(hint) for name, hint in get_type_hints(kind).items()}
    values: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, given = (each.strip() for each in part.partition("="))
        if not equals or key not in known:
            what = f"a variant of {architecture} must be KEY=VALUE,..., got {part.strip()!r}"
            raise UsageError(what, f"{did_you_mean(key, known)}keys: {', '.join(known)}")
        chosen = [value for value in known[key] if str(value) == given]
        if not chosen:
            allowed = ", ".join(map(str, known[key]))
            raise UsageError(f"{key} of {architecture} must be one of {allowed}, got {given!r}")
        values[key] = chosen[0]
    return kind(**values)
