"""Where facts that were measured on this machine are kept, and the care with files that anything may have written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgert.whole_file import written_whole

# More is no file of ours; the kernels of hundreds of models take less.
MAX_FILE_BYTES = 16 << 20


def cache_folder(environment: Mapping[str, str] | None = None) -> Path | None:
    """The folder; None without a home folder."""
    environment = os.environ if environment is None else environment
    try:
        folder = Path(environment.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:
        return None
    return folder / "edgert" if folder.is_absolute() else None


def read_json(path: Path) -> Any:
    """What a file holds. Raises OSError, ValueError or RecursionError where it is missing, broken, or too large."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{path}: found more than {MAX_FILE_BYTES} bytes, expected a file of ours")
    return json.loads(path.read_bytes())


def write_json(path: Path, value: Any) -> None:
    """Replaces a file as a whole; silently not, where it cannot be written."""
    text = json.dumps(value, indent=1)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
