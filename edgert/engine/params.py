"""What a caller may ask of a generation, checked once."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex, TypedDict

from edgert.errors import UsageError

# Added to a logit in place of -inf, which a step's check for finite values would refuse.
BANNED_LOGIT_BIAS = -1e30
MAX_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn, and when a generation ends.

    max_tokens: most tokens to generate (None or -1: until the context is full). temperature: 0 is greedy. top_k: 0 is
    off. top_p, typical_p: 1 is off. min_p: 0 is off. repetition_penalty: 1 is off; the three penalties look at the last
    penalty_last_n tokens (0: none, -1: all). logit_bias: added to the logits of token ids (-inf bans one). seed: None
    or -1 draws one. stop: texts that end the answer and are not part of it. ignore_eos: end-of-text tokens are ordinary
    ones. logprobs: that many most likely tokens are reported beside the chosen one.

    Raises UsageError where a value is out of range.
    """

    max_tokens: int | None = 256
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _check_max_tokens(self.max_tokens)
        _check_real("temperature", self.temperature, 0.0, None)
        _check_integer("top_k", self.top_k, -1, None)
        _check_real("top_p", self.top_p, 0.0, 1.0, low_is_open=True)
        _check_real("min_p", self.min_p, 0.0, 1.0)
        _check_real("typical_p", self.typical_p, 0.0, 1.0, low_is_open=True)
        _check_real("repetition_penalty", self.repetition_penalty, 0.0, None, low_is_open=True)
        _check_real("presence_penalty", self.presence_penalty, None, None)
        _check_real("frequency_penalty", self.frequency_penalty, None, None)
        _check_integer("penalty_last_n", self.penalty_last_n, -1, None)
        if self.seed is not None:
            _check_integer("seed", self.seed, -1, MAX_SEED)
        if self.logprobs is not None:
            _check_integer("logprobs", self.logprobs, 0, None)
        _check_stop(self.stop)
        _check_logit_bias(self.logit_bias)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises UsageError where a token id, or the number of logprobs, is beyond the vocabulary."""
        for token in self.logit_bias or {}:
            _check_integer("logit_bias: token id", token, 0, vocab_size - 1)
        if self.logprobs is not None:
            _check_integer("logprobs", self.logprobs, 0, vocab_size)

    def token_limit(self, room: int) -> int:
        """Tokens to generate at most, where `room` more would fill the context."""
        return room if self.max_tokens is None or self.max_tokens == -1 else min(self.max_tokens, room)

    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def chosen_seed(self) -> int:
        """The seed, or a fresh one of 32 bits: short enough to be typed again."""
        return (
            int.from_bytes(os.urandom(4), "little")
            if self.seed is None or self.seed == -1
            else operator.index(self.seed)
        )

    def finite_logit_bias(self) -> dict[int, float]:
        return {
            operator.index(token): max(float(bias), BANNED_LOGIT_BIAS)
            for token, bias in (self.logit_bias or {}).items()
        }


def check_integer(name: str, value: SupportsIndex, low: int, high: int | None = None) -> int:
    """The value as an int; UsageError names what was found and what was expected."""
    _check_integer(name, value, low, high)
    return operator.index(value)


def check_real(name: str, value: float, low: float, high: float) -> float:
    """The value as a float; UsageError names what was found and what was expected."""
    _check_real(name, value, low, high)
    return float(value)


def _range_text(kind: str, low: float | None, high: float | None, low_is_open: bool = False) -> str:
    text = kind
    if low is not None:
        text += f" above {low:g}" if low_is_open else f" of at least {low:g}"
    if high is not None:
        text += (" and" if low is not None else "") + f" at most {high:g}"
    return text


def _check_integer(name: str, value: SupportsIndex, low: int, high: int | None) -> None:
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: found {value!r}, expected {_range_text('an integer', low, high)}") from None
    if number < low or (high is not None and number > high):
        raise UsageError(f"{name}: found {number}, expected {_range_text('an integer', low, high)}")


def _check_real(name: str, value: float, low: float | None, high: float | None, *, low_is_open: bool = False) -> None:
    expected = _range_text("a finite number", low, high, low_is_open)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name}: found {value!r}, expected {expected}") from None
    too_low = low is not None and (number <= low if low_is_open else number < low)
    if not math.isfinite(number) or too_low or (high is not None and number > high):
        raise UsageError(f"{name}: found {value!r}, expected {expected}")


def _check_max_tokens(value: int | None) -> None:
    if value is None:
        return
    _check_integer("max_tokens", value, -1, None)
    if value == 0:
        raise UsageError("max_tokens: found 0, expected at least 1, or -1 for as many as the context holds")


def _check_stop(stop: str | Sequence[str] | None) -> None:
    if stop is None:
        return
    texts = [stop] if isinstance(stop, str) else list(stop)
    for text in texts:
        if not isinstance(text, str) or not text:
            raise UsageError(f"stop: found {text!r}, expected a text that is not empty, or a list of such texts")


def _check_logit_bias(logit_bias: Mapping[int, float] | None) -> None:
    for token, bias in (logit_bias or {}).items():
        _check_integer("logit_bias: token id", token, 0, None)
        try:
            is_usable = not math.isnan(bias) and bias != math.inf
        except TypeError:
            is_usable = False
        if not is_usable:
            raise UsageError(f"logit_bias of token {token}: found {bias!r}, expected a number below infinity")


class SamplingOptions(TypedDict, total=False):
    """The keywords of SamplingParams, for signatures that take them: `**sampling: Unpack[SamplingOptions]`."""

    max_tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_last_n: int
    logit_bias: Mapping[int, float] | None
    seed: int | None
    stop: str | Sequence[str] | None
    ignore_eos: bool
    logprobs: int | None


def sampling_params(function: str, options: SamplingOptions) -> SamplingParams:
    """The parameters; UsageError for a keyword that does not exist or a value out of range."""
    unknown = sorted(options.keys() - SamplingOptions.__annotations__.keys())
    if unknown:
        names = ", ".join(SamplingOptions.__annotations__)
        raise UsageError(f"{function}: found the keyword {unknown[0]!r}, expected one of: {names}")
    return SamplingParams(**options)
