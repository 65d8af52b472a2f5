"""Pairs of pictures made larger, in files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from pamcli.batch.job import Job
from pamcli.batch.networks import load_upscaler
from pamcli.batch.operation import NetworkOperation
from pamcli.batch.plan import FilesOptions, Place, Request
from pamcli.batch.run import Batch
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES, Packing
from pamcli.registry.description import files_behind

if TYPE_CHECKING:
    import numpy as np

    from pamcli.imaging.stereo_pair import StereoPair
    from pamcli.inference.upscaler import StereoUpscaler

PictureFormat = Literal["png", "tif", "jpg", "webp"]
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
    weights: Place | None = None,
    ensemble: bool = False,
    network_from: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    max_memory: int | None = None,
    **options: Unpack[FilesOptions],
) -> Batch:
    """Enlarge pairs of pictures in files, as `pam superres` does: iterate over it, for an outcome each.

    >>> for outcome in pamcli.enlarge_files("lefts/", "rights/", output="larger/", scale=2):
    ...     print(outcome.status, outcome.outputs)

    Arguments are the command's, under the names of its options (`pam superres --help`; `BatchOptions` of
    `pamcli.batch.plan` are those of every batch): inputs and outputs are files, folders or templates with
    `{}`. output: the left picture, or a folder for both; `-` hands its bytes back in `Outcome.data`.
    quality: 1 to 100, of JPEG and WebP. scale: times on each side, above 1 and up to 4; None: 4, or what the
    weights do. network_from: "module:function" that makes the network which `weights` describes; its code
    runs. max_memory: bytes.
    Raises UsageError and InputError before any work: inputs that are no pairs, results that exist;
    while it is iterated, ModelError and DeviceError. What is wrong with a pair is its outcome's `error`.
    """
    request = Request(inputs=inputs, **options)
    places = {LEFT: output, RIGHT: output_right, PACKED: output_packed}
    batch = Batch.asked(request, places, format, read=files_behind(weights))
    settings: dict[str, object] = {
        **{"ensemble": ensemble, "network_from": network_from},
        **{"device": device, "precision": precision, "max_memory": max_memory},
    }
    load = partial(_load, weights, scale, settings)
    return batch.working(_Enlarging(load, packing, quality), gpus=device != "cpu")


def _load(weights: Place | None, scale: float | None, settings: dict[str, object]) -> StereoUpscaler:
    return load_upscaler(weights, scale, **settings)[0]


class _Enlarging(NetworkOperation["dict[str, np.ndarray]"]):
    def __init__(self, load: partial[StereoUpscaler], packing: Packing, quality: int | None) -> None:
        super().__init__(load)
        self.packing, self.quality = packing, quality

    def check(self, name: str, place: Path, pair: StereoPair) -> None:
        from pamcli.imaging.images import check_encodable
        from pamcli.imaging.stereo_pair import RED_CYAN, packed_size

        view = pair.right if name == "right" else pair.left
        height, width = self.network.size_of(pair.height, pair.width)
        alpha = view.alpha is not None
        if name == "packed":
            height, width = packed_size(height, width, self.packing)
            alpha = alpha and self.packing != RED_CYAN
        check_encodable(
            place.suffix,
            height=height,
            width=width,
            bits=8 * view.pixels.itemsize,
            alpha=alpha,
            name=str(place),
            quality=self.quality,
        )

    def apply(self, job: Job, pair: StereoPair) -> dict[str, np.ndarray]:
        views = pair.left.pixels, pair.right.pixels
        progress = self.watched(pair)
        if all(name == "left" for name in job.places):
            return {"left": self.network.left_only(*views, progress=progress)}
        return dict(zip(("left", "right"), self.network(*views, progress=progress), strict=True))

    def encode(self, name: str, place: Path, pair: StereoPair, result: dict[str, np.ndarray]) -> Encoded:
        from pamcli.imaging.images import encode_picture
        from pamcli.imaging.resize import imresize_to
        from pamcli.imaging.stereo_pair import packed

        views = {}
        for side, view in (("left", pair.left), ("right", pair.right)):
            if side in result and name in (side, "packed"):
                alpha = view.alpha
                if alpha is not None:
                    alpha = imresize_to(alpha, result[side].shape[1], result[side].shape[0])
                views[side] = replace(view, pixels=result[side], alpha=alpha)
        larger = packed(views["left"], views["right"], self.packing) if name == "packed" else views[name]
        return Encoded(encode_picture(larger, place.suffix, name=str(place), quality=self.quality))
