"""Whole models with one broken rule each: configuration, shards, tokenizer, template, split files, our folder.

Name -> (what writes the model, the class of the error, a part of the message).
"""

import struct

from fuzz import seed_models
from fuzz.seed_models import ARRAY, BOOL, F32, STRING, U32, VOCAB

from edgert.errors import (
    ChatTemplateError,
    ConfigError,
    EdgertError,
    FileFormatError,
    ModelNotFoundError,
    TokenizerError,
    UnsupportedFormatError,
    UnsupportedModelError,
)  # fmt: skip

from .model_builders import (
    GONE,
    TENSORS,
    Build,
    bpe,
    config,
    file,
    folder,
    ggml,
    gguf,
    own,
    replaced,
    sentencepiece,
    settings,
    shards,
    split,
    tokenizer,
    weight_map,
    without,
)  # fmt: skip
from .own_folder import OWN_BROKEN, PACKED

Case = tuple[Build, type[EdgertError], str]

FIRST, SECOND = "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"
NO, COUNT = b"split.no" + struct.pack("<I", U32), b"split.count" + struct.pack("<I", U32)
TOTAL = b"split.tensors.count" + struct.pack("<I", U32)
ONE, TWO = struct.pack("<I", 1), struct.pack("<I", 2)
SPLIT: dict[str, Case] = {
    "a file missing": (split(lambda p: (p / SECOND).unlink()), ModelNotFoundError, "all of its files are needed"),
    "numbers exchanged": (
        split(replaced(SECOND, NO + ONE, NO + TWO)),
        FileFormatError,
        "split.no: found 2, expected 1",
    ),
    "another name": (
        split(lambda p: (p / SECOND).unlink() or (p / FIRST).rename(p / "a.gguf")),
        FileFormatError,
        "found one of 2 files of a model, expected its name to end in",
    ),
    "60000 files": (
        split(replaced(FIRST, COUNT + TWO, COUNT + struct.pack("<I", 60000))),
        FileFormatError,
        "split.count: found 60000, expected 0 to 1024",
    ),
    "a tensor in two files": (
        split(replaced(SECOND, b"blk.1.attn_norm.weight", b"blk.0.attn_norm.weight")),
        FileFormatError,
        "found it in another file too",
    ),
    "tensors that do not add up": (
        split(replaced(FIRST, TOTAL + struct.pack("<I", len(TENSORS)), TOTAL + struct.pack("<I", 99))),
        FileFormatError,
        f"found {len(TENSORS)} tensors in 2 files, expected 99",
    ),
}

INDEX = "model.safetensors.index.json"
SHARD_1, SHARD_2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
SHARDS: dict[str, Case] = {
    "index no object": (shards([1]), FileFormatError, "index.json: found a JSON list, expected an object"),
    "index without files": (shards({"weight_map": {}}), FileFormatError, "weight_map: found {}, expected an object"),
    "index leads up": (shards(weight_map(norm="../x")), FileFormatError, "found file name '../x', expected a plain"),
    "index absolute": (shards(weight_map(norm="/etc/passwd")), FileFormatError, "found file name '/etc/passwd'"),
    "index with a NUL": (shards(weight_map(norm="a\0b")), FileFormatError, r"found file name 'a\x00b'"),
    "index with an escape": (shards(weight_map(norm="\33[2J")), FileFormatError, r"found file name '\x1b[2J'"),
    "index names the folder": (shards(weight_map(norm="..")), FileFormatError, "found file name '..'"),
    "index names numbers": (shards(weight_map(norm=3)), FileFormatError, "found file name 3"),  # type: ignore[arg-type]
    "shard missing": (shards({}, lambda p: (p / SHARD_2).unlink()), ModelNotFoundError, f"{SHARD_2}: found no such"),
    "tensor not in its shard": (
        shards(weight_map(norm=SHARD_2), lambda p: (p / SHARD_2).write_bytes((p / SHARD_1).read_bytes()) and None),
        FileFormatError,
        "expected it",
    ),
    "no index": (shards({}, lambda p: (p / INDEX).unlink()), FileFormatError, "found 2 safetensors files"),
    "pickles only": (
        folder(file("pytorch_model.bin", b"PK\3\4"), lambda p: (p / "model.safetensors").unlink()),
        UnsupportedFormatError,
        "found a PyTorch pickle, expected safetensors or GGUF",
    ),
    "no weights": (
        folder(lambda p: (p / "model.safetensors").unlink()),
        ModelNotFoundError,
        "expected a safetensors file too",
    ),
    "a tensor missing": (without("model.norm.weight"), FileFormatError, "'model.norm.weight' not found"),
    "a tensor too many": (
        folder(tensors=TENSORS | {"extra.weight": TENSORS["model.norm.weight"]}),
        FileFormatError,
        "extra.weight",
    ),
    "a tensor of another shape": (
        folder(tensors=TENSORS | {"model.norm.weight": TENSORS["model.norm.weight"][:32]}),
        FileFormatError,
        "expected",
    ),
}

CONFIG: dict[str, Case] = {
    "no config": (folder(lambda p: (p / "config.json").unlink()), ModelNotFoundError, "found no config.json"),
    "config no JSON": (folder(file("config.json", '{"a": 1,}')), FileFormatError, "no valid JSON at byte 8"),
    "config no UTF-8": (folder(file("config.json", b'{"a": "\xff"}')), FileFormatError, "not UTF-8 at byte 7"),
    "config a list": (folder(file("config.json", "[]")), FileFormatError, "config.json: found a JSON list"),
    "config empty": (folder(file("config.json", "")), FileFormatError, "no valid JSON at byte 0"),
    "config key twice": (folder(file("config.json", '{"a": 1, "a": 2}')), FileFormatError, "key 'a' occurs twice"),
    "config with NaN": (folder(file("config.json", '{"a": NaN}')), FileFormatError, "NaN is not a JSON number"),
    "config nested": (folder(file("config.json", '{"a":' * 99999)), FileFormatError, "nested too deeply"),
    "config of many values": (
        folder(file("config.json", '{"a": [' + "[]," * 400_000 + "1]}")),
        FileFormatError,
        "values, expected at most",
    ),
    "config too large": (folder(file("config.json", " " * ((32 << 20) + 1))), FileFormatError, "found 33554433 bytes"),
    "no model_type": (config(model_type=GONE), ConfigError, "model_type: found nothing, expected a string"),
    "model_type a number": (config(model_type=3), ConfigError, "model_type: found 3, expected a string"),
    "unknown model_type": (config(model_type="perceptron"), UnsupportedModelError, "perceptron"),
    "no hidden_size": (config(hidden_size=GONE), ConfigError, "hidden_size: found nothing"),
    "hidden_size 0": (config(hidden_size=0), ConfigError, "hidden_size: found 0, expected a whole number"),
    "hidden_size 2^40": (config(hidden_size=2**40), ConfigError, "hidden_size: found 1099511627776"),
    "hidden_size a string": (config(hidden_size="64"), ConfigError, "hidden_size: found '64'"),
    "hidden_size of another model": (config(hidden_size=128), FileFormatError, "expected"),
    "layers beyond the tensors": (config(num_hidden_layers=2**30), ConfigError, "num_hidden_layers: found 1073741824"),
    "no heads": (config(num_attention_heads=0), ConfigError, "num_attention_heads: found 0"),
    "heads that do not divide": (config(num_key_value_heads=3), ConfigError, "num_key_value_heads"),
    "head_dim odd": (config(head_dim=15), ConfigError, "head_dim"),
    "epsilon 0": (config(rms_norm_eps=0), ConfigError, "rms_norm_eps: found 0, expected a finite number above 0"),
    "theta negative": (config(rope_theta=-1.0), ConfigError, "rope_theta: found -1.0"),
    "unknown scaling": (config(rope_scaling={"rope_type": "odd"}), UnsupportedModelError, "odd"),
    "scaling by nothing": (config(rope_scaling={"rope_type": "linear"}), ConfigError, "factor: found nothing"),
    "scaling a string": (
        config(rope_scaling="linear"),
        ConfigError,
        "found 'linear', expected an object",
    ),
    "unknown activation": (config(hidden_act="tanh"), UnsupportedModelError, "hidden_act is 'tanh'"),
    "flag a number": (config(tie_word_embeddings=1), ConfigError, "tie_word_embeddings: found 1, expected true or"),
    "end token a string": (config(eos_token_id="x"), ConfigError, "eos_token_id: found 'x'"),
    "generation_config broken": (
        folder(file("generation_config.json", "{")),
        FileFormatError,
        "generation_config.json: found no valid JSON",
    ),
    "GGUF without layers": (gguf({"llama.block_count": GONE}), ConfigError, "block_count: found nothing"),
    "GGUF of 2^31 layers": (gguf({"llama.block_count": (U32, 2**31)}), ConfigError, "2147483648"),
    "GGUF theta NaN": (gguf({"llama.rope.freq_base": (F32, float("nan"))}), ConfigError, "found nan"),
    "GGUF width a string": (gguf({"llama.embedding_length": (STRING, "64")}), ConfigError, "found '64'"),
    "GGUF of no architecture": (gguf({"general.architecture": GONE}), ConfigError, "general.architecture"),
    "GGUF architecture unknown": (
        gguf({"general.architecture": (STRING, "perceptron")}),
        UnsupportedModelError,
        "perc",
    ),
    "GGUF tensor missing": (
        gguf(tensors={key: value for key, value in TENSORS.items() if key != "model.norm.weight"}),
        FileFormatError,
        "'output_norm.weight' not found",
    ),
    "GGUF vocabulary only": (gguf(tensors={}), FileFormatError, "found a vocabulary and no weights"),
}

CTC = {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
A = {"Sequence": {"id": "A", "type_id": 0}}
TEMPLATE_PROCESSING = {"type": "TemplateProcessing", "single": [A] * 300, "pair": [A], "special_tokens": {}}
TOKENIZER: dict[str, Case] = {
    "tokenizer no JSON": (folder(file("tokenizer.json", "{")), TokenizerError, "tokenizer.json: found no tokenizer"),
    "tokenizer without a model": (tokenizer(model=GONE), TokenizerError, "found no tokenizer"),
    "tokenizer model unknown": (bpe(type="Odd"), TokenizerError, "found no tokenizer"),
    "merges of no tokens": (bpe(merges=["zz yy"]), TokenizerError, "found no tokenizer"),
    "added token without an id": (tokenizer(added_tokens=[{"content": "x"}]), TokenizerError, "found no tokenizer"),
    "decoder unknown": (tokenizer(decoder=CTC), TokenizerError, "CTC"),
    "tokenizer of 2000 steps": (
        tokenizer(pre_tokenizer={"type": "Sequence", "pretokenizers": [LEVEL] * 2000}),
        TokenizerError,
        "found 2000 steps, expected at most 64",
    ),
    "tokenizer whose cuts double": (
        tokenizer(pre_tokenizer={"type": "Sequence", "pretokenizers": [LEVEL] * 20}),
        TokenizerError,
        "make a text 1048576 times as long, expected at most 256",
    ),
    "tokenizer whose replacements grow": (
        tokenizer(normalizer={"type": "Sequence", "normalizers": [REPLACE] * 3}),
        TokenizerError,
        "make a text 2000000000 times as long",
    ),
    "tokenizer that repeats the text": (
        tokenizer(
            post_processor={"type": "TemplateProcessing", "single": [A] * 300, "pair": [A], "special_tokens": {}}
        ),
        TokenizerError,
        "600 times as long",
    ),
    "token id of 2^32": (
        bpe(vocab=seed_models.tokenizer_json()["model"]["vocab"] | {"zz": 2**32 - 1}),
        TokenizerError,
        "found token id 4294967295, expected at most 16777215",
    ),
    "settings no JSON": (
        folder(file("tokenizer_config.json", "x")),
        FileFormatError,
        "tokenizer_config.json: found no",
    ),
    "settings a list": (folder(file("tokenizer_config.json", "[]")), FileFormatError, "tokenizer_config.json: found a"),
    "special tokens no JSON": (
        folder(file("special_tokens_map.json", "{")),
        FileFormatError,
        "special_tokens_map.json: found no valid",
    ),
    "GGUF model unknown": (ggml("model", STRING, "odd"), TokenizerError, "tokenizer.ggml.model: found 'odd'"),
    "GGUF pre-tokenizer unknown": (ggml("pre", STRING, "odd"), TokenizerError, "tokenizer.ggml.pre: found 'odd'"),
    "GGUF tokens a string": (ggml("tokens", STRING, "abc"), TokenizerError, "tokens: found str, expected an array"),
    "GGUF no tokens": (gguf({"tokenizer.ggml.tokens": GONE}), TokenizerError, "found no tokens"),
    "GGUF tokens of numbers": (ggml("tokens", ARRAY, [1, 2]), TokenizerError, "tokens[0]: found 1, expected str"),
    "GGUF types too few": (ggml("token_type", ARRAY, [1]), TokenizerError, "token_type: found 1 entries"),
    "GGUF scores too few": (sentencepiece(scores=(ARRAY, [0.5])), TokenizerError, "scores: found 1 entries"),
    "GGUF merge of one": (ggml("merges", ARRAY, ["ab"]), TokenizerError, "merges[0]: found 'ab', expected two parts"),
    "GGUF merge of no tokens": (ggml("merges", ARRAY, ["zz yy"]), TokenizerError, "expected merges of tokens"),
    "GGUF bos beyond": (ggml("bos_token_id", U32, VOCAB), TokenizerError, "bos_token_id found 300, expected"),
    "GGUF eos a string": (ggml("eos_token_id", STRING, "x"), ConfigError, "eos_token_id: found 'x', expected"),
    "GGUF flag a number": (ggml("add_bos_token", U32, 2), TokenizerError, "add_bos_token: found 2, expected true or"),
    "GGUF space flag a number": (
        sentencepiece(add_space_prefix=(U32, 1)),
        TokenizerError,
        "add_space_prefix: found 1, expected true or",
    ),
    "GGUF piece too long": (
        sentencepiece(tokens=(ARRAY, ["a" * 5000] * VOCAB)),
        TokenizerError,
        "found a piece of 5000 characters, expected at most",
    ),
    "GGUF pieces of pieces": (
        sentencepiece(tokens=(ARRAY, ["a" * (i + 1) for i in range(VOCAB)]), token_type=(ARRAY, [1] * VOCAB)),
        TokenizerError,
        "ways to join 300 pieces",
    ),
}

LOOP = "{% for i in range(10**9) %}{% endfor %}"
TEMPLATE: dict[str, Case] = {
    "template a number": (settings(chat_template=3), ChatTemplateError, "found int, expected a template"),
    "templates without names": (settings(chat_template=[{"a": "b"}]), ChatTemplateError, "expected a template, or"),
    "template no UTF-8": (folder(file("chat_template.jinja", b"a\xff")), ChatTemplateError, "found no UTF-8 at byte 1"),
    "template too large": (
        folder(file("chat_template.jinja", " " * (5 << 20))),
        FileFormatError,
        "found 5242880 bytes, expected at most",
    ),
    "template too long": (settings(chat_template=" " * (300 << 10)), ChatTemplateError, "found 307200 characters"),
    "template that does not end": (settings(chat_template="\n{% if"), ChatTemplateError, "line 2"),
    "template of unknown tags": (settings(chat_template="{% frobnicate %}"), ChatTemplateError, "frobnicate"),
    "template that loops": (settings(chat_template=LOOP), ChatTemplateError, "line 1: found"),
    "template that grows": (
        settings(chat_template="{% set x = 'ab' * 2**30 %}"),
        ChatTemplateError,
        "a string of 2147483648 characters",
    ),
    "template that prints": (
        settings(chat_template="{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}"),
        ChatTemplateError,
        "characters",
    ),
    "template that recurs": (
        settings(chat_template="{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        ChatTemplateError,
        "nested too deeply",
    ),
    "template that looks inside": (settings(chat_template="{{ ''.__class__.__mro__ }}"), ChatTemplateError, "unsafe"),
    "template that includes": (settings(chat_template="{% include 'x' %}"), ChatTemplateError, "line 1"),
    "template that refuses": (settings(chat_template="{{ raise_exception('no user') }}"), ChatTemplateError, "no user"),
    "GGUF template a flag": (
        gguf({"tokenizer.chat_template": (BOOL, True)}),
        ChatTemplateError,
        "found bool, expected",
    ),
    "GGUF template that divides": (
        gguf({"tokenizer.chat_template": (STRING, "{{ 1 // 0 }}")}),
        ChatTemplateError,
        "division",
    ),
}

OWN: dict[str, Case] = {
    **{name: (own(described), FileFormatError, message) for name, (described, message) in OWN_BROKEN.items()},
    "another version": (own({"w": PACKED}, "2"), UnsupportedFormatError, "found '2', expected '1'"),
}

CASES: dict[str, dict[str, Case]] = {
    "split": SPLIT, "shards": SHARDS, "config": CONFIG, "tokenizer": TOKENIZER, "template": TEMPLATE, "own": OWN,
}  # fmt: skip
