"""Write GGUF files from a Hugging Face folder with the gguf package, quantised by llama.cpp, so that an independent
program wrote them.

Runs in an environment with gguf, llama-cpp-python and numpy:
    python benchmarks/make_gguf.py MODEL_FOLDER OUT_FOLDER --types f32 f16 q8_0 q5_1 q2_k q6_k
A .gguf file in float32 may stand in the place of MODEL_FOLDER: then it is quantised only.
--dequantised writes beside each quantised file x.gguf a file x-as-f32.gguf with the same weights in float32.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "arcee": gguf.MODEL_ARCH.ARCEE,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
}
# llama.cpp turns neighbouring rows of q and k; Hugging Face turns the two halves.
ROPE_IN_PAIRS = {"llama", "arcee", "mistral", "mixtral", "smollm3"}
MIXTRAL_NAMES = {
    ".block_sparse_moe.experts.": ".mlp.experts.",
    ".w1.weight": ".gate_proj.weight",
    ".w2.weight": ".down_proj.weight",
    ".w3.weight": ".up_proj.weight",
}
FILE_TYPES = {
    "f16": "F16", "q8_0": "Q8_0", "q4_0": "Q4_0", "q4_1": "Q4_1", "q5_0": "Q5_0", "q5_1": "Q5_1", "q2_k": "Q2_K",
    "q3_k": "Q3_K_S", "q4_k": "Q4_K_S", "q5_k": "Q5_K_S", "q6_k": "Q6_K",
}  # fmt: skip
# Files in which llama.cpp gives some tensors more bits; our q2_k_m is what it calls Q2_K.
MIXES = {"q2_k_m": "Q2_K", "q3_k_l": "Q3_K_L", "q4_k_m": "Q4_K_M", "q5_k_m": "Q5_K_M"}


def read_tensors(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Every tensor of the folder's safetensors files, as float32 (read here: the package needs not be installed)."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        content = np.memmap(path, np.uint8, "r")
        header_bytes = int(content[:8].view("<u8")[0])
        header = json.loads(content[8 : 8 + header_bytes].tobytes())
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
            raw = np.ascontiguousarray(content[begin:end])
            if entry["dtype"] == "BF16":
                wide = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                wide = raw.view({"F16": "<f2", "F32": "<f4"}[entry["dtype"]]).astype(np.float32)
            tensors[name] = wide.reshape(entry["shape"])
    return tensors


def rope_pairs(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Row h * d + t * d/2 + j to row h * d + 2 j + t (d: head dimension)."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


def gguf_tensors(config: dict[str, Any], tensors: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """The tensors under their GGUF names; experts are stacked into one tensor of (experts, rows, columns)."""
    architecture = ARCHITECTURES[config["model_type"]]
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    out: dict[str, NDArray[np.float32]] = {}
    experts: dict[str, dict[int, NDArray[np.float32]]] = {}
    for name, tensor in tensors.items():
        if config["model_type"] in ROPE_IN_PAIRS and ".self_attn.q_proj." in name:
            tensor = rope_pairs(tensor, config["num_attention_heads"])
        if config["model_type"] in ROPE_IN_PAIRS and ".self_attn.k_proj." in name:
            tensor = rope_pairs(tensor, config["num_key_value_heads"])
        for theirs, ours in MIXTRAL_NAMES.items():
            name = name.replace(theirs, ours)
        if ".mlp.experts." in name:
            layer, _, rest = name.partition(".mlp.experts.")
            index, _, projection = rest.partition(".")
            experts.setdefault(f"{layer}.mlp.experts.{projection}", {})[int(index)] = tensor
            continue
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        out[_gguf_name(names, name)] = tensor
    for name, by_index in experts.items():
        out[_gguf_name(names, name)] = np.stack([by_index[i] for i in range(len(by_index))])
    return out


def _gguf_name(names: Any, name: str) -> str:
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None:
        sys.exit(f"{name}: found no GGUF name for it")
    return str(found)


def add_config(writer: gguf.GGUFWriter, config: dict[str, Any], folder: Path) -> None:
    writer.add_name(folder.name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    partial = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    writer.add_rope_dimension_count(int(head_dim * partial))
    writer.add_rope_freq_base(config.get("rope_theta") or rope["rope_theta"])
    add_rope_scaling(writer, config, rope, head_dim)
    if config.get("sliding_window") and config["model_type"] in ("mistral", "mixtral", "phi3"):
        writer.add_sliding_window(config["sliding_window"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    # llama.cpp takes 4 for every SmolLM3 and has no key for another interval; edgert reads this one.
    interval = config.get("no_rope_layer_interval", 4)
    regular = [int((layer + 1) % interval != 0) for layer in range(config["num_hidden_layers"])]
    if (config.get("no_rope_layers") or regular) != regular:
        sys.exit(
            f"no_rope_layers: found {config['no_rope_layers']}, expected every layer number {interval} without RoPE"
        )
    if interval != 4:
        writer.add_uint32("smollm3.no_rope_layer_interval", interval)
    num_experts = config.get("num_local_experts") or config.get("num_experts")
    if num_experts:
        writer.add_expert_count(num_experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if config["model_type"] == "qwen3_moe":
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def add_rope_scaling(writer: gguf.GGUFWriter, config: dict[str, Any], rope: dict[str, Any], head_dim: int) -> None:
    """As llama.cpp's converter does it: linear and YaRN as metadata, Llama 3 and LongRoPE as tensors of divisors."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    length = config["max_position_embeddings"]
    original = config.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings") or length
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR if kind == "linear" else gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        if kind == "yarn":
            writer.add_rope_scaling_orig_ctx_len(original)
    elif kind == "llama3":
        theta = config.get("rope_theta") or rope["rope_theta"]
        turns = rope["original_max_position_embeddings"] / (2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim))
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
        writer.add_tensor("rope_freqs.weight", (1 / ((1 - kept) / rope["factor"] + kept)).astype(np.float32))
    elif kind in ("longrope", "su"):
        scale = length / original
        factor = np.sqrt(1 + np.log(scale) / np.log(original)) if scale > 1 else 1.0
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(rope.get("attention_factor") or factor))
        for which in ("long", "short"):
            writer.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], np.float32))
    elif kind != "default":
        sys.exit(f"rope_type: found {kind}, expected one that GGUF files can say")


def add_tokenizer(writer: gguf.GGUFWriter, config: dict[str, Any], folder: Path) -> None:
    """A byte-level BPE tokenizer.json with the GPT-2 pre-tokenizer; other kinds are refused.

    Without a tokenizer.json: a vocabulary without meaning, for tests of logits.
    """
    if not (folder / "tokenizer.json").exists():
        words = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
        words += [f"<{index}>" for index in range(len(words), config["vocab_size"])]
        words = words[: config["vocab_size"]]
        writer.add_tokenizer_model("llama")
        writer.add_token_list(words)
        writer.add_token_scores([0.0] * len(words))
        kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * 256
        kinds += [gguf.TokenType.NORMAL] * len(words)
        writer.add_token_types([int(kind) for kind in kinds[: len(words)]])
        return
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if tokenizer["model"]["type"] != "BPE" or (tokenizer["pre_tokenizer"] or {}).get("type") != "ByteLevel":
        sys.exit(f"{folder / 'tokenizer.json'}: found {tokenizer['model']['type']}, expected byte-level BPE of GPT-2")
    tokens = [f"[PAD{i}]" for i in range(config["vocab_size"])]
    types = [int(gguf.TokenType.UNUSED)] * len(tokens)
    for text, index in tokenizer["model"]["vocab"].items():
        tokens[index], types[index] = text, int(gguf.TokenType.NORMAL)
    for added in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], int(kind)
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_add_bos_token(bool(settings.get("add_bos_token", False)))
    ids = {token: index for index, token in enumerate(tokens)}
    for key, add in (
        ("bos", writer.add_bos_token_id),
        ("eos", writer.add_eos_token_id),
        ("pad", writer.add_pad_token_id),
    ):
        token = settings.get(f"{key}_token")
        if token is not None:
            add(ids[token if isinstance(token, str) else token["content"]])
    if settings.get("chat_template"):
        writer.add_chat_template(settings["chat_template"])


def write_float(folder: Path, out: Path, *, as_f16: bool) -> None:
    """The model in float32, or with its matrices in float16 (vectors and routers stay in float32)."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[config["model_type"]]])
    add_config(writer, config, folder)
    add_tokenizer(writer, config, folder)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if as_f16 else gguf.LlamaFileType.ALL_F32)
    for name, tensor in gguf_tensors(config, read_tensors(folder)).items():
        is_narrow = as_f16 and tensor.ndim > 1 and "ffn_gate_inp" not in name
        writer.add_tensor(name, tensor.astype(np.float16) if is_narrow else tensor)
    _finish(writer)


def write_dequantised(source: Path, out: Path) -> None:
    """The file `source` with every tensor as float32: what a run without rounding of activations would compute with."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, str(reader.get_field("general.architecture").contents()))
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "general.file_type"):
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values.reshape([int(n) for n in reversed(tensor.shape)]))
    _finish(writer)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantise(source: Path, out: Path, file_type: str) -> None:
    """Every matrix in the one type (`pure`) or a mix, by llama.cpp; where columns do not fit, it takes another type."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{(FILE_TYPES | MIXES)[file_type]}")
    params.pure = file_type in FILE_TYPES
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(out).encode(), params)
    if code != 0:
        sys.exit(f"{out}: llama_model_quantize returned {code}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="Hugging Face folder, or a GGUF file in float32")
    parser.add_argument("out", type=Path, help="folder for NAME-TYPE.gguf")
    parser.add_argument("--types", nargs="+", default=["f32", *FILE_TYPES], choices=["f32", *FILE_TYPES, *MIXES])
    parser.add_argument("--dequantised", action="store_true", help="also write NAME-TYPE-as-f32.gguf")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    is_gguf = arguments.model.suffix == ".gguf"
    name = arguments.model.stem.removesuffix("-f32") if is_gguf else arguments.model.resolve().name
    source = arguments.model if is_gguf else arguments.out / f"{name}-f32.gguf"
    if not is_gguf and not source.exists():
        write_float(arguments.model, source, as_f16=False)
    for kind in arguments.types:
        out = arguments.out / f"{name}-{kind}.gguf"
        if kind == "f32" and is_gguf and not out.exists():
            write_dequantised(source, out)
        elif kind == "f16" and not is_gguf and not out.exists():
            write_float(arguments.model, out, as_f16=True)
        elif kind != "f32" and not out.exists():
            quantise(source, out, kind)
        if arguments.dequantised and kind != "f32":
            wide = arguments.out / f"{name}-{kind}-as-f32.gguf"
            if not wide.exists():
                write_dequantised(out, wide)
        print(out)


if __name__ == "__main__":
    main()
