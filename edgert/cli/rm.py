"""`edgert rm`: deletes a model from the cache."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edgert.cli.terminal import notice
from edgert.errors import UsageError, size


def rm(
    name: Annotated[str, typer.Argument(metavar="ORG/NAME[:FILE]", help="A model in the cache, or one file of it.")],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a model from the Hugging Face cache: all its revisions, or one file of it.

    \b
    Example:
      edgert rm ORG/NAME

    `edgert list` shows what is there. Bytes that another file of the cache uses stay.
    """
    from edgert.hub.names import require_name
    from edgert.hub.remove import plan_removal, remove

    model = require_name(name)
    removal = plan_removal(model)
    freed = size(removal.num_bytes)
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError(f"rm: found no terminal to ask for leave to delete {model} ({freed}), expected --yes")
        sys.stderr.write(f"delete {model} ({freed})? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            notice("nothing was deleted")
            return
    remove(removal)
    notice(f"deleted {model}: {freed} are free again")
