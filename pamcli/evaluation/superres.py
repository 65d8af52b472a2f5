"""Measure super-resolution against bicubic: downscale pairs, upscale them again, and compare."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.open import open_data_sets
from pamcli.data.source import Sample, Source
from pamcli.errors import UsageError
from pamcli.evaluation.methods import FilesMethod, Method, NetworkMethod, Upscaling, Watch
from pamcli.evaluation.report_images import DrawnPair, draw_superres
from pamcli.evaluation.results import (
    WORST,
    Column,
    Evaluation,
    Fact,
    ImageFigures,
    Value,
    check_files,
    flatten,
    to_json_rows,
)
from pamcli.evaluation.run import MeasuredSet, Task, evaluate, write_files
from pamcli.evaluation.superres_metrics import (
    METRICS,
    PROTOCOLS,
    SuperresMeter,
    SuperresPair,
    Upscaled,
    make_superres_pair,
)
from pamcli.files.atomic import check_writable, require_folder, write_atomically
from pamcli.files.outputs import check_collisions, check_existing, check_separate_folders
from pamcli.files.pairing import PairPaths
from pamcli.imaging.degradation import Degradation, parse_degradation
from pamcli.imaging.images import RgbImage, encode_image
from pamcli.registry.catalog import DEFAULT_SCALE, list_network_files
from pamcli.reporting import SILENT, Reporter
from pamcli.settings.evaluation import EvaluateSuperresSettings
from pamcli.settings.options import takes

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


@takes(EvaluateSuperresSettings)
def evaluate_superres(settings: EvaluateSuperresSettings) -> Evaluation:
    """Measure super-resolution on data sets against bicubic, as `pam eval superres` does.

    >>> found = pamcli.evaluate_superres("pairs:labelled", scale=2, baseline_only=True)
    >>> print(found.text())

    Args:
        settings: Data sets as `NAME:PATH`; then an `EvaluateSuperresSettings`, or its fields as keywords.

    Raises:
        PamError: A UsageError, InputError, ModelError, DeviceError or OutputError.
    """
    return write_files(measure_superres(settings, SILENT), settings)


def measure_superres(settings: EvaluateSuperresSettings, listener: Reporter) -> Evaluation:
    """Measure super-resolution and report progress to a listener; raise as `evaluate_superres`."""
    check_files(settings, settings.weights)
    sets, keep = open_data_sets(settings.data), None
    if settings.save is not None:
        keep = UpscaledWriter(settings.save, sets, settings.weights, overwrite=settings.overwrite)
    methods: list[Method] = []
    degradation = None
    if settings.degrade is not None:
        from pamcli.evaluation.opencv_methods import DenoisedBicubic

        degradation = parse_degradation(settings.degrade, "`degrade`")
        methods.append(DenoisedBicubic(degradation))
    factor = int(settings.scale or DEFAULT_SCALE)
    if settings.predictions is not None:
        methods.append(FilesMethod(settings.predictions, allow_missing=settings.allow_missing))
    elif not settings.baseline_only:
        with listener.starting(str(settings.name)):
            from pamcli.inference.loading import load_upscaler

            upscaler, path = load_upscaler(settings)
        factor = int(upscaler.scale)
        name = Path(settings.name).stem + (", ensemble" if settings.ensemble else "")
        name += ", left view twice" if settings.right_view == "left" else ""
        methods.append(NetworkMethod(upscaler, name, path, settings.right_view, keep))
    task, worst = Superres(factor, degradation), WORST if settings.report else 0
    return evaluate(task, sets, methods, compare=settings.compare, worst=worst, listener=listener)


@dataclass(frozen=True)
class Superres(Task):
    """The task of upscaling by `scale`; bicubic accompanies every method, or is measured alone."""

    scale: int = field()
    degradation: Degradation | None = None  # of the low-resolution images; its noise is the same in every run

    title = "Super-resolution"
    columns = COLUMNS
    key_figures = ("both psnr", "left psnr", "both ssim-ipassr")
    # Both protocols of a metric side by side, PSNR first.
    headline = ([f"{protocol} {metric}" for metric in METRICS for protocol in PROTOCOLS],)
    row_columns = (Column("pairs", "pairs", decimals=0),)
    baseline = MappingProxyType({BICUBIC: None})
    timed = "network alone"

    def make_case(self, sample: Sample) -> SuperresPair:
        pair = make_superres_pair(sample.left, sample.right, self.scale, name=sample.name)
        if self.degradation is None:
            return pair
        rng = np.random.default_rng(zlib.crc32(sample.name.encode()))
        low_left, low_right = (self.degradation(view, rng) for view in (pair.low_left, pair.low_right))
        return replace(pair, low_left=low_left, low_right=low_right)

    def make_meter(self, source: Source) -> SuperresMeter:
        return SuperresMeter()

    def prepare(self, method: Method | None, source: Source, watch: Watch | None) -> Upscaling:
        return SuperresPair.bicubic if method is None else method.prepare_upscaling(source, watch)

    def rank(self, images: Sequence[ImageFigures]) -> float:
        return images[-1].figures["left"]["psnr"]

    def draw(
        self, case: SuperresPair, answers: Mapping[str, Upscaled], images: Sequence[ImageFigures]
    ) -> DrawnPair:
        views = [each.left for each in answers.values()]
        baseline, quality = (self.rank([image]) for image in (images[0], images[-1]))
        caption, result = f"{quality:.2f} dB (left)", None
        if len(views) > 1:
            caption += f", {quality - baseline:+.2f} dB over bicubic"
            result = views[-1]
        return draw_superres(case.name, caption, views[0], result, case.left)

    def describe(self, method: Method | None) -> list[Fact]:
        degraded = [] if self.degradation is None else [("degraded by", str(self.degradation))]
        return [("scale", f"x{self.scale}"), *degraded]

    def make_rows(self, total: SuperresMeter) -> Iterator[dict[str, Value]]:
        yield {"pairs": len(total.images), **flatten(total.headline)}

    def extend(self, page: Evaluation, sets: Sequence[MeasuredSet], *, report: bool) -> Evaluation:
        gains = {one.label: gain for one in sets if (gain := one.meter.second_view) is not None}
        facts = [
            ("second view", f"{gain:+.3f} dB on the left image, {label}") for label, gain in gains.items()
        ]
        note = "do not compare SSIM with the parallax-attention paper, which does not define its SSIM"
        degraded = {} if self.degradation is None else {"degraded_by": str(self.degradation)}
        numbers: dict[str, Any] = {"scale": self.scale, **degraded, "summary": to_json_rows(page.summary)}
        return replace(
            page,
            facts=(*page.facts, *facts),
            notes=(*page.notes, note),
            numbers={**numbers, "second_view": gains, **page.numbers},
        )


class UpscaledWriter:
    """A writer of <name>_left.png and <name>_right.png for each sample, for `NetworkMethod.keep`."""

    def __init__(
        self, folder: Path, sets: Sequence[Source], weights: str | Path | None, *, overwrite: bool
    ) -> None:
        """Prepare the folder, without overwriting `weights`. Raises UsageError, OutputError."""
        if len(sets) > 1:
            message = f"`save` writes the images of one data set, but {len(sets)} are given"
            raise UsageError(message, "measure each data set by itself")
        (source,) = sets
        self.folder, self.written = folder, set[Path]()
        outputs = [self._files(name) for name in source.names]
        pairs = [PairPaths(files.left, files.right, files.name) for files in source.files]
        check_collisions(pairs, outputs, list_network_files(weights))
        written = (file.parent for files in outputs for file in files.values())
        check_separate_folders(written, source.view_files)
        check_existing(outputs, overwrite=overwrite)
        for files in outputs:
            for file in files.values():
                check_writable(file)

    def _files(self, name: str) -> dict[str, Path]:
        return {view: self.folder / f"{name}_{view}.png" for view in ("left", "right")}

    def __call__(self, name: str, left: NDArray[np.uint8], right: NDArray[np.uint8]) -> None:
        """Write both images of a sample, (H, W, 3) RGB."""
        for file, pixels in zip(self._files(name).values(), (left, right), strict=True):
            if file.parent in self.written:
                require_folder(file.parent)
            write_atomically(file, encode_image(RgbImage(pixels), ".png", name=str(file)))
            self.written.add(file.parent)
