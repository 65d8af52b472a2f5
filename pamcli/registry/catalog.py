"""The networks that come with pam, and how any `--weights` value becomes a file. No torch here."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import pamcli
from pamcli.errors import ModelError, UsageError

REGISTERED = {
    "pasmnet": "disparity of a rectified pair",
    "passrnet-x2": "both views enlarged 2 times",
    "passrnet-x4": "both views enlarged 4 times",
}
"""Every registered name and what it does."""

CHECKSUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Located:
    """A weights file on this machine."""

    path: Path
    name: str
    """As the user gave it."""
    commit: str | None = None
    """Hub: the commit that was taken, when the user pinned none."""


def weights_folder() -> Path:
    """The folder of the shipped weights: inside an installed package, or beside it in a checkout."""
    package = Path(pamcli.__file__).parent
    installed = package / "weights"
    return installed if installed.is_dir() else package.parent / "weights"


def locate(weights: str, *, check: bool = True) -> Located:
    """File behind a `--weights` value: a registered name, a path, or hf:owner/repo/file[@revision].

    A registered name wins; anything with a separator or a suffix is a path. With `check`, the sha256 of a
    registered file must be the recorded one. Raises ModelError.
    """
    if weights.startswith("hf:"):
        return _from_hub(weights)
    if weights in REGISTERED:
        path = weights_folder() / f"{weights}.safetensors"
        if not path.is_file():
            raise ModelError(f"the weights of {weights} are missing: {path}", "install pam again")
        if check and sha256(path) != recorded_sha256(weights):
            raise ModelError(f"{path} is not the file that was shipped (sha256 differs)", "install pam again")
        return Located(path, weights)
    path = Path(weights)
    if not path.suffix and path.name == weights:
        near = difflib.get_close_matches(weights, REGISTERED, 1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise ModelError(
            f"no network is called {weights!r}", f"{guess}known: {', '.join(REGISTERED)}; a path has a suffix"
        )
    return Located(path, weights)


def recorded_sha256(name: str) -> str:
    """The checksum recorded for a registered name. Raises ModelError when the record is missing."""
    record = weights_folder() / CHECKSUMS
    try:
        lines = record.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ModelError(f"cannot read {record}: {error.strerror}", "install pam again") from error
    for line in lines:
        digest, _, file = line.partition("  ")
        if file == f"{name}.safetensors":
            return digest
    raise ModelError(f"{record} has no checksum of {name}", "install pam again")


def sha256(path: Path) -> str:
    """Hex digest of a file. Raises ModelError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error


def _from_hub(text: str) -> Located:
    address, _, revision = text.removeprefix("hf:").partition("@")
    parts = address.split("/")
    if len(parts) < 3 or not all(parts) or not address.endswith(".safetensors"):
        raise UsageError(f"{text!r} is no Hub address", "write hf:owner/repo/file.safetensors[@revision]")
    repository, file = "/".join(parts[:2]), "/".join(parts[2:])

    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    offline = ModelError(
        f"the Hub cannot be reached for {text}, and no copy is in the local cache",
        "go online once, or download the file and give its path",
    )
    try:
        path = Path(hf_hub_download(repository, file, revision=revision or None))
    except LocalEntryNotFoundError as error:
        raise offline from error
    except GatedRepoError as error:
        raise ModelError(
            f"{repository} asks you to accept its terms first", "then run: hf auth login"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"the Hub has no repository {repository}", "a private one needs: hf auth login"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(f"{repository} has no revision {revision}") from error
    except EntryNotFoundError as error:
        raise ModelError(f"{repository} has no file {file}") from error
    except HFValidationError as error:
        raise UsageError(f"{text!r} is no Hub address: {error}") from error
    except OSError as error:  # every other answer of the server or the network, a full disk included
        raise ModelError(
            f"cannot download {text}: {error}", "try again, or give the path of a file"
        ) from error
    return Located(path, text, commit=None if revision else _commit_of(path))


def _commit_of(cached: Path) -> str | None:
    """The Hub's cache keeps a file below snapshots/<commit>/."""
    parts = cached.parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else None
