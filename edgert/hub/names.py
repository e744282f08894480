"""Names of models and files on a hub, all of them checked before they become part of a path."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgert.errors import HubError

# What the hub allows; without "--", which separates the parts of a folder's name in the cache.
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_]|[.-](?![.-]))*(?<![.-])"
_REPO = re.compile(rf"{_PART}/{_PART}")
_MAX_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class HubName:
    """ORG/NAME, and the FILE behind a colon: a file's name, or the name of a quantisation."""

    repo: str
    file: str | None = None

    def __str__(self) -> str:
        return self.repo if self.file is None else f"{self.repo}:{self.file}"


def parse_name(text: str) -> HubName | None:
    """ORG/NAME or ORG/NAME:FILE; None where `text` is neither."""
    repo, colon, file = text.partition(":")
    if len(repo) > 96 or not _REPO.fullmatch(repo) or (colon and not is_safe_path(file)):
        return None
    return HubName(repo, file if colon else None)


def require_name(text: str) -> HubName:
    """As parse_name. Raises HubError where `text` is no name."""
    name = parse_name(text)
    if name is None:
        raise HubError(f"{text}: found no hub name, expected ORG/NAME or ORG/NAME:FILE; look it up on the hub")
    return name


def is_safe_path(path: str) -> bool:
    """Whether a file's name from outside stays inside the folder that it is joined to, and can be printed."""
    parts = path.split("/")
    return (
        len(path) <= _MAX_CHARACTERS
        and path.isprintable()
        and not any(c in path for c in '\\:*?"<>|')
        and all(part.strip(". ") and not part.endswith((".", " ")) for part in parts)
    )
