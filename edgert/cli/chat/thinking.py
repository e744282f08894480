"""Which part of an answer is thinking: what a model writes between marks such as <think> and </think>."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgert.chat import ChatTemplate

_OPENING = re.compile(r"<((?:\w+:)?think(?:ing)?)>|\[THINK\]")


@dataclass(frozen=True, slots=True)
class ThinkingMarks:
    """The texts around a model's thinking."""

    opening: str = "<think>"
    closing: str = "</think>"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an answer."""

    text: str
    is_thinking: bool


def find_marks(template: ChatTemplate) -> ThinkingMarks:
    """The marks that the chat template names; <think> where it names none, as a model may write it all the same."""
    found = _OPENING.search(template.source())
    if found is None:
        return ThinkingMarks()
    name = found.group(1)
    return ThinkingMarks(found.group(), "[/THINK]" if name is None else f"</{name}>")


def begins_inside(template: ChatTemplate, messages: Sequence[dict[str, Any]], marks: ThinkingMarks) -> bool:
    """Whether the template itself opens the thinking, so that the answer begins in it."""
    if marks.opening not in template.source():
        return False
    return template.render(messages).rstrip().endswith(marks.opening)


class _State(Enum):
    BEGINNING = auto()
    THINKING = auto()
    ANSWER = auto()


class ThinkingSplitter:
    """Cuts a stream of text into thinking and answer. Marks count as thinking; text that may become one is held back.

    Only the beginning of an answer may open thinking: later the mark is something that the model writes about.
    """

    def __init__(self, marks: ThinkingMarks, *, is_inside: bool) -> None:
        self._marks = marks
        self._state = _State.THINKING if is_inside else _State.BEGINNING
        self._held = ""

    def feed(self, text: str) -> list[Part]:
        """The parts that are known by now."""
        self._held += text
        parts = []
        if self._state is _State.BEGINNING:
            self._begin()
        if self._state is _State.THINKING:
            parts.append(Part(self._thought(), True))
        if self._state is _State.ANSWER:
            parts.append(Part(self._held, False))
            self._held = ""
        return [part for part in parts if part.text]

    def finish(self) -> list[Part]:
        """What was held back, when nothing more will come."""
        rest, self._held = self._held, ""
        return [Part(rest, self._state is _State.THINKING)] if rest else []

    def _begin(self) -> None:
        text = self._held.lstrip()
        if text.startswith(self._marks.opening):
            self._state = _State.THINKING
        elif not self._marks.opening.startswith(text):
            self._state = _State.ANSWER

    def _thought(self) -> str:
        closing = self._marks.closing
        end = self._held.find(closing)
        if end >= 0:
            self._state = _State.ANSWER
            cut = end + len(closing)
        else:
            growing = (n for n in range(len(closing) - 1, 0, -1) if self._held.endswith(closing[:n]))
            cut = len(self._held) - next(growing, 0)
        thought, self._held = self._held[:cut], self._held[cut:]
        return thought
