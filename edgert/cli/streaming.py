"""What --stats says of reading from disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgert.cli.terminal import notice
from edgert.errors import size

if TYPE_CHECKING:
    from edgert.engine.output import Timings
    from edgert.engine.streaming import ExpertStats, NeuronStats, StreamingStats
    from edgert.llm import LLM

# Places that are named where the waiting was longest.
NUM_PLACES = 3
# Waiting for a smaller share of the time is not worth a place.
MIN_SHARE = 0.01


def show_streaming(llm: LLM, timings: Timings) -> None:
    """The line, and advice where the disk is the limit, on stderr; nothing where nothing was streamed."""
    for text in (streaming_text(timings), kv_text(timings), llm.advice(timings)):
        if text is not None:
            notice(text)


def streaming_text(timings: Timings) -> str | None:
    """One line: bytes and rate, waiting and where, pieces that were there in time; None where nothing was streamed."""
    stats = timings.streaming
    if stats is None:
        return None
    parts = [f"disk {size(stats.num_bytes)} in {stats.num_reads} reads, {size(round(stats.bytes_per_s))}/s"]
    parts.append(_waiting(timings, stats))
    if stats.hits or stats.late:
        parts.append(f"hits {stats.hits}, late {stats.late}")
    if stats.wasted_bytes:
        parts.append(f"wasted {size(stats.wasted_bytes)}")
    if stats.experts is not None:
        parts.append(_experts(stats.experts))
    if stats.neurons is not None:
        parts.append(_neurons(stats.neurons))
    return " | ".join(parts)


def kv_text(timings: Timings) -> str | None:
    """One line on keys and values on disk; None where all of them stay in memory."""
    stats = timings.kv
    if stats is None:
        return None
    share = _share(stats.waited_s, timings.prompt_s + timings.decode_s)
    return (
        f"keys and values {size(stats.read_bytes)} read in {stats.num_reads} reads, {size(stats.written_bytes)} written"
        f" | waiting {share:.0f} % of the time"
    )


def _waiting(timings: Timings, stats: StreamingStats) -> str:
    prompt_share = _share(stats.stall_s - stats.decode_stall_s, timings.prompt_s)
    decode_share = _share(stats.decode_stall_s, timings.decode_s)
    text = f"waiting {prompt_share:.0f} % of the prompt's time, {decode_share:.0f} % of the answer's"
    least_s = MIN_SHARE * (timings.prompt_s + timings.decode_s)
    longest = sorted(stats.stall_s_by_layer.items(), key=lambda item: -item[1])[:NUM_PLACES]
    places = [f"layer {name}" if name.isdecimal() else name for name, stall_s in longest if stall_s >= least_s]
    return f"{text}, most in {', '.join(places)}" if places else text


def _experts(experts: ExpertStats) -> str:
    coarse = f", {experts.coarse} at fewer bits" if experts.coarse else ""
    return (
        f"experts {100 * experts.hit_rate:.0f} % hits, {experts.late} late, {experts.misses} missed, "
        f"{experts.prefetched} predicted, {experts.wasted} of these for nothing{coarse}"
    )


def _neurons(neurons: NeuronStats) -> str:
    return (
        f"neurons {neurons.active} active, {100 * neurons.hit_rate:.0f} % hits, {size(neurons.requested_bytes)} "
        f"requested, {size(neurons.sector_bytes)} in sectors"
    )


def _share(part_s: float, whole_s: float) -> float:
    """Percent; 0 of nothing."""
    return 100 * min(1.0, part_s / whole_s) if whole_s > 0 else 0.0
