"""The options that several commands share, and the sampling that follows from them and from the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import typer

from edgert.cli.command import is_from_environment
from edgert.cli.terminal import notice
from edgert.engine.params import SamplingOptions, SamplingParams
from edgert.errors import UsageError

# What a model's generation_config.json may recommend.
RECOMMENDED = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")

_MODEL_HELP = "GGUF file, Hugging Face folder, edgert folder, or ORG/NAME[:FILE] that was pulled."
ModelArgument: TypeAlias = Annotated[str | None, typer.Argument(metavar="MODEL", help=_MODEL_HELP)]
Model: TypeAlias = Annotated[str | None, typer.Option("-m", "--model", metavar="MODEL", help=_MODEL_HELP)]
Prompt: TypeAlias = Annotated[str | None, typer.Option("-p", "--prompt", metavar="TEXT", help="The prompt.")]
System: TypeAlias = Annotated[
    str | None, typer.Option("--system", metavar="TEXT", help="What the model is told first.")
]
ChatTemplateKwargs: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--chat-template-kwargs",
        metavar="JSON",
        help="What else the chat template knows, such as '{\"enable_thinking\": false}'.",
    ),
]
MaxTokens: TypeAlias = Annotated[
    int | None,
    typer.Option("-n", "--max-tokens", metavar="N", help="Most tokens to write; -1: until the context is full."),
]
Temperature: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--temp", "--temperature", metavar="X", help="0: always the likeliest token. Default: the model's, or 0.8."
    ),
]
TopK: TypeAlias = Annotated[
    int | None,
    typer.Option("--top-k", metavar="N", help="Keep the N likeliest tokens; 0: all. Default: the model's, or 40."),
]
TopP: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--top-p", metavar="X", help="Keep the likeliest tokens up to this sum; 1: all. Default: the model's, or 0.95."
    ),
]
MinP: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--min-p",
        metavar="X",
        help="Keep tokens with this share of the best one; 0: all. Default: the model's, or 0.05.",
    ),
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option("-s", "--seed", metavar="N", help="The same seed gives the same answer. Default: a new one."),
]
Threads: TypeAlias = Annotated[
    int | None,
    typer.Option("-t", "--threads", metavar="N", help="Threads to compute with. Default: one for each core."),
]
Context: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "-c",
        "--context",
        metavar="N",
        help="Most tokens of prompt and answer. Default: the model's, if it fits the memory.",
    ),
]
Bits: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--bits",
        metavar="N",
        help="Read a c4, c3 or p3 to p7 model at N bits a weight: smaller, faster and lossy. Default: all of them.",
    ),
]
MissBits: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--miss-bits",
        metavar="N",
        help="With --ram: wait for N bits only of an expert (c4, c3, p3 to p7) that is not in memory: faster, lossy, "
        "and the answer depends on how fast the disk is. Default: wait for all.",
    ),
]
ActiveExperts: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--active-experts",
        metavar="N",
        help="Let each token use only N experts of a mixture: faster and lossy. Default: as many as the model does.",
    ),
]
MinExpertWeight: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--min-expert-weight",
        metavar="X",
        help="Drop experts with less than this share of a token's weight, never the likeliest: faster and lossy. "
        "Default: none.",
    ),
]
KVFormat: TypeAlias = Annotated[
    str,
    typer.Option(
        "--kv-format",
        metavar="NAME",
        help="How keys and values are kept: f32, f16, or q8_0 (half of f16; loses a little).",
    ),
]
Cache: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--cache",
        help="Keep a GGUF model's weights as they lie in memory in MODEL.edgert beside it; start there.",
    ),
]
Ram: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ram",
        metavar="SIZE",
        help="Most memory for everything, the program included: a size such as 3GiB, or auto, which leaves room for "
        "the rest of the system. What does not fit is read from disk while the model runs; the answer stays the same.",
    ),
]
KVRam: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--kv-ram",
        metavar="SIZE",
        help="Most memory for keys and values, such as 1GiB; those of a longer context lie on disk, and each token "
        "reads them. Default: all in memory, or with --ram as it fits.",
    ),
]
DiskLimit: TypeAlias = Annotated[
    str | None,
    typer.Option("--disk-limit", metavar="RATE", help="With --ram: read at most so fast, such as 500MB/s."),
]
Stop: TypeAlias = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="End the answer before this text; may be repeated.")
]
IgnoreEos: TypeAlias = Annotated[bool, typer.Option("--ignore-eos", help="Go on after the token that ends an answer.")]
Stats: TypeAlias = Annotated[bool, typer.Option("--stats", help="Show counts, times and the seed on stderr.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingFlags:
    """Sampling as given on the command line; None where nothing was given."""

    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    stop: list[str] | None
    ignore_eos: bool


def sampling_options(
    flags: SamplingFlags, recommended: Mapping[str, Any], *, default_max_tokens: int
) -> SamplingOptions:
    """What was given goes before what the model's generation_config.json recommends, and that before our defaults."""
    options: dict[str, Any] = {"max_tokens": default_max_tokens}
    if recommended.get("do_sample") is False:
        options["temperature"] = 0.0
    else:
        options |= {name: value for name in RECOMMENDED if _is_usable(name, value := recommended.get(name))}
    for field in fields(flags):
        value = getattr(flags, field.name)
        if value is not None:
            options[field.name] = value
    return cast(SamplingOptions, options)


def template_variables(text: str | None) -> dict[str, Any] | None:
    """The variables of --chat-template-kwargs. Raises UsageError if they are no JSON object."""
    if text is None:
        return None
    expected = """expected a JSON object such as '{"enable_thinking": false}'"""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--chat-template-kwargs: found no JSON ({error}), {expected}") from None
    if not isinstance(values, dict):
        raise UsageError(f"--chat-template-kwargs: found a JSON {type(values).__name__}, {expected}")
    return values


def _is_usable(name: str, value: object) -> bool:
    """Whether a recommendation can be followed; a model's file must not make every run fail."""
    if value is None:
        return False
    try:
        SamplingParams(**cast(SamplingOptions, {name: value}))
    except UsageError as error:
        notice(f"generation_config.json is not followed: {error}")
        return False
    return True


def one_model(call: typer.Context, path: str | None, model: str | None) -> str | None:
    """The model of the argument or of -m; the argument goes before EDGERT_MODEL. Raises UsageError where both are
    given."""
    if path is not None and model is not None and not is_from_environment(call, "model"):
        raise UsageError(f"arguments: found the models {path!r} and {model!r}, expected one")
    return model if path is None else path


def model_path(model: str | None) -> Path | None:
    """The model to open; None, with a notice, for the one that comes along."""
    if model is not None:
        return Path(model)
    notice("no model given: using the small one that comes with edgert")
    return None
