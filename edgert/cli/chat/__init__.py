"""`edgert chat`: a conversation in the terminal, or through a pipe."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from edgert.cli import options
from edgert.cli.terminal import notice

if TYPE_CHECKING:
    from edgert.cli.chat.saved import SavedConversation
    from edgert.engine.params import SamplingOptions

HELP = "/help shows the commands. Ctrl-C stops an answer, Ctrl-D leaves."


def chat(
    call: typer.Context,
    path: options.ModelArgument = None,
    model: options.Model = None,
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
    stats: options.Stats = False,
    hide_thinking: Annotated[
        bool, typer.Option("--hide-thinking", help="Leave out what the model thinks before it answers.")
    ] = False,
    load: Annotated[
        Path | None, typer.Option("--load", metavar="FILE", help="Go on with a conversation that /save wrote.")
    ] = None,
) -> None:
    """Talk with a model.

    \b
    Examples:
      edgert chat
      edgert chat model.gguf --system "Answer in one sentence."

    /help shows the commands. Ctrl-C stops an answer, at the empty prompt it leaves.
    """
    model = options.one_model(call, path, model)
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
    # First what is quick to refuse.
    variables = options.template_variables(chat_template_kwargs)
    saved = _read_saved(load)
    from edgert.cli.answers import open_model
    from edgert.engine.opening import LoadOptions
    from edgert.engine.prompts import require_tokenizer

    with open_model(
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
    ) as llm:
        from edgert.cli.chat.conversation import Conversation
        from edgert.cli.chat.reading import is_interactive, open_reader
        from edgert.cli.chat.session import Session

        require_tokenizer(llm.tokenizer)
        sampling = options.sampling_options(flags, llm.generation_config, default_max_tokens=-1)
        conversation = Conversation(llm, sampling, system=system, variables=variables)
        if is_interactive():
            notice(HELP)
        if llm.chat_template.is_plain:
            notice("the model has no chat template: using a plain one, so answers may not fit")
        session = Session(
            conversation,
            open_reader(),
            is_interactive=is_interactive(),
            shows_stats=stats,
            hides_thinking=hide_thinking,
        )
        if saved is not None:
            session.restore(_with_flags(saved, flags, system))
        session.run()


def _read_saved(path: Path | None) -> SavedConversation | None:
    if path is None:
        return None
    from edgert.cli.chat.saved import load_conversation

    return load_conversation(path)


def _with_flags(saved: SavedConversation, flags: options.SamplingFlags, system: str | None) -> SavedConversation:
    """What was given on the command line goes before what the file says."""
    given = {field.name: getattr(flags, field.name) for field in fields(flags)}
    given = {name: value for name, value in given.items() if value is not None and value is not False}
    sampling = cast("SamplingOptions", {**saved.sampling, **given})
    return replace(saved, sampling=sampling, system=saved.system if system is None else system)
