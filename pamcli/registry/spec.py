"""Read the description in a weights file's header. No torch here: listing models must be fast."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from pamcli.errors import ModelError, UsageError
from pamcli.files.paths import check_regular
from pamcli.registry.architectures import ARCHITECTURES, PAPER, SCALES, Architecture, parse_variant

OTHERS = "other networks: pam guide own-network"  # hint for weights of foreign networks


@dataclass(frozen=True)
class ModelSpec:
    """The description of a network in the metadata of its file; raises ModelError for inconsistent fields."""

    architecture: str  # name of the network, a key of `architectures.ARCHITECTURES`
    variant: str = PAPER  # variant of the architecture, parsed by `architectures.parse_variant`
    scale: int | None = None  # upscaling factor of a PASSRnet, one of `architectures.SCALES`
    max_disparity: int | None = None  # matching: maximum disparity in training, px, a multiple of 16
    training: str = ""  # data, recipe and accuracy in one or two sentences
    licence: str = "unknown"
    version: str = ""  # version of these weights
    source: str = ""  # origin of the tensors, with the sha256 of a converted file

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ModelError(f"unknown architecture {self.architecture!r}", "update pam")
        try:
            parse_variant(self.architecture, self.variant)
        except UsageError as error:
            what = f"unknown variant {self.variant!r} of {self.architecture}"
            raise ModelError(what, f"update pam; {error}") from error
        if (self.row.task == "superres") != (self.scale is not None):
            raise ModelError("networks for super-resolution must have a scale, others must not")
        if self.scale is not None and self.scale not in SCALES:
            known = ", ".join(map(str, SCALES))
            raise ModelError(f"scale of {self.architecture} must be one of {known}, got {self.scale}")
        prior = self.max_disparity
        if prior is not None and (prior <= 0 or prior % 16):
            raise ModelError(f"the maximum disparity must be a positive multiple of 16 px, got {prior} px")
        if prior is not None and self.row.task != "disparity":
            raise ModelError("only networks for matching can have a maximum disparity")

    @property
    def row(self) -> Architecture:
        return ARCHITECTURES[self.architecture]

    def to_metadata(self) -> dict[str, str]:
        values = {"pam_format": "1", **asdict(self), "configuration": json.dumps({"variant": self.variant})}
        del values["variant"]
        return {key: str(value) for key, value in values.items() if value not in (None, "")}

    @classmethod
    def from_metadata(cls, metadata: dict[str, str]) -> "ModelSpec":
        """Parse the metadata of a file; raise ModelError if they are not pam's or not supported."""
        if metadata.get("pam_format") != "1":
            what = "the metadata do not name a network of pam"
            raise ModelError(what, f"checkpoints of the authors: pam weights import; {OTHERS}")
        try:
            values: dict[str, Any] = {"variant": str(json.loads(metadata["configuration"])["variant"])}
            for key in metadata.keys() & cls.__dataclass_fields__.keys() - {"variant"}:
                values[key] = int(metadata[key]) if key in ("scale", "max_disparity") else metadata[key]
            return cls(**values)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ModelError(f"the metadata are damaged: {error!r}") from error


class WeightsFile(NamedTuple):
    """The header of a safetensors file."""

    spec: ModelSpec
    parameters: int  # number of trained parameters, without running statistics of batch norm
    precision: str  # stored precision of the tensors: "fp16", "bf16", "fp32", "fp64" or "mixed"


@contextmanager
def convert_read_errors(path: Path, hint: str | None = None, what: str = "weights file") -> Iterator[None]:
    """Convert operating system errors of a weights file into ModelError; `hint`: for missing files."""
    check_regular(path, ModelError)
    try:
        yield
    except FileNotFoundError:
        raise ModelError(f"{what} {path} does not exist", hint) from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


def read_header(path: Path) -> WeightsFile:
    """Read the description of a weights file from its header alone; raise ModelError."""
    try:
        with convert_read_errors(path, "list the registered names: pam weights list"):
            path.stat()  # raises the error of the system
            if path.is_dir():
                files = "weights of a training run are best.safetensors and last.safetensors in its folder"
                raise ModelError(f"{path} is a folder, not a weights file", files)
            with safe_open(path, "numpy") as file:
                metadata = file.metadata() or {}
                parameters, stored, shapes = 0, set(), {}
                for name in file.keys():  # noqa: SIM118 - not a dict
                    part = file.get_slice(name)
                    shapes[name] = tuple(part.get_shape())
                    if (kind := part.get_dtype()) in PRECISIONS:
                        stored.add(kind)
                        parameters += 0 if "running_" in name else math.prod(shapes[name])
    except SafetensorError as error:
        hint = f"download it again; checkpoints of the authors: pam weights import; {OTHERS}"
        if path.parent.name == "checkpoints" and path.suffix == ".pt":
            hint = "use last.safetensors in the folder of the training run"
        raise ModelError(f"{path} is not a safetensors file, or is damaged: {error}", hint) from None
    try:
        spec = ModelSpec.from_metadata(metadata)
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}", error.hint) from error
    if spec.variant == PAPER:
        spec = replace(spec, variant=spec.row.find_variant(shapes))
    return WeightsFile(spec, parameters, PRECISIONS[stored.pop()] if len(stored) == 1 else "mixed")


PRECISIONS = {"F16": "fp16", "BF16": "bf16", "F32": "fp32", "F64": "fp64"}
