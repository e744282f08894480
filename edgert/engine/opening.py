"""From a path to an engine that runs: reads the weights, plans the KV cache, makes the runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgert import _core, tokenizer
from edgert.device.isa import select_isa
from edgert.device.kernels import (
    TIMING_BUDGET_S,
    KernelChoice,
    add_choices,
    cache_file,
    read_choices,
    select_kernel,
)
from edgert.device.memory import available_bytes
from edgert.device.threads import default_threads
from edgert.engine.engine import Engine
from edgert.engine.kv_plan import KV_FORMATS, page_bytes, plan_kv
from edgert.engine.packed_cache import check_cache, is_packed_at_load, open_cache, write_cache
from edgert.engine.params import check_integer
from edgert.errors import ConfigError, OutOfMemoryError, UsageError
from edgert.loader import Model, finish_loading, open_model, start_loading

Progress = Callable[[int, int], None]
DEFAULT_BATCH_TOKENS = 512
# More would only ask for gigabytes of activations, or threads that no machine has.
MAX_BATCH_TOKENS = 1 << 16
MAX_THREADS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What a caller of `load` may choose; None takes the default. Raises UsageError where a value is out of range."""

    threads: int | None = None
    context: int | None = None
    batch_tokens: int | None = None
    kv_format: str = "f16"
    cache_prompts: int = 4
    cache: bool = False

    def __post_init__(self) -> None:
        for name, value, high in (
            ("threads", self.threads, MAX_THREADS),
            ("context", self.context, None),
            ("batch_tokens", self.batch_tokens, MAX_BATCH_TOKENS),
        ):
            if value is not None:
                check_integer(name, value, 1, high)
        check_integer("cache_prompts", self.cache_prompts, 0)
        if self.kv_format not in KV_FORMATS:
            raise UsageError(f"kv_format: found {self.kv_format!r}, expected one of: {', '.join(KV_FORMATS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModel:
    """A model with its weights in memory, and the engine that runs it. context: tokens that a sequence may have."""

    model: Model
    tokenizer: tokenizer.Tokenizer | None
    stop_tokens: frozenset[int]
    engine: Engine
    isa: str
    threads: int
    context: int
    kv_format: str
    weight_bytes: int
    activation_bytes: int
    vocab_size: int


def open_engine(path: Path, options: LoadOptions, progress: Progress | None) -> OpenModel:
    """Opens the model and reads its weights; progress(done_bytes, total_bytes)."""
    isa = select_isa()
    kernel = select_kernel(isa)
    threads = options.threads or default_threads()
    model = open_model(path)
    store = _core.WeightStore()
    keeps_weights = options.cache and is_packed_at_load(model)
    cached = open_cache(model) if keeps_weights else None
    if keeps_weights and cached is None:
        check_cache(model)
    weights = cached or model
    start_loading(weights, store, threads=threads)
    text = tokenizer.load(model.checkpoint)  # while the weights are read
    finish_loading(weights, store, progress)
    if keeps_weights and cached is None:
        write_cache(model, store)
    # Counted after the weights are in memory: what is left is for keys and values.
    plan = plan_kv(
        model_context=model.context_length,
        asked_context=options.context,
        page_bytes=page_bytes(model.graph, options.kv_format),
        available_bytes=available_bytes(),
    )
    batch_tokens = min(options.batch_tokens or DEFAULT_BATCH_TOKENS, plan.context)
    choices_file = cache_file()
    known = [choice for choice in read_choices(choices_file) if (choice.isa, choice.threads) == (isa, threads)]
    try:
        runtime = _core.Runtime(
            model.graph.compile_args(),
            store,
            isa=isa,
            threads=threads,
            batch_tokens=batch_tokens,
            context=plan.context,
            kv_format=options.kv_format,
            kv_budget_bytes=plan.budget_bytes,
            kernel=kernel,
            known_kernels=[choice.as_known() for choice in known],
            timing_budget_s=TIMING_BUDGET_S,
        )
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{path}: steps of {batch_tokens} tokens found no memory for their activations; load it with a smaller "
            "batch_tokens"
        ) from error
    except _core.CoreError as error:
        raise ConfigError(f"{path}: the model cannot be run: {error}") from error
    if timed := [KernelChoice.from_core(isa, threads, *pick) for pick in runtime.kernels if pick[1]]:
        add_choices(choices_file, timed)
    return OpenModel(
        model=model,
        tokenizer=text,
        stop_tokens=frozenset(model.stop_tokens) | (text.stop_ids if text else frozenset()),
        engine=Engine(runtime, batch_tokens=batch_tokens, cache_prompts=options.cache_prompts),
        isa=isa,
        threads=threads,
        context=plan.context,
        kv_format=options.kv_format,
        weight_bytes=store.resident_bytes,
        activation_bytes=runtime.activation_bytes,
        vocab_size=runtime.vocab_size,
    )
