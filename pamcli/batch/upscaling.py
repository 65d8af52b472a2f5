"""Upscale image pairs in files."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pamcli.batch import LOG
from pamcli.batch.kinds import LEFT, PACKED, RIGHT
from pamcli.batch.plan import Job, Plan, plan_batch
from pamcli.batch.processing import Computed, NetworkProcessor, Results
from pamcli.batch.run import Batch
from pamcli.errors import UsageError
from pamcli.files.outputs import Encoded
from pamcli.imaging.camera_faults import detect_camera_fault
from pamcli.imaging.images import LARGEST_SIDE, RgbImage, StereoPair, check_encodable, encode_image
from pamcli.imaging.packed_views import RED_CYAN, compute_packed_size, pack_views
from pamcli.imaging.resize import imresize_to
from pamcli.inference.loading import load_upscaler
from pamcli.registry.catalog import DEFAULT_SCALE, list_network_files
from pamcli.settings.batches import UpscaleSettings
from pamcli.settings.options import takes

if TYPE_CHECKING:
    from pamcli.inference.upscaler import StereoUpscaler


@takes(UpscaleSettings)
def upscale_files(settings: UpscaleSettings) -> Batch:
    """Upscale image pairs in files, as `pam superres` does; iterate over the batch for a `Result` each.

    >>> for result in pamcli.upscale_files("lefts/", "rights/", output="upscaled/", scale=2):
    ...     print(result.status, result.outputs)

    Args:
        settings: A left and a right image, folders, or templates with `{}`; then an `UpscaleSettings`, or its
            fields as keywords, which are the options of the command (`pam guide options`). output: the left
            image, or a folder for both; with "-" the bytes of the image are in `Result.data`.

    Returns:
        A `Batch`, whose pairs are processed while it is iterated. If a pair fails, its result has an `error`.

    Raises:
        UsageError, InputError: Before any work, for inputs that are not pairs, or results that exist.
        ModelError, DeviceError: During the iteration.
    """
    read, tag = list_network_files(settings.weights), f"_x{settings.scale or DEFAULT_SCALE:g}"
    plan = plan_batch(settings, (LEFT, RIGHT, PACKED), read=read, tag=tag)
    if settings.quality is not None and plan.pairing:
        paths = (path for job in plan.jobs() for path in job.places.values())
        if not any(path.suffix.lower() in LARGEST_SIDE for path in paths):
            hint = "omit `quality`, or use .jpg or .webp"
            raise UsageError("`quality` applies to JPEG and WebP, but no result has this format", hint)
    return Batch(plan, _UpscaleProcessor(settings, plan))


class _UpscaleProcessor(NetworkProcessor):
    settings: UpscaleSettings
    _loading = threading.Lock()

    def __init__(self, settings: UpscaleSettings, plan: Plan) -> None:
        super().__init__(settings, plan)
        self.kind = None if settings.weights is not None else settings.input or "auto"
        """Kind of images that selects the weights; None if the weights are given."""
        if self.kind == "auto":
            self.video_frames = plan.frames or ()

    @cached_property
    def network(self) -> StereoUpscaler:
        return load_upscaler(self.settings, camera=self.kind == "camera")[0]

    @cached_property
    def camera_network(self) -> StereoUpscaler:
        """The network for images with camera faults, loaded once, for the first of them."""
        with self._loading:
            if "camera_network" not in self.__dict__:  # another thread may have loaded it meanwhile
                self.__dict__["camera_network"] = load_upscaler(self.settings, camera=True)[0]
            return self.__dict__["camera_network"]  # type: ignore[no-any-return]

    def read(self, job: Job) -> tuple[StereoPair, Sequence[str]]:
        assert job.pair is not None
        pair = self.read_rectified(job.pair)
        for kind, path in job.places.items():
            views = {"left": [pair.left], "right": [pair.right]}.get(kind, [pair.left, pair.right])
            height, width = self.network.upscaled_size(pair.height, pair.width)  # as `apply` makes it
            bits = 8 * max(view.pixels.itemsize for view in views)
            alpha = any(view.alpha is not None for view in views)
            if kind == PACKED.name:
                height, width = compute_packed_size(height, width, self.settings.packing)
                alpha = alpha and self.settings.packing != RED_CYAN
            check_encodable(path.suffix, height=height, width=width, bits=bits, alpha=alpha, name=str(path))
        return pair, self.find_problems(pair)

    def detect_fault(self, pair: StereoPair) -> str | None:
        if self.kind != "auto":
            return None
        files = [file.name for file in pair.files] or [pair.title] * 2
        for file, view in zip(files, (pair.left, pair.right), strict=True):
            if fault := detect_camera_fault(view):
                return f"{file}: {fault}"
        return None

    def apply(self, job: Job, pair: StereoPair) -> Computed:
        fault = self.detect_fault(pair) if self.video_fault == "detect" else self.video_fault
        network = self.network if fault is None else self.camera_network
        kind = "camera" if fault is not None or self.kind == "camera" else "clean"
        facts = {} if self.kind is None else {"input": kind, "input_shows": fault}
        progress = None if self.bar is None else self.bar.watch(pair.height)
        views = self.rotate(*(pair.unstretched or (pair.left.pixels, pair.right.pixels)))
        if all(name == "left" for name in job.places):
            upscaled = [network.upscale_left(*views, progress=progress)]
        else:
            upscaled = [*network(*views, progress=progress)]
        images: dict[str, RgbImage] = {}
        for side, view, pixels in zip(("left", "right"), (pair.left, pair.right), upscaled, strict=False):
            (turned,), alpha = self.rotate(pixels, turns=-1), view.alpha
            if alpha is not None:
                alpha = imresize_to(alpha, turned.shape[1], turned.shape[0])
            images[side] = replace(view, pixels=turned, alpha=alpha)

        return Computed(partial(self._encode, images), facts, (), self.list_remarks(pair))

    def _encode(self, images: Mapping[str, RgbImage], kind: str, path: Path) -> Encoded:
        if kind == PACKED.name:
            image = pack_views(images["left"], images["right"], self.settings.packing)
        else:
            image = images[kind]
        return Encoded(encode_image(image, path.suffix, name=str(path), quality=self.settings.quality))

    def finish(self, results: Results) -> Results:
        is_reported = False
        for result in results:
            if not is_reported and (fault := result.facts.get("input_shows")):
                is_reported = True
                LOG.info(f"{fault}: using the weights for camera images (`input` clean disables this)")
            yield result
