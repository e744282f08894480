"""`edgert show`: what a model is, from its headers."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgert.cli import options
from edgert.errors import one_line

if TYPE_CHECKING:
    from edgert.cli.description import Description

# A narrower terminal gets each label on a line of its own.
_NARROW_COLUMNS = 50
_SHOWN_CHARS = 200
_KINDS = {"gguf": "GGUF", "huggingface": "Hugging Face folder", "edgert": "edgert folder"}
_SIZE_NAMES = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden size",
    "intermediate_size": "MLP",
    "num_attention_heads": "heads",
    "num_key_value_heads": "KV heads",
    "head_dim": "head",
    "num_experts": "experts",
    "num_local_experts": "experts",
    "num_experts_per_tok": "experts a token",
    "sliding_window": "window",
}


def show(
    call: typer.Context,
    path: options.ModelArgument = None,
    model: options.Model = None,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor too.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show what a model is: architecture, parameters, formats, sizes, context, template, tokenizer.

    \b
    Examples:
      edgert show model.gguf
      edgert show model.gguf --tensors
      edgert show model.gguf --json

    Only headers are read. A model that edgert cannot run is shown too, with the reason.
    """
    opened = options.model_path(options.one_model(call, path, model))
    from edgert.cli.description import describe, tensor_rows
    from edgert.llm import DEFAULT_MODEL

    description = describe(opened or DEFAULT_MODEL)
    if as_json:
        extra = {"tensors": tensor_rows(description)} if tensors else {}
        print(json.dumps(description.values | extra))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n".join(lay_out(report(description.values), width)))
    if tensors:
        print("\n" + "\n".join(tensor_table(description, width)))


def report(values: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Labels, and the lines that belong to each."""
    files = values["files"]
    file_bytes = sum(file["bytes"] for file in files)
    kind = f"{_KINDS[values['kind']]}, {len(files)} file{'s' if len(files) != 1 else ''}, {_size(file_bytes)}"
    rows = [
        ("model", [values["path"], kind]),
        ("architecture", [values["architecture"] or "not stated"]),
        ("runs", ["yes" if values["can_run"] else f"no: {values['why_not']}"]),
        ("parameters", [_parameters(values)]),
        ("sizes", [_sizes(values["sizes"])]),
        ("formats", [_format(row) for row in values["formats"]]),
        ("at fewer bits", [_view(row) for row in values["views"]]),
        ("weights", [f"{name} {_size(count)}" for name, count in values["groups"].items() if count]),
        ("a token reads", [_size(values["token_bytes"])] if values["token_bytes"] is not None else []),
        ("context", _context(values)),
        ("memory", [_memory(values)]),
        ("tokenizer", _tokenizer(values["tokenizer"])),
        ("chat template", [_template(values["chat_template"])]),
        *((name, [_text(value)]) for name, value in values["metadata"].items()),
    ]
    return [(label, [line for line in lines if line]) for label, lines in rows if any(lines)]


def lay_out(rows: list[tuple[str, list[str]]], width: int | None) -> list[str]:
    """The rows as lines of at most `width` columns (None: as long as they are), with nothing that steers a terminal."""
    label_width = 2 + max(len(one_line(label)) for label, _ in rows)
    is_narrow = width is not None and width < _NARROW_COLUMNS
    lines = []
    for label, texts in rows:
        indent = "  " if is_narrow else " " * label_width
        head = one_line(label)
        if is_narrow:
            lines += textwrap.wrap(head, width or 1)
        wrapped = [part for text in texts for part in _wrap(one_line(text), width, indent)]
        if not is_narrow:
            wrapped[0] = f"{head:<{label_width}}{wrapped[0][label_width:]}"
        lines += wrapped
    return lines


def tensor_table(description: Description, width: int | None) -> list[str]:
    """One line for each tensor; where that is wider than the terminal, its name and below it the rest."""
    from edgert.cli.description import tensor_rows

    cells = [
        (
            one_line(row["name"]),
            " x ".join(map(str, row["shape"])),
            one_line(row["format"]) + (f" and {row['outliers']} outliers" if row["outliers"] else ""),
            f"{row['bytes']} bytes",
            f"{one_line(row['file'])} at {row['offset']}",
        )
        for row in tensor_rows(description)
    ]
    if not cells:
        return ["no tensors"]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    if width is None or sum(widths) + 2 * len(widths) <= width:
        return ["  ".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)).rstrip() for row in cells]
    lines = []
    for row in cells:
        lines += _wrap(row[0], width, "")
        lines += _wrap(", ".join(row[1:]), width, "  ")
    return lines


def _wrap(text: str, width: int | None, indent: str) -> list[str]:
    if width is None:
        return [indent + text]
    # Names and paths are cut where the line ends, not at hyphens in them.
    return textwrap.wrap(
        text, max(width, len(indent) + 1), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    ) or [indent]


def _parameters(values: dict[str, Any]) -> str:
    total, active = values["parameters"], values["active_parameters"]
    text = _count(total)
    return f"{text}, {_count(active)} of them for each token" if active is not None and active < total else text


def _sizes(sizes: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_text(sizes[key])}" for key, name in _SIZE_NAMES.items() if key in sizes)


def _format(row: dict[str, Any]) -> str:
    size = f"{_size(row['bytes'])}, {row['bits_per_weight']:.2f} bits a weight"
    outliers = f", {row['outliers']} outliers" if row["outliers"] else ""
    return f"{row['format']} {100 * row['share']:.1f} %, {size}{outliers}"


def _view(row: dict[str, Any]) -> str:
    return f"{row['format']}: {_size(row['weight_bytes'])} of weights, by --bits {row['bits']}; lossy"


def _context(values: dict[str, Any]) -> list[str]:
    lines = [f"{values['context']} tokens"] if values["context"] is not None else []
    kv_bytes = values["kv_bytes_per_1000_tokens"]
    return lines + ([f"{_size(kv_bytes)} of keys and values for 1000 tokens"] if kv_bytes is not None else [])


def _memory(values: dict[str, Any]) -> str:
    memory = values["memory"]
    free = f"{_size(memory['available_bytes'])} of {_size(memory['total_bytes'])} are free"
    if not memory["fits"]:
        return f"does not fit: {_size(values['weight_bytes'])} of weights, {free}"
    context = memory["context_that_fits"]
    return f"fits{f', with a context of {context} tokens' if context is not None else ''}: {free}"


def _tokenizer(tokenizer: dict[str, Any] | None) -> list[str]:
    if tokenizer is None:
        return ["none"]
    if "error" in tokenizer:
        return [tokenizer["error"]]
    kind = tokenizer["kind"] or "unknown"
    if tokenizer["pre_tokenizer"]:
        kind += f" ({tokenizer['pre_tokenizer']})"
    special = [f"{name} {token['text']!r} {token['id']}" for name, token in tokenizer["special_tokens"].items()]
    return [f"{kind}, {tokenizer['vocabulary']} tokens", ", ".join(special)]


def _template(template: dict[str, Any]) -> str:
    if "error" in template:
        return str(template["error"])
    if not template["is_present"]:
        return "none"
    return f"{template['chars']} characters, knows {', '.join(template['knows']) or 'messages only'}"


def _text(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def _count(number: int) -> str:
    for unit, name in ((10**9, "billion"), (10**6, "million")):
        if number >= unit:
            return f"{number / unit:.2f} {name}"
    return str(number)


def _size(num_bytes: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.2f} {name}"
    return f"{num_bytes} bytes"
