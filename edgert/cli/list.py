"""`edgert list`: the models in the cache."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from edgert.cli import options
from edgert.cli.terminal import notice
from edgert.errors import one_line, size

if TYPE_CHECKING:
    from edgert.hub.cache import CachedFile, CachedRepo


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRow:
    """A model in the cache. name: as MODEL takes it; format: gguf, safetensors, other or unfinished.

    bytes: what it takes on the disk; used: when it was last read, in seconds since 1970.
    """

    name: str
    format: str
    files: tuple[str, ...]
    bytes: int
    used: int
    path: str


def list_models(as_json: options.Json = False) -> None:
    """Show the models in the Hugging Face cache.

    \b
    Example:
      edgert list
    """
    from edgert.hub.cache import cache_folder, list_repos

    cache = cache_folder()
    rows = [row for repo in list_repos(cache) for row in model_rows(repo)]
    if as_json:
        print(json.dumps({"cache": str(cache), "models": [asdict(row) for row in rows]}))
        return
    for line in table(rows, time.time()):
        print(line)
    notice(f"{len(rows)} models, {size(sum(row.bytes for row in rows))} in {cache}")


def model_rows(repo: CachedRepo) -> list[ListRow]:
    """One row for the safetensors model of a repository, one for each GGUF model; a file counts once."""
    from edgert.hub.cache import unfinished_bytes
    from edgert.hub.choose import gguf_models

    rows, seen = [], set()
    for snapshot in repo.snapshots:
        files = {file.name: file for file in snapshot.files if file.blob not in seen}
        seen |= {file.blob for file in snapshot.files}
        for names in gguf_models(files).values():
            found = [files.pop(name) for name in names if name in files]
            if found:
                rows.append(_row(f"{repo.repo}:{found[0].name}", "gguf", found))
        has_weights = any(name.endswith(".safetensors") for name in files)
        if has_weights or (files and not rows):
            kind = "safetensors" if has_weights else "other"
            rows.append(_row(repo.repo, kind, list(files.values())))
    if left_bytes := unfinished_bytes(repo):
        rows.append(
            ListRow(name=repo.repo, format="unfinished", files=(), bytes=left_bytes, used=0, path=str(repo.path))
        )
    return rows


def table(rows: list[ListRow], now_s: float) -> list[str]:
    """The rows as lines of text; the name last, since it has no bound."""

    if not rows:
        return []
    lines = [("FORMAT", "FILES", "SIZE", "USED", "NAME")]
    lines += [
        (row.format, str(len(row.files)), size(row.bytes), _age(now_s - row.used) if row.used else "-", row.name)
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return [
        "  ".join([line[0].ljust(widths[0]), *(line[i].rjust(widths[i]) for i in (1, 2, 3)), one_line(line[4])])
        for line in lines
    ]


def _row(name: str, kind: str, files: list[CachedFile]) -> ListRow:
    blobs = {file.blob: file.num_bytes for file in files}
    path = files[0].path if kind == "gguf" else files[0].path.parents[files[0].name.count("/")]
    return ListRow(
        name=name,
        format=kind,
        files=tuple(file.name for file in files),
        bytes=sum(blobs.values()),
        used=int(max(file.used_s for file in files)),
        path=str(path),
    )


def _age(seconds: float) -> str:
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if (count := int(seconds // length)) > 0:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "now"
