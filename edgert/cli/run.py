"""`edgert run`: one prompt, one answer."""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgert.cli import options
from edgert.cli.command import is_from_environment
from edgert.cli.streaming import show_streaming
from edgert.cli.terminal import StatusLine, notice, show_timings
from edgert.cli.trace_file import trace_file, traced
from edgert.errors import UsageError

if TYPE_CHECKING:
    from edgert.engine.output import Chunk
    from edgert.llm import LLM

# How much a model without an end of its own, or a text that is only continued, may write by default.
DEFAULT_RAW_TOKENS = 256


def run(
    call: typer.Context,
    first: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="The model; a single argument that looks like no model is the prompt."),
    ] = None,
    second: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The prompt; what is piped in is added.")
    ] = None,
    model: options.Model = None,
    prompt: options.Prompt = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    threads: options.Threads = None,
    context: options.Context = None,
    bits: options.Bits = None,
    miss_bits: options.MissBits = None,
    active_experts: options.ActiveExperts = None,
    min_expert_weight: options.MinExpertWeight = None,
    kv_format: options.KVFormat = "f16",
    cache: options.Cache = False,
    ram: options.Ram = None,
    kv_ram: options.KVRam = None,
    disk_limit: options.DiskLimit = None,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
    system: options.System = None,
    chat_template_kwargs: options.ChatTemplateKwargs = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")] = False,
    stats: options.Stats = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Write a time line of computing and reading, for chrome://tracing."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Answer one prompt.

    \b
    Examples:
      edgert run "Tell me a story about a cat."
      edgert run model.gguf "What is a page?" -n 100 --temp 0
      cat notes.txt | edgert run model.gguf "Summarise this:"
    """
    model, prompt = _model_and_prompt(call, first, second, model, prompt)
    text = join_prompt(prompt, read_pipe(), taken_for_model=first if first == model else None)
    flags = options.SamplingFlags(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        stop=stop,
        ignore_eos=ignore_eos,
    )
    variables = options.template_variables(chat_template_kwargs)
    from edgert.cli.answers import open_model
    from edgert.engine.opening import LoadOptions

    with (
        trace_file(trace) as file,
        open_model(
            options.model_path(model),
            LoadOptions(
                threads=threads,
                context=context,
                bits=bits,
                miss_bits=miss_bits,
                active_experts=active_experts,
                min_expert_weight=min_expert_weight,
                kv_format=kv_format,
                cache=cache,
                ram=ram,
                kv_ram=kv_ram,
                disk_limit=disk_limit,
            ),
        ) as llm,
        traced(llm, file),
    ):
        chunks = _answer(
            llm,
            text,
            flags,
            system=system,
            variables=variables,
            is_raw=raw or llm.chat_template.is_plain,
            is_shown=not as_json,
        )
        if as_json:
            print(json.dumps(_as_object(llm, chunks), ensure_ascii=False))
        timings = chunks[-1].timings
        if stats and timings is not None:
            show_timings(timings)
            show_streaming(llm, timings)


def _model_and_prompt(
    call: typer.Context, first: str | None, second: str | None, model: str | None, prompt: str | None
) -> tuple[str | None, str | None]:
    """As split_arguments; EDGERT_MODEL and EDGERT_PROMPT stand in for what is not given."""
    given_model = None if is_from_environment(call, "model") else model
    given_prompt = None if is_from_environment(call, "prompt") else prompt
    split_model, split_prompt = split_arguments(first, second, given_model, given_prompt)
    return split_model or model, split_prompt or prompt


def split_arguments(
    first: str | None, second: str | None, model: str | None, prompt: str | None
) -> tuple[str | None, str | None]:
    """Model and prompt from the arguments and -m, -p.

    A single argument is the model if -p gives the prompt, or if it exists, holds a path separator or ends in .gguf or
    .safetensors; else it is the prompt.
    """
    given = [argument for argument in (first, second) if argument is not None]
    if len(given) == 2 and model is None and prompt is None:
        return given[0], given[1]
    if len(given) == 1 and model is None and (prompt is not None or looks_like_model(given[0])):
        return given[0], prompt
    if len(given) == 1 and prompt is None:
        return model, given[0]
    if given:
        raise UsageError(f"arguments: found {given[-1]!r} beside -m and -p, expected each of model and prompt once")
    return model, prompt


def looks_like_model(argument: str) -> bool:
    """Whether a single argument names a model rather than being the prompt."""
    separators = [os.sep, *([os.altsep] if os.altsep else [])]
    has_separator = any(separator in argument for separator in separators)
    return has_separator or argument.endswith((".gguf", ".safetensors")) or _exists(argument)


def _exists(argument: str) -> bool:
    try:
        return Path(argument).exists()
    except (OSError, ValueError):
        return False  # too long for a name, or with a null in it


def join_prompt(prompt: str | None, piped: str | None, *, taken_for_model: str | None = None) -> str:
    """The prompt, then what was piped in; "-" stands for the pipe alone."""
    parts = [part for part in (None if prompt == "-" else prompt, piped) if part]
    if not parts:
        hint = f"; {taken_for_model!r} was taken for the model: if it is the prompt, give it with -p"
        raise UsageError(
            'prompt: found none, expected a text; give it as an argument, by -p "..." or through a pipe'
            + (hint if taken_for_model is not None else "")
        )
    return "\n".join(parts)


def read_pipe() -> str | None:
    """What is piped in, or redirected from a file, less the line end at its end; None where nothing can be."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return None  # closed
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return None
    with StatusLine(lambda: "reading the prompt from stdin until it ends"):
        text = sys.stdin.buffer.read().decode("utf-8", errors="replace")
    return text.removesuffix("\n").removesuffix("\r")


def _answer(
    llm: LLM,
    text: str,
    flags: options.SamplingFlags,
    *,
    system: str | None,
    variables: dict[str, Any] | None,
    is_raw: bool,
    is_shown: bool,
) -> list[Chunk]:
    from edgert.cli.answers import collect, show_text

    sampling = options.sampling_options(
        flags, llm.generation_config, default_max_tokens=DEFAULT_RAW_TOKENS if is_raw else -1
    )
    if is_raw:
        for name, value in (("--system", system), ("--chat-template-kwargs", variables)):
            if value is not None:
                raise UsageError(
                    f"{name}: found beside --raw or a model without a chat template, expected a chat template"
                )
        stream = llm.stream(text, **sampling)
    else:
        messages = [{"role": "user", "content": text}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        stream = llm.stream_chat(messages, chat_template_kwargs=variables, **sampling)
    chunks = collect(stream, show_text if is_shown else lambda _: None)
    if is_shown and not "".join(chunk.text for chunk in chunks[-1:]).endswith("\n"):
        show_text("\n")
    if chunks[-1].finish_reason == "length" and flags.max_tokens is None:
        notice(f"the answer was cut after {len(chunks)} tokens; -n and -c set how long it may be")
    return chunks


def _as_object(llm: LLM, chunks: list[Chunk]) -> dict[str, object]:
    timings = chunks[-1].timings
    return {
        "model": str(llm.path),
        "lossy": llm.lossy,
        "text": "".join(chunk.text for chunk in chunks),
        "tokens": [chunk.token for chunk in chunks],
        "finish_reason": chunks[-1].finish_reason,
        "timings": asdict(timings) if timings is not None else None,
        "advice": llm.advice(timings) if timings is not None else None,
    }
