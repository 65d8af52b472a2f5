"""Measure super-resolution: downscale pairs, upscale them again, and compare, always with bicubic."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from pamcli.data.source import Sample, Source
from pamcli.evaluation.figures import ImageFigures, flat
from pamcli.evaluation.methods import Method
from pamcli.evaluation.report_pictures import ShownPair, shown_superres
from pamcli.evaluation.results import Column, Evaluation, Fact, Value, json_rows
from pamcli.evaluation.run import MeasuredSet, Task
from pamcli.evaluation.superres_metrics import (
    METRICS,
    PROTOCOLS,
    Enlarged,
    SuperresMeter,
    SuperresPair,
    SuperresSummary,
    superres_pair,
)
from pamcli.imaging.degradation import Degradation

BICUBIC = "bicubic"

COLUMNS = {
    f"{protocol} {metric}": Column(
        f"{protocol} {metric}",
        f"{protocol} {metric.replace('haarpsi', 'HaarPSI').replace('psnr', 'PSNR').replace('ssim', 'SSIM')}",
        "dB" if metric == "psnr" else "",
        2 if metric == "psnr" else 4,
        note=f"{PROTOCOLS[protocol]}; {METRICS[metric]}",
    )
    for protocol in PROTOCOLS
    for metric in METRICS
}


@dataclass(frozen=True)
class Superres(Task[SuperresPair, Enlarged, SuperresSummary]):
    """The task of upscaling by `scale`; bicubic accompanies every method, or is measured alone."""

    scale: int = field()
    degradation: Degradation | None = None
    """Simulated camera degradation of the low-resolution images; its noise is the same in every run."""

    title = "Super-resolution"
    columns = COLUMNS
    key_figures = ("both psnr", "left psnr", "both ssim-ipassr")
    # Both protocols of a metric side by side, PSNR first.
    headline = ([f"{protocol} {metric}" for metric in METRICS for protocol in PROTOCOLS],)
    words = (Column("pairs", "pairs", decimals=0),)
    baseline = MappingProxyType({BICUBIC: None})
    timed = "network alone"

    def case(self, sample: Sample) -> SuperresPair:
        pair = superres_pair(sample.left, sample.right, self.scale, name=sample.name)
        if self.degradation is None:
            return pair
        rng = np.random.default_rng(zlib.crc32(sample.name.encode()))
        low_left, low_right = (self.degradation(view, rng) for view in (pair.low_left, pair.low_right))
        return replace(pair, low_left=low_left, low_right=low_right)

    def meter(self, source: Source) -> SuperresMeter:
        return SuperresMeter()

    def ready(self, method: Method | None, source: Source) -> Callable[[SuperresPair], Enlarged | None]:
        return SuperresPair.bicubic if method is None else method.enlarged(source)

    def rank(self, images: Sequence[ImageFigures]) -> float:
        return images[-1].figures["left"]["psnr"]

    def shown(
        self, case: SuperresPair, answers: Mapping[str, Enlarged], images: Sequence[ImageFigures]
    ) -> ShownPair:
        views = [each.left for each in answers.values()]
        baseline, quality = (self.rank([image]) for image in (images[0], images[-1]))
        caption, result = f"{quality:.2f} dB (left)", None
        if len(views) > 1:
            caption += f", {quality - baseline:+.2f} dB over bicubic"
            result = views[-1]
        return shown_superres(case.name, caption, views[0], result, case.left)

    def facts(self, method: Method | None) -> list[Fact]:
        degraded = [] if self.degradation is None else [("degraded by", str(self.degradation))]
        return [("scale", f"x{self.scale}"), *degraded]

    def rows(self, total: SuperresSummary) -> Iterator[dict[str, Value]]:
        yield {"pairs": len(total.images), **flat(total.headline)}

    def told(self, page: Evaluation, sets: Sequence[MeasuredSet[SuperresSummary]]) -> Evaluation:
        second = {one.label: one.last.second_view for one in sets}
        worth = {label: gain for label, gain in second.items() if gain is not None}
        told = [("second view", f"{gain:+.3f} dB on the left one, {label}") for label, gain in worth.items()]
        note = "SSIM as the parallax-attention paper prints it is defined nowhere, and is not computed"
        degraded = {} if self.degradation is None else {"degraded_by": str(self.degradation)}
        numbers = {
            "scale": self.scale,
            **degraded,
            "summary": json_rows(page.summary),
            "second_view": worth,
        }
        return replace(
            page,
            facts=(*page.facts, *told),
            notes=(*page.notes, note),
            numbers={**numbers, **page.numbers},
        )
