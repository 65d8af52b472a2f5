"""What a weights file says about itself. No torch here: listing models must be quick."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from pamcli.errors import ModelError, UsageError
from pamcli.files.finding import check_regular
from pamcli.registry.architectures import ARCHITECTURES, SCALES, Architecture, variant_of
from pamcli.registry.variants import PAPER

OTHERS = "any other network: pam guide own-network"
"""What to do with a file that holds tensors of a network that is not pam's."""


@dataclass(frozen=True)
class ModelSpec:
    """What a weights file of pam says of its network, as metadata inside the safetensors file.

    Raises ModelError when the fields contradict each other.
    """

    architecture: str
    """Name of the network, one of `architectures.ARCHITECTURES`."""
    variant: str = PAPER
    """Which form of the architecture the tensors belong to, as `architectures.variant_of` reads it."""
    scale: int | None = None
    """Enlargement of a PASSRnet, one of `architectures.SCALES`; None for the others."""
    max_disparity: int | None = None
    """Stereo matching: the prior it was trained with, in pixels, a multiple of 16; None: no maximum."""
    training: str = ""
    """Data, recipe and figures in a sentence or two."""
    licence: str = "unknown"
    version: str = ""
    """Version of these weights."""
    source: str = ""
    """Where the tensors came from, with the sha256 of a converted file."""

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ModelError(f"unknown architecture {self.architecture!r}", "a newer pam may know it")
        try:
            variant_of(self.architecture, self.variant)
        except UsageError as error:
            what = f"unknown variant {self.variant!r} of {self.architecture}"
            raise ModelError(what, f"a newer pam may know it; {error}") from error
        if (self.row.task == "superres") != (self.scale is not None):
            raise ModelError("a scale belongs to super-resolution, and each of its networks has one")
        if self.scale is not None and self.scale not in SCALES:
            raise ModelError(f"scale {self.scale} is none that {self.architecture} can have")
        prior = self.max_disparity
        if prior is not None and (prior <= 0 or prior % 16):
            raise ModelError(f"a maximum disparity of {prior} px is not a positive multiple of 16")
        if prior is not None and self.row.task != "disparity":
            raise ModelError("a maximum disparity belongs to stereo matching only")

    @property
    def row(self) -> Architecture:
        """What is particular to the network."""
        return ARCHITECTURES[self.architecture]

    def to_metadata(self) -> dict[str, str]:
        """Strings for a safetensors header; absent values are left out."""
        values = {"pam_format": "1", **asdict(self), "configuration": json.dumps({"variant": self.variant})}
        del values["variant"]
        return {key: str(value) for key, value in values.items() if value not in (None, "")}

    @classmethod
    def from_metadata(cls, metadata: dict[str, str]) -> "ModelSpec":
        """Read the metadata of a file. Raises ModelError when they are not pam's or not understood."""
        if metadata.get("pam_format") != "1":
            what = "the file does not say which network it holds"
            raise ModelError(what, f"the authors' checkpoints: pam weights import; {OTHERS}")
        try:
            values: dict[str, Any] = {"variant": str(json.loads(metadata["configuration"])["variant"])}
            for key in metadata.keys() & cls.__dataclass_fields__.keys() - {"variant"}:
                values[key] = int(metadata[key]) if key in ("scale", "max_disparity") else metadata[key]
            return cls(**values)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ModelError(f"its metadata are damaged: {error!r}") from error


@dataclass(frozen=True)
class WeightsFile:
    """The header of a safetensors file."""

    spec: ModelSpec
    parameters: int
    """Trained numbers; the running statistics of batch norm do not count."""
    precision: str
    """Stored precision of the tensors: "fp16", "bf16", "fp32", "fp64" or "mixed"."""
    size: int
    """Bytes of the file."""


@contextmanager
def reading(path: Path, hint: str | None = None, what: str = "weights file") -> Iterator[None]:
    """Turn what the system says of a file of weights into a ModelError; hint: where there is none."""
    check_regular(path, ModelError)
    try:
        yield
    except FileNotFoundError:
        raise ModelError(f"no {what} {path}", hint) from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


def read_header(path: Path) -> WeightsFile:
    """Description of a weights file, from its header alone.

    Raises ModelError when the file is missing, unreadable, not safetensors, or not pam's.
    """
    try:
        with reading(path, "pam weights list shows the names that exist"):
            size = path.stat().st_size
            if path.is_dir():
                raise SafetensorError("a folder")
            with safe_open(path, "numpy") as file:
                metadata = file.metadata() or {}
                parameters, stored = 0, set()
                for name in file.keys():  # noqa: SIM118 - it is no dict
                    part = file.get_slice(name)
                    if (kind := part.get_dtype()) in PRECISIONS:
                        stored.add(kind)
                        parameters += 0 if "running_" in name else math.prod(part.get_shape())
    except SafetensorError as error:
        raise ModelError(
            f"{path} is not a safetensors file, or is damaged: {error}",
            f"download it again; the authors' checkpoints: pam weights import; {OTHERS}",
        ) from None
    try:
        spec = ModelSpec.from_metadata(metadata)
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}", error.hint) from error
    precision = PRECISIONS[stored.pop()] if len(stored) == 1 else "mixed"
    return WeightsFile(spec, parameters, precision, size)


PRECISIONS = {"F16": "fp16", "BF16": "bf16", "F32": "fp32", "F64": "fp64"}
