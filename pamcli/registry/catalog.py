"""List the networks shipped with pam and resolve names of weights to files. No torch here."""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pamcli
from pamcli.errors import ModelError, UsageError, did_you_mean
from pamcli.files.outputs import check_extra_output
from pamcli.files.paths import check_regular
from pamcli.registry.architectures import ARCHITECTURES, default_weights
from pamcli.registry.spec import convert_read_errors

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
