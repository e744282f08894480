"""Sampling parameters: every value out of range is refused by name."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from edgert.engine.params import BANNED_LOGIT_BIAS, SamplingOptions, SamplingParams, sampling_params
from edgert.errors import UsageError


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_tokens", 0, "at least 1"),
        ("max_tokens", -2, "at least -1"),
        ("max_tokens", 1.5, "integer"),
        ("temperature", -0.1, "at least 0"),
        ("temperature", math.nan, "finite"),
        ("temperature", "hot", "number"),
        ("top_k", -2, "at least -1"),
        ("top_p", 0.0, "above 0"),
        ("top_p", 1.1, "at most 1"),
        ("min_p", -0.1, "at least 0"),
        ("min_p", 2, "at most 1"),
        ("typical_p", 0, "above 0"),
        ("repetition_penalty", 0, "above 0"),
        ("presence_penalty", math.inf, "finite"),
        ("frequency_penalty", None, "number"),
        ("penalty_last_n", -2, "at least -1"),
        ("seed", -2, "at least -1"),
        ("seed", 2**64, "at most"),
        ("stop", "", "not empty"),
        ("stop", ["a", ""], "not empty"),
        ("stop", ["a", 1], "not empty"),
        ("logprobs", -1, "at least 0"),
        ("logit_bias", {-1: 1.0}, "at least 0"),
        ("logit_bias", {1: math.nan}, "number"),
        ("logit_bias", {1: math.inf}, "below infinity"),
        ("logit_bias", {1: "x"}, "number"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name}.*found.*expected.*{expected}"):
        SamplingParams(**{name: value})


def test_values_of_numpy_and_the_usual_ways_to_switch_off_are_taken() -> None:
    params = SamplingParams(max_tokens=np.int64(4), top_k=-1, seed=-1, temperature=np.float32(0.5), top_p=1)
    assert params.token_limit(100) == 4
    assert params.token_limit(3) == 3
    assert SamplingParams(max_tokens=-1).token_limit(7) == SamplingParams(max_tokens=None).token_limit(7) == 7


def test_a_seed_is_drawn_where_none_is_given() -> None:
    seeds = {SamplingParams(seed=None).chosen_seed() for _ in range(20)}
    assert len(seeds) > 10
    assert SamplingParams(seed=2**64 - 1).chosen_seed() == 2**64 - 1


def test_a_banned_token_gets_a_finite_bias() -> None:
    assert SamplingParams(logit_bias={3: -math.inf, 4: 1}).finite_logit_bias() == {3: BANNED_LOGIT_BIAS, 4: 1.0}


def test_ids_beyond_the_vocabulary_are_refused() -> None:
    with pytest.raises(UsageError, match="logit_bias: token id: found 10"):
        SamplingParams(logit_bias={10: 1.0}).check_vocabulary(10)
    with pytest.raises(UsageError, match="logprobs: found 11"):
        SamplingParams(logprobs=11).check_vocabulary(10)


def test_the_keywords_are_those_of_the_parameters() -> None:
    assert list(SamplingOptions.__annotations__) == [field.name for field in dataclasses.fields(SamplingParams)]


def test_an_unknown_keyword_is_refused_with_the_known_ones() -> None:
    options: Any = {"max_token": 3}
    with pytest.raises(UsageError, match=r"generate: found the keyword 'max_token', expected one of: max_tokens, temp"):
        sampling_params("generate", options)
