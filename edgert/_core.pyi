"""
The C++ core of edgert.
"""
from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
__all__: list[str] = ['CapacityError', 'CoreError', 'DEFAULT_CHUNK_BYTES', 'DEFAULT_DEPTH', 'DEFAULT_POLICY', 'DEFAULT_PREDICTOR', 'DIRECT_ALIGNMENT', 'ExpertCache', 'Faults', 'KVSpill', 'NonFiniteError', 'Reader', 'Runtime', 'SampleResult', 'Sampler', 'Span', 'StoppedError', 'WeightStore', 'add', 'add_scaled', 'attention', 'best_isa', 'cpu_name', 'dequantize', 'fma_peak', 'format_names', 'gelu_mul', 'give_back_freed', 'isa_levels', 'judge_passes', 'kernel_names', 'kernels_in_use', 'kv_format_names', 'kv_page_bytes', 'linear', 'linear_neurons', 'log_sum_exp', 'maximum', 'pack', 'part_bytes', 'philox4x32_10', 'policy_names', 'predictor_names', 'quantize', 'read_bandwidth', 'read_rate', 'relu2', 'rms_norm', 'rope', 'rounded_kernel_names', 'scale', 'silu_mul', 'soft_cap', 'softmax', 'time_kernels', 'uniform']
class CoreError(RuntimeError):
    pass
class CapacityError(CoreError):
    pass
class NonFiniteError(CoreError):
    pass
class StoppedError(CoreError):
    pass
class Faults:
    """
    How a disk misbehaves, for tests.
    """
    def __init__(self, *, num_short: int = 0, short_bytes: int = 0, fail_at: int = -1, stall_at: int = -1, stall_s: float = 0.0, is_reversed: bool = False) -> None:
        ...
class Reader:
    """
    Reads ranges of files in the background; for tests.
    """
    def __init__(self, paths: collections.abc.Sequence[str], *, method: str = 'auto', depth: int = 8, chunk_bytes: int = 1048576, limit_bytes_per_s: int = 0, faults: Faults | None = None) -> None:
        ...
    def cancel(self, tag: int) -> None:
        ...
    def cancel_all(self) -> None:
        ...
    def close(self) -> None:
        ...
    def counters(self) -> tuple[int, int, float]:
        ...
    def set_priority(self, tag: int, priority: str) -> None:
        ...
    def start_trace(self) -> None:
        ...
    def stop_trace(self) -> list[tuple[int, float, float, int, int]]:
        """
        (tag, begin_s, end_s, num_bytes, priority) of each request to the system.
        """
    def submit(self, tag: int, *, file: int = 0, offset: int, length: int, priority: str = 'planned') -> None:
        ...
    def take(self, tag: int) -> bytes:
        """
        The bytes of a read that is complete.
        """
    def wait(self, num_ends: int, timeout_s: float) -> list[tuple[int, str, str]]:
        """
        (tag, outcome, error) of each read that has ended.
        """
    @property
    def is_idle(self) -> bool:
        ...
    @property
    def method(self) -> str:
        ...
class WeightStore:
    """
    Where the weights of a model are.
    """
    def __init__(self) -> None:
        ...
    def add(self, name: str, format: str, rows: int, cols: int, parts: collections.abc.Sequence[tuple[int, int, int]], *, is_packed: bool = False, unpermute_heads: int = 0, scale_exponent: int = 0, neuron_bits: int = 0, outliers: collections.abc.Sequence[tuple[int, int, int]] = []) -> int:
        """
        parts: (file, offset, length). cols = 0: a vector. is_packed: the parts of the format lie in the file, not rows. unpermute_heads: rows of a GGUF file in RoPE pairs are put back. scale_exponent: scales are multiplied by 2 to this power. neuron_bits: not 0, and the last part has the codes neuron by neuron, of so many bits each. outliers: their starts, columns and values, or nothing.
        """
    def add_file(self, path: str) -> int:
        """
        Opens a file; returns its index.
        """
    def finish_loading(self, progress: collections.abc.Callable[[int, int], None] | None = None) -> None:
        """
        Waits until all are read; progress(done_bytes, total_bytes).
        """
    def load(self, threads: int, progress: collections.abc.Callable[[int, int], None] | None = None) -> None:
        """
        start_loading and finish_loading.
        """
    def part(self, name: str, index: int) -> numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]:
        """
        The bytes of a part as they lie in memory, uint8, read-only; a vector is float32. After finish_loading.
        """
    def set_stream(self, *, cuts: collections.abc.Sequence[tuple[str, collections.abc.Sequence[int]]], lock_order: collections.abc.Sequence[tuple[int, int]], lookups: collections.abc.Sequence[str], pool_bytes: int, ring_bytes: int, lent_bytes: int = 0, experts: collections.abc.Sequence[collections.abc.Sequence[str]] = [], top_k: int = 0, expert_bytes: int = 0, miss_bits: int = 0, neurons: collections.abc.Sequence[str] = [], neuron_bytes: int = 0, neuron_frequency: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.float32]] = [], policy: str = 'lfu', predictor: str = 'blend', depth: int = 8, chunk_bytes: int = 1048576, limit_bytes_per_s: int = 0, method: str = 'auto', faults: Faults | None = None) -> None:
        """
        What is not resident. cuts: (name, first strips of its pieces) in the order of use. lock_order: (index into cuts, piece), the first is kept first. lookups: names of which rows are read when they are asked for. lent_bytes: of pool_bytes, or without cuts of expert_bytes, what activations, keys and values take. experts: of each layer gate, up, down of expert 0, of expert 1, ...; they share expert_bytes. miss_bits: those that are not there when the router asks are computed at so many bits, where they nest; 0: waited for. neurons: names of matrices that are read neuron by neuron, in the order of use; they share neuron_bytes. neuron_frequency: of each of them the share of tokens that activated each neuron, on another text; or nothing. faults: of the disk, for tests.
        """
    def start_loading(self, threads: int, is_budgeted: bool = False, *, depth: int = 8, chunk_bytes: int = 1048576, method: str = 'auto', faults: Faults | None = None) -> None:
        """
        Begins to read every weight that is not streamed, on threads of its own. is_budgeted: past the page cache, as the options say.
        """
    def stream_counters(self) -> dict[str, typing.Any]:
        """
        What was read while steps ran; empty where nothing is streamed.
        """
    @property
    def num_weights(self) -> int:
        ...
    @property
    def resident_bytes(self) -> int:
        ...
class Span:
    """
    Tokens to append to a sequence, and which of their logits are wanted.
    """
    def __init__(self, sequence: int, tokens: numpy.typing.NDArray[numpy.int32], logits: str = 'last', positions: typing.Annotated[numpy.typing.ArrayLike, numpy.int32] | None = None, tree_mask: typing.Annotated[numpy.typing.ArrayLike, numpy.uint8] | None = None, segments: collections.abc.Sequence[tuple[int, int]] = []) -> None:
        ...
class KVSpill:
    """
    How much of the KV pages stays in memory, and where the others go.
    """
    def __init__(self, *, memory_bytes: int, ring_bytes: int, folder: str, depth: int = 8, chunk_bytes: int = 1048576, limit_bytes_per_s: int = 0, method: str = 'auto', faults: Faults | None = None) -> None:
        """
        memory_bytes: of pages; ring_bytes: besides, of what is read from disk. folder: of the file. Depth, chunk and limit: of the reads. faults: of the disk, for tests.
        """
class Runtime:
    """
    Runs steps of a model; one caller at a time.
    """
    def __init__(self, graph: dict[str, typing.Any], store: WeightStore, *, isa: str, threads: int, batch_tokens: int, round_tokens: int = 0, context: int, kv_format: str, kv_budget_bytes: int, kv_spill: KVSpill | None = None, kernel: str = '', known_kernels: collections.abc.Sequence[tuple[str, int, int, int, str]] = [], timing_budget_s: float = 0.0) -> None:
        """
        kernel: a name of kernel_names, taken wherever it can be. known_kernels: (format, rows, cols, most tokens, kernel) of earlier runs; what is missing is timed, up to timing_budget_s. round_tokens: of batch_tokens so many are computed at a time where weights are streamed; 0: all. kv_spill: where pages go that memory does not hold; None: all stay in memory.
        """
    def can_reserve(self, appends: collections.abc.Sequence[tuple[int, int]]) -> bool:
        """
        appends: (sequence, number of tokens).
        """
    def can_write(self, appends: collections.abc.Sequence[tuple[int, int]]) -> bool:
        """
        Whether memory holds the pages that one step writes for them.
        """
    def fork(self, sequence: int) -> int:
        ...
    def kv_counters(self) -> dict[str, typing.Any]:
        """
        Of keys and values on disk, in all: num_reads, read_bytes, written_bytes, busy_s, waited_s; empty where all stay in memory. From any thread.
        """
    def length(self, sequence: int) -> int:
        ...
    def open_sequence(self) -> int:
        ...
    def release(self, sequence: int) -> None:
        ...
    def rewind(self, sequence: int, length: int) -> None:
        ...
    def start_neuron_counts(self) -> None:
        """
        From now on it is counted how many tokens activate each neuron.
        """
    def start_profile(self) -> None:
        """
        From now on steps are timed.
        """
    def start_routing_trace(self) -> None:
        """
        From now on what the routers choose is kept.
        """
    def start_trace(self) -> None:
        """
        From now on steps, reads and waits are kept with their times.
        """
    def step(self, spans: collections.abc.Sequence[Span]) -> numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]:
        """
        Appends the spans and returns float32 logits [rows, vocab], valid until the next step.
        """
    def stop(self) -> None:
        """
        From any thread: ends the step that runs with a StoppedError, if its weights are streamed.
        """
    def stop_neuron_counts(self) -> dict[str, typing.Any]:
        """
        For each matrix that lies neuron by neuron: the tokens it was multiplied with, and for each of its columns how many of these activated it, uint32.
        """
    def stop_profile(self) -> dict[str, typing.Any]:
        """
        num_runs, starting_s, and steps: (kind, weight, format, rows, cols, working_s, waiting_s) in plan order; seconds of thread 0 since start_profile.
        """
    def stop_routing_trace(self) -> list[tuple[numpy.typing.NDArray[numpy.int16], numpy.typing.NDArray[numpy.float32], numpy.typing.NDArray[numpy.float32] | None]]:
        """
        For each mixture-of-experts layer: experts int16 and weights float32 [tokens, top_k], and gate_logits float32 [tokens, num_experts], its router on the input of the layer before it, or None. Layers behind the last attention see only the tokens whose logits are asked for.
        """
    def stop_trace(self) -> dict[str, typing.Any]:
        """
        steps: (kind, its first weight) in plan order. Columns: step_index, step_phase (0 starting, 1 working, 2 waiting for other threads), step_begin_s, step_end_s; wait_weight, wait_begin_s, wait_end_s; read_weight, read_first_strip, read_num_strips (0: a row or an expert), read_num_bytes, read_priority (0 demand, 1 planned, 2 predicted), read_begin_s, read_end_s. names: of weights, by their number. max_events: of a kind, after which a trace ends.
        """
    def stream_counters(self) -> dict[str, typing.Any]:
        """
        What was read while steps ran, in all; empty where nothing is streamed.
        """
    @property
    def activation_bytes(self) -> int:
        ...
    @property
    def batch_tokens(self) -> int:
        ...
    @property
    def kernels(self) -> list[tuple[tuple[str, int, int, int, str], dict[str, float]]]:
        """
        What was chosen: (an element for known_kernels, seconds by candidate if timed now).
        """
    @property
    def kv_bytes(self) -> int:
        ...
    @property
    def kv_disk_bytes(self) -> int:
        ...
    @property
    def kv_memory_bytes(self) -> int:
        ...
    @property
    def kv_page_bytes(self) -> int:
        ...
    @property
    def vocab_size(self) -> int:
        ...
class SampleResult:
    @property
    def logprob(self) -> float:
        ...
    @property
    def token(self) -> int:
        ...
    @property
    def top(self) -> list[tuple[int, float]]:
        ...
class Sampler:
    """
    Chooses the next token from one row of logits.
    """
    def __init__(self, *, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, typical_p: float = 1.0, repetition_penalty: float = 1.0, presence_penalty: float = 0.0, frequency_penalty: float = 0.0, penalty_last_n: int = 64, logit_bias: collections.abc.Mapping[int, float] = {}, seed: int = 0, index: int = 0, num_logprobs: int = -1, isa: str) -> None:
        ...
    def sample(self, logits: numpy.typing.NDArray[numpy.float32], position: int, history: numpy.typing.NDArray[numpy.int32]) -> SampleResult:
        ...
class ExpertCache:
    """
    Decides which experts are in memory; reads nothing itself.
    """
    def __init__(self, expert_bytes: numpy.typing.NDArray[numpy.int64], capacity_bytes: int, *, top_k: int, policy: str, predictor: str = 'none', over_fetch: int = 4, prefetch_bytes: int = 0, min_probability: float = 0.20000000298023224, victim_share: float = 0.25, profile: tuple[typing.Annotated[numpy.typing.ArrayLike, numpy.int16], typing.Annotated[numpy.typing.ArrayLike, numpy.float32]] | None = None, future: tuple[typing.Annotated[numpy.typing.ArrayLike, numpy.int16], typing.Annotated[numpy.typing.ArrayLike, numpy.float32]] | None = None) -> None:
        """
        expert_bytes: int64 [layers, experts]. profile, future: (experts int16, weights float32), both [tokens, layers, top_k]: another text's routing for hotset and table, the coming one for belady.
        """
    def admit(self) -> dict[str, typing.Any]:
        ...
    def arrived(self, layer: int, expert: int) -> None:
        ...
    def begin_step(self, tokens: collections.abc.Sequence[int]) -> None:
        """
        The tokens of the step that begins.
        """
    def cancelled(self, layer: int, expert: int) -> None:
        ...
    def failed(self, layer: int, expert: int) -> None:
        ...
    def fill(self, layer: int) -> dict[str, typing.Any]:
        """
        What an idle disk reads into memory that is free; nothing with prefetch_bytes=0.
        """
    def prefetch(self, layer: int, gate_logits: typing.Annotated[numpy.typing.ArrayLike, numpy.float32] | None = None, known_experts: collections.abc.Sequence[int] = []) -> dict[str, typing.Any]:
        ...
    def release(self, layer: int, expert: int) -> None:
        ...
    def route(self, layer: int, experts: collections.abc.Sequence[int], weights: collections.abc.Sequence[float]) -> dict[str, typing.Any]:
        """
        What the router chose: evict, cancel, load, num_deferred, and found (hit, late or miss) for each.
        """
    def simulate(self, experts: numpy.typing.NDArray[numpy.int16], weights: numpy.typing.NDArray[numpy.float32], token_ids: numpy.typing.NDArray[numpy.int32] | None = None, gate_logits: numpy.typing.NDArray[numpy.float32] | None = None, *, disk_bytes_per_s: float, latency_s: float = 0.0, layer_s: float, before_router: float = 0.5, token_s: float = 0.0, num_fills: int = 0) -> dict[str, typing.Any]:
        """
        Runs a recorded routing through this cache with an imagined clock and disk; returns the time line.
        """
    def state(self, layer: int, expert: int) -> str:
        """
        on_disk, in_flight or resident.
        """
    @property
    def counters(self) -> list[dict[str, int]]:
        """
        A dict of counts for each layer.
        """
    @property
    def used_bytes(self) -> int:
        ...
def add(isa: str, a: numpy.typing.NDArray[numpy.float32], b: numpy.typing.NDArray[numpy.float32]) -> numpy.typing.NDArray[numpy.float32]:
    ...
def add_scaled(isa: str, factor: float, x: numpy.typing.NDArray[numpy.float32], y: numpy.typing.NDArray[numpy.float32]) -> numpy.typing.NDArray[numpy.float32]:
    ...
def attention(isa: str, q: numpy.typing.NDArray[numpy.float32], k: numpy.typing.NDArray[numpy.float32], v: numpy.typing.NDArray[numpy.float32], mask: numpy.typing.NDArray[numpy.bool], scale: float, soft_cap: float, kv_format: str, by_parts: bool = False) -> tuple[typing.Any, ...]:
    """
    (out [rows, head_dim], log_sum_exp [rows]). by_parts: each page by itself, then merged.
    """
def best_isa() -> str:
    """
    The highest level that this CPU supports.
    """
def cpu_name() -> str:
    ...
def dequantize(isa: str, format: str, rows: int, cols: int, parts: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.uint8]], outliers: collections.abc.Sequence[tuple[collections.abc.Sequence[int], collections.abc.Sequence[float]]] = []) -> numpy.typing.NDArray[numpy.float32]:
    """
    All rows as float32 [rows, cols].
    """
def fma_peak(threads: int, repeats: int = 5) -> float:
    """
    Median rate of float32 multiply-adds in registers, 1/s.
    """
def format_names() -> list[str]:
    """
    Names of the weight formats that the core computes with.
    """
def gelu_mul(isa: str, gate: numpy.typing.NDArray[numpy.float32], up: numpy.typing.NDArray[numpy.float32]) -> numpy.typing.NDArray[numpy.float32]:
    ...
def give_back_freed() -> None:
    """
    Gives back to the system what malloc holds of freed memory.
    """
def isa_levels() -> list[tuple[str, bool, bool]]:
    """
    (name, is_built, is_supported) of each level, ascending.
    """
def judge_passes(passes: collections.abc.Sequence[collections.abc.Sequence[float]]) -> tuple[int, bool]:
    """
    (index of the candidate to choose, whether to keep that): from seconds by candidate and pass.
    """
def kernel_names(isa: str) -> list[str]:
    """
    Kernels of products that compete at a level: its own by their names, those of lower levels as LEVEL/NAME.
    """
def kernels_in_use(isa: str) -> dict[str, typing.Any]:
    """
    Format name -> kernel table at a level.
    """
def kv_format_names() -> list[str]:
    """
    Names of the formats that the KV cache may have.
    """
def kv_page_bytes(format: str, head_dim: int) -> int:
    """
    Bytes that the keys and values of one KV head take in a page of 64 positions.
    """
def linear(isa: str, format: str, rows: int, cols: int, parts: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.uint8]], x: numpy.typing.NDArray[numpy.float32], bias: typing.Annotated[numpy.typing.ArrayLike, numpy.float32] | None = None, outliers: collections.abc.Sequence[tuple[collections.abc.Sequence[int], collections.abc.Sequence[float]]] = [], kernel: str | None = None) -> numpy.typing.NDArray[numpy.float32]:
    """
    y [M, rows] of x [M, cols]; x is quantised first where the format asks for it. outliers: (columns, values) of each row, columns ascending. kernel: the name of the one that multiplies; None: the first of its list.
    """
def linear_neurons(isa: str, format: str, rows: int, cols: int, scales: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.uint8]], records: typing.Annotated[numpy.typing.ArrayLike, numpy.uint8], bits: int, x: numpy.typing.NDArray[numpy.float32], bias: typing.Annotated[numpy.typing.ArrayLike, numpy.float32] | None = None, outliers: collections.abc.Sequence[tuple[collections.abc.Sequence[int], collections.abc.Sequence[float]]] = [], bounds: collections.abc.Sequence[int] = [0]) -> numpy.typing.NDArray[numpy.float32]:
    """
    linear with codes that lie neuron by neuron, of which only the active ones are read. scales: the parts before the codes. bounds: where ranges of groups begin, from 0 on.
    """
def log_sum_exp(isa: str, x: numpy.typing.NDArray[numpy.float32]) -> float:
    ...
def maximum(isa: str, x: numpy.typing.NDArray[numpy.float32]) -> float:
    ...
def pack(format: str, raw: numpy.typing.NDArray[numpy.uint8], cols: int) -> list[numpy.typing.NDArray[numpy.uint8]]:
    """
    ggml blocks [rows, row bytes] to packed parts.
    """
def part_bytes(format: str, rows: int, cols: int) -> list[tuple[str, int]]:
    """
    (name, bytes) of each part of a tensor, in file order.
    """
def philox4x32_10(counter: typing.Annotated[collections.abc.Sequence[int], "FixedSize(4)"], key: typing.Annotated[collections.abc.Sequence[int], "FixedSize(2)"]) -> typing.Annotated[list[int], "FixedSize(4)"]:
    """
    Random words (Salmon et al. 2011).
    """
def policy_names() -> list[str]:
    """
    Eviction policies of ExpertCache.
    """
def predictor_names() -> list[str]:
    """
    Predictors of ExpertCache.
    """
def quantize(isa: str, x: numpy.typing.NDArray[numpy.float32], scale_columns: int = 64) -> tuple[typing.Any, ...]:
    """
    (codes, scales, sums of each 64 columns).
    """
def read_bandwidth(threads: int, num_bytes: int = 1073741824, repeats: int = 5) -> float:
    """
    Median memory read rate, bytes/s.
    """
def read_rate(path: str, *, offset: int, num_bytes: int, most_s: float, chunk_bytes: int = 1048576, depth: int = 8) -> tuple[float, bool]:
    """
    (bytes/s, whether the page cache was bypassed) of a range, read for most_s seconds at most.
    """
def relu2(isa: str, x: numpy.typing.NDArray[numpy.float32]) -> numpy.typing.NDArray[numpy.float32]:
    ...
def rms_norm(isa: str, x: numpy.typing.NDArray[numpy.float32], weight: numpy.typing.NDArray[numpy.float32], eps: float, offset: float = 0.0) -> numpy.typing.NDArray[numpy.float32]:
    ...
def rope(isa: str, x: numpy.typing.NDArray[numpy.float32], cos: numpy.typing.NDArray[numpy.float32], sin: numpy.typing.NDArray[numpy.float32]) -> numpy.typing.NDArray[numpy.float32]:
    ...
def rounded_kernel_names(isa: str) -> list[str]:
    """
    Kernels of a level that give other bits, and are taken only where they are forced.
    """
def scale(isa: str, x: numpy.typing.NDArray[numpy.float32], factor: float) -> numpy.typing.NDArray[numpy.float32]:
    ...
def silu_mul(isa: str, gate: numpy.typing.NDArray[numpy.float32], up: numpy.typing.NDArray[numpy.float32]) -> numpy.typing.NDArray[numpy.float32]:
    ...
def soft_cap(isa: str, x: numpy.typing.NDArray[numpy.float32], cap: float) -> numpy.typing.NDArray[numpy.float32]:
    ...
def softmax(isa: str, x: numpy.typing.NDArray[numpy.float32]) -> numpy.typing.NDArray[numpy.float32]:
    ...
def time_kernels(isa: str, format: str, rows: int, cols: int, tokens: int, threads: int, num_bytes: int, passes: int) -> dict[str, list[float]]:
    """
    Kernel name -> seconds of one product in each pass over num_bytes of distinct weights.
    """
def uniform(seed: int, index: int, position: int) -> float:
    """
    The sampler's number in [0, 1).
    """
DEFAULT_CHUNK_BYTES: int = 1048576
DEFAULT_DEPTH: int = 8
DEFAULT_POLICY: str = 'lfu'
DEFAULT_PREDICTOR: str = 'blend'
DIRECT_ALIGNMENT: int = 4096
