"""How much longer the steps of a tokenizer.json may make a text: the file is not to be trusted.

The tokenizers library runs whatever the file lists. Two thousand steps that each double a text, or four that put a
thousand characters in the place of one, would take all memory at the first word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import tokenizers

from edgert.errors import TokenizerError

MAX_STEPS = 64  # of normalising, cutting and post-processing together; published tokenizers have up to ten
MAX_GROWTH = 256
MAX_TOKEN_ID = (1 << 24) - 1

# By how much a step of a kind can lengthen a text: NFKD writes one character as 18 at most, bytes become two bytes.
_GROWTH = {"ByteLevel": 2, "NFD": 4, "NFKD": 18, "NFKC": 18}


def check_growth(backend: tokenizers.Tokenizer, source: str) -> None:
    """Raises TokenizerError for a tokenizer whose steps are too many, or make texts too long."""
    parts = (backend.normalizer, backend.pre_tokenizer, backend.post_processor)
    steps = [step for part in parts if part is not None for step in _steps(json.loads(part.__getstate__()))]
    if len(steps) > MAX_STEPS:
        raise TokenizerError(f"{source}: found {len(steps)} steps, expected at most {MAX_STEPS}; use another model")
    growth = 1
    for step in steps:
        growth = min(growth * _growth(step), 1 << 40)
    if growth > MAX_GROWTH:
        raise TokenizerError(
            f"{source}: found steps that make a text {growth} times as long, expected at most {MAX_GROWTH}; "
            "use another model"
        )


def check_token_ids(highest: int, source: str) -> None:
    """Raises TokenizerError for an id that no model can have."""
    if highest > MAX_TOKEN_ID:
        raise TokenizerError(
            f"{source}: found token id {highest}, expected at most {MAX_TOKEN_ID}; the file is damaged, get it again"
        )


def _steps(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The single steps of a part, nested sequences taken apart."""
    inner = [part.get(key) for key in ("normalizers", "pretokenizers", "processors")]
    lists = [steps for steps in inner if isinstance(steps, list)]
    if not lists:
        yield part
    for steps in lists:
        for step in steps:
            yield from _steps(step)


def _growth(step: dict[str, Any]) -> int:
    kind = step.get("type")
    if kind == "Replace":
        pattern, content = step.get("pattern") or {}, str(step.get("content") or "")
        # A regular expression can match one character, or none between two.
        length = len(pattern["String"]) if pattern.get("String") else 0
        return -(-len(content) // length) if length else len(content) + 1
    if kind == "TemplateProcessing":
        return max(1, sum("Sequence" in piece for piece in step.get("single", ())))
    return _GROWTH.get(str(kind), 1)
