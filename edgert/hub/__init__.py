"""Models by name: ORG/NAME[:FILE] in the Hugging Face cache. Only `download` needs huggingface_hub, or a network."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["resolve_model"]


def resolve_model(model: str | os.PathLike[str]) -> Path:
    """The path to open. What exists is taken as it is; else ORG/NAME[:FILE] is looked up in the cache.

    What is neither is returned as it is too: opening it says what is wrong. Raises ModelNotFoundError for a name that
    the cache does not hold, or not wholly; HubError for a name that fits several models.
    """
    path = Path(model)
    if os.path.lexists(path):
        return path
    # Only now: a model that is there shall open without the time that these imports take (7 ms).
    from edgert.hub.lookup import find_cached
    from edgert.hub.names import parse_name

    name = parse_name(os.fspath(model))
    return path if name is None else find_cached(name)
