"""List the networks shipped with pam, resolve names of weights to files, and read their headers. No torch."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

import pamcli
from pamcli.errors import ModelError, UsageError, did_you_mean
from pamcli.files.outputs import check_extra_output
from pamcli.files.paths import check_regular
from pamcli.registry.architectures import (
    ARCHITECTURES,
    PAPER,
    SCALES,
    Architecture,
    default_weights,
    parse_variant,
)

PRECISIONS = {"F16": "fp16", "BF16": "bf16", "F32": "fp32", "F64": "fp64"}
OTHERS = "other networks: pam guide own-network"  # hint for weights of foreign networks
REGISTERED = {name: what for row in ARCHITECTURES.values() for name, what in row.shipped.items()}

DEFAULT_MATCHING = default_weights("disparity")

DEFAULT_SCALE = 4

DEFAULT_UPSCALING = {scale: default_weights("superres", scale) for scale in (2, 4)}  # the most accurate

CAMERA_UPSCALING = {  # default weights of super-resolution for images with camera degradations, by scale
    scale: name for row in ARCHITECTURES.values() for scale, name in row.camera_defaults.items()
}


def default_upscaling(scale: float | None, *, camera: bool = False) -> str:
    """Return the default weights for the next supported scale; `camera`: for camera images."""
    wanted = DEFAULT_SCALE if scale is None else scale
    by_scale = CAMERA_UPSCALING if camera else DEFAULT_UPSCALING
    for known, name in sorted(by_scale.items()):
        if wanted <= known:
            return name
    raise UsageError(f"the scale of shipped networks must be at most {max(by_scale)}, got {wanted:g}")


CHECKSUMS = "SHA256SUMS"
_PACKAGE = Path(pamcli.__file__).parent
SHIPPED = (_PACKAGE if (_PACKAGE / "weights").is_dir() else _PACKAGE.parent) / "weights"
"""Folder of the shipped weights: inside an installed package, or beside it in a checkout."""
REMOTE = ("hf:", "http://", "https://")  # beginnings of addresses to download weights from


def locate(weights: str | Path, *, check: bool = True) -> Path:
    """Return the file for a registered name, a path, hf:owner/repo/file[@revision], or a URL."""
    # Registered names have precedence; every `Path`, and any text with a separator or suffix, is a path.
    if isinstance(weights, Path):
        check_regular(weights, ModelError)
        return weights
    if weights.startswith(REMOTE):
        from pamcli.registry.downloads import download  # keeps `pam --help` fast

        return download(weights)
    if weights in REGISTERED:
        path = SHIPPED / f"{weights}.safetensors"
        if not path.is_file():
            raise ModelError(f"the weights of {weights} are missing: {path}", "reinstall pam")
        if check and sha256(path) != recorded_sha256(weights):
            raise ModelError(f"{path} was changed: its sha256 differs from the shipped file", "reinstall pam")
        return path
    path = Path(weights)
    if not path.suffix and path.name == weights:
        hint = f"{did_you_mean(weights, REGISTERED)}known: {', '.join(REGISTERED)}; a path needs a suffix"
        raise ModelError(f"unknown network {weights!r}", hint)
    check_regular(path, ModelError)
    return path


def recorded_sha256(name: str) -> str:
    """Return the recorded sha256 of a registered name; raise ModelError if it is missing."""
    record = SHIPPED / CHECKSUMS
    try:
        with convert_read_errors(record, "reinstall pam", "the list of checksums"):
            lines = record.read_text(encoding="utf-8").splitlines()
    except UnicodeError as error:
        raise ModelError(f"{record} is damaged", "reinstall pam") from error
    for line in lines:
        digest, _, file = line.partition("  ")
        if file == f"{name}.safetensors":
            return digest
    raise ModelError(f"{record} has no checksum of {name}", "reinstall pam")


def sha256(path: Path) -> str:
    with convert_read_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_network_files(weights: str | Path | None) -> list[Path]:
    """Return the files that a network is read from, also those that a description names."""
    if weights is None:
        return []
    found = [Path(weights)]
    if found[0].suffix == ".toml":
        from pamcli.registry.description import read_description  # keeps `pam --help` fast

        with suppress(ModelError):
            described = read_description(found[0])
            found += [Path(each) for each in (described.network, described.initial) if each]
    return found


def check_network_files(outputs: Iterable[Path | None], *weights: str | Path | None) -> None:
    """Raise UsageError if a result would overwrite a file of one of the networks."""
    read = [file for each in weights for file in list_network_files(each)]
    for path in outputs:
        if path is not None:
            check_extra_output(path, read)


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
        if self.variant != PAPER:
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
        metadata = {"pam_format": "1", "configuration": json.dumps({"variant": self.variant})}
        for key, value in asdict(self).items():
            if key != "variant" and value not in (None, ""):
                metadata[key] = str(value)
        return metadata

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


def find_variant(row: Architecture, shapes: Mapping[str, Sequence[int]]) -> str:
    """Return the variant that the shapes of tensors show; `PAPER` if they show none."""
    key, rows, variant = row.variant_key or ("", 0, PAPER)
    return variant if key in shapes and shapes[key][:1] == (rows,) else PAPER


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
        spec = replace(spec, variant=find_variant(spec.row, shapes))
    return WeightsFile(spec, parameters, PRECISIONS[stored.pop()] if len(stored) == 1 else "mixed")
