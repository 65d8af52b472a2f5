"""pam disparity: where each pixel of the left picture sits in the right one."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pamcli.cli import options, parsing
from pamcli.cli.batch import Encoded, NetworkOperation, run_jobs
from pamcli.cli.calibration import Cameras
from pamcli.cli.depth import InMetres, Metric
from pamcli.cli.groups import asked_results, option, result
from pamcli.cli.jobs import Job, Target, plan_jobs
from pamcli.cli.network import Matching
from pamcli.errors import UsageError
from pamcli.files.suffixes import CONFIDENCE_SUFFIXES, DISPARITY_SUFFIXES, PICTURE_OUTPUT_SUFFIXES
from pamcli.registry.catalog import REGISTERED

if TYPE_CHECKING:
    from pamcli.imaging.stereo_pair import StereoPair
    from pamcli.inference.matcher import StereoResult

GOOD_FOR = (
    "the weights that come with pam learned from drawn scenes and few real pairs: about one pixel in fifteen "
    "is off by more than 3 px, fewer with --min-confidence (pam guide confidence)"
)
EVEN_RANGE = (0.0, 192.0)
"""Range of the colours, where all disparities are equal, or none is known."""
PERCENTILES = (1, 99)
"""Colours run from the 1st to the 99th percentile of a map, with `--range auto` from the lowest to the
highest of them all."""
OUTSIDE = 0.1
"""Share of a map that may lie outside of another one's range before that is said."""


class Maps(options.Results):
    """The results that are asked for, and where they go. Raises UsageError for values without sense."""

    output: str | None = result(
        "Disparity of the left view: .pfm, .npy, .tif (float) or .png (16 bits, 256 a pixel).",
        DISPARITY_SUFFIXES,
        "-o",
        name="disparity",
        metavar="FILE|FOLDER|TEMPLATE|-",
    )
    output_right: str | None = result(
        "Disparity of the right view.", DISPARITY_SUFFIXES, name="right_disparity", folder_tag="_right"
    )
    color_map: str | None = result(
        "Picture of the disparity in colours; unknown is black.", PICTURE_OUTPUT_SUFFIXES, folder_tag="_color"
    )
    visible: str | None = result(
        "Mask (.png): 255 where both views see a pixel.", (".png",), folder_tag="_visible"
    )
    confidence: str | None = result(
        "Confidence of the disparity, pixel by pixel, in [0, 1].",
        CONFIDENCE_SUFFIXES,
        folder_tag="_confidence",
    )
    page: str | None = result(
        "A page (.html) to look at in a browser: picture, disparity, the pixel under the pointer, a "
        "point cloud; of a batch with an index.",
        (".html",),
    )
    format_name: Literal["pfm", "png", "npy", "tif"] | None = option(
        "Write disparities in this format, in a folder or on stdout; by default pfm.", "--format"
    )
    color_range: tuple[float, float] | Literal["auto"] | None = option(
        "Disparities between which the colours run; by default those of the pair, in a batch of its first "
        "pair for all. auto: one range for the whole batch, which is known, and reported, at its end.",
        "--range",
        metavar="MIN:MAX|auto",
        parse=parsing.color_range,
    )
    unknown: Literal["occluded", "none"] = option(
        "Pixels of the left view to mark as unknown in -o, --color-map, depth and points.", default="none"
    )
    min_confidence: float | None = option(
        "Mark pixels less confident than T (0 to 1) as unknown too.", metavar="T", parse=None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        least = self.min_confidence
        if least is not None and not 0 <= least <= 1:  # also true for NaN
            raise UsageError(f"--min-confidence {least:g} is not between 0 and 1")
        if self.color_range is not None and self.color_map is None:
            raise UsageError("--range is about the colours of --color-map, which is not asked for")

    @property
    def extras(self) -> set[str]:
        """What the network has to find besides the disparity."""
        wanted = {
            "right_disparity": self.output_right is not None,
            "visible": self.visible is not None or self.unknown == "occluded",
            "confidence": (self.confidence, self.min_confidence, self.page) != (None, None, None),
        }
        return {name for name, value in wanted.items() if value}


def command(
    pairs: options.Pairs,
    output: Maps,
    metric: Metric,
    cameras: Cameras,
    network: Matching,
    compute: options.Engine,
    messages: options.Messages,
) -> None:
    """Find, for each pixel of the left picture, where it sits in the right one.

    The pictures must be rectified: a point lies in the same row of both, and left pixel (y, x) matches right
    pixel (y, x - disparity). The paths of the results go to stdout, everything else to stderr.

    The weights that come with pam learned from drawn scenes and few real pairs: in streets and rooms about
    one pixel in fifteen is off by more than 3 px. Act on confident pixels only: --min-confidence (pam guide
    confidence).

    $ pam disparity left.png right.png -o disp.pfm --color-map disp.png --confidence conf.tif
    $ pam disparity lefts/ rights/ -o out/ --skip-existing
    """
    console = messages.console(jsonl=output.jsonl)
    if network.weights is None or network.weights in REGISTERED:
        console.detail(GOOD_FOR)
    parts = {"--skip-existing": output.skip_existing, "--pairs -": pairs.pairs == "-", "--shard": pairs.shard}
    parts["--engine ray"] = compute.remote
    if output.color_range == "auto" and (partly := [option for option, given in parts.items() if given]):
        raise UsageError(f"--range auto needs the whole batch, which {partly[0]} has not", "give MIN:MAX")
    negative = network.min_disparity < 0
    kinds = asked_results(output) | asked_results(metric)
    for kind, text in kinds.items():
        ends = f".{output.format_name}" if output.format_name else Path(text or "").suffix
        if negative and text and kind.suffixes == DISPARITY_SUFFIXES and ends.lower() == ".png":
            raise UsageError(
                f"{kind.option} {text}: a PNG cannot hold negative disparities", "take .pfm, .npy or .tif"
            )
    read = [*(cameras.calibration or ()), network.weights]
    plan = plan_jobs(pairs, output, kinds, output.format_name, console, stream=compute.remote, read=read)
    in_metres = metric.prepared(cameras, console)
    index = None
    if plan.batch and output.page is not None:
        from pamcli.viewing.page import check_index, index_place

        index = index_place(output.page)
        check_index(index, plan.outputs)

    whole_batch_first = output.color_range == "auto"
    with tempfile.TemporaryDirectory(prefix="pam-") if whole_batch_first else nullcontext("") as spool:
        operation = _Matching(output, in_metres, Path(spool), index, network, compute, console)
        run_jobs(plan, operation, console, compute)


class _Matching(NetworkOperation["StereoResult"]):
    def __init__(
        self, asked: Maps, metric: InMetres | None, spool: Path, index: Path | None, *how: Any
    ) -> None:
        """index: of the pages of a batch. how: as of `NetworkOperation`."""
        super().__init__(*how)
        self.asked, self.metric, self.spool, self.index = asked, metric, spool, index
        self.extras = asked.extras
        self.whole_batch_first = asked.color_range == "auto"
        self.colors = None if asked.color_range == "auto" else asked.color_range
        """Disparities between which the colours run; None: not yet known."""
        self.first_of_all = asked.color_map is not None and asked.color_range is None
        self.kept: dict[str, Path] = {}
        """Stored disparities that wait for the range of the whole batch, by the pictures to make of them."""
        self.low, self.high = math.inf, -math.inf
        self.said: set[str] = set()
        """Sizes of pictures of which it was said that they are reduced."""

    @property
    def same_for_all(self) -> bool:  # type: ignore[override]
        """The colours' range, which is the first pair's."""
        return self.first_of_all and self.colors is None

    def begin(self, job: Job, pair: StereoPair) -> None:
        self.apply(job, pair)

    def apply(self, job: Job, pair: StereoPair) -> StereoResult:
        found: StereoResult = self.network(
            pair.left.pixels, pair.right.pixels, extras=self.extras, progress=self.watched(pair)
        )
        if self.same_for_all:
            self._settle_range(_range(self._shown(found)), f"of {job.names[0]}")
        return found

    def facts(self, result: StereoResult) -> Mapping[str, Any]:
        height, width = result.matched_size or result.disparity.shape
        return {"matched_width": width, "matched_height": height}

    def note(self, facts: Mapping[str, Any]) -> None:
        if not facts or facts["matched_width"] >= facts["width"]:
            return
        given, taken = (
            "{} x {}".format(*(facts[f"{of}{side}"] for side in ("width", "height")))
            for of in ("", "matched_")
        )
        if given not in self.said:
            self.said.add(given)
            self.console.inform(
                f"pictures of {given} px are matched at {taken}, and the result is brought back to their "
                "size along the edges of the left one (--match-size 1 matches them as they are)"
            )

    def doubts(self, result: StereoResult) -> list[str]:
        if "confidence" not in self.extras or not result.doubtful:
            return []
        share = f"only {100 * result.confident_share:.0f} % of the pixels are confident"
        return [f"{share}: the pictures seem to be no pair, or to show hardly any texture"]

    def check(self, target: Target, pair: StereoPair) -> None:
        from pamcli.imaging.images import check_encodable

        if self.metric is not None:
            self.metric.check(pair.width, pair.height)
        if target.name == "color_map":
            check_encodable(
                target.suffix, height=pair.height, width=pair.width, bits=8, alpha=False, name=str(target)
            )

    def encode(self, target: Target, pair: StereoPair, result: StereoResult) -> Encoded | None:
        from pamcli.imaging.disparity_files import encode_confidence
        from pamcli.imaging.images import encode_mask

        if target.name == "visible":
            assert result.visible is not None
            return Encoded(encode_mask(result.visible))
        if target.name == "confidence":
            assert result.confidence is not None
            return Encoded(encode_confidence(result.confidence, target.suffix))
        if target.name == "right_disparity":
            assert result.right_disparity is not None
            return _stored(result.right_disparity, target)
        disparity = self._shown(result)
        if target.name == "page":
            from pamcli.viewing.page import render_page

            calibration = self.metric.calibration if self.metric else None
            picture, confidence = pair.left.pixels, result.confidence
            return Encoded(
                render_page(pair.name, picture, disparity, confidence=confidence, calibration=calibration)
            )
        if target.name == "color_map":
            if self.colors is not None:
                return _colored(disparity, self.colors, target, 0 if self.asked.color_range else OUTSIDE)
            self._keep(disparity, target)
            return None
        if target.name == "disparity":
            return _stored(disparity, target)
        assert self.metric is not None
        return self.metric.encode(target, disparity, pair.left.pixels, result.confidence)

    def _shown(self, result: StereoResult) -> Any:
        """The disparity, NaN where it is to be unknown."""
        occluded = self.asked.unknown == "occluded"
        return result.disparity_where(visible=occluded, min_confidence=self.asked.min_confidence)

    def _settle_range(self, found: tuple[float, float] | None, whose: str) -> None:
        even = found is None or found[0] >= found[1]
        self.colors = low, high = EVEN_RANGE if even or found is None else found
        source = "" if even else f" (1st to 99th percentile {whose})"
        self.console.inform(f"colours run from {low:.2f} to {high:.2f} px{source}")

    def end_batch(self) -> None:
        if self.index is not None:
            from pamcli.viewing.page import write_index

            write_index(self.index)

    def _keep(self, disparity: Any, target: Target) -> None:
        """Store a disparity until the range of the whole batch is known."""
        from pamcli.files.atomic import write_atomically
        from pamcli.imaging.disparity_files import encode_disparity

        if (found := _range(disparity)) is not None:
            self.low, self.high = min(self.low, found[0]), max(self.high, found[1])
        stored = self.spool / f"{len(self.kept)}.npy"
        write_atomically(stored, encode_disparity(disparity, ".npy").data)
        self.kept[str(target)] = stored

    def encode_at_the_end(self, target: Target) -> Encoded | None:
        from pamcli.imaging.disparity_files import read_disparity

        if target.name != "color_map":
            return None
        if self.colors is None:
            self._settle_range((self.low, self.high), "of the batch")
            assert self.colors is not None
        disparity = read_disparity(self.kept[str(target)], max_pixels=None)
        return _colored(disparity, self.colors, target, 1)


def _stored(disparity: Any, target: Target) -> Encoded:
    from pamcli.imaging.disparity_files import encode_disparity

    file = encode_disparity(disparity, target.suffix)
    if not file.saturated:
        return Encoded(file.data)
    share = f"{file.saturated} pixels are beyond 255.996 px, the most that a disparity PNG can hold"
    return Encoded(file.data, [f"{share}; .pfm, .npy and .tif hold any"])


def _range(disparity: Any) -> tuple[float, float] | None:
    """The `PERCENTILES` of what is known; None where nothing is."""
    import numpy as np

    known = disparity[np.isfinite(disparity)]
    if not known.size:
        return None
    low, high = np.percentile(known, PERCENTILES).tolist()
    return low, high


def _colored(disparity: Any, colors: tuple[float, float], target: Target, outside: float) -> Encoded:
    """outside: share of what is known that may lie outside of the range before that is said."""
    import numpy as np

    from pamcli.imaging.colormap import colorize
    from pamcli.imaging.images import Picture, encode_picture

    colored = colorize(disparity, *colors)
    data = encode_picture(Picture(colored.pixels), target.suffix, name=str(target))
    known = int(np.isfinite(disparity).sum())
    if colored.saturated <= outside * known:
        return Encoded(data)
    pixels = f"{colored.saturated} pixels ({100 * colored.saturated / known:.1f} %) of the colour map"
    return Encoded(data, ["{} lie outside {:g}:{:g} px (--range)".format(pixels, *colors)])
