"""Sampling: what was given, what the model recommends, our defaults."""

import pytest

from edgert.cli.options import SamplingFlags, sampling_options


def flags(temperature: float | None = None, max_tokens: int | None = None) -> SamplingFlags:
    return SamplingFlags(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=None,
        top_p=None,
        min_p=None,
        seed=None,
        stop=None,
        ignore_eos=False,
    )


def test_the_models_recommendation_is_followed() -> None:
    recommended = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": True, "eos_token_id": 2}
    options = sampling_options(flags(), recommended, default_max_tokens=-1)
    assert options == {"max_tokens": -1, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "ignore_eos": False}


def test_a_model_that_does_not_sample_is_greedy() -> None:
    assert sampling_options(flags(), {"do_sample": False, "top_k": 5}, default_max_tokens=9) == {
        "max_tokens": 9,
        "temperature": 0.0,
        "ignore_eos": False,
    }


def test_what_is_given_goes_first() -> None:
    options = sampling_options(flags(temperature=0.0, max_tokens=3), {"temperature": 0.6}, default_max_tokens=-1)
    assert (options["temperature"], options["max_tokens"]) == (0.0, 3)


@pytest.mark.parametrize("value", [-1, "hot", float("nan"), [1]])
def test_an_impossible_recommendation_is_named_and_left_out(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert "temperature" not in sampling_options(flags(), {"temperature": value}, default_max_tokens=-1)
    assert "generation_config.json is not followed: temperature: found" in capsys.readouterr().err
