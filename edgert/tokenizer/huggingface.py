"""Tokenizers from a tokenizer.json, with what tokenizer_config.json says about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from edgert.errors import TokenizerError
from edgert.files.opening import is_there, read_json, read_whole
from edgert.tokenizer.growth import check_growth, check_token_ids
from edgert.tokenizer.pieces import compile_decoder, is_control_spelling
from edgert.tokenizer.tokenizer import SpecialTokens, Tokenizer, is_library_error

MAX_TOKENIZER_BYTES = 256 << 20
_NAMES = ("bos", "eos", "unk", "pad")


def from_folder(folder: Path) -> Tokenizer | None:
    """The tokenizer in a model's folder; None if it holds no tokenizer.json.

    Raises TokenizerError if the library cannot build it, and FileFormatError for a broken configuration.
    """
    path = folder / "tokenizer.json"
    return from_tokenizer_json(path) if is_there(path) else None


def from_tokenizer_json(path: Path, *, is_named: bool = False) -> Tokenizer:
    """The tokenizer in `path` (`is_named`: by the user).

    tokenizer_config.json and special_tokens_map.json beside it are read if they are there.
    """
    config: dict[str, Any] = {}
    if path.name == "tokenizer.json":
        for name in ("special_tokens_map.json", "tokenizer_config.json"):
            beside = path.with_name(name)
            if is_there(beside):
                config.update(read_json(beside))
    return from_json(read_whole(path, MAX_TOKENIZER_BYTES, is_named=is_named), config, str(path))


def from_json(text: bytes, config: Mapping[str, Any], source: str) -> Tokenizer:
    """The tokenizer that the bytes of a tokenizer.json describe; `config` is tokenizer_config.json, perhaps empty."""
    try:
        backend = tokenizers.Tokenizer.from_buffer(text)
    except BaseException as error:
        if not is_library_error(error):
            raise
        raise TokenizerError(
            f"{source}: found no tokenizer ({error}), expected a tokenizer.json; get the file again"
        ) from None
    check_growth(backend, source)
    rules = compile_decoder(_decoder(backend), source)
    texts = {name: _token_text(config.get(f"{name}_token")) for name in _NAMES}
    _mark_control_tokens(backend, [text for text in texts.values() if text is not None])
    ids = {name: backend.token_to_id(text) for name, text in texts.items() if text is not None}
    eos = ids.get("eos")
    special = SpecialTokens(
        bos=ids.get("bos"),
        eos=eos,
        unk=ids.get("unk"),
        pad=ids.get("pad"),
        adds_bos=config.get("add_bos_token") is True,
        stop=frozenset(() if eos is None else (eos,)),
    )
    tokenizer = Tokenizer(backend, rules, special, config=config)
    check_token_ids(tokenizer.vocab_size - 1, source)
    return tokenizer


def _decoder(backend: tokenizers.Tokenizer) -> dict[str, Any] | None:
    if backend.decoder is None:
        return None
    decoder: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    return decoder


def _token_text(value: Any) -> str | None:
    """A special token as configurations write it: a string, or an object with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _mark_control_tokens(backend: tokenizers.Tokenizer, names: list[str]) -> None:
    """Makes special what the configuration names as such, and what is spelled like a control token."""
    added = backend.get_added_tokens_decoder()
    is_special = {entry.content: entry.special for entry in added.values()}
    plain = [entry for entry in added.values() if not entry.special and is_control_spelling(entry.content)]
    control = [
        AddedToken(entry.content, lstrip=entry.lstrip, rstrip=entry.rstrip, normalized=False, special=True)
        for entry in plain
    ]
    for text in names:
        if not is_special.get(text, False) and backend.token_to_id(text) is not None:
            control.append(AddedToken(text, normalized=False, special=True))
    if control:
        backend.add_special_tokens(control)
