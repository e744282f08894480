"""`edgert chat`: a conversation in the terminal, or through a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from edgert.cli import options
from edgert.cli.terminal import notice, show_timings
from edgert.errors import EdgertError

if TYPE_CHECKING:
    from edgert.engine.params import SamplingOptions
    from edgert.llm import LLM

PROMPT = ">>> "
HELP = "/exit leaves, /clear begins a new conversation; Ctrl-C stops an answer, at the empty prompt it leaves."


def chat(
    call: typer.Context,
    path: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="GGUF file, Hugging Face folder or edgert folder.")
    ] = None,
    model: options.Model = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    threads: options.Threads = None,
    context: options.Context = None,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
    system: options.System = None,
    stats: options.Stats = False,
) -> None:
    """Talk with a model.

    \b
    Examples:
      edgert chat
      edgert chat model.gguf --system "Answer in one sentence."

    /exit leaves, /clear begins a new conversation. Ctrl-C stops an answer, at the empty prompt it leaves.
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
    from edgert.cli.answers import open_model
    from edgert.engine.prompts import require_tokenizer

    with open_model(options.model_path(model), threads=threads, context=context) as llm:
        sampling = options.sampling_options(flags, llm.generation_config, default_max_tokens=-1)
        if sys.stdin.isatty():
            notice(HELP)
        require_tokenizer(llm.tokenizer)
        if llm.chat_template.is_plain:
            notice("the model has no chat template: using a plain one, so answers may not fit")
        Conversation(llm, sampling, system=system, shows_stats=stats).run()


class Conversation:
    """Reads lines, answers each, and keeps what was said."""

    def __init__(self, llm: LLM, sampling: SamplingOptions, *, system: str | None, shows_stats: bool) -> None:
        self._llm = llm
        self._sampling = sampling
        self._start = [{"role": "system", "content": system}] if system is not None else []
        self._messages = list(self._start)
        self._shows_stats = shows_stats
        self._is_terminal = sys.stdin.isatty()

    def run(self) -> None:
        """Until the input ends, /exit, or Ctrl-C at the empty prompt."""
        if self._is_terminal:
            _load_line_editing()
        while (line := self._read()) is not None:
            text = line.strip()
            if text in ("/exit", "/quit", "/bye"):
                return
            if text == "/clear":
                self._messages = list(self._start)
                self._llm.clear_cache()
            elif text in ("/help", "/?"):
                notice(HELP)
            elif text:
                try:
                    self._answer(line)
                except KeyboardInterrupt:  # just before the first token, or just behind the last
                    if not self._is_terminal:
                        raise

    def _read(self) -> str | None:
        """The next line; None when there is none any more."""
        if not self._is_terminal:
            return sys.stdin.readline() or None
        while True:
            try:
                return input(PROMPT)
            except EOFError:
                notice("")
                return None
            except KeyboardInterrupt:
                notice("")
                if not _edited_text():
                    return None

    def _answer(self, line: str) -> None:
        """Streams an answer; what was written before Ctrl-C belongs to the conversation."""
        from edgert.cli.answers import collect, show_text

        pieces: list[str] = []

        def show(text: str) -> None:
            pieces.append(text)
            show_text(text)

        self._messages.append({"role": "user", "content": line.rstrip("\r\n")})
        try:
            chunks = collect(self._llm.stream_chat(self._messages, **self._sampling), show)
            timings = chunks[-1].timings
        except KeyboardInterrupt:
            if not self._is_terminal:
                raise
            timings = None
        except EdgertError as error:
            # The conversation goes on without the question that had no answer.
            self._messages.pop()
            if not self._is_terminal:
                raise
            notice(f"error: {error}")
            return
        if not "".join(pieces[-1:]).endswith("\n"):
            show_text("\n")
        self._messages.append({"role": "assistant", "content": "".join(pieces)})
        if timings is None:
            return
        if timings.prompt_tokens + timings.generated_tokens >= self._llm.context:
            notice(f"the context of {self._llm.context} tokens is full: /clear begins a new conversation")
        if self._shows_stats:
            show_timings(timings)


def _load_line_editing() -> None:
    """Arrow keys and a history of lines for `input`, where Python has them."""
    try:
        import readline  # noqa: F401  (imported for its effect)
    except ImportError:
        return


def _edited_text() -> str:
    """What stood on the line when Ctrl-C came."""
    readline = sys.modules.get("readline")
    return readline.get_line_buffer() if readline is not None else ""
