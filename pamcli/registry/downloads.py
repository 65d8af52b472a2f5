"""Download weights from the Hugging Face Hub or a URL into the cache, and resume interrupted downloads."""

import hashlib
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pamcli.errors import ModelError, UsageError
from pamcli.files.atomic import acquire_lock

SILENCE = 20.0  # time without an answer or data after which a download fails, s
ATTEMPTS = 3  # connections that may break off before a download fails
HUB = "hf:"
HUB_FORM = "write hf:owner/repo/file.safetensors[@revision]"
SUFFIXES = (".safetensors", ".onnx")  # files that can be downloaded from a URL
LOG = logging.getLogger("pamcli")


def download(weights: str) -> Path:
    """Return the local file of hf:owner/repo/file[@revision] or of a URL; download it if it is not cached."""
    with _note_waiting(weights):
        return _download_from_hub(weights) if weights.startswith(HUB) else _download_url(weights)


def _download_url(url: str) -> Path:
    name = Path(unquote(urlsplit(url).path)).name
    if Path(name).suffix not in SUFFIXES or not urlsplit(url).netloc:
        raise UsageError(f"the URL {url} must name a file of type {' or '.join(SUFFIXES)}")
    target = find_cache() / "weights" / hashlib.sha256(url.encode()).hexdigest()[:16] / name
    if target.is_file():
        return target
    from huggingface_hub import constants
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    hint = "try again: the download resumes; or download the file elsewhere and give its path"
    if constants.HF_HUB_OFFLINE:
        raise ModelError(f"{url} is not in the local cache, and offline mode is enabled", hint)
    try:
        _stream(url, target, {})
    except (OSError, RuntimeError, HTTPError) as error:
        raise ModelError(f"cannot download {url}: {_summarize_error(error)}", hint) from error
    return target


def find_cache() -> Path:
    """Return the cache folder of pam. Raises ModelError if there is no home folder."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pam")
    except RuntimeError as error:
        message = "this user has no home folder for the cache"
        raise ModelError(message, "set HOME or XDG_CACHE_HOME") from error


def _download_from_hub(text: str) -> Path:
    address, at, revision = text.removeprefix(HUB).partition("@")
    parts = address.split("/")
    is_valid = len(parts) >= 3 and not {"", ".", ".."} & set(parts) and address.endswith(".safetensors")
    if not is_valid or (at and not revision):
        raise UsageError(f"{text!r} is not a Hub address", HUB_FORM)
    repository, file = "/".join(parts[:2]), "/".join(parts[2:])
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        path = _fetch(repository, file, revision or "main")
    except (OSError, RuntimeError, HTTPError) as error:
        raise _explain(error, text, repository, file, revision) from error
    except ValueError as error:  # malformed names
        raise UsageError(f"{text!r} is not a Hub address: {_summarize_error(error)}", HUB_FORM) from error
    if not revision:  # the cache stores files below snapshots/<commit>/
        _log_commit(text, path.parents[file.count("/")].name)
    return path


def _fetch(repository: str, file: str, revision: str) -> Path:
    """Return a file of the Hub from the library's cache; download it if necessary. Raises its errors."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub import errors as hf
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.utils import build_hf_headers, validate_repo_id  # type: ignore[attr-defined]

    validate_repo_id(repository)
    found = try_to_load_from_cache(repository, file, revision=revision)
    cached = Path(found) if isinstance(found, str) else None
    if cached is not None and (re.fullmatch("[0-9a-f]{40}", revision) or constants.HF_HUB_OFFLINE):
        return cached
    url = hf_hub_url(repository, file, revision=revision)
    try:
        metadata = get_hf_file_metadata(url, timeout=SILENCE)
        if not metadata.commit_hash:
            raise hf.FileMetadataError("the answer is not from a Hub")
    except (hf.EntryNotFoundError, hf.RevisionNotFoundError):
        raise
    except (OSError, RuntimeError, hf.HTTPError):  # type: ignore[attr-defined]
        if cached is None:
            raise
        return cached
    folder = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=repository, repo_type="model"))
    target = folder / "snapshots" / metadata.commit_hash / file
    if not target.is_file():
        headers = build_hf_headers()
        if urlsplit(metadata.location).netloc != urlsplit(url).netloc:  # signed URLs need no token
            headers.pop("authorization", None)
        _stream(metadata.location, target, headers, metadata.size)
    if revision != metadata.commit_hash:
        reference = folder / "refs" / revision
        with suppress(OSError):  # only needed offline
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(metadata.commit_hash)
    return target


def _stream(url: str, target: Path, headers: Mapping[str, str], size: int | None = None) -> None:
    """Download a file next to its place, resuming what is there, and move it into place when complete.

    If another process downloads it already, wait for that.
    """
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    target.parent.mkdir(parents=True, exist_ok=True)
    part, tag = (target.with_name(target.name + suffix) for suffix in (".part", ".etag"))
    lock, attempt = acquire_lock(target.parent, wait=True), 0
    try:
        while not target.is_file():
            attempt += 1
            try:
                _receive(url, part, tag, headers, size)
            except HTTPError as error:
                is_status = getattr(error, "response", None) is not None
                if is_status or _is_timeout(error) or attempt == ATTEMPTS:
                    raise
            else:
                part.replace(target)
                tag.unlink(missing_ok=True)
    finally:
        if lock is not None:
            os.close(lock)


def _receive(url: str, part: Path, tag: Path, headers: Mapping[str, str], size: int | None) -> None:
    """Append the missing bytes of a file to `part`; raise OSError if it does not have the expected size."""
    from huggingface_hub import get_session
    from huggingface_hub.utils import hf_raise_for_status, tqdm  # type: ignore[attr-defined]

    begun = part.stat().st_size if part.is_file() and tag.is_file() else 0
    asked = {**headers, "Accept-Encoding": "identity"}
    if begun:
        asked |= {"Range": f"bytes={begun}-", "If-Range": tag.read_text()}
    with get_session().stream("GET", url, headers=asked, timeout=SILENCE, follow_redirects=True) as response:
        if response.status_code == 416:  # complete already, or longer than the file is now
            part.unlink()
            raise OSError("the partial download does not fit the file")
        hf_raise_for_status(response)
        if response.status_code != 206:
            begun = 0
        if etag := response.headers.get("etag", ""):
            tag.write_text(etag)
        else:
            tag.unlink(missing_ok=True)
        rest = response.headers.get("content-length")
        total = size if size is not None else begun + int(rest) if rest else None
        shown = {"unit": "B", "unit_scale": True, "desc": part.stem, "disable": not sys.stderr.isatty()}
        bar = tqdm(total=total, initial=begun, **shown)  # type: ignore[no-untyped-call]
        with part.open("ab" if begun else "wb") as file, bar:
            for chunk in response.iter_bytes():
                file.write(chunk)
                bar.update(len(chunk))
    if total is not None and part.stat().st_size != total:
        raise OSError(f"{part.stat().st_size} of {total} bytes were received")


def _explain(error: Exception, text: str, repository: str, file: str, revision: str) -> ModelError:
    """Return the message for an error of the Hub or its library."""
    from huggingface_hub import errors as hf

    login, reason = "hf auth login", _summarize_error(error)
    retry = "try again: the download resumes; or download the file elsewhere and give its path"
    messages = (  # the first match counts; the last entry covers all other errors
        (hf.GatedRepoError, f"the terms of {repository} must be accepted", f"on its page, then: {login}"),
        (hf.RepositoryNotFoundError, f"the Hub has no repository {repository}", f"if it is private: {login}"),
        (hf.RevisionNotFoundError, f"{repository} has no revision {revision}", "use a branch, tag or commit"),
        (hf.EntryNotFoundError, f"{repository} has no file {file}", "its page lists the files"),
        (
            (hf.OfflineModeIsEnabled, hf.FileMetadataError),
            f"{text} is not in the local cache, and cannot be downloaded: {reason}",
            "try again online, or download the file elsewhere and give its path",
        ),
        (Exception, f"cannot download {text}: {reason}", retry),
    )
    message, hint = next((message, hint) for kind, message, hint in messages if isinstance(error, kind))
    return ModelError(message, hint)


def _is_timeout(error: BaseException) -> bool:
    return "Timeout" in type(error).__name__  # of httpx or httpx2, depending on the Hub's library


def _summarize_error(error: Exception) -> str:
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if isinstance(error, HfHubHTTPError):
        answer = error.response
        return f"the server answers {answer.status_code}, {error.server_message or answer.reason_phrase}"
    if isinstance(error, OfflineModeIsEnabled):
        return "offline mode is enabled"
    if _is_timeout(error):
        return f"the server sent nothing for {SILENCE:g} s"
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextmanager
def _note_waiting(text: str, seconds: float = 5.0) -> Iterator[None]:
    """Log a message if the body takes longer than `seconds` and no progress is shown."""
    timer = threading.Timer(seconds, LOG.info, ("downloading %s", text))
    timer.daemon = True
    if not sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@cache
def _log_commit(text: str, commit: str) -> None:
    LOG.info("%s is at commit %s; add @%s to the address to pin it", text, commit, commit)


def publish(path: Path, spec: Any, address: str, *, card: Path | None = None, private: bool = False) -> str:
    """Upload weights and a model card to hf:OWNER/REPO, created if necessary; return their address."""
    # `spec`: the metadata of the weights. `card`: None = the .md file next to them, or one from the metadata.
    repository = address.removeprefix(HUB)
    parts = repository.split("/")
    if not address.startswith(HUB) or len(parts) != 2 or not all(parts):
        raise UsageError(f"the repository must be hf:OWNER/REPO, got {address!r}")
    beside = path.with_suffix(".md")
    source = card or (beside if beside.is_file() else None)
    remote = f"{address}/{path.name}"
    import huggingface_hub
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        text = source.read_bytes() if source else _make_card(spec, remote, path).encode()
        api: Any = huggingface_hub.HfApi()
        api.create_repo(repository, private=private, exist_ok=True)
        operations = [
            huggingface_hub.CommitOperationAdd(path.name, path),
            huggingface_hub.CommitOperationAdd("README.md", text),
        ]
        api.create_commit(repository, operations, commit_message=f"Upload {path.name} with pam")
    except (OSError, RuntimeError, HTTPError) as error:
        hint = "log in with a token that can write: hf auth login"
        raise ModelError(f"cannot upload {path} to {repository}: {_summarize_error(error)}", hint) from error
    except ValueError as error:
        raise UsageError(f"the repository {repository} is not valid: {_summarize_error(error)}") from error
    return remote


def _make_card(spec: Any, remote: str, path: Path) -> str:
    task = spec.row.task
    command, result = {"disparity": ("disparity", "disp.pfm"), "superres": ("superres", "left_up.png")}[task]
    licence = spec.licence if re.fullmatch(r"[\w.-]+", spec.licence) else "other"
    facts = {
        "network": spec.architecture if spec.variant == "paper" else f"{spec.architecture}, {spec.variant}",
        "scale": spec.scale,
        "maximum disparity, px": spec.max_disparity,
        "training": spec.training,
        "licence": spec.licence,
        "version": spec.version,
        "source": spec.source,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items() if value not in (None, ""))
    return f"""---
license: {licence.lower()}
library_name: pam
tags: [stereo, {"stereo-matching" if task == "disparity" else "super-resolution"}]
---

# {path.stem}

```sh
pam {command} left.png right.png --weights {remote} -o {result}
```

| | |
| --- | --- |
{rows}
"""
