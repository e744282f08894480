"""A chat: reads what is typed, answers it or does it, until the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgert.cli.answers import collect
from edgert.cli.chat.commands import is_command, run_command
from edgert.cli.chat.conversation import Conversation
from edgert.cli.chat.reading import Reader, unquoted
from edgert.cli.chat.thinking import begins_inside, find_marks
from edgert.cli.chat.view import AnswerView
from edgert.cli.streaming import show_streaming
from edgert.cli.terminal import StatusLine, notice
from edgert.errors import ContextLengthError, EdgertError, one_line

if TYPE_CHECKING:
    from edgert.cli.chat.saved import SavedConversation
    from edgert.engine.output import Timings

# Enough to settle, and done in about a second.
BANDWIDTH_REPEATS = 3


class Session:
    """One run of `edgert chat`. With a person at the keyboard errors are shown and it goes on; else they end it."""

    def __init__(
        self,
        conversation: Conversation,
        reader: Reader,
        *,
        is_interactive: bool,
        shows_stats: bool,
        hides_thinking: bool,
    ) -> None:
        self.conversation = conversation
        self.shows_stats = shows_stats
        self.hides_thinking = hides_thinking
        self.is_over = False
        self._reader = reader
        self._is_interactive = is_interactive
        self._marks = find_marks(conversation.llm.chat_template)
        self._draft = ""
        self._last_timings: Timings | None = None
        self._bandwidth: float | None = None

    def run(self) -> None:
        """Until the input ends, /exit, or Ctrl-C at the empty prompt."""
        while not self.is_over and (typed := self._reader.read(self._draft)) is not None:
            self._draft = ""
            try:
                self._take(typed)
            except KeyboardInterrupt:
                # What was written of an answer is kept.
                if not self._is_interactive:
                    raise
            except EdgertError as error:
                if not self._is_interactive:
                    raise
                notice(f"error: {one_line(' '.join(str(error).split()))}")

    def answer_again(self) -> None:
        """Another answer to the last question; the old one stays if none is written."""
        messages = self.conversation.messages
        if not messages:
            notice("there is no question to answer again")
            return
        if self.conversation.is_repeatable:
            notice("the same question gets the same answer: the seed is fixed or the temperature is 0 (see /set)")
        old = messages.pop()
        try:
            self._answer()
        finally:
            if messages[-1]["role"] == "user":
                messages.append(old)

    def restore(self, saved: SavedConversation) -> None:
        """Goes on from a saved conversation."""
        conversation = self.conversation
        conversation.restore(saved)
        count, context = conversation.num_tokens(), conversation.llm.context
        notice(f"loaded {len(conversation.messages)} messages, {count} of {context} tokens")
        if saved.model != str(conversation.llm.path):
            notice(f"they were written with {saved.model}, and go on with {conversation.llm.path}")
        if count >= context:
            self._say_full()

    def show_stats(self) -> None:
        """Figures of the last answer that was written to its end."""
        if self._last_timings is None:
            notice("there is no answer yet")
        else:
            notice(self._stats_text(self._last_timings))
            show_streaming(self.conversation.llm, self._last_timings)

    def _take(self, typed: str) -> None:
        quoted = unquoted(typed) if self._is_interactive else None
        if quoted is None and is_command(typed):
            run_command(self, typed)
        elif (text := typed if quoted is None else quoted).strip():
            self._ask(text, typed)

    def _ask(self, text: str, typed: str) -> None:
        """Answers a message. Without an answer the conversation goes on as if it had not been sent."""
        messages = self.conversation.messages
        messages.append({"role": "user", "content": text})
        try:
            self._answer()
        except EdgertError as error:
            if messages[-1]["role"] == "user":
                self._draft = typed
            if isinstance(error, ContextLengthError) and len(messages) > 1:
                raise ContextLengthError(f"{error}; or /clear begins a new conversation") from error
            raise
        finally:
            if messages[-1]["role"] == "user":
                messages.pop()

    def _answer(self) -> None:
        """Streams the answer to the last message; what was written before Ctrl-C belongs to the conversation."""
        conversation = self.conversation
        pieces: list[str] = []
        is_inside = begins_inside(conversation.llm.chat_template, conversation.all_messages, self._marks)
        view = AnswerView(self._marks, is_inside=is_inside, hides_thinking=self.hides_thinking)

        def show(text: str) -> None:
            pieces.append(text)
            view.show(text)

        timings = None
        stream = conversation.stream()
        try:
            timings = collect(stream, show)[-1].timings
        finally:
            view.finish()
            if pieces or timings is not None:
                conversation.messages.append({"role": "assistant", "content": "".join(pieces)})
        if timings is not None:
            self._close(timings)

    def _close(self, timings: Timings) -> None:
        """What follows a whole answer."""
        self._last_timings = timings
        if timings.prompt_tokens + timings.generated_tokens >= self.conversation.llm.context:
            self._say_full()
        if self.shows_stats:
            self.show_stats()

    def _say_full(self) -> None:
        notice(f"the context of {self.conversation.llm.context} tokens is full: /clear begins a new conversation")

    def _stats_text(self, timings: Timings) -> str:
        computed = timings.prompt_tokens - timings.reused_tokens
        reused = f" ({timings.reused_tokens} reused, {computed} computed)" if timings.reused_tokens else ""
        parts = [
            f"prompt {timings.prompt_tokens} tokens{reused}, {timings.prompt_s:.2f} s, "
            f"{timings.prompt_tokens_per_s:.1f} tokens/s",
            f"answer {timings.generated_tokens} tokens, {timings.decode_s:.2f} s, {timings.tokens_per_s:.1f} tokens/s",
        ]
        if not self._is_interactive:
            return " | ".join([*parts, f"seed {timings.seed}"])
        rate = timings.tokens_per_s * self.conversation.llm.token_bytes / 1e9
        bandwidth = self._measured_bandwidth()
        reason = "; the weights lie in the caches" if rate > bandwidth else ""
        parts.append(f"memory {rate:.2f} of {bandwidth:.1f} GB/s ({100 * rate / bandwidth:.0f} %{reason})")
        return "\n".join([*parts, f"seed {timings.seed}"])

    def _measured_bandwidth(self) -> float:
        """GB/s of reading memory with the model's threads; measured once, when it is first asked for."""
        if self._bandwidth is None:
            from edgert.device.bandwidth import measure_bandwidth

            with StatusLine(lambda: "measuring the memory's bandwidth"):
                self._bandwidth = measure_bandwidth(self.conversation.llm.threads, repeats=BANDWIDTH_REPEATS)
        return self._bandwidth
