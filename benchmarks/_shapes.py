"""Models of real shapes: their configuration, their matrices, and which format llama.cpp's quantiser gives to each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


def llama(hidden: int, feed_forward: int, layers: int, heads: int, kv_heads: int, *, is_tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": feed_forward, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": hidden // heads, "vocab_size": 128256, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "max_position_embeddings": 8192, "tie_word_embeddings": is_tied, "hidden_act": "silu",
        "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


def qwen3() -> dict[str, Any]:
    return llama(1024, 3072, 28, 16, 8, is_tied=True) | {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128, "vocab_size": 151936,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    }  # fmt: skip


def arcee() -> dict[str, Any]:
    return llama(2048, 12288, 16, 32, 8, is_tied=True) | {
        "architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2", "mlp_bias": False,
        "vocab_size": 32000,
    }  # fmt: skip


def mixture(layers: int) -> dict[str, Any]:
    return llama(2048, 6144, layers, 32, 4, is_tied=False) | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
        "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 32000, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    }  # fmt: skip


SHAPES = {
    "llama-1b": llama(2048, 8192, 16, 32, 8, is_tied=True),
    "llama-1b-8l": llama(2048, 8192, 8, 32, 8, is_tied=True),
    "llama-8b": llama(4096, 14336, 32, 32, 8, is_tied=False),
    "qwen3-0.6b": qwen3(),
    "arcee-1b": arcee(),
    "moe-2l": mixture(2),
    "moe-8l": mixture(8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A matrix, or a norm (cols 0). `experts`: how many of them lie in one tensor of a GGUF file; 0: it has no expert.

    name: as a checkpoint has it, without ".weight", and of experts without their number.
    """

    name: str
    role: str
    rows: int
    cols: int = 0
    layer: int = -1
    experts: int = 0

    def checkpoint_name(self, expert: int) -> str:
        """The name of one expert's matrix, or the name."""
        return self.name.replace(".experts.", f".experts.{expert}.") + ".weight"


def tensors(config: dict[str, Any]) -> Iterator[Tensor]:
    """Every tensor, in the order of the model; gate, up and down of a layer one after the other."""
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    q_rows, kv_rows = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    experts = config.get("num_experts", 0)
    width = config["moe_intermediate_size"] if experts else config["intermediate_size"]
    yield Tensor(name="model.embed_tokens", role="embedding", rows=config["vocab_size"], cols=hidden)
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}"
        yield Tensor(name=f"{p}.input_layernorm", role="norm", rows=hidden)
        for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
            yield Tensor(name=f"{p}.self_attn.{name}_proj", role=f"attn_{name}", rows=rows, cols=hidden, layer=i)
        yield Tensor(name=f"{p}.self_attn.o_proj", role="attn_o", rows=hidden, cols=q_rows, layer=i)
        if config["model_type"].startswith("qwen3"):
            yield Tensor(name=f"{p}.self_attn.q_norm", role="norm", rows=head_dim)
            yield Tensor(name=f"{p}.self_attn.k_norm", role="norm", rows=head_dim)
        yield Tensor(name=f"{p}.post_attention_layernorm", role="norm", rows=hidden)
        if experts:
            yield Tensor(name=f"{p}.mlp.gate", role="router", rows=experts, cols=hidden, layer=i)
        unit = f"{p}.mlp.experts" if experts else f"{p}.mlp"
        for name, rows, cols in (("gate", width, hidden), ("up", width, hidden), ("down", hidden, width)):
            if name == "gate" and config["model_type"] == "arcee":
                continue
            yield Tensor(name=f"{unit}.{name}_proj", role=f"mlp_{name}", rows=rows, cols=cols, layer=i, experts=experts)
    yield Tensor(name="model.norm", role="norm", rows=hidden)
    if not config["tie_word_embeddings"]:
        yield Tensor(name="lm_head", role="output", rows=config["vocab_size"], cols=hidden)


# Files in which llama.cpp's quantiser gives some matrices another format, and the format of the others.
MIXES = {"q4_0_m": "q4_0", "q4_k_m": "q4_k", "q2_k_m": "q2_k", "tq2_0_m": "tq2_0"}


def tensor_format(kind: str, tensor: Tensor, config: dict[str, Any]) -> str:
    """The format of a matrix in a file of that kind: a format by itself, or one of MIXES."""
    if tensor.role == "norm":
        return "f32"
    if kind not in MIXES:
        return kind
    base = MIXES[kind]
    is_output = tensor.role == "output" or (tensor.role == "embedding" and config["tie_word_embeddings"])
    if is_output:
        return "q6_k"
    exceptions: dict[str, str] = {}
    if kind == "q4_k_m" and _gets_more_bits(tensor.layer, config["num_hidden_layers"]):
        exceptions = {"attn_v": "q6_k", "mlp_down": "q6_k"}
    elif kind == "q2_k_m":
        heads_of_a_key = config["num_attention_heads"] // config["num_key_value_heads"]
        exceptions = {"attn_v": "q4_k" if heads_of_a_key >= 4 else "q3_k", "attn_o": "q3_k", "mlp_down": "q3_k"}
    elif kind == "tq2_0_m":
        exceptions = {"embedding": "q4_k"}
    return exceptions.get(tensor.role, base)


def _gets_more_bits(layer: int, layers: int) -> bool:
    """The first and the last eighth of the layers, and every third of the others."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
