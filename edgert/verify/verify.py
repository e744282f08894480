"""Everything that can be said of a model without running it: each file, each checksum, each weight."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from edgert import tokenizer
from edgert.chat import load_chat_template
from edgert.errors import EdgertError, FileFormatError
from edgert.files import Checkpoint, open_checkpoint
from edgert.files.checksums import CHECKSUMS, read_checksums
from edgert.files.containment import real_path
from edgert.files.opening import gigabytes, is_there, os_errors
from edgert.loader import open_model
from edgert.verify.findings import Finding, Report
from edgert.verify.reading import Expected, hub_checksum, open_reader
from edgert.verify.weights import check_outliers, check_spans, spans_of

Progress = Callable[[int, int], None]
Show = Callable[[Finding], None]

# What edgert reads of a folder, beside its weights.
SMALL_FILES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja", "chat_template.json", "model.safetensors.index.json",
)  # fmt: skip
ROUND_TRIPS = ("Hello, world!", "line one\n\n  line two\t3.14", "Grüße aus Köln, 東京 and 🙂.")
CONVERSATION = [{"role": "user", "content": "Hello"}]


def verify(path: Path, show: Show = lambda finding: None, progress: Progress = lambda done, total: None) -> Report:
    """Reads a GGUF file or a folder, all of it; show(finding) as they come, progress(done_bytes, total_bytes).

    Headers, ranges, configuration and the fit of both; tokenizer and chat template, each used once; every byte of the
    weights: checksums where there are any, values and scales that are finite, padding of our folders zero. The memory
    does not depend on the size of the model.
    """
    report, started_s = Report(), time.perf_counter()

    def add(finding: Finding) -> None:
        report.findings.append(finding)
        show(finding)

    checkpoint = _open(path, add)
    if checkpoint is None:
        return report
    for finding in _check_texts(checkpoint):
        add(finding)
    places, sums = _files(checkpoint, add)
    total = sum(_num_bytes(place) for place in places)
    for place in places:
        for finding in _check_file(checkpoint, place, sums, lambda n: progress(report.num_bytes + n, total)):
            add(finding)
        report.num_bytes += _num_bytes(place)
    report.elapsed_s = time.perf_counter() - started_s
    return report


def _open(path: Path, add: Show) -> Checkpoint | None:
    """The model; at least its files where it cannot be run; None where their headers are broken."""
    try:
        return open_model(path).checkpoint
    except EdgertError as error:
        add(_failed(path, error))
    try:
        return open_checkpoint(path)
    except EdgertError:  # the error that has been told
        return None


def _failed(path: Path, error: EdgertError) -> Finding:
    return Finding("error", path, str(error), error)


def _check_texts(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Tokenizer and chat template; the tokenizer is built once for both."""
    try:
        found = tokenizer.load(checkpoint)
    except EdgertError as error:
        yield _failed(checkpoint.path, error)
        return
    yield from _check_tokenizer(checkpoint.path, found)
    yield from _check_template(checkpoint, found)


def _check_tokenizer(path: Path, found: tokenizer.Tokenizer | None) -> Iterator[Finding]:
    if found is None:
        yield Finding("warning", path, f"{path}: found no tokenizer: only token ids can be used")
        return
    for text in ROUND_TRIPS:
        if (back := found.decode(found.encode(text, add_special=False))) != text:
            yield Finding(
                "warning", path, f"{path}: tokenizer: found {back!r} for {text!r}: it does not keep every text"
            )


def _check_template(checkpoint: Checkpoint, found: tokenizer.Tokenizer | None) -> Iterator[Finding]:
    path = checkpoint.path
    try:
        template = load_chat_template(checkpoint, found)
        template.render(CONVERSATION)
    except EdgertError as error:
        yield _failed(path, error)
        return
    if template.is_plain:
        yield Finding("warning", path, f"{path}: found no chat template: a plain one will be used")


def _files(checkpoint: Checkpoint, add: Show) -> tuple[list[Path], dict[str, str]]:
    """Every file to read, and the checksums that our folder has of its own."""
    if checkpoint.kind == "gguf":
        return list(checkpoint.files), {}
    folder = checkpoint.path
    small = [folder / name for name in SMALL_FILES if is_there(folder / name)]
    if checkpoint.kind != "edgert":
        return [*small, *checkpoint.files], {}
    try:
        if not is_there(folder / CHECKSUMS):
            message = f"{folder}: found no {CHECKSUMS}: header, configuration and tokenizer have no checksum"
            add(Finding("warning", folder, message))
            return [*small, *checkpoint.files], {}
        sums = read_checksums(folder)
    except EdgertError as error:
        add(_failed(folder / CHECKSUMS, error))
        return [*small, *checkpoint.files], {}
    return sorted({*small, *checkpoint.files, *(folder / name for name in sums)}), sums


def _num_bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _check_file(
    checkpoint: Checkpoint, path: Path, sums: dict[str, str], progress: Callable[[int], None]
) -> Iterator[Finding]:
    try:
        is_named = path == checkpoint.path
        with os_errors(path):
            known = hub_checksum(real_path(path, is_named=is_named))
        expected = [known] if known else []
        if path.name in sums:
            expected.append(Expected("sha256", sums[path.name], CHECKSUMS))
        elif sums:
            yield _failed(path, _not_listed(path))
        with open_reader(path, expected, progress, is_named=is_named) as reader:
            spans = spans_of(checkpoint, checkpoint.files.index(path)) if path in checkpoint.files else []
            if spans:
                for _ in reader.pieces(spans[0].offset):
                    pass
                for error in check_spans(reader, spans, is_ours=checkpoint.kind == "edgert"):
                    yield _failed(path, error)
            agreed = reader.finish()
        if spans:
            for error in check_outliers(checkpoint, checkpoint.files.index(path)):
                yield _failed(path, error)
        num_sums = sum(span.checksum is not None for span in spans)
        details = [gigabytes(reader.num_bytes)]
        details += [f"{len(spans)} tensors and parts"] * bool(spans) + [f"{num_sums} crc32"] * bool(num_sums)
        yield Finding("ok", path, f"{path}: {', '.join(details + [agreed] * bool(agreed))}")
    except EdgertError as error:
        yield _failed(path, error)


def _not_listed(path: Path) -> FileFormatError:
    return FileFormatError(
        f"{path}: found no line in {CHECKSUMS}, expected one for each file; the folder was changed, convert it again"
    )
