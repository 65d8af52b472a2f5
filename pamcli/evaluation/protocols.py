"""Define the measurement rules of papers and benchmarks: a table of named protocols with their sources."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import UsageError, did_you_mean

MIDDLEBURY_WEIGHTS = dict.fromkeys(("PianoL", "Playroom", "Playtable", "Shelves", "Vintage"), 0.5)
"""Scene weights in the means of the Middlebury v3 table; 1 for all others."""

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
    max_gt: float | None = None
    """Count only ground truth below this, px (the paper: 192); flatters methods with a limited search range.
    """
    resize: tuple[int, int] | None = None
    """Width and height to which images and ground truth were resized before."""
    ranges: tuple[float, ...] = ()  # edges of ground-truth ranges, px, to measure separately in addition
    any_truth: bool = False  # count all known ground truth, not only values above 0
    skip_holes: bool = False  # exclude pixels without an estimate from the shares of bad pixels too
    within_width: bool = False  # treat estimates larger than the image width as missing
    floor_quantiles: bool = False
    """Take the error at index floor(q * n) in float32 as quantile q of n errors, instead of the smallest
    error that at least q of all do not exceed."""
    fine: Literal["", "each", "nearest"] = ""
    """Handling of ground truth on a finer grid. each: measure there, in fine pixels, with repeated estimates.
    nearest: compare each estimate with the nearest ground truth within its pixel."""
    corner: tuple[int, int] | None = None
    """Count only pixels within this width and height at the bottom right."""
    parts: bool = False  # also measure edges and textureless regions
    stated: tuple[Stated, ...] = ()  # the metrics that papers with these rules report, in order

    def counts(self, truth: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return the mask of counted pixels, given the ground truth: (H, W), px, NaN = unknown."""
        with np.errstate(invalid="ignore"):
            counted: NDArray[np.bool_] = np.isfinite(truth)
            if not self.any_truth:
                counted &= truth > 0
            if self.max_gt is not None:
                counted &= truth < self.max_gt
        if self.corner is not None:
            width, height = self.corner
            counted[: max(0, counted.shape[0] - height)] = False
            counted[:, : max(0, counted.shape[1] - width)] = False
        return counted

    def describe_metrics(self) -> list[str]:
        """Return one line per reported metric: its name, its definition here, and its regions."""
        regions: dict[tuple[str, str, str], list[str]] = {}
        for each in self.stated:
            regions.setdefault((each.called, each.metric, each.average), []).append(each.region)
        return [
            f"{called} = {metric}, {average}: {', '.join(parts)}"
            for (called, metric, average), parts in regions.items()
        ]

    def notes(self) -> Iterator[str]:
        """Yield the rules that change the metrics, one clause each."""
        if self.fill:
            yield "density is measured before holes are filled, all other metrics after, as KITTI does"
        if self.max_gt is not None:
            yield f"only ground truth below {self.max_gt:g} px counts"
        if self.corner is not None:
            width, height = self.corner
            yield f"only the {width}x{height} pixels at the bottom right count"
        if self.skip_holes:
            yield "pixels without an estimate count in density and invalid only"
        if self.resize is not None:
            yield f"images and ground truth are resized to {self.resize[0]}x{self.resize[1]} first"


@dataclass(frozen=True)
class Protocol:
    """A named protocol."""

    about: str  # description, one clause
    source: str  # source of the rules
    rules: DisparityProtocol  # rules for data sets that are not in `by_data`
    by_data: Mapping[str, DisparityProtocol] = field(default_factory=dict)
    """Rules of particular data sets, by source name."""

    def distinct_rules(self) -> Iterator[tuple[list[str], DisparityProtocol]]:
        """Yield distinct rules with the names of their data sets; the last entry has no names: all others."""
        known: list[DisparityProtocol] = []
        for rules in self.by_data.values():
            if rules not in (*known, self.rules):
                known.append(rules)
        for rules in known:
            yield [name for name, each in self.by_data.items() if each == rules], rules
        yield [], self.rules


def _stated(called: Mapping[str, str], regions: Iterable[str], average: str = POOLED) -> tuple[Stated, ...]:
    """Return `Stated` metrics; `called` maps their original names to metrics."""
    return tuple(Stated(name, part, metric, average) for part in regions for name, metric in called.items())


_BAD = {f"bad {metric.removeprefix('bad-')}": metric for metric in ("bad-0.5", "bad-1", "bad-2", "bad-4")}
_SPREAD = {"avgerr": "epe", "rms": "rms", **{f"A{part}": f"a{part}" for part in (50, 90, 95, 99)}}
_WITHIN_192: Any = {"max_gt": 192.0}
_MIDDLEBURY = DisparityProtocol(clip=True, weights=MIDDLEBURY_WEIGHTS)
_SPRING_PARTS = ("low-detail", "high-detail", "noc", "occluded", "not-sky", "sky")
_SPRING_RANGES = ("0 to 10", "10 to 40", "40 and more")
_BOOSTER: tuple[tuple[str, str, Literal["", "each"]], ...] = (
    ("booster", "full size", "each"),
    ("booster-own-size", "images as the method gets them", ""),
)


def _zero_shot_rules(metric: str, average: str, regions: tuple[str, ...], **more: Any) -> DisparityProtocol:
    """Return the rules of RAFT-Stereo's evaluation and its successors, whose "D1" is a bad-N."""
    figures = (*_stated({"EPE": "epe"}, regions, MEANS), *_stated({"D1": metric}, regions, average))
    wrong = float(metric.removeprefix("bad-"))
    return DisparityProtocol(wrong_from=wrong, any_truth=True, stated=figures, **more)


def _zero_shot_sets(noc: tuple[str, ...], **more: Any) -> dict[str, DisparityProtocol]:
    """Return those rules per data set; `noc`: the regions to report where visibility masks exist."""
    kitti = _zero_shot_rules("bad-3", POOLED, ("all", "noc"), **more)
    return {
        "kitti2015": kitti,
        "kitti2012": kitti,
        "middlebury": _zero_shot_rules("bad-2", MEANS, noc, **more),
        "eth3d": _zero_shot_rules("bad-1", MEANS, noc, **more),
        "sceneflow": _zero_shot_rules("bad-1", POOLED, ("all",), **(more | _WITHIN_192)),
    }


_LITE = DisparityProtocol(
    wrong_from=3.0,
    any_truth=True,
    stated=(*_stated({"EPE": "epe"}, ("all",), MEANS), *_stated({"D1": "d1"}, ("all",))),
    **_WITHIN_192,
)

PROTOCOLS = {
    "kitti": Protocol(
        "KITTI 2015: errors above 3 px and above 5 % are wrong, pooled over all pixels",
        "development kit of KITTI 2015: evaluate_scene_flow.cpp, io_disp.h",
        DisparityProtocol(
            fill=True,
            wrong_from=3.0,
            stated=_stated({"D1": "d1"}, ("all", "bg", "fg", "noc", "noc-bg", "noc-fg")),
        ),
    ),
    "kitti2012": Protocol(
        "KITTI 2012: errors above 2 to 5 px are wrong, mean of the images",
        "development kit of KITTI 2012: evaluate_stereo.cpp",
        DisparityProtocol(
            fill=True,
            wrong_from=3.0,
            stated=_stated(
                {**{f"Out-{t}": f"bad-{t}" for t in (2, 3, 4, 5)}, "Avg": "epe"}, ("noc", "all"), MEANS
            ),
        ),
    ),
    "middlebury-v3": Protocol(
        "Middlebury version 3: full-size pixels (smaller results are repeated), mean of the images, of which "
        "five have half the weight",
        "MiddEval3 SDK: evaldisp.cpp, and the page of its table; the rule of the quantiles is unpublished",
        replace(
            _MIDDLEBURY,
            any_truth=True,
            fine="each",
            stated=_stated({**_BAD, "invalid": "invalid", **_SPREAD}, ("noc", "all"), MEANS),
        ),
    ),
    "eth3d": Protocol(
        "ETH3D two-view: only estimated pixels count, mean of the images",
        "ETH3D two-view-evaluation: src/main.cc",
        DisparityProtocol(
            wrong_from=1.0,
            any_truth=True,
            skip_holes=True,
            within_width=True,
            floor_quantiles=True,
            stated=_stated({**_BAD, "coverage": "density", **_SPREAD}, ("noc", "all"), MEANS),
        ),
    ),
    "sceneflow": Protocol(
        "Scene Flow, common rules: ground truth below 192 px, mean of the images; >1px and >3px without the "
        "5 % rule",
        "PSMNet and GwcNet, evaluation on Scene Flow; users' questions about the mask",
        DisparityProtocol(
            wrong_from=3.0,
            stated=_stated(
                {"EPE": "epe", ">1px": "bad-1", ">3px": "bad-3", "D1": "d1"}, ("all", "noc"), MEANS
            ),
            **_WITHIN_192,
        ),
    ),
    "pasmnet": Protocol(
        "Scene Flow, parallax-attention paper: ground truth below 192 px in the 960x512 pixels at the bottom "
        "right; >1px and >3px with the 5 % rule",
        "Wang et al., TPAMI 2020, Section 4.1.1; the authors' D1_metric",
        DisparityProtocol(
            wrong_from=3.0,
            corner=(960, 512),
            stated=_stated({"EPE": "epe", ">1px": "d1-1", ">3px": "d1"}, ("all", "noc"), MEANS),
            **_WITHIN_192,
        ),
    ),
    "raft-stereo": Protocol(
        "Zero-shot tables since RAFT-Stereo: D1 counts errors above 3 px (Middlebury: 2 px, ETH3D and Scene "
        "Flow: 1 px), without the 5 % rule",
        "RAFT-Stereo: evaluate_stereo.py (all); the same with masks of visible pixels (noc)",
        _zero_shot_rules("bad-3", POOLED, ("all", "noc")),
        _zero_shot_sets(("all", "noc")),
    ),
    "igev": Protocol(
        "Like raft-stereo, but ground truth below 192 px, and on Middlebury and ETH3D only pixels visible in "
        "both images",
        "IGEV-Stereo: evaluate_stereo.py",
        _zero_shot_rules("bad-3", POOLED, ("all", "noc"), **_WITHIN_192),
        _zero_shot_sets(("noc",), **_WITHIN_192),
    ),
    "lite-any-stereo": Protocol(
        "Zero-shot tables of LiteAnyStereo: D1 with the 5 % rule, ground truth below 192 px; bad 2 of "
        "Middlebury and bad 1 of ETH3D on pixels visible in both images",
        "LiteAnyStereo: evaluate_stereo.py",
        _LITE,
        {
            data: DisparityProtocol(
                wrong_from=wrong,
                any_truth=True,
                max_gt=max_gt,
                stated=_stated({"EPE": "epe", f"bad {wrong:g}": f"bad-{wrong:g}"}, ("noc",), MEANS),
            )
            for data, wrong, max_gt in (("middlebury", 2.0, 192.0), ("eth3d", 1.0, None))
        },
    ),
    "spring": Protocol(
        "Spring: each pixel is compared with the nearest of its four ground truths, pooled over all pixels",
        "Spring benchmark: evaluation.py (Mehl et al., CVPR 2023)",
        DisparityProtocol(
            wrong_from=1.0,
            any_truth=True,
            fine="nearest",
            ranges=(0.0, 10.0, 40.0, float("inf")),
            stated=_stated(
                {"1px": "bad-1", "Abs": "epe", "D1": "d1"}, ("all", *_SPRING_PARTS, *_SPRING_RANGES)
            ),
        ),
    ),
    **{
        name: Protocol(
            f"Booster: by material, pixels of the {size}, mean of the images",
            "Zama Ramirez et al., CVPR 2022 and TPAMI 2024; not checked against its code",
            DisparityProtocol(
                fine=fine,
                stated=_stated(
                    {**{f"bad-{t}": f"bad-{t}" for t in (2, 4, 6, 8)}, "MAE": "epe", "RMSE": "rms"},
                    ("all", "noc", *(f"class-{number}" for number in range(4))),
                    MEANS,
                ),
            ),
        )
        for name, size, fine in _BOOSTER
    },
}

USUAL = {
    "kitti2012": PROTOCOLS["kitti2012"].rules,
    "kitti2015": PROTOCOLS["kitti"].rules,
    "middlebury": _MIDDLEBURY,
}
"""Default rules by source name; other data sets use `DisparityProtocol()`."""


def get_default_protocol(data: str, **asked: Any) -> DisparityProtocol:
    """Return the default protocol of a data set, by source name. `asked`: fields to override."""
    return replace(USUAL.get(data, DisparityProtocol()), **asked)


def get_protocol(name: str, data: str, **asked: Any) -> DisparityProtocol:
    """Return the rules of a named protocol on a data set, by source name. `asked`: fields to override."""
    check_protocol(name)
    row = PROTOCOLS[name]
    return replace(row.by_data.get(data, row.rules), **asked)


def check_protocol(name: str) -> None:
    """Raise UsageError if no protocol has this name."""
    if name not in PROTOCOLS:
        hint = f"{did_you_mean(name, [*PROTOCOLS])}expected one of {', '.join(PROTOCOLS)}"
        raise UsageError(f"unknown protocol {name!r}", hint)
