"""The core's sampler against published vectors and a float64 numpy sampler of the same rules."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from edgert import _core

NO_HISTORY = np.empty(0, np.int32)


def sampler(temperature: float = 1.0, **options: object) -> _core.Sampler:
    return _core.Sampler(temperature=temperature, isa=_core.best_isa(), **options)  # type: ignore[arg-type]


def make_logits(vocab: int = 50) -> NDArray[np.float32]:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return (np.random.default_rng(seed).standard_normal(vocab) * 2).astype(np.float32)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the known answers that Random123 publishes for philox4x32, 10 rounds
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_known_answers(counter: list[int], key: list[int], words: list[int]) -> None:
    assert _core.philox4x32_10(counter, key) == words


def test_uniform_is_the_documented_map() -> None:
    seed, index, position = 0x0123456789ABCDEF, 3, 2**33 + 5
    words = _core.philox4x32_10([position & 0xFFFFFFFF, position >> 32, index, 0], [seed & 0xFFFFFFFF, seed >> 32])
    assert _core.uniform(seed, index, position) == ((words[0] << 32 | words[1]) >> 11) * 2.0**-53


def test_greedy_takes_the_lowest_id_of_the_largest() -> None:
    logits = np.array([1, 5, 2, 5, 5], np.float32)
    assert sampler(0.0).sample(logits, 0, NO_HISTORY).token == 1


def test_greedy_finds_the_largest_wherever_it_is() -> None:
    """A vocabulary of several blocks, the largest once, several times, or made by a bias."""
    plain, biased = sampler(0.0), sampler(0.0, logit_bias={11_000: 100.0})
    logits = make_logits(12_345)
    assert plain.sample(logits, 0, NO_HISTORY).token == logits.argmax()
    assert biased.sample(logits, 0, NO_HISTORY).token == 11_000
    for others in ([0], [4095, 4096], [4096, 9000], [12_344]):
        tied = logits.copy()
        tied[others] = 50
        assert plain.sample(tied, 0, NO_HISTORY).token == others[0]


def kept(logits: NDArray[np.float32], **options: object) -> list[int]:
    """Which tokens can be drawn: those seen over many positions at a high temperature."""
    s = sampler(50.0, **options)
    return sorted({s.sample(logits, p, NO_HISTORY).token for p in range(4000)})


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    p = np.exp(logits.astype(np.float64) - logits.max())
    return p / p.sum()


def test_top_k_keeps_the_k_largest() -> None:
    logits = make_logits()
    order = np.argsort(-logits, kind="stable")
    assert kept(logits, top_k=5) == sorted(order[:5].tolist())


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    logits = make_logits()
    order = np.argsort(-logits, kind="stable")
    total = np.cumsum(softmax(logits)[order])
    count = int(np.searchsorted(total, 0.7)) + 1
    assert kept(logits, top_p=0.7) == sorted(order[:count].tolist())


def test_min_p_keeps_those_near_the_largest() -> None:
    logits = make_logits()
    p = softmax(logits)
    assert kept(logits, min_p=0.1) == np.flatnonzero(p >= 0.1 * p.max()).tolist()


def test_typical_keeps_those_of_expected_surprise() -> None:
    logits = make_logits()
    p = softmax(logits)
    distance = np.abs(-np.log(p) - -(p * np.log(p)).sum())
    order = np.argsort(distance, kind="stable")
    count = int(np.searchsorted(np.cumsum(p[order]), 0.5)) + 1
    assert kept(logits, typical_p=0.5) == sorted(order[:count].tolist())


def test_draws_follow_the_distribution() -> None:
    """Chi-square over 20,000 draws; 6 sigma of a chi-square with 7 degrees of freedom."""
    logits = make_logits(8)
    s, n = sampler(0.7, seed=random.randrange(2**63)), 20000
    counts = Counter(s.sample(logits, p, NO_HISTORY).token for p in range(n))
    expected = softmax((logits / np.float32(0.7)).astype(np.float32)) * n
    chi2 = sum((counts[i] - e) ** 2 / e for i, e in enumerate(expected))
    assert chi2 < 7 + 6 * np.sqrt(14), chi2


def draw_from_all(logits: NDArray[np.float32], temperature: float, u: float) -> int:
    """The rule of docs/numerics.md, section 7, where nothing is cut off, in float64."""
    order = np.argsort(-logits, kind="stable")
    p = np.exp((logits[order].astype(np.float64) - logits.max()) / temperature)
    return int(order[np.searchsorted(np.cumsum(p), u * p.sum(), side="right")])


def test_draws_from_a_large_vocabulary_follow_the_rule() -> None:
    """Near and far logits, equal ones, and tokens without any probability."""
    logits = make_logits(1000)
    logits[300:600] = -500
    logits[990:] = -500
    logits[600:700] = logits[:100]
    s, positions = sampler(0.9, seed=11), range(3000)
    drawn = [s.sample(logits, p, NO_HISTORY).token for p in positions]
    expected = [draw_from_all(logits, 0.9, _core.uniform(11, 0, p)) for p in positions]
    # Weights are float32: a number that falls on the border of two tokens may take the other one.
    assert sum(a != b for a, b in zip(drawn, expected, strict=True)) <= 3
    assert not any(300 <= token < 600 or token >= 990 for token in drawn)


@pytest.mark.parametrize("spread", [0.1, 2.0, 6.0])
@pytest.mark.parametrize("options", [{"top_p": 0.9}, {"min_p": 0.05}, {"top_p": 0.95, "min_p": 0.02}])
def test_filters_on_a_large_vocabulary(spread: float, options: dict[str, float]) -> None:
    """What is left out of the sorting is not what the filters would keep: at a high temperature all kept are alike."""
    logits = make_logits(3000) * np.float32(spread / 2)
    p = softmax(logits)
    order = np.argsort(-logits, kind="stable")
    count = int(np.searchsorted(np.cumsum(p[order]), options.get("top_p", 2.0))) + 1
    allowed = [i for i in order[:count].tolist() if p[i] >= options.get("min_p", 0.0) * p.max()]
    s = sampler(1e6, seed=2, **options)
    for position in range(300):
        token = s.sample(logits, position, NO_HISTORY).token
        assert token in allowed
        # Candidates stand in descending order: the drawn one is that at u of them, nearly.
        u = _core.uniform(2, 0, position)
        assert abs(allowed.index(token) - u * len(allowed)) <= 0.01 * len(allowed) + 1


@pytest.mark.parametrize("options", [{"temperature": 0.7}, {"top_p": 0.9}, {"min_p": 0.02, "temperature": 2.0}])
def test_a_top_k_of_all_but_the_last_draws_as_no_top_k(options: dict[str, float]) -> None:
    """One rule, two ways: the whole vocabulary by ranges of logits, or a sorted list."""
    logits = np.round(make_logits(2000), 1)
    logits[1234] = -1000.0  # has no weight
    all_of_them, listed = sampler(seed=9, **options), sampler(seed=9, top_k=1999, **options)
    for p in range(300):
        assert all_of_them.sample(logits, p, NO_HISTORY).token == listed.sample(logits, p, NO_HISTORY).token


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1e6])
def test_extreme_temperatures(temperature: float) -> None:
    logits = np.array([1, 3e38, -3e38, 2, 3e38], np.float32)
    drawn = {sampler(temperature).sample(logits, p, NO_HISTORY).token for p in range(100)}
    assert drawn == {1, 4}


@pytest.mark.parametrize(
    "isa", [name for name, is_built, is_supported in _core.isa_levels() if is_built and is_supported]
)
def test_every_level_draws_the_same(isa: str) -> None:
    logits = make_logits(5000)
    ours, scalar = (_core.Sampler(temperature=0.8, seed=3, isa=level) for level in (isa, "scalar"))
    for p in range(50):
        assert ours.sample(logits, p, NO_HISTORY).token == scalar.sample(logits, p, NO_HISTORY).token


def test_a_draw_depends_on_seed_index_and_position_only() -> None:
    logits = make_logits(1000)
    first = [sampler(seed=4, index=1).sample(logits, p, NO_HISTORY).token for p in range(50)]
    again = [sampler(seed=4, index=1).sample(logits, p, NO_HISTORY).token for p in reversed(range(50))][::-1]
    assert first == again
    assert first != [sampler(seed=5, index=1).sample(logits, p, NO_HISTORY).token for p in range(50)]
    assert first != [sampler(seed=4, index=2).sample(logits, p, NO_HISTORY).token for p in range(50)]


def test_penalties_and_bias() -> None:
    logits = np.array([2.0, 1.9, -1.0, 0.0], np.float32)
    history = np.array([0, 0, 2], np.int32)
    assert sampler(0.0, repetition_penalty=2.0).sample(logits, 0, history).token == 1
    assert sampler(0.0, presence_penalty=0.2).sample(logits, 0, history).token == 1
    assert sampler(0.0, frequency_penalty=0.04).sample(logits, 0, history).token == 0
    assert sampler(0.0, frequency_penalty=0.06).sample(logits, 0, history).token == 1
    assert sampler(0.0, frequency_penalty=0.06, penalty_last_n=1).sample(logits, 0, history).token == 0
    assert sampler(0.0, logit_bias={3: 5.0}).sample(logits, 0, NO_HISTORY).token == 3


def test_log_probabilities_are_the_models_own() -> None:
    logits = make_logits(300)
    expected = logits - (logits.max() + np.log(np.exp(logits.astype(np.float64) - logits.max()).sum()))
    result = sampler(3.0, logit_bias={7: 100.0}, num_logprobs=5).sample(logits, 0, NO_HISTORY)
    assert result.token == 7
    assert result.logprob == pytest.approx(expected[7], abs=1e-5)
    order = np.argsort(-logits, kind="stable")[:5]
    assert [i for i, _ in result.top] == order.tolist()
    assert [x for _, x in result.top] == pytest.approx(expected[order].tolist(), abs=1e-5)


@pytest.mark.parametrize("bias", [{}, {3: 1.0}])
@pytest.mark.parametrize("token", [17, 9000])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_non_finite_logits_are_an_error(bad: float, token: int, bias: dict[int, float]) -> None:
    logits = make_logits(9001)
    logits[0] = np.finfo(np.float32).max  # the nearest to it that is fine
    logits[token] = bad
    with pytest.raises(_core.NonFiniteError, match=f"token {token},"):
        sampler(logit_bias=bias).sample(logits, 0, NO_HISTORY)


def test_whole_vocabulary_is_sorted_as_the_contract_says() -> None:
    """Ties by id: equal logits share the probability evenly and the first ids come first."""
    logits = np.zeros(5000, np.float32)
    result = sampler(1.0, num_logprobs=3, top_p=0.5).sample(logits, 0, NO_HISTORY)
    assert result.token < 2500
    assert [i for i, _ in result.top] == [0, 1, 2]


@pytest.mark.parametrize("keep", [1, 3, 40, 999, 1000])
def test_ties_fall_to_the_lower_id(keep: int) -> None:
    """Few distinct logits, so that the cut falls among equals."""
    logits = np.round(make_logits(1000))
    order = np.argsort(-logits, kind="stable")[:keep]
    top = sampler(1.0, num_logprobs=keep).sample(logits, 0, NO_HISTORY).top
    assert [i for i, _ in top] == order.tolist()
    assert sampler(0.0).sample(logits, 0, NO_HISTORY).token == order[0]
