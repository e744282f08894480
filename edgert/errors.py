"""The exceptions that edgert raises; every one derives from EdgertError."""


class EdgertError(Exception):
    """Base of all errors that edgert raises on purpose. The message says what, found, expected, what to do.

    It is one printable line: what a file holds can put no control characters on a terminal.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    r"""The text as one line that a terminal shows as it is: invisible characters are spelled out ("\x1b")."""
    return text if text.isprintable() else "".join(map(_visible, text))


def size(num_bytes: int) -> str:
    """A number of bytes for a person."""
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 10**9 else f"{num_bytes / 1e6:.1f} MB"


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else character.encode("unicode_escape").decode()


class ModelNotFoundError(EdgertError):
    """The path names nothing that can be opened."""


class FileFormatError(EdgertError):
    """A file of a model breaks a rule of its format."""


class UnsupportedModelError(EdgertError):
    """The architecture, or an option of its configuration, is not one that edgert runs."""


class UnsupportedFormatError(EdgertError):
    """A tensor has a type that edgert does not read."""


class ConfigError(EdgertError):
    """config.json (or GGUF metadata) misses a field, or a field has an impossible value."""


class TokenizerError(EdgertError):
    """The tokenizer is missing, or cannot be rebuilt."""


class ChatTemplateError(EdgertError):
    """The chat template is missing, or fails."""


class ContextLengthError(EdgertError):
    """The prompt does not fit the context."""


class OutOfMemoryError(EdgertError):
    """The model or its KV cache does not fit the memory."""


class ConvertError(EdgertError):
    """A conversion cannot be done, or was stopped."""


class DeviceError(EdgertError):
    """The CPU, or what EDGERT_ISA or EDGERT_KERNEL ask of it, cannot be used."""


class ConversationError(EdgertError):
    """A saved conversation cannot be written, or read."""


class NumericError(EdgertError):
    """A step gave non-finite logits."""


class OutputError(EdgertError):
    """stdout is closed, full, or has lost its reader."""


class HubError(EdgertError):
    """The hub, the way to it or its cache does not give what was asked for."""


class UsageError(EdgertError, ValueError):
    """An argument of the Python API or the command line is out of range."""
