"""What a model's headers say, as one value for `edgert show`: no weight is read, and the model need not run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgert.chat import ChatTemplate, load_chat_template
from edgert.device.memory import available_bytes, total_bytes
from edgert.engine.cost import active_parameters, token_bytes
from edgert.engine.kv_plan import PAGE_TOKENS, page_bytes, plan_kv
from edgert.errors import EdgertError, OutOfMemoryError
from edgert.files import Checkpoint, TensorEntry, open_checkpoint
from edgert.loader import Model, open_model
from edgert.loader.views import MIN_BITS, at_bits, stored_bits
from edgert.tokenizer import Tokenizer
from edgert.tokenizer import load as load_tokenizer

# The place of a tensor by its name, in Hugging Face's and in GGUF's spelling; the first pattern that is found decides.
_GROUPS = {
    "norms": r"norm|\bln_|layernorm",
    "experts": r"experts|_exps\b|_shexp\b|_exp\.\d",
    "output": r"^(output|lm_head)\b",
    "embedding": r"embed|token_embd|\bwte\b|\bwpe\b|per_layer_token",
    "attention": r"attn|attention",
    "mlp": r"mlp|ffn|feed_forward",
}
_KV_TOKENS = 1000
# What of config.json, or of the metadata that it was rebuilt from, says how large a model is.
_SIZES = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "sliding_window", "rope_theta",
    "tie_word_embeddings",
)  # fmt: skip
_NOTED = (
    "name", "basename", "finetune", "size_label", "version", "author", "organization", "license", "license.name",
    "languages", "url", "source.url", "repo_url", "quantized_by", "quantization_version", "file_type",
)  # fmt: skip
_NOTED_CONFIG = ("_name_or_path", "torch_dtype", "dtype", "transformers_version")
# A template that writes the role of each message as it is takes system messages too.
_ANY_ROLE = re.compile(r"\{\{[^}]*\brole\b")
_THINKING = re.compile(r"enable_thinking|<think>|reasoning_content|<\|channel\|>")

# What --json prints; docs/cli.md is made from it. Sizes are in bytes; null where it is not known.
KEYS = {
    "path": "the path as given",
    "kind": "gguf, huggingface or edgert",
    "files": "list of path and bytes",
    "architecture": "config.json's model_type; as the files state it where edgert does not run it",
    "can_run": "whether edgert runs it",
    "why_not": "the error that running it would give, or null",
    "parameters": "number of weights",
    "active_parameters": "those that one token uses: less than parameters for a mixture of experts",
    "weight_bytes": "bytes of all tensors",
    "token_bytes": "bytes of weights that decoding one token reads",
    "formats": "list of format, tensors, parameters, outliers, bytes, share (of the bytes, 0 to 1) and bits_per_weight",
    "views": "list of format, bits, weight_bytes and token_bytes: what --bits can read of it",
    "groups": "bytes of embedding, attention, mlp, experts, norms, output and other, by the tensors' names",
    "sizes": "hyper-parameters under config.json's names, where the model has them",
    "context": "tokens that the model is made for",
    "kv_bytes_per_1000_tokens": "bytes of keys and values in f16",
    "memory": "total_bytes, available_bytes, fits, and context_that_fits beside the weights",
    "tokenizer": "kind, pre_tokenizer, vocabulary and special_tokens (id and text of each), or error; null: none",
    "chat_template": "is_present, chars, and what it knows of tools, system and thinking; or error",
    "metadata": "what the files say of their origin",
    "tensors": "with --tensors: list of name, shape, format, outliers, bytes, file and offset (of the file)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """`values` is what --json prints (docs/cli.md has its keys); `entries` are the tensors, by file and offset."""

    values: dict[str, Any]
    entries: list[TensorEntry]
    files: tuple[Path, ...]


def describe(path: Path) -> Description:
    """Reads the headers of a model. Raises what open_checkpoint raises; that edgert cannot run it is no error."""
    model: Model | None = None
    reason = None
    try:
        model = open_model(path)
        checkpoint = model.checkpoint
    except EdgertError as error:
        reason = str(error)
        try:
            checkpoint = open_checkpoint(path)
        except EdgertError:
            raise error from None
    entries = sorted(checkpoint.tensors.values(), key=lambda entry: (entry.file, entry.offset))
    values = {
        "path": str(path),
        "kind": checkpoint.kind,
        "files": [{"path": str(file), "bytes": file.stat().st_size} for file in checkpoint.files],
        "architecture": _architecture(checkpoint, model),
        "can_run": model is not None,
        "why_not": reason,
        "parameters": sum(math.prod(entry.shape) for entry in entries),
        "active_parameters": active_parameters(model) if model else None,
        "weight_bytes": checkpoint.num_bytes,
        "token_bytes": token_bytes(model) if model else None,
        "formats": _formats(entries),
        "views": _views(model) if model else [],
        "groups": _groups(entries),
        "sizes": {key: value for key in _SIZES if _is_plain(value := checkpoint.config.get(key))},
        "context": model.context_length if model else _stated_context(checkpoint),
        "kv_bytes_per_1000_tokens": _KV_TOKENS * page_bytes(model.graph, "f16") // PAGE_TOKENS if model else None,
        "memory": _memory(checkpoint, model),
        **_text_side(checkpoint),
        "metadata": _metadata(checkpoint),
    }
    return Description(values=values, entries=entries, files=checkpoint.files)


def tensor_rows(description: Description) -> list[dict[str, Any]]:
    """The tensors as --tensors --json lists them."""
    return [
        {
            "name": entry.name,
            "shape": list(entry.shape),
            "format": entry.format,
            "outliers": entry.num_outliers,
            "bytes": entry.length,
            "file": description.files[entry.file].name,
            "offset": entry.offset,
        }
        for entry in description.entries
    ]


def group_of(name: str) -> str:
    """The group that a tensor counts to, by its name."""
    return next((group for group, pattern in _GROUPS.items() if re.search(pattern, name)), "other")


def _architecture(checkpoint: Checkpoint, model: Model | None) -> str | None:
    stated = checkpoint.metadata.get("general.architecture", checkpoint.config.get("model_type"))
    name = model.model_type if model else stated
    return name if isinstance(name, str) else None


def _formats(entries: list[TensorEntry]) -> list[dict[str, Any]]:
    """Bytes, parameters and tensors of each format, the largest first; share is of the bytes, 0 to 1."""
    total = sum(entry.length for entry in entries)
    found: dict[str, list[TensorEntry]] = {}
    for entry in entries:
        found.setdefault(entry.format, []).append(entry)
    rows = []
    for name, tensors in found.items():
        num_bytes = sum(entry.length for entry in tensors)
        parameters = sum(math.prod(entry.shape) for entry in tensors)
        rows.append(
            {
                "format": name,
                "tensors": len(tensors),
                "parameters": parameters,
                "outliers": sum(entry.num_outliers for entry in tensors),
                "bytes": num_bytes,
                "share": num_bytes / total if total else 0.0,
                "bits_per_weight": 8 * num_bytes / parameters if parameters else 0.0,
            }
        )
    return sorted(rows, key=lambda row: (-row["bytes"], row["format"]))


def _views(model: Model) -> list[dict[str, Any]]:
    """The narrower widths that the same files can be read at, the widest first."""
    stored = max((stored_bits(source) or 0 for source in model.weights.values()), default=0)
    rows = []
    for bits in range(stored - 1, MIN_BITS - 1, -1):
        view = replace(model, weights=at_bits(model.checkpoint.path, model.weights, bits))
        rows.append(
            {
                "format": next(source.format_name for source in view.weights.values() if source.stored_format),
                "bits": bits,
                "weight_bytes": view.num_bytes,
                "token_bytes": token_bytes(view),
            }
        )
    return rows


def _groups(entries: list[TensorEntry]) -> dict[str, int]:
    """Bytes of each group of tensors."""
    groups = dict.fromkeys(("embedding", "attention", "mlp", "experts", "norms", "output", "other"), 0)
    for entry in entries:
        groups[group_of(entry.name)] += entry.length
    return groups


def _stated_context(checkpoint: Checkpoint) -> int | None:
    """The context of a model that cannot be run, as its files state it."""
    stated = checkpoint.config.get("max_position_embeddings")
    if stated is None:
        stated = checkpoint.metadata.get(f"{checkpoint.metadata.get('general.architecture')}.context_length")
    return stated if isinstance(stated, int) and not isinstance(stated, bool) else None


def _memory(checkpoint: Checkpoint, model: Model | None) -> dict[str, Any]:
    """Whether the weights fit the memory that is free now, and the context that then fits beside them."""
    free = available_bytes()
    left = free - checkpoint.num_bytes
    context = None
    if model is not None and left > 0:
        try:
            context = plan_kv(
                model_context=model.context_length,
                asked_context=None,
                page_bytes=page_bytes(model.graph, "f16"),
                available_bytes=left,
            ).context
        except OutOfMemoryError:
            left = 0
    return {
        "total_bytes": total_bytes(),
        "available_bytes": free,
        "fits": left > 0,
        "context_that_fits": context,
    }


def _text_side(checkpoint: Checkpoint) -> dict[str, Any]:
    """Tokenizer and chat template; a GGUF tokenizer is not built, as that takes a second or more."""
    tokenizer, about = None, None
    try:
        if checkpoint.kind == "gguf":
            about = _gguf_tokenizer(checkpoint.metadata)
        elif tokenizer := load_tokenizer(checkpoint):
            about = _built_tokenizer(tokenizer)
    except EdgertError as error:
        about = {"error": str(error)}
    try:
        template = _template(load_chat_template(checkpoint, tokenizer))
    except EdgertError as error:
        template = {"is_present": False, "chars": 0, "knows": [], "error": str(error)}
    return {"tokenizer": about, "chat_template": template}


def _built_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id, "unk": tokenizer.unk_id, "pad": tokenizer.pad_id}
    return {
        "kind": type(tokenizer.backend.model).__name__,
        "pre_tokenizer": None,
        "vocabulary": tokenizer.vocab_size,
        "special_tokens": {
            name: {"id": token, "text": tokenizer.token_text(token)} for name, token in ids.items() if token is not None
        },
    }


def _gguf_tokenizer(metadata: dict[str, Any]) -> dict[str, Any] | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        return None
    special = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("eot", "eot"), ("unk", "unknown"), ("pad", "padding")):
        token = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(token, int) and 0 <= token < len(tokens):
            special[name] = {"id": token, "text": str(tokens[token])}
    return {
        "kind": _text_or_none(metadata.get("tokenizer.ggml.model")),
        "pre_tokenizer": _text_or_none(metadata.get("tokenizer.ggml.pre")),
        "vocabulary": len(tokens),
        "special_tokens": special,
    }


def _template(template: ChatTemplate) -> dict[str, Any]:
    """Whether there is one, its length, and what its text speaks of."""
    if template.is_plain:
        return {"is_present": False, "chars": 0, "knows": []}
    source, tools_source = template.source(), template.source(for_tools=True)
    knows = {
        "tools": source != tools_source or re.search(r"\btools\b", source) is not None,
        "system": "system" in source or _ANY_ROLE.search(source) is not None,
        "thinking": _THINKING.search(source) is not None,
    }
    return {"is_present": True, "chars": len(source), "knows": [name for name, is_known in knows.items() if is_known]}


def _metadata(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the files say of their origin."""
    if checkpoint.kind == "gguf":
        pairs: Iterable[tuple[str, Any]] = ((key, checkpoint.metadata.get(f"general.{key}")) for key in _NOTED)
    else:
        pairs = ((key, checkpoint.config.get(key)) for key in _NOTED_CONFIG)
    return {key: value for key, value in pairs if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return 0 < len(value) <= 20 and all(isinstance(item, str) for item in value)
    return isinstance(value, (str, bool, int, float)) and value != ""


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
