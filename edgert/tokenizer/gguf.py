"""Tokenizers from the vocabulary inside a GGUF file, rebuilt on the tokenizers library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from edgert.errors import TokenizerError
from edgert.tokenizer.pieces import (
    BYTE_LEVEL,
    SPACE_MARK,
    PieceRules,
    byte_token,
    is_control_spelling,
    sentencepiece_rules,
)
from edgert.tokenizer.pretokenizers import pre_tokenizer
from edgert.tokenizer.tokenizer import SpecialTokens, Tokenizer, check_id

# Values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Bounds on SentencePiece vocabularies. llama-2 has pieces of 16 characters and 2 merges a piece.
MAX_PIECE_CHARS = 512
MERGES_PER_PIECE = 16
FREE_MERGES = 1 << 15

# Metadata keys of ends of text, turn and message.
_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """The `tokenizer.ggml.*` values of a file, checked; lists are as long as `tokens`."""

    source: str  # names the file in errors
    model_name: str
    tokens: list[str]
    types: list[int]
    scores: list[float]
    metadata: Mapping[str, Any]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `tokenizer.ggml.<key>`."""
        return self.metadata.get(f"tokenizer.ggml.{key}", default)

    def flag(self, key: str, default: bool) -> bool:
        """The truth value of `tokenizer.ggml.<key>`. Raises TokenizerError if it is no bool."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise TokenizerError(
                f"{self.source}: tokenizer.ggml.{key}: found {value!r}, expected true or false; get the file again"
            )
        return value

    def token_id(self, key: str) -> int | None:
        """The id in `tokenizer.ggml.<key>`, None if absent. Raises TokenizerError if out of range."""
        return check_id(self.get(key), len(self.tokens), f"tokenizer.ggml.{key}", self.source)


def read_vocabulary(metadata: Mapping[str, Any], source: str) -> GgufVocabulary | None:
    """The vocabulary in a GGUF file's key-values; None if the file has none. Raises TokenizerError if it is broken."""
    model_name = metadata.get("tokenizer.ggml.model")
    if model_name is None or model_name in ("none", "no_vocab"):
        return None
    tokens = _list_of(metadata, "tokens", str, source)
    if not tokens:
        raise TokenizerError(f"{source}: tokenizer.ggml.tokens: found no tokens, expected at least one; get it again")
    types = _list_of(metadata, "token_type", int, source) or [NORMAL] * len(tokens)
    scores = _list_of(metadata, "scores", float, source) or [0.0] * len(tokens)
    for key, values in (("token_type", types), ("scores", scores)):
        if len(values) != len(tokens):
            raise TokenizerError(
                f"{source}: tokenizer.ggml.{key}: found {len(values)} entries, expected {len(tokens)}, one per token; "
                f"the file is damaged, get it again"
            )
    return GgufVocabulary(source, str(model_name), tokens, types, scores, metadata)


def from_gguf(metadata: Mapping[str, Any], source: str = "GGUF") -> Tokenizer | None:
    """The tokenizer of a GGUF file's key-values; None if the file holds no vocabulary.

    Raises TokenizerError for a model or pre-tokenizer that is not known (naming it) and for broken values.
    """
    vocabulary = read_vocabulary(metadata, source)
    if vocabulary is None:
        return None
    build = _BUILDERS.get(vocabulary.model_name)
    if build is None:
        known = ", ".join(sorted(_BUILDERS))
        raise TokenizerError(
            f"{source}: tokenizer.ggml.model: found {vocabulary.model_name!r}, expected one of {known}; "
            f"use a model with such a tokenizer"
        )
    backend, rules, adds_bos = build(vocabulary)
    _add_special_tokens(backend, vocabulary)
    special = _special_tokens(vocabulary)
    _set_post_processor(backend, vocabulary, special, adds_bos)
    by_text = backend.get_vocab(with_added_tokens=True)
    return Tokenizer(
        backend,
        rules,
        special,
        texts={i: text for i, text in enumerate(vocabulary.tokens) if by_text.get(text) != i},
        silent=frozenset(i for i, kind in enumerate(vocabulary.types) if kind == UNUSED),
        config=_config(vocabulary, special),
    )


def _list_of(metadata: Mapping[str, Any], key: str, kind: type, source: str) -> list[Any]:
    values = metadata.get(f"tokenizer.ggml.{key}")
    if values is None:
        return []
    if hasattr(values, "tolist"):
        values = values.tolist()
    allowed = (int, float) if kind is float else kind
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TokenizerError(
            f"{source}: tokenizer.ggml.{key}: found {type(values).__name__}, expected an array; get it again"
        )
    for i, value in enumerate(values):
        if not isinstance(value, allowed):
            raise TokenizerError(
                f"{source}: tokenizer.ggml.{key}[{i}]: found {value!r}, expected {kind.__name__}; get the file again"
            )
    return list(values)


def _byte_level_bpe(vocabulary: GgufVocabulary) -> tuple[tokenizers.Tokenizer, PieceRules, bool]:
    """Byte-level BPE ("gpt2"): merges from the file, words from the table of pre-tokenizers."""
    try:
        family = pre_tokenizer(vocabulary.get("pre") or "default")
    except TokenizerError as error:
        raise TokenizerError(f"{vocabulary.source}: {error}") from None
    merges = []
    for i, merge in enumerate(_list_of(vocabulary.metadata, "merges", str, vocabulary.source)):
        left, _, right = merge.partition(" ")
        if not left or not right:
            raise TokenizerError(
                f"{vocabulary.source}: tokenizer.ggml.merges[{i}]: found {merge!r}, expected two parts with a space "
                f"between them; the file is damaged, get it again"
            )
        merges.append((left, right))
    backend = tokenizers.Tokenizer(_bpe(vocabulary, merges, ignore_merges=family.ignore_merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in family.patterns]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    return backend, BYTE_LEVEL, family.adds_bos


def _sentencepiece_bpe(vocabulary: GgufVocabulary) -> tuple[tokenizers.Tokenizer, PieceRules, bool]:
    """SentencePiece BPE ("llama"): the pair whose merged piece has the highest score merges first."""
    unknown = vocabulary.token_id("unknown_token_id")
    try:
        merges = score_merges(vocabulary.tokens, vocabulary.types, vocabulary.scores)
    except TokenizerError as error:
        raise TokenizerError(f"{vocabulary.source}: tokenizer.ggml.tokens: {error}") from None
    model = _bpe(
        vocabulary,
        merges,
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        byte_fallback=any(byte_token(text) is not None for text in vocabulary.tokens),
    )
    backend = tokenizers.Tokenizer(model)
    has_prefix = vocabulary.flag("add_space_prefix", True)
    steps = [normalizers.Prepend(SPACE_MARK)] if has_prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE_MARK)])
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
        + ([decoders.Strip(" ", 1, 0)] if has_prefix else [])
    )
    return backend, sentencepiece_rules(1 if has_prefix else 0), True


_BUILDERS: dict[str, Callable[[GgufVocabulary], tuple[tokenizers.Tokenizer, PieceRules, bool]]] = {
    "gpt2": _byte_level_bpe,
    "llama": _sentencepiece_bpe,
}


def score_merges(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """The merge list that makes ranked BPE do what SentencePiece does with scores.

    SentencePiece (Kudo and Richardson 2018) merges the neighbours whose concatenation has the highest score. So each
    way to cut a piece into two pieces is a merge, ranked by the score of the whole. Control and byte tokens take no
    part: text never becomes one of them. Raises TokenizerError where that would be out of proportion: a piece of n
    characters takes time n^2, and pieces of nothing but pieces have n merges each.
    """
    pieces = {text: i for i, text in enumerate(tokens) if types[i] in (NORMAL, USER_DEFINED)}
    longest = max(map(len, pieces), default=0)
    if longest > MAX_PIECE_CHARS:
        raise TokenizerError(
            f"found a piece of {longest} characters, expected at most {MAX_PIECE_CHARS}; use another model"
        )
    merges: list[tuple[str, str]] = []
    max_merges = FREE_MERGES + MERGES_PER_PIECE * len(pieces)
    # sorted() is stable: among equal scores the lower id comes first.
    for text, _ in sorted(pieces.items(), key=lambda item: -scores[item[1]]):
        for cut in range(1, len(text)):
            if text[:cut] in pieces and text[cut:] in pieces:
                merges.append((text[:cut], text[cut:]))
        if len(merges) > max_merges:
            raise TokenizerError(
                f"found more than {max_merges} ways to join {len(pieces)} pieces, expected fewer; use another model"
            )
    return merges


def _bpe(
    vocabulary: GgufVocabulary,
    merges: list[tuple[str, str]],
    *,
    unk_token: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> models.BPE:
    ids = {text: i for i, text in enumerate(vocabulary.tokens)}
    try:
        return models.BPE(
            vocab=ids, merges=merges, unk_token=unk_token, byte_fallback=byte_fallback, ignore_merges=ignore_merges
        )
    except Exception as error:  # the library raises plain Exception
        raise TokenizerError(
            f"{vocabulary.source}: tokenizer.ggml.merges: found {error}, expected merges of tokens in the vocabulary; "
            f"the file is damaged, get it again"
        ) from error


def _add_special_tokens(backend: tokenizers.Tokenizer, vocabulary: GgufVocabulary) -> None:
    """Control tokens (parsed on request) and user-defined ones (always parsed)."""
    # Phi-3's template puts a line break after each control token, and the model never saw it.
    strips_right = "phi-3" in str(vocabulary.metadata.get("general.name", "")).lower().replace("phi3", "phi-3")
    named = {vocabulary.token_id(key) for key in ("bos_token_id", "unknown_token_id", *_STOP_KEYS)}
    control, user_defined = [], []
    for i, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        mislabelled = (kind == USER_DEFINED or i in named) and is_control_spelling(text)
        if text and (kind in (CONTROL, UNKNOWN) or mislabelled):
            rstrip = strips_right and text.startswith(("<|", "</s>")) and text != "<|endoftext|>"
            control.append(AddedToken(text, normalized=False, special=True, rstrip=rstrip))
        elif kind == USER_DEFINED and text:
            user_defined.append(AddedToken(text, normalized=False, special=False))
    backend.add_special_tokens(control)
    backend.add_tokens(user_defined)


def _special_tokens(vocabulary: GgufVocabulary) -> SpecialTokens:
    stops = (vocabulary.token_id(key) for key in _STOP_KEYS)
    return SpecialTokens(
        bos=vocabulary.token_id("bos_token_id"),
        eos=vocabulary.token_id("eos_token_id"),
        unk=vocabulary.token_id("unknown_token_id"),
        pad=vocabulary.token_id("padding_token_id"),
        stop=frozenset(stop for stop in stops if stop is not None),
    )


def _set_post_processor(
    backend: tokenizers.Tokenizer, vocabulary: GgufVocabulary, special: SpecialTokens, adds_bos: bool
) -> None:
    """What `add_special` adds: add_bos_token and add_eos_token of the file, else the family's default."""
    template, entries = ["$A"], []
    if special.bos is not None and vocabulary.flag("add_bos_token", adds_bos):
        template.insert(0, "bos")
        entries.append({"id": "bos", "ids": [special.bos], "tokens": [vocabulary.tokens[special.bos]]})
    if special.eos is not None and vocabulary.flag("add_eos_token", False):
        template.append("eos")
        entries.append({"id": "eos", "ids": [special.eos], "tokens": [vocabulary.tokens[special.eos]]})
    if entries:
        backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=entries)


def _config(vocabulary: GgufVocabulary, special: SpecialTokens) -> dict[str, Any]:
    """What a tokenizer_config.json for this vocabulary holds."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for name, token in (("bos", special.bos), ("eos", special.eos), ("unk", special.unk), ("pad", special.pad)):
        if token is not None:
            config[f"{name}_token"] = vocabulary.tokens[token]
    key = "tokenizer.chat_template"
    texts = {"default": vocabulary.metadata.get(key)}
    texts.update(
        (name[len(key) + 1 :], text) for name, text in vocabulary.metadata.items() if name.startswith(f"{key}.")
    )
    named = [{"name": name, "template": text} for name, text in texts.items() if isinstance(text, str)]
    if named:
        config["chat_template"] = named[0]["template"] if len(named) == 1 else named
    return config
