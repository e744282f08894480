"""Comparisons with llama.cpp: which models, made where they are missing; both sides in turns; medians."""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import synth
from _common import Side
from _shapes import MIXES, SHAPES

EPILOG = """\
A CASE is a GGUF file or a folder, or SHAPE/OURS[:THEIRS] of synthesised models: both sides run one GGUF file in the
format OURS (llama-8b/q4_k_m), or ours runs a folder in OURS and llama.cpp a file in THEIRS (llama-1b/p4:q4_k_m). OURS@N
runs a file that is nested at N bits. Without --peer-python only edgert is measured.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison; `theirs` is None where llama.cpp cannot run it."""

    name: str
    shape: str  # empty for a file
    kind: str  # "p4:q4_k_m", as in the name
    ours: Path
    theirs: Path | None
    bits: int = 0


def parser(description: str | None, cases: Sequence[str]) -> argparse.ArgumentParser:
    """The options that every comparison has."""
    made = argparse.ArgumentParser(
        description=description, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("cases", nargs="*", default=cases, metavar="CASE", help=f"default: {' '.join(cases)}")
    made.add_argument("--models", type=Path, help="folder where synthesised models are kept (default: a temporary one)")
    made.add_argument("--peer-python", help="Python with llama-cpp-python")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--check", action="store_true", help="exit code 1 where a bar is missed")
    made.add_argument("--json", action="store_true")
    return made


@contextmanager
def opened(text: str, arguments: argparse.Namespace) -> Iterator[tuple[Case, Side, Side | None]]:
    """Makes the models of a case and opens it on both sides. Models in a temporary folder go with it."""
    with ExitStack() as stack:
        folder = arguments.models or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        case = made(text, folder)
        ours = stack.enter_context(Side(sys.executable, "_ours.py", case.ours, arguments.threads, case.bits))
        theirs = None
        if arguments.peer_python and case.theirs is not None:
            theirs = stack.enter_context(Side(arguments.peer_python, "_peer.py", case.theirs, arguments.threads))
        for side in filter(None, (ours, theirs)):
            side.ask("warm")
        yield case, ours, theirs


def made(text: str, folder: Path, tokenizer: Path | None = None) -> Case:
    """The case, its models written into the folder where they are missing."""
    case = _case(text, folder)
    for path, kind in ((case.ours, case.kind.partition(":")[0]), (case.theirs, case.kind.rpartition(":")[2])):
        if case.shape and path is not None and not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            synth.write(case.shape, path, kind.partition("@")[0], tokenizer=tokenizer)
    return case


def _case(text: str, folder: Path) -> Case:
    if Path(text).exists():
        return Case(Path(text).stem, "", "", Path(text), Path(text) if text.endswith(".gguf") else None)
    shape, _, kind = text.partition("/")
    ours, _, theirs = kind.partition(":")
    stored, _, bits = ours.partition("@")
    if shape not in SHAPES or not {stored, theirs or stored} <= {*synth.KINDS}:
        sys.exit(f"case: found {text!r}, expected a model that exists or SHAPE/FORMAT[:FORMAT]; see --help")
    is_one_file = not theirs and stored in {*synth.BLOCK_FORMATS, *MIXES}
    ours_path = folder / (f"{shape}-{stored}.gguf" if is_one_file else f"{shape}-{stored}")
    theirs_path = ours_path if is_one_file else folder / f"{shape}-{theirs}.gguf" if theirs else None
    return Case(text, shape, kind, ours_path, theirs_path, int(bits or 0))


def in_turns(
    rounds: int, ours: Side, theirs: Side | None, *question: Any, between: Callable[[], None] = lambda: None
) -> tuple[list[Any], list[Any]]:
    """The answers of both sides, asked in turns (A B A B ...); `between` runs before each round."""
    answers: tuple[list[Any], list[Any]] = ([], [])
    for _ in range(rounds):
        between()
        answers[0].append(ours.ask(*question))
        if theirs is not None:
            answers[1].append(theirs.ask(*question))
    return answers


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")
