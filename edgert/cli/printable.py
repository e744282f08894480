"""Text that others wrote, made fit for a terminal."""

from __future__ import annotations

# Line ends and tabs stay. A carriage return is dropped: it would write over what stands in the line.
_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
_VISIBLE[ord("\r")] = ""


def printable(text: str) -> str:
    r"""The text with its control characters spelled out ("\x1b"), so that none of them reaches a terminal."""
    return text.translate(_VISIBLE)
