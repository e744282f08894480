"""The weights of a GGUF file as they lie in memory, kept beside it: a folder of ours that the next start reads instead.

The folder holds weights and configuration; tokenizer and chat template are read from the model's own files.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from edgert import _core
from edgert.errors import ConvertError, EdgertError
from edgert.loader import Model, open_model
from edgert.quant import format as formats
from edgert.quant.container import ContainerPlan, ContainerTensor, ContainerWriter, group_units, plan_container
from edgert.quant.partial_folder import PartialFolder

SUFFIX = ".edgert"
_WEIGHTS, _CONFIG = "model.safetensors", "config.json"


def cache_path(model: Model) -> Path:
    """The folder beside the model's file or folder."""
    path = model.checkpoint.path
    return path.with_name(path.name + SUFFIX)


def is_packed_at_load(model: Model) -> bool:
    """Whether reading the model puts blocks into lanes: else there is nothing to keep."""
    return any(
        source.cols and not source.entry.parts and not formats.get(source.entry.format).spec.is_float
        for source in model.weights.values()
    )


def check_cache(model: Model) -> None:
    """Raises ConvertError where the cache could not be written, before the weights are read."""
    path = cache_path(model)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _not_written(path, "its folder is not writable")
    if path.exists() and not _is_cache(path):
        raise _not_written(path, "found other files there")
    free, needed = shutil.disk_usage(path.parent).free, model.num_bytes
    if free < needed:
        raise _not_written(path, f"found {free:,} bytes free, expected {needed:,} or more")


def open_cache(model: Model) -> Model | None:
    """The model with the weights of its cache; None where there is none, or one that is broken or of other files."""
    path = cache_path(model)
    try:
        if not path.is_dir():
            return None
        cached = open_model(path)
    except EdgertError:
        return None
    ours = cached.config.get("edgert")
    is_current = isinstance(ours, dict) and ours.get("source") == _source(model) and _formats(cached) == _formats(model)
    return cached if is_current else None


def write_cache(model: Model, store: _core.WeightStore) -> None:
    """Keeps the weights of the store, which is loaded, beside the model; a former cache is replaced.

    Raises ConvertError if they cannot be written. Where another process is writing them, it is left to that one.
    """
    path = cache_path(model)
    plan = plan_container(group_units(_tensor(model, name) for name in model.weights))
    try:
        _write(path, model, store, plan)
    except ConvertError as error:
        if not isinstance(error.__cause__, BlockingIOError):
            raise
    except OSError as error:
        raise _not_written(path, error.strerror or str(error)) from error


def _write(path: Path, model: Model, store: _core.WeightStore, plan: ContainerPlan) -> None:
    if _is_cache(path):
        shutil.rmtree(path)
    with PartialFolder(path) as folder:
        with ContainerWriter(folder.path / _WEIGHTS, plan) as writer:
            for tensor in plan.tensors:
                slots = plan.parts[tensor.name]
                # A vector is padded in memory.
                parts = [store.part(tensor.name, i)[: slot.length] for i, slot in enumerate(slots)]
                writer.write(tensor.name, parts)
            writer.finish()
        ours = {"format_version": "1", "quantization": None, "source": _source(model)}
        folder.write_text(_CONFIG, json.dumps({**model.config, "edgert": ours}, indent=2, ensure_ascii=False) + "\n")
        folder.commit()


def _tensor(model: Model, name: str) -> ContainerTensor:
    source = model.weights[name]
    if source.is_vector:  # widened at load
        return ContainerTensor(name, "f32", (source.rows,), source.role)
    return ContainerTensor(name, source.entry.format, (source.rows, source.cols), source.role)


def _source(model: Model) -> list[dict[str, object]]:
    """What tells the model's files from changed ones."""
    states = [(path.name, path.stat()) for path in model.checkpoint.real_files]
    return [{"name": name, "bytes": state.st_size, "mtime_ns": state.st_mtime_ns} for name, state in states]


def _formats(model: Model) -> dict[str, tuple[str, int, int]]:
    return {
        name: ("vector" if source.is_vector else source.entry.format, source.rows, source.cols)
        for name, source in model.weights.items()
    }


def _is_cache(path: Path) -> bool:
    """Whether a folder holds nothing but what is written here."""
    return path.is_dir() and not path.is_symlink() and {entry.name for entry in path.iterdir()} <= {_WEIGHTS, _CONFIG}


def _not_written(path: Path, reason: str) -> ConvertError:
    return ConvertError(f"{path}: the cache cannot be written: {reason}; load the model without it, or make room there")
