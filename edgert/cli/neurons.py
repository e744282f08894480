"""`edgert neurons`: how often the neurons of a model with squared ReLU are active."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgert.cli import options, text_pieces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgert.llm import LLM


def neurons(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A folder that `edgert convert` made of a model with squared ReLU."),
    ],
    text: text_pieces.Text = None,
    max_tokens: text_pieces.MaxTokens = text_pieces.MAX_TOKENS,
    threads: options.Threads = None,
) -> None:
    """Count how often each neuron of a model is active on a text, and keep it in the model's folder.

    Where the model does not fit the memory, every later start has the neurons in memory that were active most often.
    The answers stay the same.

    \b
    Example:
      edgert neurons arcee-p4 --text notes.txt
    """
    from edgert.engine.neuron_frequency import save
    from edgert.llm import load

    content = text_pieces.read_text(text, max_tokens)
    with load(Path(model), threads=threads) as llm:
        frequency, num_tokens = count(llm, content, max_tokens)
        path = save(llm.path, frequency, num_tokens)
    print(f"{path}: {num_tokens} tokens, {summary(frequency)}")


def count(llm: LLM, text: str, max_tokens: int) -> tuple[dict[str, NDArray[np.float32]], int]:
    """Of each matrix the share of tokens that activated each neuron, and the tokens.

    Raises UnsupportedModelError for a model without such matrices.
    """
    import numpy as np

    num_tokens = 0
    llm.start_neuron_counts()
    try:
        for piece in text_pieces.pieces(llm, text, max_tokens):
            llm.logits(piece)
            num_tokens += len(piece)
    finally:
        counted = llm.stop_neuron_counts()
    return {name: (active / tokens).astype(np.float32) for name, (tokens, active) in counted.items()}, num_tokens


def summary(frequency: Mapping[str, NDArray[np.float32]]) -> str:
    """How uneven the use of the neurons is."""
    import numpy as np

    shares = np.concatenate([-np.sort(-of) for of in frequency.values()])
    hottest = sum(float(-np.sort(-of)[: len(of) // 4].sum()) for of in frequency.values())
    whole = float(shares.sum())
    return (
        f"{len(frequency)} matrices, {len(shares)} neurons, {100 * float(shares.mean()):.0f} % active; the hottest "
        f"quarter has {100 * hottest / whole if whole else 0:.0f} % of the uses"
    )
