"""Pairs of pictures made larger, in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.frames import FramePairs
from pamcli.batch.job import Job
from pamcli.batch.networks import load_upscaler
from pamcli.batch.operation import NetworkOperation
from pamcli.batch.plan import BatchOptions, Place, Request
from pamcli.batch.run import Batch
from pamcli.errors import InputError, UsageError
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.files.pairing import PairName
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES, PackedLayout, Packing
from pamcli.imaging.camera_faults import camera_fault
from pamcli.imaging.images import check_encodable, encode_picture
from pamcli.imaging.resize import imresize_to
from pamcli.imaging.stereo_pair import RED_CYAN, StereoPair, packed, packed_size
from pamcli.registry.catalog import DEFAULT_SCALE, files_behind

if TYPE_CHECKING:
    from pamcli.inference.upscaler import StereoUpscaler

PictureFormat = Literal["png", "tif", "jpg", "webp"]
InputKind = Literal["clean", "camera", "auto"]
LEFT = OutputKind("left", "`output`", PICTURE_OUTPUT_SUFFIXES, "_left")
RIGHT = OutputKind("right", "`output_right`", PICTURE_OUTPUT_SUFFIXES, "_right", joins_main_folder=True)
PACKED = OutputKind("packed", "`output_packed`", PICTURE_OUTPUT_SUFFIXES, "_packed")


def enlarge_files(
    *inputs: Place,
    output: Place | None = None,
    output_right: Place | None = None,
    output_packed: Place | None = None,
    packing: Packing = "lr",
    quality: int | None = None,
    format: PictureFormat | None = None,
    scale: float | None = None,
    input: InputKind | None = None,
    weights: Place | None = None,
    ensemble: bool = False,
    network_from: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    max_memory: int | None = None,
    **options: Unpack[BatchOptions],
) -> Batch:
    """Enlarge pairs of pictures in files, as `pam superres` does: iterate over it, for an outcome each.

    >>> for outcome in pamcli.enlarge_files("lefts/", "rights/", output="larger/", scale=2):
    ...     print(outcome.status, outcome.outputs)

    Arguments are the command's, under the names of its options (`pam superres --help`; `BatchOptions` of
    `pamcli.batch.plan` are those of every batch): inputs and outputs are files, folders or templates with
    `{}`. output: the left picture, or a folder for both; `-` hands its bytes back in `Outcome.data`.
    quality: 1 to 100, of JPEG and WebP. scale: times on each side, above 1 and up to 4; None: 4, or what the
    weights do. input: what the pictures are, where `weights` names none; None: auto. network_from:
    "module:function" that makes the network which `weights` describes; its code runs. max_memory: bytes.
    Raises UsageError and InputError before any work: inputs that are no pairs, results that exist;
    while it is iterated, ModelError and DeviceError. What is wrong with a pair is its outcome's `error`.
    """
    if input not in (None, *get_args(InputKind)):
        raise UsageError(f"`input` {input!r}", f"one of {', '.join(get_args(InputKind))}")
    if input is not None and weights is not None:
        raise UsageError(
            "`input` chooses among the weights that come with pam, and `weights` names others",
            "drop one of both",
        )
    if packing != "lr" and output_packed is None:
        raise UsageError("`packing` is about both views in one picture", "ask for that, with `output_packed`")
    request = Request(inputs=inputs, **options)
    places = {LEFT: output, RIGHT: output_right, PACKED: output_packed}
    batch = Batch.asked(
        request, places, format, read=files_behind(weights), tag=f"_x{scale or DEFAULT_SCALE:g}"
    )
    settings: dict[str, Any] = {
        **{"ensemble": ensemble, "network_from": network_from},
        **{"device": device, "precision": precision, "max_memory": max_memory},
    }
    load = partial(load_upscaler, weights, scale, **settings)
    chosen = None if weights is not None else input or "auto"
    operation = _Enlarging(load, chosen, packing, quality)
    if chosen == "auto" and batch.pairing and isinstance(batch.pairing.pairs, FramePairs):
        operation.frames = batch.pairing.pairs
    return batch.working(operation, gpus=device != "cpu")


@dataclass(frozen=True)
class _Larger:
    """The larger views of a pair, and what its pictures were taken for."""

    views: dict[str, np.ndarray]
    facts: Mapping[str, Any]


def _fault(pair: StereoPair) -> str | None:
    """What one of the views shows of its camera, with the file's name before it."""
    files = [file.name for file in pair.files] or [pair.title] * 2
    found = ((file, camera_fault(view)) for file, view in zip(files, (pair.left, pair.right), strict=True))
    return next((f"{file}: {shown}" for file, shown in found if shown is not None), None)


class _Enlarging(NetworkOperation[_Larger]):
    def __init__(
        self,
        load: partial[tuple[StereoUpscaler, Path]],
        chosen: InputKind | None,
        packing: Packing,
        quality: int | None,
    ) -> None:
        """chosen: what the pictures are; None: `load` knows but one network."""
        super().__init__(partial(load, camera=chosen == "camera"))
        self.load_for_cameras = partial(load, camera=True)
        self.chosen, self.packing, self.quality = chosen, packing, quality
        self.frames: Iterable[PairName] = ()
        """Frames of a video: the first one that can be decoded says what it shows of its camera."""
        self.of_video: tuple[str | None] | None = None
        """What that is. The network must not change, wherever a run, a shard or a machine begins."""
        self.told = False

    @cached_property
    def for_cameras(self) -> StereoUpscaler:
        """The network for pictures with cameras' faults, loaded when the first pair has some."""
        return self.load_for_cameras()[0]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "for_cameras"}

    def check(self, name: str, place: Path, pair: StereoPair) -> None:
        views = {"left": [pair.left], "right": [pair.right]}.get(name, [pair.left, pair.right])
        height, width = self.network.size_of(pair.height, pair.width)
        alpha = any(view.alpha is not None for view in views)
        if name == "packed":
            height, width = packed_size(height, width, self.packing)
            alpha = alpha and self.packing != RED_CYAN
        check_encodable(
            place.suffix,
            height=height,
            width=width,
            bits=8 * max(view.pixels.itemsize for view in views),
            alpha=alpha,
            name=str(place),
            quality=self.quality,
        )

    def apply(self, job: Job, pair: StereoPair) -> _Larger:
        fault = None
        if self.chosen == "auto":
            fault = _fault(pair) if self.of_video is None else self.of_video[0]
        network = self.network if fault is None else self.for_cameras
        kind = "camera" if fault is not None or self.chosen == "camera" else "clean"
        facts = {} if self.chosen is None else {"input": kind, "input_shows": fault}
        views = pair.left.pixels, pair.right.pixels
        progress = self.watched(pair)
        if all(name == "left" for name in job.places):
            return _Larger({"left": network.left_only(*views, progress=progress)}, facts)
        larger = network(*views, progress=progress)
        return _Larger(dict(zip(("left", "right"), larger, strict=True)), facts)

    def read(self, job: Job, layout: PackedLayout | None, max_pixels: int | None) -> StereoPair:
        frames, self.frames = self.frames, ()
        for name in frames:
            with suppress(InputError):  # it will be said of that frame
                self.of_video = (_fault(self._frames(name, layout, max_pixels)),)
                break
        return super().read(job, layout, max_pixels)

    def facts(self, result: _Larger) -> Mapping[str, Any]:
        return result.facts

    def note(self, facts: Mapping[str, Any]) -> None:
        if facts.get("input_shows") is not None and not self.told:
            self.told = True
            LOG.info("%s, so the weights for cameras' pictures", facts["input_shows"])

    def encode(self, name: str, place: Path, pair: StereoPair, result: _Larger) -> Encoded:
        views = {}
        for side, view in (("left", pair.left), ("right", pair.right)):
            pixels = result.views.get(side)
            if pixels is not None and name in (side, "packed"):
                alpha = view.alpha
                if alpha is not None:
                    alpha = imresize_to(alpha, pixels.shape[1], pixels.shape[0])
                views[side] = replace(view, pixels=pixels, alpha=alpha)
        larger = packed(views["left"], views["right"], self.packing) if name == "packed" else views[name]
        return Encoded(encode_picture(larger, place.suffix, name=str(place), quality=self.quality))
