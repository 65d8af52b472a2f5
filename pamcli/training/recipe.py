"""What a recipe is: everything that decides what a training run computes, as plain values.

A recipe does not say where a run goes, on which device, with how many worker processes or for how long: the
same recipe gives the same run anywhere. Learning rates are pure functions of the step, so that a resumed run
needs no state of them.
"""

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from pamcli.checked import Count, FromZero, Positive, Share, checked
from pamcli.errors import UsageError
from pamcli.losses.weights import LossWeights
from pamcli.registry.architectures import (
    ARCHITECTURES,
    OF_PICTURES,
    SCALES,
    TRAINED,
    Architecture,
    Task,
    names_of,
    variant_of,
)
from pamcli.registry.variants import PAPER, Variant
from pamcli.scenes.hard_cases import HardCases
from pamcli.training.augmentation import Augmentation

Kind = Literal["constant", "step", "cosine", "one-cycle"]
ONE_CYCLE_START = 1 / 25  # where one-cycle's rise begins, as a part of the peak

Side = Annotated[int, Field(ge=8, le=65_536)]


@checked
@dataclass(frozen=True)
class Schedule:
    """How the learning rate moves over a run; positions are parts of the run in [0, 1].

    constant: the peak. step: times `factor` at each of `milestones`. cosine: down to `final` times the peak.
    one-cycle: up from 1/25 of the peak during `warmup`, then cosine down to `final` times the peak.
    Raises UsageError: a kind that does not exist, a number out of its range.
    """

    kind: Kind = "constant"
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Part of the run in which the rate rises in a straight line (for one-cycle: as half a cosine)."""
    milestones: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = ()
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    final: Share = 0.0
    hold: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Part of the run until which a cosine stays at the peak."""

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(self.milestones):
            raise UsageError("a schedule's milestones are rising parts of the run between 0 and 1")


def learning_rate(schedule: Schedule, peak: float, step: int, steps: int) -> float:
    """Learning rate of step 0, 1, ..., steps - 1 of a run of `steps`."""
    done = step / steps
    if schedule.warmup and done < schedule.warmup:
        # The first step already moves: its rate is that of the end of its own stretch.
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
    """Half a cosine from `start` (part 0) to `end` (part 1)."""
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


@checked
@dataclass(frozen=True)
class Size:
    """Steps of another crop, of as many pairs as have as many pixels as the batch.

    Small ones are many and teach features, wide ones have rows as long as those of real pictures.
    """

    crop: tuple[Side, Side]
    """Height and width."""
    shares: tuple[Share, ...]
    """Shares of the steps, in each of the run's phases."""


@checked
@dataclass(frozen=True)
class Drawing:
    """How procedural scenes become examples."""

    sizes: tuple[tuple[Side, Side], ...] = ()
    """Heights and widths that they are drawn at, in turn. None: each as large as a crop, for it alone."""
    uses: Count = 1
    """How many crops are taken of each, in the mean; of the recipe's `crop`, or of as many pixels."""
    kept: Count = 128
    """Scenes that crops are taken of at a time, while ever new ones take the place of the oldest."""
    augmentation: Augmentation | None = None
    """None: the recipe's, without what drawing has done already."""
    hard: HardCases = field(default_factory=HardCases)
    """What of them is hard to match, where the data set does not say it."""


@checked
@dataclass(frozen=True)
class Recipe:
    """A training run. Raises UsageError where values are out of range or contradict each other."""

    name: str
    task: Task
    batch: Annotated[int, Field(ge=1, le=65_536)]
    """Pairs in a step, over all processes."""
    crop: tuple[Side, Side]
    """Height and width of what the network is given: for super-resolution at low resolution."""
    losses: LossWeights
    learning_rate: Positive
    """The peak of the schedule."""
    network: str | None = None
    """None: the paper's, `registry.architectures.TRAINED`."""
    variant: str = PAPER
    """Which form of the network, as its weights say: see `registry.variants`."""
    data: tuple[str, ...] = ()
    """Data sets, as DataSpec writes them."""
    validation: tuple[str, ...] = ()
    scale: int | None = None
    """Super-resolution: the enlargement."""
    views: Literal["both", "left"] = "both"
    """Super-resolution: which of the enlarged views the picture's error is of."""
    start: str | None = None
    """Weights to start from: a name, a path, or an address of the Hub."""
    after: str | None = None
    """The recipe whose weights this one starts from."""
    initialisation: Literal["default", "xavier", "upscaler"] = "default"
    """Without `start`. default: PyTorch's. xavier: as the paper's PASSRnet. upscaler: a PASSRnet that begins
    as a plain enlargement."""
    only: str | None = None
    """Some parts of the network, or modules inside them, with commas between: nothing else learns."""
    anew: str | None = None
    """A part of the network: begins with fresh weights, whatever `start` has."""
    rates: dict[str, FromZero] = field(default_factory=dict)
    """Factors of the learning rate by part or module, as "cas_pam.stage3"; of several the nearest counts,
    without one 1. At 0 nothing is learned."""
    max_disparity: Count | None = None
    """The prior, pixels, a multiple of 16: trained with, and stored with the weights."""
    steps: Count | None = None
    epochs: Positive | None = None
    """Instead of `steps`: passes over the data."""
    accumulate: Count = 1
    """A step's gradient is the mean of those of this many equal parts of its batch, one after the other."""
    sizes: tuple[Size, ...] = ()
    """Other crops, and in which share of the steps."""
    phases: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = ()
    """Parts of the run at which the shares of the sizes change."""
    scenes: Drawing = field(default_factory=Drawing)
    """How data sets are drawn that are drawn as they are needed."""
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    """muon: matrices of weights move alike in all directions, whatever `betas` are; the others by adamw."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    weight_decay: FromZero = 0.0
    schedule: Schedule = field(default_factory=Schedule)
    clip: Positive | None = None
    """Largest norm of the gradient of all weights."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of the moving average that is validated and kept; None: the weights themselves."""
    average_from: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Part of the run from which on the moving average forgets nothing more: it is the mean of the end."""
    own_labels: bool = False
    """Learn from pairs without a truth by labels that are found for them first: see `own_pairs`."""
    aside: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Share of the pairs kept aside to measure on, with `own_labels` and without `validation`."""
    freeze_batch_norm: bool = False
    """Keep the running statistics that the weights came with, and normalise by them."""
    freeze_from: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of the run from which on batch norm's statistics stand, and the batch is normalised by them."""
    batch_norm_momentum: Annotated[float, Field(gt=0, le=1)] = 0.1
    """What a step counts in the running statistics."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    log_every: Count = 20
    validate_every: Count = 1000
    checkpoint_every: Count = 500
    keep: Count = 3
    """Checkpoints that stay."""

    def __post_init__(self) -> None:
        if self.architecture not in names_of(self.task):
            networks = ", ".join(names_of(self.task))
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
        if self.own_labels and self.task != "disparity":
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
        if self.anew is not None and self.anew not in known:
            wrong.append(self.anew)
        if wrong:
            raise UsageError(f"{self.architecture} has no part {wrong[0]!r}", f"here: {', '.join(known)}")

    @property
    def architecture(self) -> str:
        """Name of the network that is trained."""
        return TRAINED[self.task] if self.network is None else self.network

    @property
    def row(self) -> Architecture:
        """What is particular to the network that is trained."""
        return ARCHITECTURES[self.architecture]

    @property
    def form(self) -> Variant | None:
        """What `variant` says; None: the network has one form alone. Raises UsageError."""
        return variant_of(self.architecture, self.variant)

    def rate_of(self, key: str) -> float:
        """Factor of the learning rate of a weight by its key; 0: it does not learn."""

        def fits(part: str) -> bool:
            return part == self.row.part_of(key) or f"{key}.".startswith(f"{part}.")

        if self.only and not any(map(fits, self.only.split(","))):
            return 0.0

        def nearness(part: str) -> tuple[bool, int]:
            return part not in self.row.parts, len(part)

        return self.rates[max(found, key=nearness)] if (found := [*filter(fits, self.rates)]) else 1.0

    @property
    def learns_without_truth(self) -> bool:
        """Some term learns from pairs whose disparity is not known."""
        terms = "photometric", *OF_PICTURES
        return self.losses.of_attention or any(getattr(self.losses, term) for term in terms)

    def steps_of(self, pairs: int | None) -> int:
        """Steps of the run; `pairs` is the length of a pass over the data, None where it is endless.

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
