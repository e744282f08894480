"""What generate, stream, chat and logits give back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgert
from edgert.engine.stream import ChunkStream
from edgert.errors import ContextLengthError, EdgertError, NumericError, OutOfMemoryError, TokenizerError, UsageError
from edgert.llm import LLM

from .conftest import POISON, VOCAB

PROMPT = "Once upon a time"
QUESTION = [{"role": "user", "content": "Hello"}]


def test_one_chunk_for_each_token(bundled: LLM) -> None:
    chunks = list(bundled.stream(PROMPT, max_tokens=20, seed=5))
    assert len(chunks) == 20
    assert [chunk.finish_reason for chunk in chunks] == [None] * 19 + ["length"]
    assert all(chunk.timings is None for chunk in chunks[:-1])
    assert all(chunk.logprob <= 0 and chunk.top_logprobs == () for chunk in chunks)
    answer = bundled.generate(PROMPT, max_tokens=20, seed=5)
    assert answer.tokens == tuple(chunk.token for chunk in chunks)
    assert answer.text == "".join(chunk.text for chunk in chunks)
    assert answer.logprobs is None


def test_the_text_is_what_the_tokenizer_makes_of_the_tokens(bundled: LLM) -> None:
    answer = bundled.generate(
        PROMPT, max_tokens=30, seed=2, temperature=1.5, top_k=0, top_p=1, min_p=0, ignore_eos=True
    )
    assert bundled.tokenizer is not None
    assert answer.text == bundled.tokenizer.decode(answer.tokens, continues=True)


def test_timings_and_seed(bundled: LLM) -> None:
    timings = bundled.generate(PROMPT, max_tokens=8).timings
    assert bundled.tokenizer is not None
    assert timings.prompt_tokens == len(bundled.tokenizer.encode(PROMPT))
    assert (timings.generated_tokens, timings.reused_tokens) == (8, 0)
    assert timings.prompt_s > 0
    assert timings.tokens_per_s == pytest.approx(7 / timings.decode_s)
    first = bundled.generate(PROMPT, max_tokens=12)
    again = bundled.generate(PROMPT, max_tokens=12, seed=first.timings.seed)
    assert first.tokens == again.tokens


def test_the_token_that_ends_an_answer(bundled: LLM) -> None:
    chunks = list(bundled.stream_chat(QUESTION, temperature=0))
    assert chunks[-1].token in bundled.stop_tokens
    assert (chunks[-1].text, chunks[-1].finish_reason) == ("", "stop")
    longer = bundled.chat(QUESTION, temperature=0, ignore_eos=True, max_tokens=len(chunks) + 5)
    assert len(longer.tokens) == len(chunks) + 5
    assert longer.finish_reason == "length"
    assert longer.tokens[: len(chunks)] == tuple(chunk.token for chunk in chunks)


def test_a_stop_string_ends_the_text_before_it(bundled: LLM) -> None:
    whole = bundled.generate(PROMPT, max_tokens=40, temperature=0).text
    stop = whole[30:36]
    chunks = list(bundled.stream(PROMPT, max_tokens=40, temperature=0, stop=["never this", stop]))
    assert "".join(chunk.text for chunk in chunks) == whole[: whole.index(stop)]
    assert chunks[-1].finish_reason == "stop"
    assert len(chunks) < 40
    held = bundled.generate(
        PROMPT, max_tokens=5, temperature=0, stop=bundled.generate(PROMPT, max_tokens=6, temperature=0).text
    )
    assert (held.text, held.finish_reason) == (bundled.generate(PROMPT, max_tokens=5, temperature=0).text, "length")


def test_log_probabilities_are_those_of_the_logits(bundled: LLM) -> None:
    answer = bundled.generate([5, 6, 7], max_tokens=4, seed=1, logprobs=3)
    assert answer.logprobs is not None
    logits = bundled.logits([5, 6, 7, *answer.tokens]).astype(np.float64)
    for i, entry in enumerate(answer.logprobs):
        row = logits[2 + i]
        scores = row - row.max() - np.log(np.exp(row - row.max()).sum())
        assert entry.token == answer.tokens[i]
        assert entry.logprob == pytest.approx(scores[entry.token], abs=1e-4)
        best = np.argsort(-scores, kind="stable")[:3]
        assert [token for token, _ in entry.top_logprobs] == best.tolist()


def test_a_batch_gives_what_each_prompt_gives_alone(bundled: LLM) -> None:
    prompts = [PROMPT, "Hello", "The cat", "One two three four five six seven"]
    together = bundled.generate(prompts, max_tokens=16, seed=9, logprobs=0)
    assert len(together) == 4
    for prompt, answer in zip(prompts, together, strict=True):
        alone = bundled.generate(prompt, max_tokens=16, seed=9, logprobs=0)
        assert (alone.tokens, alone.text, alone.logprobs) == (answer.tokens, answer.text, answer.logprobs)


@pytest.mark.parametrize("batch_tokens", [1, 7, 512])
def test_logits_do_not_depend_on_the_steps(tiny: LLM, tiny_folder: Path, batch_tokens: int) -> None:
    ids = [(5 * i * i + i) % 47 for i in range(40)]
    expected = tiny.logits(ids)
    assert expected.shape == (40, VOCAB)
    assert expected.dtype == np.float32
    with edgert.load(tiny_folder, threads=2, batch_tokens=batch_tokens) as llm:
        assert (llm.logits(ids) == expected).all()
        assert (llm.logits(np.array(ids[:9])) == expected[:9]).all()
        tokens = [c.token for c in llm.stream(ids, max_tokens=12, seed=4, ignore_eos=True)]
    assert tokens == [c.token for c in tiny.stream(ids, max_tokens=12, seed=4, ignore_eos=True)]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "found no tokens"),
        ("", "found no tokens"),
        ([-1], "found token id -1, expected ids from 0 to 4095"),
        ([4096], "found token id 4096"),
        ([2**40], "found token id"),
        ([1.5], "expected a text, a list of token ids"),
        (np.zeros((2, 2), dtype=np.float32), "expected a text"),
    ],
)
def test_a_prompt_that_is_none_is_refused(bundled: LLM, prompt: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bundled.stream(prompt)


def test_a_prompt_longer_than_the_context_is_refused(tiny_folder: Path) -> None:
    with edgert.load(tiny_folder, threads=1, context=16) as llm:
        assert llm.context == 16
        with pytest.raises(ContextLengthError, match="found 17 tokens, expected at most 15"):
            llm.generate(list(range(2, 19)))
        with pytest.raises(ContextLengthError, match="found 17 tokens, expected at most 16"):
            llm.logits(list(range(2, 19)))
        assert llm.logits(list(range(2, 18))).shape == (16, VOCAB)
        full = llm.generate(list(range(2, 12)), max_tokens=None, ignore_eos=True)
        assert (len(full.tokens), full.finish_reason) == (6, "length")
        assert llm.kv_bytes == 0


def test_a_model_without_tokenizer_takes_token_ids(tiny: LLM) -> None:
    assert tiny.tokenizer is None
    assert len(tiny.generate([2, 3], max_tokens=3, ignore_eos=True).tokens) == 3
    assert tiny.generate([2, 3], max_tokens=3).text == ""
    for call in (lambda: tiny.generate("text"), lambda: tiny.chat(QUESTION), lambda: tiny.stream([2], stop="x")):
        with pytest.raises(TokenizerError, match="give token ids"):
            call()


def test_logits_that_are_not_finite_fail_their_request_alone(poisoned_folder: Path) -> None:
    with edgert.load(poisoned_folder, threads=1) as llm:

        def stream(ids: list[int]) -> ChunkStream:
            return llm.stream(ids, max_tokens=20, seed=1, ignore_eos=True, logit_bias={POISON: -np.inf})

        expected = [chunk.token for chunk in stream([2, 3])]
        good = stream([2, 3])
        tokens = [next(good).token]
        bad = stream([4, POISON, 5])
        with pytest.raises(NumericError, match="logits after 3 tokens"):
            list(bad)
        assert tokens + [chunk.token for chunk in good] == expected
        assert list(bad) == []
        assert llm.kv_bytes == 0


def test_a_second_turn_reuses_the_first_with_the_same_bits(bundled: LLM) -> None:
    first = bundled.chat(QUESTION, seed=3, logprobs=2)
    turns = [*QUESTION, {"role": "assistant", "content": first.text}, {"role": "user", "content": "What is your name?"}]
    reused = bundled.chat(turns, seed=3, logprobs=2)
    assert reused.timings.reused_tokens > first.timings.prompt_tokens
    bundled.clear_cache()
    assert bundled.kv_bytes == 0
    fresh = bundled.chat(turns, seed=3, logprobs=2)
    assert fresh.timings.reused_tokens == 0
    assert (fresh.tokens, fresh.text, fresh.logprobs) == (reused.tokens, reused.text, reused.logprobs)
    other = bundled.chat([*turns[:2], {"role": "user", "content": "Tell me a story."}], seed=3)
    assert other.timings.reused_tokens > 0


def test_the_loaded_model_says_what_it_is(bundled: LLM) -> None:
    assert bundled.architecture == "llama"
    assert (bundled.vocab_size, bundled.model_context, bundled.threads) == (4096, 1024, 2)
    assert bundled.token_bytes <= bundled.weight_bytes < 5_000_000
    assert bundled.stop_tokens == {0, 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads: found 0"),
        ({"context": -1}, "context: found -1"),
        ({"batch_tokens": 0}, "batch_tokens: found 0"),
        ({"kv_format": "q4"}, "kv_format: found 'q4', expected one of: f32, f16, q8_0"),
        ({"cache_prompts": -1}, "cache_prompts: found -1"),
    ],
)
def test_load_refuses_what_is_out_of_range(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        edgert.load(**options)


def test_a_context_beyond_the_memory_is_refused() -> None:
    with pytest.raises(OutOfMemoryError, match="context of 2000000000 tokens"):
        edgert.load(context=2_000_000_000)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(EdgertError, match=r"nowhere\.gguf"):
        edgert.load("nowhere.gguf")
