"""`edgert pull`: a model from a hub into the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from edgert.cli.terminal import BytesProgress, notice
from edgert.errors import size


def pull(
    name: Annotated[
        str, typer.Argument(metavar="ORG/NAME[:FILE]", help="FILE: a file, or a quantisation such as q4_k_m.")
    ],
    revision: Annotated[
        str, typer.Option("--revision", metavar="NAME", help="Branch, tag or commit to take.")
    ] = "main",
) -> None:
    """Download a model into the Hugging Face cache; the path goes to stdout.

    \b
    Examples:
      edgert pull ORG/NAME
      edgert pull ORG/NAME-GGUF:q4_k_m

    After an interruption the same command goes on where it ended. Needs the extra [hub]: huggingface_hub.
    HF_HOME and HF_HUB_CACHE say where the cache lies, HF_TOKEN opens what is not public, HF_ENDPOINT is another hub.
    """
    from edgert.errors import HubError, ModelNotFoundError
    from edgert.hub import download
    from edgert.hub.lookup import find_cached
    from edgert.hub.names import require_name
    from edgert.hub.remote import is_offline

    model = require_name(name)
    if is_offline():
        try:
            print(find_cached(model))
        except ModelNotFoundError:
            raise HubError(
                f"{model}: not (wholly) in the cache, and HF_HUB_OFFLINE forbids the network; unset it to pull"
            ) from None
        return
    try:
        with BytesProgress(f"pulling {model}") as progress:
            pulled = download.pull(model, revision=revision, progress=progress.update)
    except KeyboardInterrupt:
        notice(f"stopped; what came is kept: edgert pull {model} goes on from there")
        raise
    files = ", ".join(path.name for path in pulled.files)
    notice(f"{files}: {size(pulled.num_bytes)}, {size(pulled.fetched_bytes)} of them downloaded now")
    notice(f'run it: edgert run {model} "Hello"')
    print(pulled.path)
