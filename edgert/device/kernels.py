"""Which kernels multiply: what EDGERT_KERNEL forces, and what was measured on this CPU before, kept in a file."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from edgert import _core
from edgert.device.cache import cache_folder, read_json, write_json
from edgert.errors import DeviceError

VARIABLE = "EDGERT_KERNEL"
# What a model's first start may spend on measuring; what is left is measured at the next one.
TIMING_BUDGET_S = 1.0
_FILE_VERSION = 1
_ANY_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChoice:
    """The kernel for a matrix of rows x cols. tokens: the most of the class that it was chosen for.

    seconds: of one product, by candidate.
    """

    isa: str
    threads: int
    format: str
    rows: int
    cols: int
    tokens: int
    kernel: str
    seconds: dict[str, float]

    @property
    def key(self) -> tuple[str, int, str, int, int, int]:
        """What it is the choice for."""
        return (self.isa, self.threads, self.format, self.rows, self.cols, self.tokens)

    @classmethod
    def from_core(
        cls, isa: str, threads: int, known: tuple[str, int, int, int, str], seconds: dict[str, float]
    ) -> KernelChoice:
        """From an element of Runtime.kernels."""
        name, rows, cols, tokens, kernel = known
        return cls(
            isa=isa, threads=threads, format=name, rows=rows, cols=cols, tokens=tokens, kernel=kernel, seconds=seconds
        )

    def as_known(self) -> tuple[str, int, int, int, str]:
        """As the core takes it."""
        return (self.format, self.rows, self.cols, self.tokens, self.kernel)


def select_kernel(isa: str, environment: Mapping[str, str] | None = None) -> str:
    """The kernel that EDGERT_KERNEL forces; "" where it is unset.

    Raises DeviceError for a name that no kernel of the level has.
    """
    wanted = (os.environ if environment is None else environment).get(VARIABLE, "")
    names = _core.kernel_names(isa) + _core.rounded_kernel_names(isa)
    if wanted and wanted not in names:
        raise DeviceError(
            f"{VARIABLE}: found {wanted!r} (no kernel has this name with {isa}), expected one of: {', '.join(names)}; "
            "or leave it unset"
        )
    return wanted


def cache_file(environment: Mapping[str, str] | None = None) -> Path | None:
    """Where the choices for this CPU are kept; None without a home folder."""
    folder = cache_folder(environment)
    if folder is None:
        return None
    cpu = re.sub(r"[^a-z0-9]+", "-", _core.cpu_name().lower()).strip("-")
    return folder / f"kernels-{cpu[:80]}.json"


def read_choices(path: Path | None) -> list[KernelChoice]:
    """The choices in a file; none where it is missing, broken, or of other kernels than these."""
    # Whatever the file holds: a choice changes no result, and what is not known is measured again.
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        if path is not None:
            found = read_json(path)
            if found["edgert_kernels"] == _FILE_VERSION and found["build"] == _build():
                choices = [KernelChoice(**choice) for choice in found["choices"]]
                return [choice for choice in choices if _is_sound(choice)]
    return []


def add_choices(path: Path | None, new: Iterable[KernelChoice]) -> None:
    """Puts choices into the file beside those of other models; silently not, where it cannot be written."""
    if path is None:
        return
    choices = {choice.key: choice for choice in [*read_choices(path), *new]}
    write_json(
        path,
        {
            "edgert_kernels": _FILE_VERSION,
            "cpu": _core.cpu_name(),
            "build": _build(),
            "choices": [asdict(choice) for _, choice in sorted(choices.items())],
        },
    )


def token_class(tokens: int) -> str:
    """A class of token counts for people, by the most of it."""
    names = {1: "1", 2: "2", 4: "3-4", 8: "5-8", 16: "9-16", 64: "17-64", _ANY_TOKENS: "65+"}
    return names.get(tokens, f"-{tokens}")


def _build() -> str:
    """What tells these kernels from those of another build: the core's file, and the names of the kernels."""
    state = os.stat(_core.__file__)
    names = " ".join(_core.kernel_names(_core.best_isa()))
    return f"{state.st_size}-{state.st_mtime_ns}-{zlib.crc32(names.encode()):08x}"


def _is_sound(choice: KernelChoice) -> bool:
    numbers = (choice.threads, choice.rows, choice.cols, choice.tokens)
    return (
        all(isinstance(number, int) and 0 < number < 2**31 for number in numbers)
        and all(isinstance(text, str) for text in (choice.isa, choice.format, choice.kernel))
        and isinstance(choice.seconds, dict)
        and all(isinstance(seconds, float) for seconds in choice.seconds.values())
    )
