"""The corpus: models with one broken rule each, and the one error that each must give."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgert.errors import EdgertError, FileFormatError, UnsupportedFormatError

from . import malformed_headers, malformed_models


@dataclass(frozen=True, slots=True)
class Malformed:
    """A model that must be refused: by exactly this class of error, with `message` in its text.

    `build` writes it into an empty folder and returns what a user would open.
    """

    build: Callable[[Path], Path]
    error: type[EdgertError]
    message: str


def _gguf(raw: bytes) -> Callable[[Path], Path]:
    def build(place: Path) -> Path:
        (place / "model.gguf").write_bytes(raw)
        return place / "model.gguf"

    return build


def _safetensors(raw: bytes) -> Callable[[Path], Path]:
    def build(place: Path) -> Path:
        (place / "config.json").write_text('{"model_type": "llama"}')
        (place / "model.safetensors").write_bytes(raw)
        return place

    return build


def _corpus() -> dict[str, Malformed]:
    found = {f"gguf: {name}": Malformed(_gguf(raw), FileFormatError, text) for name, (raw, text) in _headers("GGUF")}
    found |= {
        f"gguf: {name}": Malformed(_gguf(raw), UnsupportedFormatError, text)
        for name, (raw, text) in _headers("UNSUPPORTED_GGUF")
    }
    found |= {
        f"safetensors: {name}": Malformed(_safetensors(raw), FileFormatError, text)
        for name, (raw, text) in _headers("SAFETENSORS")
    }
    for kind, cases in malformed_models.CASES.items():
        found |= {f"{kind}: {name}": Malformed(*case) for name, case in cases.items()}
    return found


def _headers(table: str) -> list[tuple[str, tuple[bytes, str]]]:
    return list(getattr(malformed_headers, table).items())


CORPUS = _corpus()
