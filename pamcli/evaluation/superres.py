"""Measure super-resolution: downscale pairs, upscale them again, and compare: `pam eval superres`."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.open import open_data_sets
from pamcli.data.source import Sample, Source
from pamcli.errors import UsageError
from pamcli.evaluation.comparison import add_comparison
from pamcli.evaluation.loop import ImageFigures, Method, Task, measure_sets
from pamcli.evaluation.methods import BICUBIC, Bicubic, Keep, UpscaledFiles, UpscalerMethod, list_built
from pamcli.evaluation.published import add_published
from pamcli.evaluation.report import write_files
from pamcli.evaluation.report_images import DrawnPair, draw_superres
from pamcli.evaluation.results import WORST, Column, Evaluation, Fact, Value, check_files, flatten
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

COMPARED = ("left psnr", "both psnr", "left ssim-ipassr")  # metrics to compare

SuperresMethod = Method[SuperresPair, Upscaled]

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
    pairs = settings.method or ()
    check_files(settings, settings.weights, *(what for _, what in pairs))
    sets = open_data_sets(settings.data)
    degradation = parse_degradation(settings.degrade, "`degrade`") if settings.degrade else None
    built = list_built(pairs, settings.network_from) if pairs else []
    methods: list[SuperresMethod] = [_make_method(*pair, settings, built, listener) for pair in pairs]
    if not pairs:
        methods.append(Bicubic())
        if degradation:
            from pamcli.evaluation.opencv_methods import DenoisedBicubic

            methods.append(DenoisedBicubic(degradation))
        if settings.predictions is not None:
            name = settings.predictions.resolve().name
            name = f"{name} (files)" if name in ("", BICUBIC) else name
            methods.append(UpscaledFiles(settings.predictions, settings.allow_missing, name))
        elif not settings.baseline_only:
            methods.append(_load_network(settings, sets, listener))
    scales = {int(each.network.scale) for each in methods if each.network is not None}
    if len(scales) > 1:
        message = f"the networks upscale by {' and '.join(map(str, sorted(scales)))}"
        raise UsageError(f"{message}, but can only be compared at one scale", "set `scale`")
    factor = scales.pop() if scales else int(settings.scale or DEFAULT_SCALE)
    task, worst = Superres(factor, degradation, len(pairs) > 1), WORST if settings.report else 0
    measured, page = measure_sets(task, sets, methods, worst=worst, listener=listener)
    gains = {one.label: gain for one in measured if (gain := one.meter.second_view) is not None}
    page.facts += [
        ("second view", f"{gain:+.3f} dB on the left image, {label}") for label, gain in gains.items()
    ]
    page.notes.append("do not compare SSIM with the parallax-attention paper, which does not define its SSIM")
    degraded = {"degraded_by": str(degradation)} if degradation else {}
    numbers = {"scale": factor, **degraded, "summary": page.summary, "second_view": gains}
    page.numbers = numbers | page.numbers
    if task.comparing:
        add_comparison(page, measured, COLUMNS, COMPARED, timed="upscaling")
    if settings.compare:
        add_published(page, measured, methods[-1].name, factor)
    return page


def _make_method(
    name: str, what: str, settings: EvaluateSuperresSettings, built: Sequence[str], listener: Reporter
) -> SuperresMethod:
    """Return the method for `bicubic`, `files:FOLDER` or weights; raise UsageError."""
    if what == BICUBIC:
        return Bicubic(name)
    if what.startswith("files:"):
        return UpscaledFiles(Path(what.removeprefix("files:")), settings.allow_missing, name)
    source = settings.network_from if str(Path(what)) in built else None
    network = replace(
        settings, method=None, allow_missing=False, weights=what, network_from=source, right_view="right"
    )
    return replace(_load_network(network, (), listener), name=name)


def _load_network(
    settings: EvaluateSuperresSettings, sets: Sequence[Source], listener: Reporter
) -> UpscalerMethod:
    """Load the network, and prepare the folder in which its results are saved."""
    keep = None if settings.save is None else _prepare_folder(settings.save, sets, settings)
    with listener.starting(str(settings.name)):
        from pamcli.inference.loading import load_upscaler

        upscaler, path = load_upscaler(settings)
    name = Path(settings.name).stem + (", ensemble" if settings.ensemble else "")
    name += ", left view twice" if settings.right_view == "left" else ""
    return UpscalerMethod(upscaler, name, path, right_view=settings.right_view, keep=keep)


def _prepare_folder(folder: Path, sets: Sequence[Source], settings: EvaluateSuperresSettings) -> Keep:
    """Return a function that writes <name>_left.png and <name>_right.png. Raises UsageError, OutputError."""
    if len(sets) > 1:
        message = f"`save` writes the images of one data set, but {len(sets)} are given"
        raise UsageError(message, "measure each data set by itself")
    (source,) = sets
    outputs = {
        name: {view: folder / f"{name}_{view}.png" for view in ("left", "right")} for name in source.names
    }
    planned = [*outputs.values()]
    pairs = [PairPaths(files.left, files.right, files.name) for files in source.files]
    check_collisions(pairs, lambda pair: outputs[pair.key or ""], list_network_files(settings.weights))
    check_separate_folders((file.parent for each in planned for file in each.values()), source.view_files)
    check_existing(planned, overwrite=settings.overwrite)
    for file in (file for each in planned for file in each.values()):
        check_writable(file)
    written = set[Path]()

    def keep(name: str, *views: NDArray[np.uint8]) -> None:
        for file, pixels in zip(outputs[name].values(), views, strict=True):
            if file.parent in written:
                require_folder(file.parent)
            write_atomically(file, encode_image(RgbImage(pixels), ".png", name=str(file)))
            written.add(file.parent)

    return keep


@dataclass(frozen=True)
class Superres(Task[SuperresPair, Upscaled, SuperresMeter]):
    """The task of upscaling by `scale`."""

    scale: int = field()
    degradation: Degradation | None = None  # of the low-resolution images; its noise is the same in every run
    comparing: bool = False  # compare several methods by paired differences

    title = "Super-resolution"
    columns = COLUMNS
    key_figures = ("both psnr", "left psnr", "both ssim-ipassr")
    # Both protocols of a metric side by side, PSNR first.
    headline = ([f"{protocol} {metric}" for metric in METRICS for protocol in PROTOCOLS],)
    row_columns = (Column("pairs", "pairs", decimals=0),)
    names_single_method = True
    timed = "network alone"

    @property
    def facts(self) -> list[Fact]:
        degraded = [] if self.degradation is None else [("degraded by", str(self.degradation))]
        return [("scale", f"x{self.scale}"), *degraded]

    def make_case(self, sample: Sample) -> SuperresPair:
        pair = make_superres_pair(sample.left, sample.right, self.scale, name=sample.name)
        if self.degradation is None:
            return pair
        rng = np.random.default_rng(zlib.crc32(sample.name.encode()))
        low_left, low_right = (self.degradation(view, rng) for view in (pair.low_left, pair.low_right))
        return replace(pair, low_left=low_left, low_right=low_right)

    def make_meter(self, source: Source) -> SuperresMeter:
        return SuperresMeter()

    def make_rows(self, total: SuperresMeter) -> list[dict[str, Value]]:
        return [{"pairs": len(total.images), **flatten(total.image_means)}]

    def rank(self, images: Sequence[ImageFigures]) -> float:
        """Rank by the PSNR of the left image; when comparing, by the largest difference."""
        quality = [image.figures["left"]["psnr"] for image in images]
        gap = max(quality) - min(quality)
        return float(-np.nan_to_num(gap, nan=0.0)) if self.comparing else quality[-1]

    def draw(
        self, case: SuperresPair, answers: Mapping[str, Upscaled], images: Sequence[ImageFigures]
    ) -> DrawnPair:
        views = {name: answer.left for name, answer in answers.items()}
        quality = [image.figures["left"]["psnr"] for image in images]
        if self.comparing:
            caption = "; ".join(f"{name} {each:.2f} dB" for name, each in zip(views, quality, strict=True))
            return draw_superres(case.name, caption, views, case.left)
        first, *others = views.values()
        caption = f"{quality[-1]:.2f} dB (left)"
        caption += f", {quality[-1] - quality[0]:+.2f} dB over bicubic" if others else ""
        views = {"Bicubic": first} | ({"Result": others[-1]} if others else {})
        return draw_superres(case.name, caption, views, case.left)
