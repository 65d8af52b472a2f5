"""Define recipes: all values that determine the result of a training run.

Output folder, device, number of workers and time limit are not part of a recipe, so it gives the same run
anywhere. Learning rates are pure functions of the step, so a resumed run needs no state of them.
"""

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from pamcli.errors import UsageError
from pamcli.losses.weights import LossWeights
from pamcli.registry.architectures import (
    ARCHITECTURES,
    OF_PICTURES,
    SCALES,
    TRAINED,
    Architecture,
    Task,
    list_architectures,
    parse_variant,
)
from pamcli.registry.variants import PAPER, Variant
from pamcli.scenes.hard_cases import HardCases
from pamcli.training.augmentation import Augmentation
from pamcli.validation import Count, NonNegative, Positive, Share, validate_fields

Kind = Literal["constant", "step", "cosine", "one-cycle"]
ONE_CYCLE_START = 1 / 25  # initial rate of one-cycle, relative to the peak

Side = Annotated[int, Field(ge=8, le=65_536)]


@validate_fields
@dataclass(frozen=True)
class Schedule:
    """A learning-rate schedule; positions are fractions of the run in [0, 1].

    constant: the peak. step: times `factor` at each of `milestones`. cosine: down to `final` times the peak.
    one-cycle: up from 1/25 of the peak during `warmup`, then cosine down to `final` times the peak. Raises
    UsageError: unknown kind, or a value out of its range.
    """

    kind: Kind = "constant"
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the run with a linearly rising rate (one-cycle: half a cosine)."""
    milestones: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = ()
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    final: Share = 0.0
    hold: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the run for which a cosine stays at the peak."""

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(self.milestones):
            raise UsageError("a schedule's milestones are rising parts of the run between 0 and 1")


def learning_rate(schedule: Schedule, peak: float, step: int, steps: int) -> float:
    """Return the learning rate of step 0, 1, ..., steps - 1 of a run of `steps`."""
    done = step / steps
    if schedule.warmup and done < schedule.warmup:
        # Use the rate at the end of the step's interval, so that the first step already moves.
        risen = min((step + 1) / (schedule.warmup * steps), 1.0)
        if schedule.kind == "one-cycle":
            return peak * _between(ONE_CYCLE_START, 1.0, risen)
        return peak * risen
    if schedule.kind == "constant":
        return peak
    if schedule.kind == "step":
        return peak * schedule.factor ** sum(done >= milestone for milestone in schedule.milestones)
    begins = max(schedule.warmup, schedule.hold)
    return peak * _between(1.0, schedule.final, max(done - begins, 0) / (1 - begins))


def _between(start: float, end: float, part: float) -> float:
    """Interpolate by half a cosine from `start` (part 0) to `end` (part 1)."""
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


@validate_fields
@dataclass(frozen=True)
class Size:
    """A further crop size for some of the steps, with about as many pixels per step.

    Many small crops teach features; wide crops have rows as long as those of real images.
    """

    crop: tuple[Side, Side]
    shares: tuple[Share, ...]
    """Shares of the steps, per phase of the run."""


@validate_fields
@dataclass(frozen=True)
class SceneSettings:
    """Settings for rendering procedural scenes and cropping them."""

    sizes: tuple[tuple[Side, Side], ...] = ()
    """Heights and widths of the scenes, in turn. If empty, render one scene per crop, at the size of the
    crop."""
    uses: Count = 1
    """Mean number of crops per scene, of the recipe's `crop` or of equal pixel count."""
    pool: Count = 128
    """Scenes in use at a time; new ones continuously replace the oldest."""
    augmentation: Augmentation | None = None
    """None = the recipe's, without what rendering does already."""
    hard: HardCases = field(default_factory=HardCases)
    """Difficult cases in the scenes, unless the data set specifies them."""


@validate_fields
@dataclass(frozen=True)
class Recipe:
    """The definition of a training run; raises UsageError for invalid or inconsistent values."""

    name: str
    task: Task
    batch: Annotated[int, Field(ge=1, le=65_536)]
    """Pairs per step, over all processes."""
    crop: tuple[Side, Side]
    """Height and width of the network input; low resolution for super-resolution."""
    losses: LossWeights
    learning_rate: Positive
    """Peak of the schedule."""
    network: str | None = None
    """Network to train; None = the paper's, `registry.architectures.TRAINED`."""
    variant: str = PAPER
    """Variant of the network, as in its weights: see `registry.variants`."""
    data: tuple[str, ...] = ()
    """Data sets, in the notation of `DataSpec`."""
    validation: tuple[str, ...] = ()
    scale: int | None = None
    """Upscaling factor of super-resolution."""
    views: Literal["both", "left"] = "both"
    """Super-resolution: upscaled images that the image loss covers."""
    start: str | None = None
    """Initial weights: a name, a path, or a Hub address."""
    after: str | None = None
    """Recipe that produces the initial weights."""
    initialisation: Literal["default", "xavier", "upscaler"] = "default"
    """Initialisation without `start`. default: PyTorch's. xavier: as the paper's PASSRnet. upscaler: PASSRnet
    as plain interpolation."""
    only: str | None = None
    """Comma-separated parts of the network, or modules inside them, to train exclusively."""
    reinitialise: str | None = None
    """Part of the network to reinitialise, despite `start`."""
    rates: dict[str, NonNegative] = field(default_factory=dict)
    """Factors of the learning rate by part or module, such as "cas_pam.stage3"; the most specific one
    applies, 1 by default. 0 freezes the part."""
    max_disparity: Count | None = None
    """Maximum disparity, px, a multiple of 16, for training and stored with the weights."""
    steps: Count | None = None
    epochs: Positive | None = None
    """Passes over the data, instead of `steps`."""
    accumulate: Count = 1
    """Number of equal parts of a batch, processed in turn, whose gradients are averaged."""
    sizes: tuple[Size, ...] = ()
    """Further crop sizes and their shares of the steps."""
    phases: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = ()
    """Fractions of the run at which the shares of the sizes change."""
    scenes: SceneSettings = field(default_factory=SceneSettings)
    """Rendering of procedural data sets."""
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    """muon: move weight matrices equally in all directions, without `betas`; use adamw for other weights."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    weight_decay: NonNegative = 0.0
    schedule: Schedule = field(default_factory=Schedule)
    clip: Positive | None = None
    """Maximum gradient norm over all weights."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of the moving average to validate and save; None = use the weights themselves."""
    average_from: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Fraction of the run from which the moving average is a plain mean."""
    pseudo_labels: bool = False
    """Train on pairs without ground truth, with pseudo-labels computed first: see `own_pairs`."""
    held_out: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Share of held-out pairs for validation, with `pseudo_labels` and without `validation`."""
    freeze_batch_norm: bool = False
    """Keep the initial running statistics, and normalise by them."""
    freeze_from: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of the run from which batch norm's statistics are frozen and used for normalisation."""
    batch_norm_momentum: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Weight of a step in the running statistics."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    log_every: Count = 20
    validate_every: Count = 1000
    checkpoint_every: Count = 500
    keep: Count = 3
    """Number of checkpoints to keep."""

    def __post_init__(self) -> None:
        if self.architecture not in list_architectures(self.task):
            networks = ", ".join(list_architectures(self.task))
            raise UsageError(f"{self.architecture} is none of the networks of {self.task}: {networks}")
        if (self.steps is None) == (self.epochs is None):
            raise UsageError("a run has a number of steps or of epochs", "give one of them")
        if self.average_from is not None and self.ema is None:
            raise UsageError(
                "`average_from` is about the moving average, and there is none", "give `ema`, or none of both"
            )
        _ = self.form
        if self.batch % self.accumulate:
            raise UsageError(f"a batch of {self.batch} pairs has no {self.accumulate} equal parts")
        if self.max_disparity is not None and self.max_disparity % 16:
            raise UsageError(f"a maximum disparity of {self.max_disparity} px is not a multiple of 16")
        self._check_sizes()
        self._check_terms()
        self._check_parts()
        if self.task == "superres":
            if self.scale not in SCALES:
                known = ", ".join(map(str, SCALES))
                raise UsageError("super-resolution needs an enlargement", f"a scale, one of {known}")
            if self.max_disparity is not None or self.freeze_batch_norm or self.sizes:
                raise UsageError("a maximum disparity, batch norm and crops of other sizes belong to PASMnet")
            return
        if self.scale is not None or self.initialisation == "upscaler":
            raise UsageError("an enlargement belongs to super-resolution")
        for height, width in (self.crop, *(size.crop for size in self.sizes)):
            if height % self.row.multiple or width % self.row.multiple:
                raise UsageError(
                    f"a crop of {width}x{height} does not fit {self.architecture}",
                    f"both sides are multiples of {self.row.multiple}",
                )

    def _check_sizes(self) -> None:
        if list(self.phases) != sorted(set(self.phases)):
            raise UsageError("phases are rising parts of the run between 0 and 1")
        for size in self.sizes:
            if len(size.shares) != len(self.phases) + 1:
                height, width = size.crop
                raise UsageError(
                    f"crops of {width}x{height} have {len(size.shares)} shares, and the run has "
                    f"{len(self.phases) + 1} phases",
                    "a share for each: phases are the parts of the run at which they change",
                )
        for shares in zip(*(size.shares for size in self.sizes), strict=True):
            if sum(shares) > 1 + 1e-9:
                raise UsageError("the shares of the sizes are more than 1 together")

    def _check_terms(self) -> None:
        if self.pseudo_labels and self.task != "disparity":
            raise UsageError("labels of one's own are disparities, which super-resolution does not find")
        for name in self.row.other_terms:
            if getattr(self.losses, name):
                raise UsageError(f"the loss of {self.architecture} has no term {name}")
        attention = self.losses.of_attention or self.losses.likelihood
        if attention and self.form is not None and not self.form.attends:
            raise UsageError(
                f"a network with {self.variant} has no attention for the loss to look at",
                "pam and likelihood are then 0",
            )
        if not (self.losses.supervised or self.learns_without_truth):
            raise UsageError("every term of the loss is switched off", "one must weigh more than 0")

    def _check_parts(self) -> None:
        without = () if self.form is None else self.form.without
        known = [part for part in self.row.parts if part not in without]
        named = [*(self.only or "").split(","), *self.rates] if self.only else list(self.rates)
        wrong = [name for name in named if self.row.part_of(name) not in known]
        if self.reinitialise is not None and self.reinitialise not in known:
            wrong.append(self.reinitialise)
        if wrong:
            raise UsageError(f"{self.architecture} has no part {wrong[0]!r}", f"here: {', '.join(known)}")

    @property
    def architecture(self) -> str:
        """Name of the network to train."""
        return TRAINED[self.task] if self.network is None else self.network

    @property
    def row(self) -> Architecture:
        """Architecture row of the network to train."""
        return ARCHITECTURES[self.architecture]

    @property
    def form(self) -> Variant | None:
        """Parsed `variant`; None for networks without variants. Raises UsageError."""
        return parse_variant(self.architecture, self.variant)

    def rate_of(self, key: str) -> float:
        """Return the learning-rate factor of a weight by its key; 0 = frozen."""

        def fits(part: str) -> bool:
            return part == self.row.part_of(key) or f"{key}.".startswith(f"{part}.")

        if self.only and not any(map(fits, self.only.split(","))):
            return 0.0

        def nearness(part: str) -> tuple[bool, int]:
            return part not in self.row.parts, len(part)

        return self.rates[max(found, key=nearness)] if (found := [*filter(fits, self.rates)]) else 1.0

    @property
    def learns_without_truth(self) -> bool:
        """True if any loss term needs no ground truth."""
        terms = "photometric", *OF_PICTURES
        return self.losses.of_attention or any(getattr(self.losses, term) for term in terms)

    def steps_of(self, pairs: int | None) -> int:
        """Return the number of steps. `pairs`: length of a pass over the data, None if endless.

        Raises UsageError: epochs of endless data, or too many.
        """
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        if pairs is None:
            raise UsageError("procedural scenes never end: there are no epochs", "give a number of steps")
        steps = max(1, math.ceil(self.epochs * pairs / self.batch))
        if steps > 10**9:
            raise UsageError(f"{self.epochs:g} epochs are {steps:,} steps", "a run has at most 1,000,000,000")
        return steps
