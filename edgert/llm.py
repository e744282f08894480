"""The public API: open a model, let it write."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np
from numpy.typing import NDArray

from edgert.chat import ChatTemplate, encode_chat, load_chat_template
from edgert.engine.cost import expert_bytes, token_bytes
from edgert.engine.memory_plan import MemoryPlan
from edgert.engine.neuron_frequency import counted_matrices
from edgert.engine.opening import LoadOptions, OpenModel, Progress, open_engine
from edgert.engine.outlook import streaming_advice
from edgert.engine.output import Completion, Timings, complete
from edgert.engine.params import SamplingOptions, SamplingParams, sampling_params
from edgert.engine.profile import StepProfile
from edgert.engine.prompts import Prompt, as_batch, check_prompt_length, prompt_tokens, require_tokenizer
from edgert.engine.sequence import MAX_UNREAD_CHUNKS, Generation, Scoring
from edgert.engine.stream import ChunkStream
from edgert.engine.trace import write_trace
from edgert.errors import UnsupportedModelError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from edgert.offload.expert_trace import RoutedLayer
    from edgert.tokenizer import Tokenizer

DEFAULT_MODEL = Path(__file__).parent / "assets" / "default"
Message = Mapping[str, Any]


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    threads: int | None = None,
    context: int | None = None,
    batch_tokens: int | None = None,
    kv_format: Literal["f16", "f32", "q8_0"] = "f16",
    cache_prompts: int = 4,
    bits: int | None = None,
    miss_bits: int | None = None,
    active_experts: int | None = None,
    min_expert_weight: float | None = None,
    cache: bool = False,
    ram: int | str | None = None,
    kv_ram: int | str | None = None,
    disk_limit: int | str | None = None,
    progress: Progress | None = None,
) -> LLM:
    """Opens a model: a GGUF file, a Hugging Face folder, a folder of ours; None: the small one that comes along.

    threads: default one for each physical core. context: most tokens of prompt and answer together; default the
    smaller of the model's and what fits the free memory. batch_tokens: most tokens of a step (default 512). Neither
    threads nor batch_tokens change an answer. kv_format: how keys and values are kept; "f32" keeps them as they are,
    "f16" halves them, "q8_0" takes 8.5 bits for each and loses a little (docs/quality.md). cache_prompts: conversations
    whose keys and values are kept for their next turn. bits: each weight of a folder in c4, c3 or p3 to p7 is read at
    so many bits, which is smaller, faster and lossy. miss_bits: under `ram`, an expert (c4, c3, p3 to p7) that is not
    in memory when it is needed is computed at so many bits: lossy, and what comes out depends on how fast the disk is.
    active_experts, min_expert_weight: of a mixture of experts each token uses at most so many, and of these none, but
    for the likeliest, with a smaller share of their weight; both are lossy. cache: keep a GGUF model's weights as they
    lie in memory in MODEL.edgert beside it, and read that the next time. ram: bytes, a size such as "3GiB", or "auto":
    the most memory that the process takes in all; what does not fit is read from disk while the model runs, with the
    same answers. Default: no budget, or "auto" where the model is larger than the free memory. kv_ram: the most of it
    for keys and values; those of a longer context lie in a temporary file. Default: all in memory; under `ram`, where
    those of `context` do not fit, an eighth of it. disk_limit: bytes a second, or a rate such as "500MB/s", that it
    then reads at most. progress(done_bytes, total_bytes): while weights are read.

    Raises ModelNotFoundError, FileFormatError, UnsupportedModelError, UnsupportedFormatError, ConfigError,
    TokenizerError, OutOfMemoryError, DeviceError, ConvertError (the cache cannot be written) or UsageError, all of them
    EdgertError.

    >>> with edgert.load() as llm:
    ...     print(llm.generate("Once upon a time", max_tokens=32).text)
    """
    options = LoadOptions(
        threads=threads,
        context=context,
        batch_tokens=batch_tokens,
        kv_format=kv_format,
        cache_prompts=cache_prompts,
        bits=bits,
        miss_bits=miss_bits,
        active_experts=active_experts,
        min_expert_weight=min_expert_weight,
        cache=cache,
        ram=ram,
        kv_ram=kv_ram,
        disk_limit=disk_limit,
    )
    return load_with(path, options, progress)


def load_with(path: str | os.PathLike[str] | None, options: LoadOptions, progress: Progress | None = None) -> LLM:
    """As `load`, with its options in one value."""
    started_s = time.perf_counter()
    opened = open_engine(DEFAULT_MODEL if path is None else Path(path), options, progress)
    return LLM(opened, load_s=time.perf_counter() - started_s)


class LLM:
    """An open model; made by `load`. Several threads may use one. `close` or a `with` block gives its memory back.

    `**sampling` takes the keywords of SamplingParams: max_tokens, temperature (0 is greedy), top_k, top_p, min_p,
    typical_p, repetition_penalty, presence_penalty, frequency_penalty, penalty_last_n, logit_bias, seed, stop,
    ignore_eos, logprobs.
    """

    def __init__(self, opened: OpenModel, *, load_s: float) -> None:
        self._opened = opened
        self._engine = opened.engine
        self.load_s = load_s

    @property
    def path(self) -> Path:
        """Where the model lies."""
        return self._opened.model.checkpoint.path

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None where the model has none: then only token ids work."""
        return self._opened.tokenizer

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template; a plain one (is_plain) where it has none."""
        return load_chat_template(self._opened.model.checkpoint, self.tokenizer)

    @property
    def config(self) -> dict[str, Any]:
        """The model's config.json (rebuilt for a GGUF file)."""
        return self._opened.model.config

    @property
    def generation_config(self) -> dict[str, Any]:
        """The model's generation_config.json; empty where there is none."""
        return self._opened.model.checkpoint.generation_config

    @property
    def architecture(self) -> str:
        """config.json's model_type."""
        return self._opened.model.model_type

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._opened.context

    @property
    def model_context(self) -> int:
        """Tokens that the model was made for."""
        return self._opened.model.context_length

    @property
    def vocab_size(self) -> int:
        """Number of token ids, the width of the logits."""
        return self._opened.vocab_size

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Ids that end an answer."""
        return self._opened.stop_tokens

    @property
    def threads(self) -> int:
        """Threads that compute."""
        return self._opened.threads

    @property
    def isa(self) -> str:
        """Instruction set level of the kernels."""
        return self._opened.isa

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in memory."""
        return self._opened.weight_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes of the weights in the model's files, as they are read."""
        return self._opened.model.num_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes of memory that were free before the weights were read."""
        return self._opened.free_bytes

    @property
    def lossy(self) -> dict[str, Any]:
        """What was asked for that changes answers to save memory or time, such as {"bits": 3}."""
        return self._opened.lossy

    @property
    def memory(self) -> MemoryPlan | None:
        """How the budget of `ram` is spent; None without one."""
        return self._opened.memory

    @property
    def token_bytes(self) -> int:
        """Bytes of weights that decoding one token reads."""
        return token_bytes(self._opened.model)

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values in memory now, kept conversations included."""
        return self._engine.kv_bytes

    @overload
    def generate(self, prompt: Prompt, **sampling: Unpack[SamplingOptions]) -> Completion: ...
    @overload
    def generate(
        self, prompt: list[str] | list[list[int]], **sampling: Unpack[SamplingOptions]
    ) -> list[Completion]: ...
    def generate(
        self, prompt: Prompt | list[str] | list[list[int]], **sampling: Unpack[SamplingOptions]
    ) -> Completion | list[Completion]:
        """Continues a text or a list of token ids; a list of prompts runs as a batch, with the answers that each
        would have alone.

        Raises UsageError, ContextLengthError (the prompt does not fit), TokenizerError (a text without a tokenizer),
        NumericError, OutOfMemoryError.
        """
        params = sampling_params("generate", sampling)
        prompts = as_batch(prompt)
        if prompts is None:
            return self._complete([self._prompt(cast(Prompt, prompt))], params)[0]
        return self._complete([self._prompt(one) for one in prompts], params)

    def stream(self, prompt: Prompt, **sampling: Unpack[SamplingOptions]) -> ChunkStream:
        """As `generate`, token by token: an iterator of one chunk for each generated token.

        Closing it, or dropping it, ends the generation and frees its pages. Raises as `generate`, at once for what
        is wrong with the arguments.
        """
        return self._stream(self._prompt(prompt), sampling_params("stream", sampling), is_chat=False)

    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> Completion:
        """The model's answer to a conversation: messages with "role" and "content", as in the OpenAI interface.

        tools: JSON schemas of functions. chat_template_kwargs: what else the chat template knows, such as
        {"enable_thinking": False}. Keys and values of the longest known beginning of the conversation are reused.
        Raises as `generate`, and ChatTemplateError where the model's chat template is broken or refuses the messages.
        """
        params = self._chat_params(sampling_params("chat", sampling))
        return self._complete([self._chat_prompt(messages, tools, chat_template_kwargs)], params, is_chat=True)[0]

    def stream_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> ChunkStream:
        """As `chat`, token by token, as `stream`."""
        params = self._chat_params(sampling_params("stream_chat", sampling))
        return self._stream(self._chat_prompt(messages, tools, chat_template_kwargs), params, is_chat=True)

    def logits(self, token_ids: Prompt) -> NDArray[np.float32]:
        """float32 logits (len, vocab): row i scores the token that follows token_ids[: i + 1]."""
        tokens = self._prompt(token_ids)
        check_prompt_length(len(tokens), self.context, room=0)
        scoring = Scoring(tokens, self.vocab_size)
        self._engine.submit(scoring)
        try:
            self._engine.wait_scores(scoring)
        finally:
            self._engine.cancel(scoring)
        return scoring.scores

    def clear_cache(self) -> None:
        """Frees the keys and values of kept conversations."""
        self._engine.clear_cache()

    def advice(self, timings: Timings) -> str | None:
        """One sentence where an answer mostly waited for the disk: which other budget or width would be faster."""
        if self.memory is None:
            return None
        return streaming_advice(
            self._opened.model, self.memory, timings, threads=self.threads, kv_format=self._opened.kv_format
        )

    def start_profile(self) -> None:
        """From now on every step of the model is timed, until `stop_profile`."""
        self._engine.start_profile()

    def stop_profile(self) -> StepProfile:
        """Where the time of a step went since `start_profile`, on average: by kind of step and role of weight."""
        return self._engine.stop_profile()

    def start_trace(self) -> None:
        """From now on it is kept when each step, read and wait begins and ends, until `write_trace`.

        It takes 24 bytes a step of the plan and 40 a read, beyond a budget; at most 1,000,000 of each are kept.
        """
        self._engine.start_trace()

    def write_trace(self, file: IO[str]) -> None:
        """Writes what happened since `start_trace` as a Chrome trace (JSON), and ends the trace."""
        write_trace(file, self._engine.stop_trace())

    @property
    def expert_bytes(self) -> NDArray[np.int64]:
        """Bytes of each routed expert in the file, (mixture-of-experts layers, experts); (0, 0): none."""
        return expert_bytes(self._opened.model)

    def start_routing_trace(self) -> None:
        """From now on what the routers of a mixture-of-experts model choose is kept, until `stop_routing_trace`."""
        self._engine.start_routing_trace()

    def stop_routing_trace(self) -> list[RoutedLayer]:
        """For each mixture-of-experts layer (experts, weights, gate_logits or None), a row for each token that ran.

        experts: int16 (tokens, top_k), ascending; weights: float32 (tokens, top_k); gate_logits: float32 (tokens,
        num_experts), the layer's router on the input of the layer before it. The last layer's rows are only the tokens
        whose logits were asked for: all of them with `logits`.
        """
        return self._engine.stop_routing_trace()

    def start_neuron_counts(self) -> None:
        """From now on it is counted how many tokens activate each neuron, until `stop_neuron_counts`.

        Raises UnsupportedModelError where no matrix lies neuron by neuron.
        """
        if not counted_matrices(self._opened.model):
            raise UnsupportedModelError(
                f"{self.path}: found no matrix that lies neuron by neuron, expected a folder that edgert convert made "
                "of a model with squared ReLU (arcee)"
            )
        self._engine.start_neuron_counts()

    def stop_neuron_counts(self) -> dict[str, tuple[int, NDArray[np.uint32]]]:
        """By matrix that lies neuron by neuron: the tokens that it was multiplied with, and uint32 (neurons,).

        How many of these activated each neuron. The last layer sees only the tokens whose logits were asked for: all
        of them with `logits`.
        """
        return self._engine.stop_neuron_counts()

    def close(self) -> None:
        """Ends what runs and gives the memory back; the object cannot be used afterwards."""
        self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _prompt(self, prompt: Prompt) -> NDArray[np.int32]:
        return prompt_tokens(prompt, self.tokenizer, vocab_size=self.vocab_size)

    def _generation(
        self, tokens: NDArray[np.int32], params: SamplingParams, *, is_chat: bool, max_unread_chunks: int | None
    ) -> Generation:
        check_prompt_length(len(tokens), self.context, room=1)
        params.check_vocabulary(self.vocab_size)
        if params.stop_strings():
            require_tokenizer(self.tokenizer)
        return Generation(
            tokens,
            params,
            isa=self.isa,
            context=self.context,
            stop_tokens=self.stop_tokens,
            # An answer begins a text of its own; what continues a prompt keeps the space in front.
            decoder=self.tokenizer.detokenizer(continues=not is_chat) if self.tokenizer else None,
            load_s=self.load_s,
            meter=self._opened.meter,
            kv_counters=self._engine.kv_counters,
            max_unread_chunks=max_unread_chunks,
            keeps_prefix=is_chat,
        )

    def _stream(self, tokens: NDArray[np.int32], params: SamplingParams, *, is_chat: bool) -> ChunkStream:
        generation = self._generation(tokens, params, is_chat=is_chat, max_unread_chunks=MAX_UNREAD_CHUNKS)
        return ChunkStream(self._engine, generation)

    def _complete(
        self, prompts: list[NDArray[np.int32]], params: SamplingParams, *, is_chat: bool = False
    ) -> list[Completion]:
        generations = [self._generation(p, params, is_chat=is_chat, max_unread_chunks=None) for p in prompts]
        streams = [ChunkStream(self._engine, generation) for generation in generations]
        try:
            return [complete(list(stream), with_logprobs=params.logprobs is not None) for stream in streams]
        finally:
            for stream in streams:
                stream.close()

    def _chat_prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any] | None,
    ) -> NDArray[np.int32]:
        if variables is not None and not isinstance(variables, Mapping):
            found = type(variables).__name__
            raise UsageError(f"chat_template_kwargs: found {found}, expected a dictionary of names and values")
        tokenizer = require_tokenizer(self.tokenizer)
        ids = encode_chat(tokenizer, self.chat_template, messages, tools=tools, variables=variables)
        return prompt_tokens(ids, None, vocab_size=self.vocab_size)

    def _chat_params(self, params: SamplingParams) -> SamplingParams:
        """A plain template has no end token of its own: its stop texts end the answer."""
        return replace(params, stop=(*params.stop_strings(), *self.chat_template.stop_texts))
