"""`edgert convert`: a published checkpoint becomes a folder of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgert.cli import options
from edgert.cli.terminal import BytesProgress, notice
from edgert.errors import UsageError


def convert(
    src: Annotated[Path, typer.Argument(metavar="SRC", help="Hugging Face folder or GGUF file.")],
    dst: Annotated[Path, typer.Argument(metavar="DST", help="The folder to make.")],
    quant: Annotated[
        str | None,
        typer.Option(
            "-q",
            "--quant",
            metavar="NAME",
            help="Format of every matrix: c2 to c4, p1 to p8, ternary, q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k "
            "q6_k iq4_nl iq4_xs mxfp4 tq1_0 tq2_0 f16; keep: as they are. Default: c4 for float matrices.",
        ),
    ] = None,
    q_bits: Annotated[
        int | None, typer.Option("--q-bits", metavar="N", help="The same by width: 1 to 8 bits (p1 to p8).")
    ] = None,
    outliers: Annotated[
        float | None,
        typer.Option(
            "--outliers",
            metavar="X",
            help="Keep this share of each matrix's weights, those that fit their group worst, beside it in f16: 0.003 "
            "takes 0.1 bits a weight. At most 0.05.",
        ),
    ] = None,
    threads: options.Threads = None,
) -> None:
    """Convert a model to a folder that loads fast, in 4.25 bits a weight unless -q says otherwise.

    \b
    Examples:
      edgert convert llama-3.2-1b llama-1b
      edgert convert llama-3.2-1b llama-1b-p8 -q p8
      edgert convert llama-3.2-1b llama-1b-p2 -q p2 --outliers 0.003

    A folder in c4 or p4 also runs at fewer bits: edgert run llama-1b --bits 2.
    """
    if quant is not None and q_bits is not None:
        raise UsageError(f"-q and --q-bits: found both ({quant} and {q_bits}), expected one")
    from edgert import convert as conversion

    with BytesProgress(f"converting {src.name}") as progress:
        result = conversion.convert(
            src, dst, quant=quant, q_bits=q_bits, outliers=outliers, progress=progress.update, threads=threads
        )
    for note in result.notes:
        notice(f"note: {note}")
    notice(f"{result.path}: {result.file_bytes / 1e6:.1f} MB, made from {result.source_bytes / 1e6:.1f} MB")
