"""Disparity as a task to measure: by the rules of each data set's benchmark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pamcli.data.source import Sample, Source
from pamcli.errors import UsageError
from pamcli.evaluation import disparity_tables as tables
from pamcli.evaluation import studies
from pamcli.evaluation.disparity_metrics import DisparityMeter, DisparitySummary, Estimate
from pamcli.evaluation.figures import ImageFigures
from pamcli.evaluation.methods import Estimates, Method, NetworkMethod
from pamcli.evaluation.protocols import resize_sample, usual_protocol
from pamcli.evaluation.report_pictures import ShownPair, consistency_panels, shown_disparity
from pamcli.evaluation.results import Evaluation, Fact
from pamcli.evaluation.run import MeasuredSet, Task
from pamcli.evaluation.tables import Table, Value, json_rows


@dataclass(frozen=True)
class Disparity(Task[Sample, Estimate, DisparitySummary]):
    """How disparity is measured. Raises UsageError: a study that is none."""

    max_gt: float | None = None
    """Count only truth below this, px."""
    resize: tuple[int, int] | None = None
    """Width and height to which pictures and truth are brought first."""
    study: str | None = None
    """One of `studies.STUDIES`, measured beside."""

    title = "Disparity"
    columns = tables.COLUMNS
    key_figures = ("d1", "bad-2", "epe", "density")
    average = tables.POOLED
    words = tables.WORDS
    headline = tables.HEADLINE, tables.SPREAD, tables.TRUST
    timed = "network with confidence (and visibility, where it is measured)"

    def __post_init__(self) -> None:
        if self.study is not None and self.study not in studies.STUDIES:
            raise UsageError(f"no study is called {self.study!r}", f"known: {', '.join(studies.STUDIES)}")

    def case(self, sample: Sample) -> Sample | None:
        if sample.disparity is None:
            return None
        return sample if self.resize is None else resize_sample(sample, *self.resize)

    def meter(self, source: Source) -> DisparityMeter:
        asked = {"max_gt": self.max_gt, "resize": self.resize}
        ranges = studies.RANGES if self.study == "range" else ()
        name = source.spec.info.name if source.spec else ""
        return DisparityMeter(usual_protocol(name, ranges=ranges, **asked))

    def ready(self, method: Method | None, source: Source) -> Estimates:
        assert method is not None
        return method.disparities(source)

    def variants(self, method: Method | None) -> Mapping[float, Callable[[Sample], Estimate]]:
        return {} if self.study is None else studies.variants(self.study, method)

    def rank(self, image: ImageFigures) -> float | None:
        return -image.figures["all"]["d1"] if image.figures else None

    def shown(self, case: Sample, answers: Sequence[Estimate], images: Sequence[ImageFigures]) -> ShownPair:
        """Draw a pair; of a network with maps of where it contradicts itself: left-right, in its cycle."""
        figures, answer = images[-1].figures["all"], answers[-1]
        caption = f"D1 {figures['d1']:.1f} %, end-point error {figures['epe']:.2f} px"
        assert case.disparity is not None
        views = case.left, answer.disparity, case.disparity
        shown = shown_disparity(case.name, caption, *views, visible=case.visible)
        if answer.again is None:
            return shown
        found = answer.again(extras={"right_disparity", "confidence"})
        panels = consistency_panels(found.disparity, found.right_disparity, found.confidence)
        return replace(shown, panels=(*shown.panels, *panels))

    def facts(self, method: Method | None) -> list[Fact]:
        if not isinstance(method, NetworkMethod):
            return []
        limit = method.network.max_disparity
        return [("maximum disparity", "none" if limit is None else f"{limit} px")]

    def rows(self, total: DisparitySummary) -> Iterator[dict[str, Value]]:
        return tables.rows(total)

    def told(self, page: Evaluation, sets: Sequence[MeasuredSet[DisparitySummary]]) -> Evaluation:
        numbers = {"sets": tables.numbers(sets), **page.numbers}
        charts = [*tables.charts(sets)]
        studied: tuple[Table, ...] = ()
        if self.study is not None:
            rows, drawn = studies.told(self.study, sets)
            numbers["study"] = {"kind": self.study, "rows": json_rows(rows)}
            charts, studied = [*drawn, *charts], (rows,)
        return replace(page, studies=studied, charts=tuple(charts), numbers=numbers)
