"""Define recipes: all values that determine the result of a training run."""

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter
from typing import Annotated, Any, Literal

from numpy.random import default_rng
from pydantic import BeforeValidator, Field, PlainSerializer

from pamcli.data.source import format_size
from pamcli.errors import UsageError
from pamcli.losses.weights import LossWeights
from pamcli.registry.architectures import (
    ARCHITECTURES,
    MATCHING_TERMS,
    NETWORKS,
    PAPER,
    SCALES,
    TRAINED,
    UPSCALING_TERMS,
    Architecture,
    Task,
    Variant,
    parse_variant,
)
from pamcli.registry.catalog import ModelSpec
from pamcli.scenes.hard_cases import HardCases
from pamcli.training.augmentation import Augmentation
from pamcli.validation import Count, NonNegative, Positive, Share, validate_fields

ONE_CYCLE_START = 1 / 25  # initial rate of one-cycle, relative to the peak
WITHOUT_ATTENTION = {"views=left", "matching=stacked"}  # changes of a variant without attention maps
WITHOUT_PART = {"refinement=none": "refine", "views=left": "pam"}  # changes that remove a part
_SIZES = 4  # random stream of a seed, among those in `examples`
Fraction = Annotated[float, Field(gt=0, lt=1)]
FractionFromZero = Annotated[float, Field(ge=0, lt=1)]


def _parse_size(value: Any) -> Any:
    """Return (height, width) for "WIDTHxHEIGHT" or a tuple; raise ValueError."""
    if isinstance(value, str) and (found := re.fullmatch(r"(\d{1,5})x(\d{1,5})", value)):
        value = int(found[2]), int(found[1])
    match value:
        case [int(height), int(width)] if isinstance(value, list):
            raise ValueError(f'{value} is rows x columns, write "{width}x{height}" (WIDTHxHEIGHT)')
        case (int(height), int(width)) if min(value) >= 8 and max(value) <= 65_536:
            return value
    raise ValueError(f'must be "WIDTHxHEIGHT" with sides of 8 to 65536 px, as "512x256", got {value!r:.40}')


Size = Annotated[tuple[int, int], BeforeValidator(_parse_size), PlainSerializer(format_size)]


@validate_fields
@dataclass(frozen=True)
class Schedule:
    """A learning-rate schedule; positions are fractions of the run.

    step: times `factor` at each of `milestones`. cosine: down to `final` times the peak. one-cycle: up from
    1/25 of the peak during `warmup`, then as cosine.
    """

    kind: Literal["constant", "step", "cosine", "one-cycle"] = "constant"
    warmup: FractionFromZero = 0.0  # part of the run with a linearly rising rate (one-cycle: half a cosine)
    milestones: tuple[Fraction, ...] = ()
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    final: Share = 0.0
    hold: FractionFromZero = 0.0  # fraction of the run for which a cosine stays at the peak

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(self.milestones):
            raise UsageError(f"schedule.milestones must be ascending, got {list(self.milestones)}")


def learning_rate(schedule: Schedule, peak: float, step: int, steps: int) -> float:
    """Return the learning rate of step 0, 1, ..., steps - 1 of a run of `steps`."""
    done = step / steps
    if schedule.warmup and done < schedule.warmup:
        # Use the rate at the end of the step's interval, so that the first step already moves.
        risen = min((step + 1) / (schedule.warmup * steps), 1.0)
        return peak * (_interpolate(ONE_CYCLE_START, 1.0, risen) if schedule.kind == "one-cycle" else risen)
    if schedule.kind == "constant":
        return peak
    if schedule.kind == "step":
        return peak * schedule.factor ** sum(done >= milestone for milestone in schedule.milestones)
    begins = max(schedule.warmup, schedule.hold)
    return peak * _interpolate(1.0, schedule.final, max(done - begins, 0) / (1 - begins))


def _interpolate(start: float, end: float, part: float) -> float:
    """Interpolate by half a cosine from `start` (part 0) to `end` (part 1)."""
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


@validate_fields
@dataclass(frozen=True)
class CropShare:
    """A further crop size for some of the steps, with about as many pixels per step."""

    crop: Size
    shares: tuple[Share, ...]  # shares of the steps, per phase of the run


@validate_fields
@dataclass(frozen=True)
class SceneSettings:
    """Settings for rendering procedural scenes and cropping them."""

    sizes: tuple[Size, ...] = ()  # of the scenes, in turn; empty: one scene per crop, at its size
    uses: Count = 1  # mean number of crops per scene, of the recipe's `crop` or of equal pixel count
    pool: Count = 128  # scenes in use at a time; new ones continuously replace the oldest
    augmentation: Augmentation | None = None  # none = the recipe's, without what rendering does already
    hard: HardCases = field(default_factory=HardCases)  # unless the data set specifies them


@validate_fields
@dataclass(frozen=True)
class Recipe:
    """The definition of a training run; raises UsageError for invalid or inconsistent values."""

    name: str
    task: Task
    batch: Annotated[int, Field(ge=1, le=65_536)]  # pairs per step, over all processes
    crop: Size  # size of the network input; low resolution for super-resolution
    losses: LossWeights
    learning_rate: Positive  # peak of the schedule
    network: str | None = None  # network to train; None = the paper's, `registry.architectures.TRAINED`
    variant: str = PAPER  # variant of the network, as in its weights: see `registry.architectures`
    data: tuple[str, ...] = ()  # data sets, in the notation of `DataSpec`
    validation: tuple[str, ...] = ()
    scale: int | None = None  # upscaling factor of super-resolution
    views: Literal["both", "left"] = "both"  # super-resolution: upscaled images that the image loss covers
    start: str | None = None  # initial weights: a name, a path, or a Hub address
    after: str | None = None  # recipe that produces the initial weights
    # random initialisation: PyTorch's, as the paper's PASSRnet, or PASSRnet as an interpolation
    initialisation: Literal["default", "xavier", "upscaler"] = "default"
    only: str | None = None  # comma-separated parts of the network, or modules inside them, to train
    reinitialise: str | None = None  # part of the network to initialise with random weights, despite `start`
    # learning-rate factors by part or module ("cas_pam.stage3"); the most specific one applies, 0 freezes
    rates: dict[str, NonNegative] = field(default_factory=dict)
    max_disparity: Count | None = None  # px, a multiple of 16; stored with the weights
    steps: Count | None = None
    epochs: Positive | None = None  # passes over the data, instead of `steps`
    accumulate: Count = 1  # number of equal parts of a batch, processed in turn, whose gradients are averaged
    sizes: tuple[CropShare, ...] = ()  # further crop sizes and their shares of the steps
    phases: tuple[Fraction, ...] = ()  # fractions of the run at which the shares of the sizes change
    scenes: SceneSettings = field(default_factory=SceneSettings)
    optimizer: Literal["adam", "adamw", "muon"] = "adam"  # muon: on weight matrices, adamw on others
    betas: tuple[FractionFromZero, FractionFromZero] = (0.9, 0.999)
    weight_decay: NonNegative = 0.0
    schedule: Schedule = field(default_factory=Schedule)
    clip: Positive | None = None  # maximum gradient norm over all weights
    ema: Fraction | None = None  # decay of the moving average to validate and save
    average_from: Fraction | None = None  # fraction of the run from which the moving average is a plain mean
    pseudo_labels: bool = False  # train on pairs without ground truth, with pseudo-labels computed first
    held_out: Annotated[float, Field(ge=0, le=0.5)] = 0.0  # share for validation, with `pseudo_labels`
    freeze_batch_norm: bool = False  # keep the initial running statistics, and normalise by them
    freeze_from: Annotated[float, Field(gt=0, le=1)] = 1.0  # part of the run with trained batch norm
    batch_norm_momentum: Annotated[float, Field(gt=0, le=1)] = 0.1  # of the running statistics
    augmentation: Augmentation = field(default_factory=Augmentation)
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    log_every: Count = 20
    validate_every: Count = 1000
    checkpoint_every: Count = 500
    keep: Count = 3  # number of checkpoints to keep

    def __post_init__(self) -> None:
        if self.network is not None and self.network not in NETWORKS[self.task]:
            known = ", ".join(NETWORKS[self.task])
            raise UsageError(f"{self.network} does not support {self.task}", f"networks: {known}")
        if (self.steps is None) == (self.epochs is None):
            raise UsageError("a recipe must have either `steps` or `epochs`", "set exactly one of them")
        if self.average_from is not None and self.ema is None:
            raise UsageError("`average_from` requires a moving average", "set `ema`")
        if self.batch % self.accumulate:
            raise UsageError(f"batch must be a multiple of accumulate ({self.accumulate}), got {self.batch}")
        if self.max_disparity is not None and self.max_disparity % 16:
            raise UsageError(f"max_disparity must be a multiple of 16 px, got {self.max_disparity}")
        self._check_sizes()
        self._check_network()
        if self.task == "superres":
            if self.scale not in SCALES:
                known = ", ".join(map(str, SCALES))
                raise UsageError(f"scale must be one of {known}, got {self.scale}", "set `scale`")
            if self.max_disparity is not None or self.freeze_batch_norm or self.sizes:
                raise UsageError("superres does not support max_disparity, freeze_batch_norm and sizes")
            return
        if self.scale is not None or self.initialisation == "upscaler":
            raise UsageError("`scale` and the initialisation upscaler are for super-resolution only")
        for size in (self.crop, *map(attrgetter("crop"), self.sizes)):
            if size[0] % self.row.multiple or size[1] % self.row.multiple:
                problem = f"a crop of {format_size(size)} does not fit {self.row.name}"
                raise UsageError(problem, f"both sides must be multiples of {self.row.multiple} px")

    def _check_sizes(self) -> None:
        if list(self.phases) != sorted(set(self.phases)):
            raise UsageError(f"phases must be ascending, got {list(self.phases)}")
        for size in self.sizes:
            if len(size.shares) != len(self.phases) + 1:
                problem = f"crops of {format_size(size.crop)} have {len(size.shares)} shares, but the run has"
                hint = "give one share per phase; `phases` holds the fractions of the run that separate them"
                raise UsageError(f"{problem} {len(self.phases) + 1} phases", hint)
        for shares in zip(*map(attrgetter("shares"), self.sizes), strict=True):
            if sum(shares) > 1 + 1e-9:
                raise UsageError(f"the shares of all sizes must add up to at most 1, got {sum(shares):g}")

    def _check_network(self) -> None:
        """Raise UsageError if losses, augmentation or parts do not fit the network."""
        if self.pseudo_labels and self.task != "disparity":
            raise UsageError("pseudo_labels is not supported for super-resolution")
        of_other_task = UPSCALING_TERMS if self.task == "disparity" else MATCHING_TERMS
        for name in self.row.other_terms + of_other_task:
            if getattr(self.losses, name):
                problem = f"{self.row.name} does not have the loss term {name}"
                raise UsageError(problem, f"use a recipe without losses.{name}: pam guide recipes")
        form, attention = self.form, self.losses.uses_attention or self.losses.likelihood
        if attention and WITHOUT_ATTENTION & {*form.changes}:
            problem = f"a network with variant {self.variant} has no attention, which the loss needs"
            raise UsageError(problem, "set losses.pam=0 and losses.likelihood=0")
        if self.augmentation.camera and "consistency=bicubic" in form.changes:
            problem = "a network with consistency=bicubic cannot remove noise and JPEG artefacts"
            raise UsageError(problem, f"set `variant` {form.weights_variant}, or augmentation.camera=0")
        if not (self.losses.is_supervised or self.losses.is_unsupervised):
            raise UsageError("every loss term has weight 0", "set at least one weight above 0")

        known = [*self.row.parts]
        for change in {*form.changes} & WITHOUT_PART.keys():
            known.remove(WITHOUT_PART[change])
        names = [*(self.only.split(",") if self.only else ()), *self.rates]
        parts = dict(zip(names, map(self.row.get_part, names), strict=True))
        if self.reinitialise is not None:
            parts[self.reinitialise] = self.reinitialise
        for name, part in parts.items():
            if part not in known:
                raise UsageError(f"{self.row.name} has no part {name!r}", f"parts: {', '.join(known)}")

    @property
    def row(self) -> Architecture:
        return ARCHITECTURES[TRAINED[self.task] if self.network is None else self.network]

    @property
    def form(self) -> Variant:
        """Parsed `variant`. Raises UsageError."""
        return parse_variant(self.row.name, self.variant)

    def model_spec(self, training: str = "") -> ModelSpec:
        """Return the description for a weights file. `training`: a sentence on data and accuracy."""
        return ModelSpec(
            self.row.name,
            variant=self.form.text,
            scale=self.scale,
            max_disparity=self.max_disparity,
            training=training,
        )

    def get_rate(self, key: str) -> float:
        """Return the learning-rate factor of a weight by its key; 0 = frozen."""
        # The part, then the modules that contain the weight, the innermost last.
        names = [self.row.get_part(key), *accumulate(key.split("."), "{}.{}".format)]
        if self.only and not {*names} & {*self.only.split(",")}:
            return 0.0
        for name in reversed(names):
            if name in self.rates:
                return self.rates[name]
        return 1.0

    def count_steps(self, pairs: int | None) -> int:
        """Return the number of steps for `pairs` per pass over the data, None if endless."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        if pairs is None:
            raise UsageError("procedural scenes are endless, so `epochs` is not supported", "set `steps`")
        steps = max(1, math.ceil(self.epochs * pairs / self.batch))
        if steps > 10**9:
            raise UsageError(f"{self.epochs:g} epochs are {steps:,} steps", "a run has at most 1,000,000,000")
        return steps

    def crop_at(self, step: int, steps: int) -> tuple[int, int]:
        """Return height and width of the crops in a step of a run of `steps`."""
        phase = bisect_right(self.phases, step / steps)
        place = float(default_rng((self.seed, step, _SIZES)).random()) if self.sizes else 0.0
        for size in self.sizes:
            if place < size.shares[phase]:
                return size.crop
            place -= size.shares[phase]
        return self.crop

    def count_pairs(self, batch: int, crop: tuple[int, int]) -> int:
        """Return how many pairs of this crop have about as many pixels as `batch` pairs of the usual crop."""
        return max(1, round(batch * self.crop[0] * self.crop[1] / (crop[0] * crop[1])))

    def count_most_pairs(self, batch: int) -> int:
        most = batch
        for size in self.sizes:
            most = max(most, self.count_pairs(batch, size.crop))
        return most
