"""`edgert verify`: reads all of a model and says whether it is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from edgert.cli import options
from edgert.cli.terminal import BytesProgress, notice
from edgert.errors import one_line

if TYPE_CHECKING:
    from edgert.verify import Finding


def verify(
    path: options.ModelArgument = None,
    as_json: options.Json = False,
) -> None:
    """Read a whole model and trust nothing: headers, checksums, every weight, tokenizer, chat template.

    One line for each file and each finding. Exit code 0 if the model is whole, else 1.

    \b
    Example:
      edgert verify model.gguf
    """
    from edgert import verify as verification
    from edgert.llm import DEFAULT_MODEL

    model = DEFAULT_MODEL if path is None else Path(path)
    with BytesProgress(f"verifying {model.name}") as progress:
        show = (lambda finding: None) if as_json else _show
        report = verification.verify(model, show, progress.update)
    if as_json:
        findings = [{"level": f.level, "file": str(f.file), "message": f.message} for f in report.findings]
        summary = {"is_whole": report.error is None, "num_bytes": report.num_bytes, "elapsed_s": report.elapsed_s}
        typer.echo(json.dumps({"path": str(model), **summary, "findings": findings}))
    if report.error is not None:
        raise report.error
    notice(f"whole: {report.num_bytes / 1e6:.1f} MB read in {report.elapsed_s:.2f} s")


def _show(finding: Finding) -> None:
    typer.echo(f"{finding.level:8} {one_line(finding.message)}")
