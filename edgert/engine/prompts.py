"""What a caller gives as a prompt, as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from edgert.errors import ContextLengthError, TokenizerError, UsageError
from edgert.tokenizer import Tokenizer

Prompt: TypeAlias = "str | Sequence[int] | NDArray[np.integer]"


def as_batch(prompt: Prompt | list[str] | list[list[int]]) -> list[Prompt] | None:
    """The prompts of a list of texts, or of lists of ids; None for a single prompt."""
    if isinstance(prompt, np.ndarray):
        return list(prompt) if prompt.ndim > 1 else None
    if isinstance(prompt, str) or len(prompt) == 0 or not isinstance(prompt[0], str | list | tuple | np.ndarray):
        return None
    return cast("list[Prompt]", list(prompt))


def prompt_tokens(prompt: Prompt, tokenizer: Tokenizer | None, *, vocab_size: int) -> NDArray[np.int32]:
    """int32 ids (n,) of a text (with the tokens that the model expects around it) or of ids, which are checked.

    Raises TokenizerError for a text without a tokenizer, UsageError for ids that do not exist, or no tokens at all.
    """
    if isinstance(prompt, str):
        ids = np.asarray(require_tokenizer(tokenizer).encode(prompt), dtype=np.int64)
    else:
        ids = _ids(prompt)
    if len(ids) == 0:
        raise UsageError("prompt: found no tokens, expected at least one; give a text or token ids")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        raise UsageError(f"prompt: found token id {low if low < 0 else high}, expected ids from 0 to {vocab_size - 1}")
    return ids.astype(np.int32)


def check_prompt_length(num_tokens: int, context: int, *, room: int) -> None:
    """Raises ContextLengthError unless the prompt and `room` more tokens fit the context."""
    if num_tokens + room > context:
        what = f"at most {context - room}, since the context holds {context}" if room else f"at most {context}"
        raise ContextLengthError(
            f"prompt: found {num_tokens} tokens, expected {what}; shorten the prompt, or load the model with a larger "
            "context"
        )


def require_tokenizer(tokenizer: Tokenizer | None) -> Tokenizer:
    if tokenizer is None:
        raise TokenizerError(
            "text: the model has no tokenizer, expected tokenizer.json beside its weights; give token ids, or add it"
        )
    return tokenizer


def _ids(prompt: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    expected = "expected a text, a list of token ids, or a list of these"
    try:
        ids = np.asarray(prompt)
    except ValueError:
        raise UsageError(f"prompt: found a nested list, {expected}") from None
    if len(prompt) == 0:
        return np.empty(0, dtype=np.int64)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise UsageError(f"prompt: found {type(prompt).__name__} of {ids.dtype} with shape {ids.shape}, {expected}")
    if ids.dtype == np.uint64:
        ids = np.minimum(ids, np.iinfo(np.int64).max)
    return ids.astype(np.int64)
