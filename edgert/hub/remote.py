"""The requests to a hub: the listing of a repository, and a file. What fails becomes one line that says what to do."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from edgert.errors import HubError
from edgert.hub.names import HubName, is_safe_path

_SHA1, _SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")
_TRUE = ("1", "ON", "YES", "TRUE")
_MAX_BYTES = 1 << 44
# Small pieces: less is lost by an interruption, and the progress is smooth.
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file as the hub lists it. checksum: sha256 of a file in LFS, else git's sha1 of the blob."""

    name: str
    num_bytes: int
    checksum: str
    is_lfs: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a repository at one commit."""

    name: HubName
    commit: str
    files: dict[str, HubFile]


def is_offline() -> bool:
    """Whether the user forbids the network, by the variables that huggingface_hub reads."""
    return any(os.environ.get(key, "").upper() in _TRUE for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def list_files(name: HubName, revision: str) -> Listing:
    """The files of a repository. Raises HubError; for an answer that makes no sense too."""
    hub = _import_hub()
    with _request_errors(name, hub, revision):
        found = hub.HfApi().model_info(
            name.repo, revision=revision, files_metadata=True, timeout=hub.constants.HF_HUB_ETAG_TIMEOUT
        )
        commit, siblings = found.sha, found.siblings or []
        files = [_checked(name, file) for file in siblings]
    if not isinstance(commit, str) or not _SHA1.fullmatch(commit):
        raise HubError(f"{name}: found commit {str(commit)[:60]!r}, expected 40 hexadecimal digits; {_OTHER_HUB}")
    return Listing(name, commit, {file.name: file for file in files})


_OTHER_HUB = "this is no hub that edgert knows: check HF_ENDPOINT"


def _checked(name: HubName, file: Any) -> HubFile:
    if not isinstance(file.rfilename, str) or not is_safe_path(file.rfilename):
        raise HubError(
            f"{name}: found a file named {str(file.rfilename)[:120]!r}, expected a path inside the "
            "repository; do not trust this model"
        )
    lfs = file.lfs
    checksum = file.blob_id if lfs is None else lfs.sha256
    num_bytes = file.size
    if (
        not isinstance(checksum, str)
        or not (_SHA1 if lfs is None else _SHA256).fullmatch(checksum)
        or type(num_bytes) is not int
        or not 0 <= num_bytes <= _MAX_BYTES
    ):
        raise HubError(f"{name}: {file.rfilename}: found no size or no checksum, expected both; {_OTHER_HUB}")
    return HubFile(file.rfilename, num_bytes, checksum, lfs is not None)


def fetch(listing: Listing, file: HubFile, sink: Any, present_bytes: int) -> None:
    """Writes bytes [present_bytes, num_bytes) of a file to `sink`. Raises HubError."""
    hub = _import_hub()
    with _request_errors(listing.name, hub, listing.commit):
        hub.file_download.http_get(
            hub.hf_hub_url(listing.name.repo, file.name, revision=listing.commit),
            sink,
            resume_size=present_bytes,
            # Bytes as they lie: a range of a packed answer would be none of the file.
            headers={**hub.utils.build_hf_headers(), "accept-encoding": "identity"},
        )


def _import_hub() -> Any:
    """huggingface_hub, quiet: it reads these variables when it is imported."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ.setdefault("HF_HUB_VERBOSITY", "critical")
    try:
        hub: Any = import_module("huggingface_hub")
        for part in ("constants", "errors", "file_download", "utils"):
            import_module(f"huggingface_hub.{part}")
    except ImportError as error:
        raise HubError(
            f"huggingface_hub: not found ({error.name}), edgert pull needs it; run: pip install 'huggingface_hub>=1.0'"
        ) from None
    hub.constants.DOWNLOAD_CHUNK_SIZE = _CHUNK_BYTES
    return hub


@contextmanager
def _request_errors(name: HubName, hub: Any, revision: str) -> Iterator[None]:
    """Everything that a request can raise, in every version of huggingface_hub, becomes a HubError."""
    http_error: type[Exception] = hub.errors.HfHubHTTPError.__bases__[0]
    try:
        yield
    except HubError:
        raise
    except (http_error, OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
            raise  # the disk's, not the network's
        raise HubError(_explained(name, hub, revision, error)) from error


def _explained(name: HubName, hub: Any, revision: str, error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    endpoint = hub.constants.ENDPOINT
    kind = type(error).__name__
    if kind == "GatedRepoError" or status == 403:
        return (
            f"{name}: found a model that {endpoint} gives only to those it knows ({status}), expected leave; accept "
            f"its terms at {endpoint}/{name.repo} and set HF_TOKEN"
        )
    if kind == "RevisionNotFoundError":
        return f"{name}: found no revision {revision!r}, expected a branch, a tag or a commit; check --revision"
    if status in (401, 404):
        return (
            f"{name}: not found at {endpoint} ({status}), or it is private; check the name, or set HF_TOKEN to a token "
            "that may read it"
        )
    if status is not None:
        return f"{name}: {endpoint} answers {status}, expected the model; try again later"
    chain = _chain(error)
    if any(isinstance(e, ssl.SSLError) or "CERTIFICATE_VERIFY" in str(e) for e in chain):
        return f"{name}: {endpoint} shows a certificate that is not trusted; set SSL_CERT_FILE, or check HF_ENDPOINT"
    if any("Timeout" in type(e).__name__ for e in chain):
        return f"{name}: {endpoint} gave no answer in time; try again: what is there is kept"
    is_network = any(
        isinstance(e, ConnectionError) or re.search("Connect|Network|Protocol|Proxy", type(e).__name__) for e in chain
    )
    if is_network:
        return (
            f"{name}: no connection to {endpoint}; check the network and HF_ENDPOINT, then pull again: what is there "
            "is kept"
        )
    detail = " ".join(str(error).split())[:200]
    return f"{name}: found an answer of {endpoint} that is none ({kind}: {detail}); check HF_ENDPOINT, or try again"


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    now: BaseException | None = error
    while now is not None and now not in found:
        found.append(now)
        now = now.__cause__ or now.__context__
    return found
