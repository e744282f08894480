"""Small valid models for the mutations: a Hugging Face folder, the same as a GGUF file, and folders of ours."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD = 300, 64, 2, 4, 2, 16, 96
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN,
    "intermediate_size": FEED_FORWARD, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu", "attention_bias": False,
    "mlp_bias": False, "torch_dtype": "float16", "bos_token_id": 0, "eos_token_id": [0, 2],
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
}  # fmt: skip
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
Q8_0 = 8  # the tensor type of GGUF; 0 is float32
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5  # value types of GGUF
ALIGNMENT = 32


def byte_tokens() -> list[str]:
    """The 256 characters that stand for bytes in byte-level BPE, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    stand_ins = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(stand_ins)) for byte in range(256)]


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges."""
    tokens = ["<|end|>", "<|start|>", "<|stop|>", *byte_tokens()]
    merges = []
    for first, second in ("th", "he", "an", "in", "er", "on", "re"):
        tokens.append(first + second)
        merges.append(f"{first} {second}")
    tokens += [f"[PAD{i}]" for i in range(len(tokens), VOCAB)]
    return tokens, merges


def weights(rng: np.random.Generator) -> dict[str, NDArray[np.float16]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        p = f"model.layers.{i}"
        shapes |= {
            f"{p}.input_layernorm.weight": (HIDDEN,),
            f"{p}.post_attention_layernorm.weight": (HIDDEN,),
            f"{p}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{p}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{p}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{p}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{p}.mlp.gate_proj.weight": (FEED_FORWARD, HIDDEN),
            f"{p}.mlp.up_proj.weight": (FEED_FORWARD, HIDDEN),
            f"{p}.mlp.down_proj.weight": (HIDDEN, FEED_FORWARD),
        }
    return {name: rng.normal(0, 0.2, shape).astype(np.float16) for name, shape in shapes.items()}


def tokenizer_json() -> dict[str, Any]:
    tokens, merges = vocabulary()
    special = [
        {"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True} for i in range(3)
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }  # fmt: skip


def safetensors_bytes(header: dict[str, Any], content: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def write_safetensors(path: Path, tensors: dict[str, NDArray[np.float16]]) -> None:
    header, content = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.tobytes()
        header[name] = {
            "dtype": "F16", "shape": list(tensor.shape), "data_offsets": [len(content), len(content) + len(raw)]
        }  # fmt: skip
        content += raw
    path.write_bytes(safetensors_bytes(header, content))


def write_folder(folder: Path, tensors: dict[str, NDArray[np.float16]]) -> None:
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    settings = {"bos_token": "<|end|>", "eos_token": "<|stop|>", "chat_template": CHAT_TEMPLATE}
    for name, value in (
        ("config.json", CONFIG), ("tokenizer.json", tokenizer_json()), ("tokenizer_config.json", settings),
        ("generation_config.json", {"eos_token_id": [0, 2], "temperature": 0.7}),
    ):  # fmt: skip
        (folder / name).write_text(json.dumps(value), encoding="utf-8")


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _key_value(key: str, kind: int, value: Any) -> bytes:
    if kind == STRING:
        body = _string(value)
    elif kind == ARRAY and isinstance(value[0], str):
        body = struct.pack("<IQ", STRING, len(value)) + b"".join(map(_string, value))
    elif kind == ARRAY and isinstance(value[0], float):
        body = struct.pack(f"<IQ{len(value)}f", F32, len(value), *value)
    elif kind == ARRAY:
        body = struct.pack(f"<IQ{len(value)}i", I32, len(value), *value)
    else:
        body = struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)
    return _string(key) + struct.pack("<I", kind) + body


def q8_0_blocks(tensor: NDArray[np.float16]) -> bytes:
    """Blocks of 32 values: a float16 scale and 32 int8 codes."""
    blocks = tensor.astype(np.float32).reshape(-1, 32)
    scale = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(blocks / np.maximum(scale.astype(np.float32), 1e-8)).clip(-127, 127).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), codes.view(np.uint8)], axis=1).tobytes()


def gguf_name(name: str) -> str:
    for old, new in (
        ("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"), ("self_attn.o_proj", "attn_output"),
        ("self_attn.", "attn_"), ("mlp.", "ffn_"), ("_proj", ""),
    ):  # fmt: skip
        name = name.replace(old, new)
    return name


BYTE_LEVEL_KEYS: list[tuple[str, int, Any]] = [
    ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
    ("tokenizer.ggml.tokens", ARRAY, vocabulary()[0]), ("tokenizer.ggml.merges", ARRAY, vocabulary()[1]),
    ("tokenizer.ggml.token_type", ARRAY, [3] * 3 + [1] * (VOCAB - 3)),
    ("tokenizer.ggml.bos_token_id", U32, 0), ("tokenizer.ggml.eos_token_id", U32, 2),
    ("tokenizer.ggml.add_bos_token", BOOL, False), ("tokenizer.chat_template", STRING, CHAT_TEMPLATE),
]  # fmt: skip
_PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"thenaior", "th", "the"]
SENTENCEPIECE_KEYS: list[tuple[str, int, Any]] = [
    ("tokenizer.ggml.model", STRING, "llama"),
    ("tokenizer.ggml.tokens", ARRAY, _PIECES + [f"[PAD{i}]" for i in range(len(_PIECES), VOCAB)]),
    ("tokenizer.ggml.scores", ARRAY, [float(-i) for i in range(VOCAB)]),
    ("tokenizer.ggml.token_type", ARRAY, [2, 3, 3] + [6] * 256 + [1] * (len(_PIECES) - 259)
     + [5] * (VOCAB - len(_PIECES))),
    ("tokenizer.ggml.unknown_token_id", U32, 0), ("tokenizer.ggml.bos_token_id", U32, 1),
    ("tokenizer.ggml.eos_token_id", U32, 2), ("tokenizer.ggml.add_space_prefix", BOOL, True),
]  # fmt: skip
MODEL_KEYS: list[tuple[str, int, Any]] = [
    ("general.architecture", STRING, "llama"), ("general.alignment", U32, ALIGNMENT),
    ("llama.context_length", U32, 128), ("llama.embedding_length", U32, HIDDEN),
    ("llama.block_count", U32, LAYERS), ("llama.feed_forward_length", U32, FEED_FORWARD),
    ("llama.attention.head_count", U32, HEADS), ("llama.attention.head_count_kv", U32, KV_HEADS),
    ("llama.attention.key_length", U32, HEAD_DIM), ("llama.attention.value_length", U32, HEAD_DIM),
    ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), ("llama.rope.freq_base", F32, 10000.0),
    ("llama.rope.dimension_count", U32, HEAD_DIM), ("llama.vocab_size", U32, VOCAB),
]  # fmt: skip


def write_gguf(path: Path, tensors: dict[str, NDArray[np.float16]], pairs: list[tuple[str, int, Any]]) -> None:
    """Version 3; matrices in q8_0, vectors in float32. The rows of q and k are not permuted: the weights are random."""
    infos, content = b"", b""
    for name, tensor in tensors.items():
        content += bytes(-len(content) % ALIGNMENT)
        kind = Q8_0 if tensor.ndim == 2 else 0
        shape = tensor.shape[::-1]
        infos += _string(gguf_name(name)) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(content))
        content += q8_0_blocks(tensor) if kind == Q8_0 else tensor.astype(np.float32).tobytes()
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    header += b"".join(_key_value(*pair) for pair in pairs) + infos
    path.write_bytes(header + bytes(-len(header) % ALIGNMENT) + content)


def write_split_gguf(folder: Path, tensors: dict[str, NDArray[np.float16]]) -> None:
    """The model in two files; the first has the metadata."""
    folder.mkdir()
    names = list(tensors)
    for number, chosen in enumerate((names[:7], names[7:])):
        pairs = [("split.no", U32, number), ("split.count", U32, 2), ("split.tensors.count", U32, len(names))]
        if number == 0:
            pairs += MODEL_KEYS + BYTE_LEVEL_KEYS
        write_gguf(folder / f"m-{number + 1:05}-of-00002.gguf", {name: tensors[name] for name in chosen}, pairs)


def write_shards(folder: Path, tensors: dict[str, NDArray[np.float16]]) -> None:
    """The Hugging Face folder with its weights in two files and an index, and the template in a file of its own."""
    write_folder(folder, tensors)
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    index = {}
    for number, chosen in enumerate((names[:7], names[7:])):
        name = f"model-{number + 1:05}-of-00002.safetensors"
        write_safetensors(folder / name, {key: tensors[key] for key in chosen})
        index.update(dict.fromkeys(chosen, name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def write_seeds(folder: Path, seed: int) -> None:
    """Every seed model, into an empty folder; those of our own format are made by `edgert convert`."""
    tensors = weights(np.random.default_rng(seed))
    write_folder(folder / "huggingface", tensors)
    write_shards(folder / "shards", tensors)
    write_gguf(folder / "byte_level.gguf", tensors, MODEL_KEYS + BYTE_LEVEL_KEYS)
    write_gguf(folder / "sentencepiece.gguf", tensors, MODEL_KEYS + SENTENCEPIECE_KEYS)
    write_split_gguf(folder / "split", tensors)
    for kind in ("p4", "p2", "c4"):
        command = [sys.executable, "-m", "edgert", "convert", folder / "huggingface", folder / kind, "-q", kind]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
