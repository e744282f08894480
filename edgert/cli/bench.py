"""`edgert bench`: how fast a model reads and writes, and how near that is to the memory's limit."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgert.cli import options
from edgert.cli.profile import PhaseProfile, profile_phases, profile_table, prompt_ids
from edgert.cli.streaming import show_streaming
from edgert.cli.terminal import StatusLine
from edgert.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from edgert.engine.opening import LoadOptions
    from edgert.engine.output import Timings
    from edgert.engine.streaming import StreamingStats
    from edgert.llm import LLM

REPEATS = 3
WARM_UP_TOKENS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """Rates with one number of threads: medians of the repeats; GB are 10**9 bytes.

    decode_gb_per_s counts the weights that each token reads; bandwidth_gb_per_s is the median of what was measured
    before and after each repeat; share is their quotient. streaming: of the last repeat, where weights are streamed.
    """

    threads: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    decode_gb_per_s: float
    bandwidth_gb_per_s: float
    share: float
    streaming: StreamingStats | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchedModel:
    """What was measured; token_bytes are the bytes of weights that decoding a token reads. lossy: as LLM.lossy."""

    model: str
    architecture: str
    isa: str
    token_bytes: int
    lossy: dict[str, Any]


def bench(
    call: typer.Context,
    path: options.ModelArgument = None,
    model: options.Model = None,
    threads: Annotated[
        str | None,
        typer.Option("-t", "--threads", metavar="N,N", help="Numbers of threads. Default: 1, 2, 4 ... all cores."),
    ] = None,
    prompt_tokens: Annotated[int, typer.Option("-p", "--prompt-tokens", metavar="N", help="Tokens to read.")] = 512,
    max_tokens: Annotated[int, typer.Option("-n", "--max-tokens", metavar="N", help="Tokens to write.")] = 64,
    bits: options.Bits = None,
    miss_bits: options.MissBits = None,
    active_experts: options.ActiveExperts = None,
    min_expert_weight: options.MinExpertWeight = None,
    cache: options.Cache = False,
    ram: options.Ram = None,
    kv_ram: options.KVRam = None,
    disk_limit: options.DiskLimit = None,
    profile: Annotated[bool, typer.Option("--profile", help="Also show where the time of a step goes.")] = False,
    as_json: options.Json = False,
) -> None:
    """Measure prefill and decode rates by thread count, and the share of the memory's bandwidth.

    \b
    Example:
      edgert bench model.gguf -t 1,2,4
      edgert bench model.gguf -t 2 --profile
    """
    model = options.one_model(call, path, model)
    opened = options.model_path(model)
    counts = thread_list(threads)
    for name, value, low in (("-p", prompt_tokens, 1), ("-n", max_tokens, 2)):
        if value < low:
            raise UsageError(f"{name}: found {value}, expected at least {low}")
    from edgert.engine.opening import LoadOptions

    load_options = LoadOptions(
        bits=bits,
        miss_bits=miss_bits,
        active_experts=active_experts,
        min_expert_weight=min_expert_weight,
        cache=cache,
        ram=ram,
        kv_ram=kv_ram,
        disk_limit=disk_limit,
    )
    sizes = (prompt_tokens, max_tokens)
    results = [_measure(opened, load_options, count, *sizes, with_profile=profile) for count in counts]
    subject, rows = results[0][0], [row for _, row, _ in results]
    profiles = [profiled for _, _, one_count in results for profiled in one_count]
    if as_json:
        result = {"prompt_tokens": prompt_tokens, "max_tokens": max_tokens, "rows": [asdict(row) for row in rows]}
        if profile:
            result["profiles"] = [asdict(profiled) for profiled in profiles]
        print(json.dumps(asdict(subject) | result))
        return
    print(f"{subject.model}: {subject.architecture}, {subject.token_bytes / 1e6:.1f} MB a token, {subject.isa}")
    print(f"{'threads':>7} {'prefill tok/s':>14} {'decode tok/s':>13} {'GB/s':>7} {'of bandwidth':>13} {'share':>6}")
    for row in rows:
        print(
            f"{row.threads:7d} {row.prefill_tokens_per_s:14.1f} {row.decode_tokens_per_s:13.1f} "
            f"{row.decode_gb_per_s:7.2f} {row.bandwidth_gb_per_s:13.2f} {100 * row.share:5.0f}%"
        )
    for profiled in profiles:
        print("\n" + "\n".join(profile_table(profiled)))


def thread_list(text: str | None) -> list[int]:
    """Thread counts of "1,2,4"; None: 1, 2, 4 ... up to one for each core."""
    from edgert.device.bandwidth import thread_counts
    from edgert.device.threads import default_threads

    if text is None:
        return thread_counts(default_threads())
    counts = [int(word) if word.strip().isdecimal() else 0 for word in text.split(",")]
    if not counts or min(counts) < 1:
        raise UsageError(f"-t: found {text!r}, expected numbers of at least 1 with commas between them, such as 1,2")
    return counts


def _measure(
    path: Path | None,
    load_options: LoadOptions,
    threads: int,
    prompt_tokens: int,
    max_tokens: int,
    *,
    with_profile: bool,
) -> tuple[BenchedModel, BenchRow, list[PhaseProfile]]:
    from edgert.cli.answers import open_model
    from edgert.device.bandwidth import measure_bandwidth

    with open_model(path, replace(load_options, threads=threads, context=prompt_tokens + max_tokens)) as llm:
        subject = BenchedModel(
            model=str(llm.path),
            architecture=llm.architecture,
            isa=llm.isa,
            token_bytes=llm.token_bytes,
            lossy=llm.lossy,
        )
        bandwidths: list[float] = []
        measured: list[Timings] = []
        with StatusLine(lambda: f"measuring with -t {threads}: {len(measured)} of {REPEATS} done"):
            _timings(llm, WARM_UP_TOKENS, WARM_UP_TOKENS)
            bandwidths.append(measure_bandwidth(threads))
            for _ in range(REPEATS):
                measured.append(_timings(llm, prompt_tokens, max_tokens))
                bandwidths.append(measure_bandwidth(threads))
        profiles = profile_phases(llm, prompt_tokens, max_tokens) if with_profile else []
        decode = statistics.median(timings.tokens_per_s for timings in measured)
        bandwidth = statistics.median(bandwidths)
        decode_gb = decode * llm.token_bytes / 1e9
        row = BenchRow(
            threads=threads,
            prefill_tokens_per_s=statistics.median(timings.prompt_tokens_per_s for timings in measured),
            decode_tokens_per_s=decode,
            decode_gb_per_s=decode_gb,
            bandwidth_gb_per_s=bandwidth,
            share=decode_gb / bandwidth,
            streaming=measured[-1].streaming,
        )
        if row.streaming is not None:
            show_streaming(llm, measured[-1])
    return subject, row, profiles


def _timings(llm: LLM, prompt_tokens: int, max_tokens: int) -> Timings:
    """Of reading a prompt of arbitrary ids, and of writing."""
    ids = prompt_ids(llm, prompt_tokens)
    return llm.generate(ids, max_tokens=max_tokens, temperature=0, ignore_eos=True).timings
