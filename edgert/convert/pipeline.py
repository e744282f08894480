"""Runs a conversion: reads, quantises and writes tensor by tensor, in memory bounded by the largest tensor."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgert import loader
from edgert.errors import ConvertError, FileFormatError
from edgert.files.checksums import CHECKSUMS
from edgert.quant import format as formats
from edgert.quant import neurons
from edgert.quant import outliers as sparse
from edgert.quant.container import ContainerWriter
from edgert.quant.format import WHOLE_TENSOR, PartSpec, Quantized
from edgert.quant.partial_folder import PartialFolder, check_target
from edgert.quant.quantizers import Quantizer, SampleRows, piece_quantizer

from .checksums import folder_checksums
from .plan import ConvertPlan, TensorPlan, check_outlier_share, plan_conversion, target_format
from .source import SourceFiles
from .tokenizer_files import tokenizer_files

WEIGHTS_FILE = "model.safetensors"
_CHUNK_VALUES = 1 << 17  # weights quantised at once: with the temporaries they fit a core's cache

Progress = Callable[[int, int], None]
F32 = NDArray[np.float32]
_Parts = list[NDArray[np.uint8]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertResult:
    """What was written: the folder, its weights' bytes before and after, and what did not go as asked."""

    path: Path
    source_bytes: int
    file_bytes: int
    notes: tuple[str, ...]


def convert(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    quant: str | None = None,
    q_bits: int | None = None,
    outliers: float | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> ConvertResult:
    """Converts a Hugging Face folder or a GGUF file to our folder, which appears only when it is whole.

    quant: the format of every matrix but routers (edgert.quant.quantizers.TARGETS), or "keep": as they are; None: c4,
    but matrices that are quantised already stay as they are. q_bits: the same by width, p1 to p8.
    outliers: the share of each matrix's weights, up to 0.05, that are kept beside it in float16.
    progress(done, total): bytes of source weights, then those of the new file, which is read again for its checksum.
    threads: None takes every core.
    Raises ConvertError if dst exists, the disk is full or a weight is not finite, and what opening a model raises.
    """
    target = target_format(quant, q_bits)
    share = check_outlier_share(outliers, target)
    path = Path(dst)
    with _write_errors(path):
        check_target(path)
    model = loader.open_model(src)
    plan = plan_conversion(model, target, keep_quantised=quant is None and q_bits is None, outlier_share=share)
    total = plan.source_bytes + plan.container.file_bytes

    def report(done: int) -> None:
        if progress:
            progress(min(done, total), total)  # small files count for nothing

    with _write_errors(path), PartialFolder(path) as folder:
        _check_free_space(folder.path, plan)
        for name, content in tokenizer_files(model.checkpoint).items():
            folder.write_bytes(name, content)
        if model.checkpoint.generation_config:
            folder.write_text("generation_config.json", _json(model.checkpoint.generation_config))
        with (
            SourceFiles(model.checkpoint) as files,
            ContainerWriter(folder.path / WEIGHTS_FILE, plan.container) as writer,
        ):
            _write_tensors(plan, files, writer, report, threads or _num_cpus())
            writer.finish()
        # Last: without it the folder is not a model.
        config = _json({**model.checkpoint.config, "edgert": {"format_version": "1", "quantization": target}})
        further = {"config.json": config.encode()}
        folder.write_text(CHECKSUMS, folder_checksums(folder.path, further, lambda n: report(plan.source_bytes + n)))
        report(total)
        folder.write_text("config.json", config)
        folder.commit()
    return ConvertResult(
        path=path, source_bytes=plan.source_bytes, file_bytes=plan.container.file_bytes, notes=plan.notes
    )


def _num_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _write_tensors(
    plan: ConvertPlan, files: SourceFiles, writer: ContainerWriter, report: Callable[[int], None], threads: int
) -> None:
    done = 0
    report(done)
    with ThreadPoolExecutor(threads, thread_name_prefix="edgert-convert") as pool:
        # What the pieces of a tensor share is found while those of the tensor before it are quantised.
        shared = [pool.submit(_quantizer, tensor, files) for tensor in plan.tensors[:1]]
        for tensor, following in zip(plan.tensors, [*plan.tensors[1:], None], strict=True):
            quantize = shared.pop().result()
            parts: _Parts = [np.empty(n, np.uint8) for n in _container_part_bytes(plan, tensor)]
            if following:
                shared.append(pool.submit(_quantizer, following, files))
            futures = [
                pool.submit(_convert_rows, tensor, quantize, files, begin, end, parts)
                for begin, end in _row_chunks(tensor)
            ]
            try:
                for future in futures:
                    rows = future.result()
                    report(done + tensor.source_bytes * rows // tensor.shape[0])
            except BaseException:
                _cancel(futures)
                raise
            writer.write(tensor.source.name, parts)
            done += tensor.source_bytes
            report(done)


def _container_part_bytes(plan: ConvertPlan, tensor: TensorPlan) -> list[int]:
    return [slot.length for slot in plan.container.parts[tensor.source.name]]


def _row_chunks(tensor: TensorPlan) -> Iterator[tuple[int, int]]:
    """Ranges of whole strips."""
    rows = tensor.shape[0]
    cols = tensor.source.cols or 1
    step = max(16, _CHUNK_VALUES // cols // 16 * 16)
    for begin in range(0, rows, step):
        yield begin, min(begin + step, rows)


def _quantizer(tensor: TensorPlan, files: SourceFiles) -> Quantizer | None:
    """What turns values of the tensor's rows into its format; None: they are copied. Runs on a pool thread."""
    if tensor.is_copy:
        return None

    def sample(ranges: SampleRows) -> NDArray[np.float32]:
        pieces = [_values(tensor, files.rows(tensor.source, begin, end)) for begin, end in ranges]
        return np.concatenate([_dense_side(tensor, piece)[0] for piece in pieces])

    return piece_quantizer(tensor.format, tensor.source.rows, tensor.source.cols, sample)


def _convert_rows(
    tensor: TensorPlan, quantize: Quantizer | None, files: SourceFiles, begin: int, end: int, parts: _Parts
) -> int:
    """Fills the parts' bytes of rows [begin, end), begin on a strip. Returns `end`. Runs on a pool thread."""
    rows = files.rows(tensor.source, begin, end)
    made = formats.get(tensor.format)
    specs = neurons.scale_parts(made.spec) if tensor.is_by_neuron else made.spec.parts
    own, sparse_parts = parts[: len(specs)], parts[len(specs) + tensor.is_by_neuron :]
    if quantize:
        try:
            values = _values(tensor, rows)
            dense, chosen = _dense_side(tensor, values)
            rows = quantize(dense)
            if chosen is not None:
                _write_outliers(tensor, sparse.take(values, chosen, made.dequantize(rows)), begin, sparse_parts)
        except ConvertError as error:
            raise ConvertError(f"{tensor.source.name}: {error}") from error
    for spec, whole, piece in zip(specs, own, made.pack(rows)[: len(specs)], strict=True):
        start = _part_offset(tensor, spec, len(whole), begin)
        whole[start : start + len(piece)] = piece
    if tensor.is_by_neuron:
        bits = neurons.code_bits(tensor.format)
        records = parts[len(specs)].reshape(tensor.source.cols, -1, 2 * bits)
        records[:, begin // 16 : -(-end // 16)] = neurons.pack(rows.codes.view(np.uint8), bits)
    return end


def _dense_side(tensor: TensorPlan, values: F32) -> tuple[F32, NDArray[np.bool_] | None]:
    """The rows to quantise, and which weights of them are 0 there because they become outliers."""
    if not tensor.outlier_share:
        return values, None
    chosen = sparse.choose(values, tensor.outlier_share)
    return np.where(chosen, np.float32(0), values), chosen


def _write_outliers(tensor: TensorPlan, found: sparse.Outliers, row: int, parts: _Parts) -> None:
    """Fills the outliers' parts from a row on, which begins a strip."""
    before = tensor.num_outliers(row)
    starts, columns, values = (part.view(dtype) for part, dtype in zip(parts, ("<u4", "<u2", "<f2"), strict=True))
    # The end of a row is the start of the next: the first start is 0, and each piece writes the ends of its rows.
    starts[0] = 0
    starts[row + 1 : row + len(found.starts)] = found.starts[1:] + np.uint32(before)
    columns[before : before + len(found.columns)] = found.columns
    values[before : before + len(found.values)] = found.values


def _part_offset(tensor: TensorPlan, part: PartSpec, part_bytes: int, row: int) -> int:
    """Where the strip of a row begins in a part."""
    if part.cell_groups == WHOLE_TENSOR:
        return 0
    # Float rows are not padded; a strip of any other part has the same length throughout.
    if formats.get(tensor.format).spec.is_float:
        return part_bytes // tensor.shape[0] * row
    return part_bytes // -(-tensor.shape[0] // 16) * (row // 16)


def _values(tensor: TensorPlan, rows: Quantized) -> NDArray[np.float32]:
    values = formats.get(tensor.source.entry.format).dequantize(rows)
    if not np.isfinite(values).all():
        raise FileFormatError(
            f"{tensor.source.name}: found a weight that is not finite, expected finite ones; the file is damaged"
        )
    return values


def _cancel(futures: list[Future[int]]) -> None:
    for future in futures:
        future.cancel()


def _check_free_space(folder: Path, plan: ConvertPlan) -> None:
    free = shutil.disk_usage(folder).free
    if free < plan.container.file_bytes:
        raise ConvertError(
            f"{folder.parent}: found {free:,} bytes free, expected {plan.container.file_bytes:,} or more; "
            "free some or choose another disk"
        )


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Errors of the operating system while reading or writing become a ConvertError."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise ConvertError(f"{where}: {error.strerror or error}; nothing was written to {path}") from error


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
