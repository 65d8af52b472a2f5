"""List the networks shipped with pam and resolve names of weights to files. No torch here."""

import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pamcli
from pamcli.errors import ModelError, UsageError, did_you_mean
from pamcli.files.outputs import check_extra_output
from pamcli.files.paths import check_regular
from pamcli.registry.architectures import ARCHITECTURES, default_weights
from pamcli.registry.spec import convert_read_errors

REGISTERED = {name: what for row in ARCHITECTURES.values() for name, what in row.shipped.items()}
"""Descriptions of all registered weights, by name."""

DEFAULT_MATCHING = default_weights("disparity")

DEFAULT_SCALE = 4

DEFAULT_UPSCALING = {scale: default_weights("superres", scale) for scale in (2, 4)}
"""Default weights of super-resolution by scale: the most accurate ones."""

CAMERA_UPSCALING = {
    scale: name for row in ARCHITECTURES.values() for scale, name in row.camera_defaults.items()
}
"""Default weights of super-resolution for images with camera degradations, by scale."""


def default_upscaling(scale: float | None, *, camera: bool = False) -> str:
    """Return the default weights of super-resolution for the next supported scale.

    `camera`: use those for images with camera degradations. Raises UsageError: the scale is not supported.
    """
    wanted = DEFAULT_SCALE if scale is None else scale
    by_scale = CAMERA_UPSCALING if camera else DEFAULT_UPSCALING
    for known, name in sorted(by_scale.items()):
        if wanted <= known:
            return name
    raise UsageError(f"the scale of shipped networks must be at most {max(by_scale)}, got {wanted:g}")


CHECKSUMS = "SHA256SUMS"


def weights_folder() -> Path:
    """Return the folder of the shipped weights: inside an installed package, or beside it in a checkout."""
    package = Path(pamcli.__file__).parent
    installed = package / "weights"
    return installed if installed.is_dir() else package.parent / "weights"


def locate(weights: str | Path, *, check: bool = True) -> Path:
    """Return the file for a registered name, a path, or hf:owner/repo/file[@revision].

    Registered names have precedence; every `Path`, and any text with a separator or suffix, is a path.
    `check` compares the sha256 of registered files with the recorded one. Logs the commit used for a Hub
    address without a revision. Raises ModelError; UsageError: malformed Hub address.
    """
    if isinstance(weights, Path):
        check_regular(weights, ModelError)
        return weights
    if weights.startswith("hf:"):
        return _from_hub(weights)
    if weights in REGISTERED:
        path = weights_folder() / f"{weights}.safetensors"
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
    record = weights_folder() / CHECKSUMS
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
    """Return the hexadecimal sha256 of a file; raise ModelError if it cannot be read."""
    with convert_read_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _silence(seconds: float = 10.0) -> str:
    """Explain why the Hub or its proxy does not answer: its library retries silently for minutes."""
    from huggingface_hub import constants, get_session

    with suppress(Exception):  # errors of several libraries: timeouts, invalid proxies
        get_session().head(constants.ENDPOINT, timeout=seconds)
        return ""
    return "offline mode is enabled" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} does not answer"


@contextmanager
def _saying_so(text: str, seconds: float = 5.0) -> Iterator[None]:
    """Log a message if the body takes longer than `seconds`."""
    timer = threading.Timer(seconds, _log, ("waiting for the Hub to answer with %s", text))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _log(text: str, *values: str) -> None:
    import logging  # keeps `pam --help` fast

    logging.getLogger("pamcli").info(text, *values)


def _from_hub(text: str) -> Path:
    address, at, revision = text.removeprefix("hf:").partition("@")
    parts = address.split("/")
    form = "write hf:owner/repo/file.safetensors[@revision]"
    named = len(parts) >= 3 and not {"", ".", ".."} & set(parts) and address.endswith(".safetensors")
    if not named or (at and not revision):
        raise UsageError(f"{text!r} is not a Hub address", form)
    repository, file = "/".join(parts[:2]), "/".join(parts[2:])

    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        EntryNotFoundError,
        GatedRepoError,
        HTTPError,  # from httpx or httpx2, depending on the Hub's library
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        given = revision or None
        with _saying_so(text):
            silence = _silence()
            path = Path(hf_hub_download(repository, file, revision=given, local_files_only=bool(silence)))
    except (OSError, RuntimeError, HTTPError) as error:
        elsewhere, reason = "or download the file elsewhere and give its path", silence or _reason(error)
        none = f"no copy of {text} is in the local cache, and the Hub gave none"
        log_in, say = "hf auth login", f"{repository} has no"
        refusals = (  # the first match counts; the last entry covers all other errors
            (LocalEntryNotFoundError, f"{none}: {reason}", f"try again online, {elsewhere}"),
            (GatedRepoError, f"{repository} asks you to accept its terms", f"on its page, then: {log_in}"),
            (RepositoryNotFoundError, f"the Hub has no repository {repository}", f"a private one: {log_in}"),
            (RevisionNotFoundError, f"{say} revision {revision}", "name a branch, a tag or a commit"),
            (EntryNotFoundError, f"{say} file {file}", "its page lists what it has"),
            (Exception, f"cannot download {text}: {reason}", f"try again, {elsewhere}"),
        )
        raise ModelError(*next(said for kind, *said in refusals if isinstance(error, kind))) from error
    except ValueError as error:  # malformed names
        raise UsageError(f"{text!r} is not a Hub address: {_reason(error)}", form) from error
    if not revision:  # the cache stores files below snapshots/<commit>/
        _say_commit(text, path.parents[file.count("/")].name)
    return path


@cache
def _say_commit(text: str, commit: str) -> None:
    _log("%s is commit %s; add @%s to keep to it", text, commit, commit)


def list_network_files(weights: str | Path | None) -> list[Path]:
    """Return the files that a network is read from, which results must not overwrite.

    `weights`: a name, a file or an address. A description is followed by the networks that it names. None and
    unreadable descriptions add no files.
    """
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


def _reason(error: Exception) -> str:
    """Summarize an error; the Hub's library wraps the cause in a long explanation."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        return _reason(error.__cause__)
    if isinstance(error, HfHubHTTPError):
        answer = error.response
        return f"it answers {answer.status_code}, {error.server_message or answer.reason_phrase}"
    return str(error).strip().partition("\n")[0] or type(error).__name__
