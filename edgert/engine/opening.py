"""From a path to an engine that runs: reads the weights, plans the KV cache, makes the runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
from edgert.device.memory import (
    available_bytes,
    cgroup_available_bytes,
    machine_available_bytes,
    resident_bytes,
    total_bytes,
)
from edgert.device.read_size import ReadSize, disks_file, read_size_for
from edgert.device.threads import default_threads
from edgert.engine.engine import Engine
from edgert.engine.kv_plan import KV_FORMATS, KVSpace, kv_space, page_bytes, plan_kv, spill_folder
from edgert.engine.memory_plan import MemoryPlan, plan_memory
from edgert.engine.neuron_frequency import load as load_frequency
from edgert.engine.offload_items import top_k
from edgert.engine.packed_cache import check_cache, is_packed_at_load, open_cache, write_cache
from edgert.engine.params import check_integer, check_real
from edgert.engine.streaming import StreamMeter, stream_meter
from edgert.errors import ConfigError, DeviceError, OutOfMemoryError, UsageError
from edgert.loader import Model, finish_loading, open_model, start_loading
from edgert.loader.views import check_bits, check_miss_bits
from edgert.offload import Policy
from edgert.offload.memory_budget import auto_budget
from edgert.offload.sizes import parse_bytes, parse_rate
from edgert.quant.layout import STRIP_ROWS

Progress = Callable[[int, int], None]
DEFAULT_BATCH_TOKENS = 512
# More would only ask for gigabytes of activations, or threads that no machine has.
MAX_BATCH_TOKENS = 1 << 16
MAX_THREADS = 1024
LOSSY_OPTIONS = ("bits", "miss_bits", "active_experts", "min_expert_weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What a caller of `load` may choose; None takes the default. Raises UsageError where a value is out of range."""

    threads: int | None = None
    context: int | None = None
    batch_tokens: int | None = None
    kv_format: str = "f16"
    cache_prompts: int = 4
    bits: int | None = None
    miss_bits: int | None = None
    active_experts: int | None = None
    min_expert_weight: float | None = None
    cache: bool = False
    ram: int | str | None = None
    disk_limit: int | str | None = None
    kv_ram: int | str | None = None
    lock_policy: Policy = "balanced"  # other ones are there to be measured

    def __post_init__(self) -> None:
        for name, value, high in (
            ("threads", self.threads, MAX_THREADS),
            ("context", self.context, None),
            ("batch_tokens", self.batch_tokens, MAX_BATCH_TOKENS),
            ("active_experts", self.active_experts, None),
        ):
            if value is not None:
                check_integer(name, value, 1, high)
        check_integer("cache_prompts", self.cache_prompts, 0)
        if self.bits is not None:
            check_bits(self.bits)
        if self.miss_bits is not None:
            check_bits(self.miss_bits, "miss_bits")
        if self.min_expert_weight is not None:
            check_real("min_expert_weight", self.min_expert_weight, 0.0, 1.0)
        if self.kv_format not in KV_FORMATS:
            raise UsageError(f"kv_format: found {self.kv_format!r}, expected one of: {', '.join(KV_FORMATS)}")
        self.ram_bytes()
        self.disk_limit_bytes_per_s()
        self.kv_ram_bytes()

    def lossy(self) -> dict[str, Any]:
        """What was chosen that makes a model another one than its file holds, by name."""
        given = {name: getattr(self, name) for name in LOSSY_OPTIONS}
        return {name: value for name, value in given.items() if value is not None}

    def ram_bytes(self) -> int | None:
        """The budget; 0: as much as the machine can spare; None: no budget."""
        if self.ram is None or isinstance(self.ram, int):
            return None if self.ram is None else check_integer("ram", self.ram, 1)
        return 0 if self.ram.strip().lower() == "auto" else parse_bytes(self.ram, "ram")

    def kv_ram_bytes(self) -> int | None:
        """Most bytes of keys and values in memory; None: all of them, or as a budget is divided."""
        if self.kv_ram is None or isinstance(self.kv_ram, int):
            return None if self.kv_ram is None else check_integer("kv_ram", self.kv_ram, 1)
        return parse_bytes(self.kv_ram, "kv_ram", expected="a size such as 1GiB")

    def disk_limit_bytes_per_s(self) -> int:
        """0: no limit."""
        if self.disk_limit is None or isinstance(self.disk_limit, int):
            return 0 if self.disk_limit is None else check_integer("disk_limit", self.disk_limit, 1)
        return parse_rate(self.disk_limit, "disk_limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModel:
    """A model that is ready, and the engine that runs it.

    context: tokens that a sequence may have. lossy: see LoadOptions. memory: how a budget is spent; None without one.
    free_bytes: of memory, before the weights were read. meter: of what is streamed; None where nothing is.
    """

    model: Model
    tokenizer: tokenizer.Tokenizer | None
    stop_tokens: frozenset[int]
    engine: Engine
    isa: str
    threads: int
    context: int
    kv_format: str
    lossy: dict[str, Any]
    kv: KVSpace
    weight_bytes: int
    activation_bytes: int
    vocab_size: int
    memory: MemoryPlan | None
    free_bytes: int
    meter: StreamMeter | None


def open_engine(path: Path, options: LoadOptions, progress: Progress | None) -> OpenModel:
    """Opens the model and reads its weights; progress(done_bytes, total_bytes)."""
    isa = select_isa()
    kernel = select_kernel(isa)
    threads = options.threads or default_threads()
    model = open_model(
        path,
        bits=options.bits,
        active_experts=options.active_experts,
        min_expert_weight=options.min_expert_weight,
    )
    if options.miss_bits is not None:
        check_miss_bits(path, model.graph, model.weights, options.miss_bits)
    store = _core.WeightStore()
    keeps_weights = options.cache and is_packed_at_load(model)
    cached = open_cache(model) if keeps_weights else None
    if keeps_weights and cached is None:
        check_cache(model)
    weights = model if cached is None else replace(cached, graph=model.graph)
    free_bytes = available_bytes()
    total_budget = budget_bytes(weights, options, free_bytes)
    if total_budget is None:
        start_loading(weights, store, threads=threads)
        text = tokenizer.load(model.checkpoint)  # while the weights are read
        memory = None
    else:
        text = tokenizer.load(model.checkpoint)  # first: what it takes is part of the budget
        _core.give_back_freed()
        memory = plan_memory(
            weights,
            total_budget,
            base_bytes=resident_bytes(),
            threads=threads,
            context=options.context,
            batch_tokens=options.batch_tokens,
            kv_format=options.kv_format,
            kv_ram=options.kv_ram_bytes(),
            lock_policy=options.lock_policy,
        )
        if keeps_weights and cached is None and not memory.placement.fits:
            raise UsageError(
                f"--cache: found a budget that {path} does not fit, expected all its weights in memory to keep them as "
                "they lie there; make the cache without --ram first"
            )
        read_size = read_size_for(disks_file(), weights.largest_file)
        start_loading(
            weights,
            store,
            threads=threads,
            set_stream=_stream(model, memory, options, read_size),
            direct_reads=read_size,
        )
    finish_loading(weights, store, progress)
    if keeps_weights and cached is None:
        write_cache(model, store)
    if memory is None:
        context, kv = _plan_kv(model, options)
        round_tokens = batch_tokens = min(options.batch_tokens or DEFAULT_BATCH_TOKENS, context)
    else:
        context, kv = memory.context, memory.kv
        round_tokens = memory.round_tokens
        batch_tokens = round_tokens if memory.placement.fits else memory.step_tokens
    choices_file = cache_file()
    known = [choice for choice in read_choices(choices_file) if (choice.isa, choice.threads) == (isa, threads)]
    try:
        runtime = _core.Runtime(
            model.graph.compile_args(),
            store,
            isa=isa,
            threads=threads,
            batch_tokens=batch_tokens,
            round_tokens=round_tokens,
            context=context,
            kv_format=options.kv_format,
            kv_budget_bytes=kv.pages_bytes,
            kv_spill=kv.spill(limit_bytes_per_s=options.disk_limit_bytes_per_s()),
            kernel=kernel,
            known_kernels=[choice.as_known() for choice in known],
            timing_budget_s=TIMING_BUDGET_S,
        )
    except OSError as error:
        if not kv.disk_bytes:
            raise DeviceError(
                f"{path}: the model cannot be run with {threads} threads: {error.strerror}; ask for fewer"
            ) from error
        raise DeviceError(
            f"--kv-ram: {error.strerror}: found no file for keys and values in {spill_folder()}, expected a folder "
            "with room; name another one with TMPDIR"
        ) from error
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{path}: steps of {batch_tokens} tokens found no memory for their activations; load it with a smaller "
            "batch_tokens"
        ) from error
    except _core.CoreError as error:
        raise ConfigError(f"{path}: the model cannot be run: {error}") from error
    if timed := [KernelChoice.from_core(isa, threads, *pick) for pick in runtime.kernels if pick[1]]:
        add_choices(choices_file, timed)
    engine = Engine(
        runtime,
        batch_tokens=runtime.batch_tokens,
        cache_prompts=options.cache_prompts,
        is_streamed=memory is not None and not memory.placement.fits,
        logit_rows=memory.logit_rows if memory is not None else 0,
    )
    return OpenModel(
        model=model,
        tokenizer=text,
        stop_tokens=frozenset(model.stop_tokens) | (text.stop_ids if text else frozenset()),
        engine=engine,
        isa=isa,
        threads=threads,
        context=context,
        kv_format=options.kv_format,
        lossy=options.lossy(),
        kv=kv,
        weight_bytes=store.resident_bytes,
        memory=memory,
        free_bytes=free_bytes,
        meter=stream_meter(model, memory.placement, engine.stream_counters, threads=threads) if memory else None,
        activation_bytes=runtime.activation_bytes,
        vocab_size=runtime.vocab_size,
    )


def budget_bytes(model: Model, options: LoadOptions, free_bytes: int) -> int | None:
    """What was asked for; without it none, as long as the model fits."""
    asked = options.ram_bytes()
    if asked:
        return asked
    if asked is None and model.num_bytes < free_bytes:
        return None
    return auto_budget(total_bytes(), machine_available_bytes(), cgroup_available_bytes())


def _plan_kv(model: Model, options: LoadOptions) -> tuple[int, KVSpace]:
    """Context and its keys and values without a budget for everything. Called after the weights are in memory: what is
    left is for these."""
    kv_ram, free_bytes = options.kv_ram_bytes(), available_bytes()
    plan = plan_kv(
        model_context=model.context_length,
        asked_context=options.context if kv_ram is None else None,
        page_bytes=page_bytes(model.graph, options.kv_format),
        available_bytes=free_bytes,
    )
    if kv_ram is None:
        return plan.context, KVSpace(memory_bytes=plan.budget_bytes)
    context = options.context or plan.context
    return context, kv_space(model.graph, options.kv_format, context, min(kv_ram, plan.budget_bytes))


def _stream(
    model: Model, memory: MemoryPlan, options: LoadOptions, read_size: ReadSize
) -> Callable[[_core.WeightStore], None] | None:
    """Tells the store what the placement says; None where everything fits."""
    placement = memory.placement
    if placement.fits:
        return None
    cuts: dict[str, list[int]] = {}
    places: list[tuple[int, int]] = []
    for piece in placement.pieces:
        first_strips = cuts.setdefault(piece.weight, [])
        places.append((len(cuts) - 1, len(first_strips)))
        first_strips.append(piece.first_row // STRIP_ROWS)
    frequency = load_frequency(model) if placement.neurons else {}
    mixtures = [node for node in model.graph.nodes if node.op == "moe"] if placement.expert_cache_bytes else []

    def set_stream(store: _core.WeightStore) -> None:
        store.set_stream(
            cuts=list(cuts.items()),
            lock_order=[places[index] for index in placement.lock_order],
            lookups=list(placement.lookups),
            # Until activations, keys and values need their share, it holds weights.
            pool_bytes=placement.pool_bytes + (memory.lent_bytes if placement.pieces else 0),
            lent_bytes=memory.lent_bytes,
            ring_bytes=placement.ring_bytes,
            experts=[list(node.weights) for node in mixtures],
            top_k=top_k(model.graph),
            expert_bytes=placement.expert_cache_bytes + (0 if placement.pieces else memory.lent_bytes),
            miss_bits=options.miss_bits or 0,
            neurons=list(placement.neurons),
            neuron_bytes=placement.neuron_cache_bytes,
            neuron_frequency=[frequency[name] for name in placement.neurons] if frequency else [],
            chunk_bytes=read_size.chunk_bytes,
            depth=read_size.depth,
            limit_bytes_per_s=options.disk_limit_bytes_per_s(),
        )

    return set_stream
