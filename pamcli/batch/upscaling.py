"""How are pairs of images upscaled, from files to files?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.frames import FramePairs
from pamcli.batch.jobs import Job
from pamcli.batch.run import Batch
from pamcli.batch.work import Found, Work
from pamcli.errors import InputError
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.files.pairing import PairPaths
from pamcli.files.suffixes import IMAGE_OUTPUT_SUFFIXES
from pamcli.imaging.camera_faults import detect_camera_fault
from pamcli.imaging.images import check_encodable, encode_image
from pamcli.imaging.resize import imresize_to
from pamcli.imaging.stereo_pair import RED_CYAN, StereoPair, compute_packed_size, pack_views, restore_levels
from pamcli.inference.loading import load_upscaler
from pamcli.registry.catalog import DEFAULT_SCALE, list_network_files
from pamcli.settings.batches import UpscaleSettings
from pamcli.settings.options import takes

if TYPE_CHECKING:
    from pamcli.inference.upscaler import StereoUpscaler

LEFT = OutputKind("left", "`output`", IMAGE_OUTPUT_SUFFIXES, "_left")
RIGHT = OutputKind("right", "`output_right`", IMAGE_OUTPUT_SUFFIXES, "_right", joins_main_folder=True)
PACKED = OutputKind("packed", "`output_packed`", IMAGE_OUTPUT_SUFFIXES, "_packed")


@takes(UpscaleSettings)
def upscale_files(settings: UpscaleSettings) -> Batch:
    """Upscale pairs of images in files, as `pam superres` does: iterate over it, for a `Result` each.

    >>> for result in pamcli.upscale_files("lefts/", "rights/", output="upscaled/", scale=2):
    ...     print(result.status, result.outputs)

    Args:
        settings: A left and a right image, folders, or templates with `{}`; then an `UpscaleSettings`, or its
            fields as keywords. They are the options of the command (`pam superres --help`, `pam guide
            options`). output: the left image, or a folder for both; `-` hands its bytes back in
            `Result.data`.

    Returns:
        A `Batch`, whose pairs are processed while it is iterated over. What is wrong with a pair is its
        result's `error`.

    Raises UsageError and InputError before any work: inputs that are no pairs, results that exist; while it
    is iterated, ModelError and DeviceError.
    """
    places = {LEFT: settings.output, RIGHT: settings.output_right, PACKED: settings.output_packed}
    tag = f"_x{settings.scale or DEFAULT_SCALE:g}"
    batch = Batch(settings, places, read=list_network_files(settings.weights), tag=tag)
    work = _Enlarging(settings)
    if work.chosen == "auto" and batch.pairing and isinstance(batch.pairing.pairs, FramePairs):
        work.frames = batch.pairing.pairs
    return batch.with_work(work)


def _fault(pair: StereoPair) -> str | None:
    """What one of the views shows of its camera, with the file's name before it."""
    files = [file.name for file in pair.files] or [pair.title] * 2
    found = (
        (file, detect_camera_fault(view)) for file, view in zip(files, (pair.left, pair.right), strict=True)
    )
    return next((f"{file}: {shown}" for file, shown in found if shown is not None), None)


class _Enlarging(Work):
    stretches = True

    def __init__(self, settings: UpscaleSettings) -> None:
        super().__init__(settings)
        self.gpus = settings.device != "cpu"
        self.chosen = None if settings.weights is not None else settings.input or "auto"
        """Kind of images whose weights are used; None if the user names the weights."""
        self.frames: Iterable[PairPaths] = ()
        """Frames of a video: the first one that can be decoded says what it shows of its camera."""
        self.of_video: tuple[str | None] | None = None
        """What that is. The network must not change, wherever a run, a shard or a machine begins."""
        self.told = False

    def load_network(self) -> StereoUpscaler:
        return load_upscaler(self.settings, camera=self.chosen == "camera", max_memory=self.max_memory)[0]

    @cached_property
    def for_cameras(self) -> StereoUpscaler:
        """The network for pictures with cameras' faults, loaded when the first pair has some."""
        return load_upscaler(self.settings, camera=True, max_memory=self.max_memory)[0]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "for_cameras"}

    def check(self, name: str, place: Path, pair: StereoPair) -> None:
        views = {"left": [pair.left], "right": [pair.right]}.get(name, [pair.left, pair.right])
        height, width = self.network.size_of(pair.height, pair.width)
        alpha = any(view.alpha is not None for view in views)
        if name == "packed":
            height, width = compute_packed_size(height, width, self.settings.packing)
            alpha = alpha and self.settings.packing != RED_CYAN
        check_encodable(
            place.suffix,
            height=height,
            width=width,
            bits=8 * max(view.pixels.itemsize for view in views),
            alpha=alpha,
            name=str(place),
            quality=self.settings.quality,
        )

    def apply(self, job: Job, pair: StereoPair) -> Found:
        fault = None
        if self.chosen == "auto":
            fault = _fault(pair) if self.of_video is None else self.of_video[0]
        network = self.network if fault is None else self.for_cameras
        kind = "camera" if fault is not None or self.chosen == "camera" else "clean"
        facts = {} if self.chosen is None else {"input": kind, "input_shows": fault}
        views, progress = self.views(pair), None if self.bar is None else self.bar.within(pair.height)
        if all(name == "left" for name in job.places):
            larger = [network.upscale_left(*views, progress=progress)]
        else:
            larger = [*network(*views, progress=progress)]
        made = [restore_levels(self.turned_back(each), pair.levels) for each in larger]
        return dict(zip(("left", "right"), made, strict=False)), facts, ()

    def read(self, job: Job) -> StereoPair:
        frames, self.frames = self.frames, ()
        for name in frames:
            with suppress(InputError):  # it will be said of that frame
                self.of_video = (_fault(self.read_frames(name)),)
                break
        return super().read(job)

    def note(self, facts: Mapping[str, Any]) -> None:
        if facts.get("input_shows") is not None and not self.told:
            self.told = True
            LOG.info("%s, so the weights for cameras' pictures", facts["input_shows"])

    def encode(self, name: str, place: Path, pair: StereoPair, found: dict[str, np.ndarray]) -> Encoded:
        views = {}
        for side, view in (("left", pair.left), ("right", pair.right)):
            pixels = found.get(side)
            if pixels is not None and name in (side, "packed"):
                alpha = view.alpha
                if alpha is not None:
                    alpha = imresize_to(alpha, pixels.shape[1], pixels.shape[0])
                views[side] = replace(view, pixels=pixels, alpha=alpha)
        larger = (
            pack_views(views["left"], views["right"], self.settings.packing)
            if name == "packed"
            else views[name]
        )
        return Encoded(encode_image(larger, place.suffix, name=str(place), quality=self.settings.quality))
