"""The networks that pam knows, a row each: whatever else depends on which network it is asks here. No torch.

A row names classes as "module:attribute"; they are imported when a network is made.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, Literal, get_args, get_type_hints

from pamcli.errors import UsageError, did_you_mean
from pamcli.registry.variants import PAPER, PASMnetVariant, PASSRnet2Variant, PASSRnetVariant, Variant

Task = Literal["disparity", "superres"]

SCALES = (2, 3, 4, 8)
"""Enlargements that a network for super-resolution may be trained for; shipped ones enlarge 2 and 4 times."""

OF_PICTURES = "super_resolution", "charbonnier", "psnr"
OF_MATCHING = "photometric", "smoothness", "refined", "updates", "estimate", "initial", "confidence"
"""Terms of the loss that networks of one task have."""

IMAGE_MEAN = (0.485, 0.456, 0.406)
IMAGE_STD = (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's channels, by which views in [0, 1] are normalised for matching."""


@dataclass(frozen=True)
class Architecture:
    """A network: what it does, the classes that compute it, and what is particular to it."""

    name: str
    """Name in weights files, in recipes and for `--network`."""
    task: Task
    network: str
    """Class, or function that makes one; called with the scale for super-resolution, and with the fields of a
    variant where there are such. Called with two images, `max_disparity`, `all_stages` and `confidence` it
    gives `disparity`, `initial`, `maps`, `received` and `confidence`; for super-resolution, with two images
    and `both`, what `passrnet.SuperResolution` has. Its `prepared` makes it ready for inference, its `HALO`
    is the halo of `inference.model.StereoModel`."""
    memory: tuple[float, float]
    """Bytes at the peak: per pixel, and per pixel and column (scripts/measure_memory.py)."""
    parts: tuple[str, ...]
    """What may learn by itself: first words of the keys of its weights, or what `members` makes of them."""
    members: Mapping[str, str] = field(default_factory=dict)
    """First words of keys that belong to a part of another name."""
    other_terms: tuple[str, ...] = ()
    """Terms of the loss that it does not have."""
    recipe: str = ""
    """Recipe that learns with truth where none is named."""
    recipe_from_nothing: str | None = None
    """Recipe from random weights; None: `recipe`."""
    signature: tuple[str, ...] = ()
    """Keys of weights by which a checkpoint of it is recognised; none: there are no checkpoints of others."""
    scale_key: str | None = None
    """Super-resolution: the weights whose rows, 64 for each pixel of an enlarged one, show the scale."""
    changed: str | None = None
    """What to say of weights that do not fit, where an earlier network had the name."""
    normalised: bool = False
    """Takes views normalised with `IMAGE_MEAN` and `IMAGE_STD`, else in [0, 1]."""
    multiple: int = 1
    """Sides of the pictures that it takes are multiples of this."""
    variants: type[Variant] | None = None
    """Forms that it has beside the one that is meant where nothing is said."""
    sixteen_bits: bool = True
    """`auto` may compute it in bf16, which changes next to nothing."""
    match_size: float | Literal["auto"] = 1.0
    """Matching: in which size pictures are matched where nothing is said."""
    searched_beyond: int = 0
    """Matching: pixels by which a search goes on beyond the maximum disparity that a person names, a multiple
    of 16; what is found between columns of coarse attention takes those on both sides of it."""
    shipped: Mapping[str, str] = field(default_factory=dict)
    """Weights that come with pam by name, and what each does."""
    defaults: Mapping[int | None, str] = field(default_factory=dict)
    """Weights that are taken where none are named, by scale (matching: None)."""
    camera_defaults: Mapping[int, str] = field(default_factory=dict)
    """Weights for pictures with the faults that cameras make, taken instead of those, by scale."""

    def build(self, scale: int | None, variant: Variant | None) -> Any:
        """Make the plain network, with fresh weights."""
        scales = () if scale is None else (scale,)
        return loaded(self.network)(*scales, **({} if variant is None else asdict(variant)))

    def part_of(self, key: str) -> str:
        """Return the part that a weight or module belongs to; a part's own name is such a key, too."""
        first = key.split(".")[0]
        return self.members.get(first, first)


def loaded(name: str) -> Any:
    """Import what "module:attribute" names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


_ROWS = (
    Architecture(
        name="pasmnet2",
        task="disparity",
        network="pamcli.networks.pasmnet2:PASMnet2",
        memory=(310.0, 0.076),
        parts=("features", "stages", "head"),
        members={
            **dict.fromkeys(("E0", "E1", "E2", "E3", "E4", "D0", "D1", "D2", "D3"), "features"),
            **dict.fromkeys(("st1", "st2", "st3", "b2", "b3"), "stages"),
            **dict.fromkeys(("s1", "s2", "s3", "x2", "mask", "error_scale"), "head"),
        },
        other_terms=("estimate", *OF_PICTURES),
        recipe="pasmnet2",
        signature=("st1.blocks.0.query.0.weight", "s1.upd.enc.0.weight"),
        changed="before pam 0.3 it was another network: take the weights that come with pam, or train anew",
        normalised=True,
        multiple=32,
        match_size="auto",
        searched_beyond=32,
        shipped={"pasmnet2": "disparity of a rectified pair, with sharp edges (the default)"},
        defaults={None: "pasmnet2"},
    ),
    Architecture(
        name="pasmnet",
        task="disparity",
        network="pamcli.networks.variants:varied_pasmnet",
        memory=(110.0, 0.18),
        parts=("hourglass", "cas_pam", "refine"),
        other_terms=("updates", "confidence", *OF_PICTURES),
        recipe="scenes",
        recipe_from_nothing="scratch",
        signature=("hourglass.E0.body.0.0.weight", "cas_pam.b2.0.weight"),
        normalised=True,
        multiple=32,
        variants=PASMnetVariant,
        shipped={"pasmnet": "disparity of a rectified pair, the published network"},
    ),
    Architecture(
        name="passrnet2",
        task="superres",
        network="pamcli.networks.passrnet2:PASSRnet2",
        memory=(4000.0, 0.0),
        parts=("first", "blocks", "exchanges", "detail", "last"),
        other_terms=OF_MATCHING,
        recipe="passrnet2",
        variants=PASSRnet2Variant,
        shipped={
            "passrnet2-x2": "both views enlarged 2 times (the default)",
            "passrnet2-x4": "both views enlarged 4 times (the default)",
            "passrnet2-camera-x2": "both views enlarged 2 times, for noise and JPEG (the default of such)",
            "passrnet2-camera-x4": "both views enlarged 4 times, for noise and JPEG (the default of such)",
        },
        defaults={2: "passrnet2-x2", 4: "passrnet2-x4"},
        camera_defaults={2: "passrnet2-camera-x2", 4: "passrnet2-camera-x4"},
    ),
    Architecture(
        name="passrnet",
        task="superres",
        network="pamcli.networks.variants:varied_passrnet",
        memory=(8000.0, 8.0),
        parts=("init_feature", "pam", "upscale"),
        other_terms=OF_MATCHING,
        recipe="superres",
        signature=("init_feature.0.weight", "pam.fusion.weight"),
        scale_key="upscale.4.weight",
        variants=PASSRnetVariant,
        sixteen_bits=False,
        shipped={
            "passrnet-x2": "both views enlarged 2 times, the published network",
            "passrnet-x4": "both views enlarged 4 times, the published network",
        },
    ),
)

ARCHITECTURES: Mapping[str, Architecture] = {row.name: row for row in _ROWS}
"""Every network by its name."""

TRAINED: Mapping[Task, str] = {"disparity": "pasmnet", "superres": "passrnet"}
"""What a task trains where no network is named: the paper's."""


def names_of(task: Task) -> tuple[str, ...]:
    """Names of the networks of a task."""
    return tuple(row.name for row in _ROWS if row.task == task)


def default_weights(task: Task, scale: int | None = None) -> str:
    """Name of the weights that are taken where none are named."""
    return next(row.defaults[scale] for row in _ROWS if row.task == task and scale in row.defaults)


def variant_of(architecture: str, text: str) -> Variant | None:
    """Return the variant that a text names, as "blocks=2,refinement=none" or "paper"; None: it has one form.

    Raises UsageError: no such key, a value that it cannot have, parts that exclude each other.
    """
    row = ARCHITECTURES.get(architecture)
    kind = None if row is None else row.variants
    if text == PAPER:
        return None if kind is None else kind()
    if kind is None:
        varied = ", ".join(name for name, one in ARCHITECTURES.items() if one.variants is not None)
        raise UsageError(f"{architecture} has no variants", f"those of {varied} are known")
    known = {name: get_args(hint) for name, hint in get_type_hints(kind).items()}
    values: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, given = (each.strip() for each in part.partition("="))
        if not equals or key not in known:
            raise UsageError(
                f"{part.strip()!r} is no part of a variant of {architecture}",
                f"{did_you_mean(key, known)}KEY=VALUE,... with the keys {', '.join(known)}",
            )
        chosen = [value for value in known[key] if str(value) == given]
        if not chosen:
            values_known = ", ".join(map(str, known[key]))
            raise UsageError(f"{key} of {architecture} cannot be {given!r}", f"one of {values_known}")
        values[key] = chosen[0]
    return kind(**values)
