"""Define the measurement rules of papers and benchmarks: a table of named protocols with their sources."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

from pamcli.errors import UsageError, did_you_mean

POOLED, MEANS = "pooled", "mean of images"
"""Names of the two averages in every table; pooled over all pixels is the headline."""


@dataclass(frozen=True)
class Stated:
    """A metric that a paper or a benchmark reports."""

    called: str  # its original name: "D1", "bad 2.0", "Avg"
    region: str  # a key of `regions.REGIONS`, or a range of the protocol
    metric: str  # a key of `disparity_metrics.METRICS`
    average: str = POOLED


@dataclass(frozen=True)
class DisparityProtocol:
    """The rules by which a data set is measured: those of its benchmark plus the user's options."""

    fill: bool = False  # fill holes as KITTI does, by `interpolate_background`
    clip: bool = False  # clip estimates to [0, ndisp] if the calibration has ndisp, as Middlebury does
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights of images in the means, by the last component of their names; 1 if absent."""
    wrong_from: float = 2.0  # error, px, from which the benchmark counts a pixel as wrong
    max_gt: float | None = None  # count only ground truth below this, px; flatters limited search ranges
    resize: tuple[int, int] | None = None  # width, height to which images were resized before
    ranges: tuple[float, ...] = ()  # edges of ground-truth ranges, px, to measure separately in addition
    any_truth: bool = False  # count all known ground truth, not only values above 0
    skip_holes: bool = False  # exclude pixels without an estimate from the shares of bad pixels too
    within_width: bool = False  # treat estimates larger than the image width as missing
    floor_quantiles: bool = False  # take the error at index floor(q * n) in float32 as quantile q of n errors
    fine: Literal["", "each", "nearest"] = ""
    """Handling of ground truth on a finer grid. each: measure there, in fine pixels, with repeated estimates.
    nearest: compare each estimate with the nearest ground truth within its pixel."""
    corner: tuple[int, int] | None = None  # count only this width and height at the bottom right
    parts: bool = False  # also measure edges and textureless regions
    stated: tuple[Stated, ...] = ()  # the metrics that papers with these rules report, in order

    def describe_metrics(self) -> list[str]:
        """Return one line per reported metric: its name, its definition here, and its regions."""
        regions: dict[str, list[str]] = {}
        for each in self.stated:
            regions.setdefault(f"{each.called} = {each.metric}, {each.average}", []).append(each.region)
        return [f"{metric}: {', '.join(parts)}" for metric, parts in regions.items()]


@dataclass(frozen=True)
class Protocol:
    """A named protocol."""

    about: str  # description, one clause
    source: str  # source of the rules
    rules: DisparityProtocol  # rules for data sets that are not in `by_data`
    by_data: Mapping[str, DisparityProtocol] = field(default_factory=dict)  # by source name

    def get_rules(self, data: str) -> DisparityProtocol:
        """Return the rules for a data set, by source name."""
        return self.by_data.get(data, self.rules)


def _make_rules(stated: list[Any], **fields: Any) -> DisparityProtocol:
    """Return the rules of one table of `protocols.toml`."""
    fields |= {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    figures = [
        Stated(called, region, metric, average)
        for average, regions, metrics in stated
        for region in regions
        for called, metric in metrics.items()
    ]
    return DisparityProtocol(stated=tuple(figures), **fields)


def _make_protocol(about: str, source: str, rules: Any, by_data: Any = None) -> Protocol:
    own = {name: _make_rules(**each) for name, each in (by_data or {}).items()}
    return Protocol(about, source, _make_rules(**rules), own)


_TEXT = resources.files("pamcli.evaluation").joinpath("protocols.toml").read_text(encoding="utf-8")
PROTOCOLS = {name: _make_protocol(**table) for name, table in tomllib.loads(_TEXT).items()}

USUAL = {
    "kitti2012": PROTOCOLS["kitti2012"].rules,
    "kitti2015": PROTOCOLS["kitti"].rules,
    "middlebury": DisparityProtocol(clip=True, weights=PROTOCOLS["middlebury-v3"].rules.weights),
}
"""Default rules by source name; other data sets use `DisparityProtocol()`."""


def check_protocol(name: str) -> None:
    """Raise UsageError if no protocol has this name."""
    if name not in PROTOCOLS:
        hint = f"{did_you_mean(name, [*PROTOCOLS])}expected one of {', '.join(PROTOCOLS)}"
        raise UsageError(f"unknown protocol {name!r}", hint)
