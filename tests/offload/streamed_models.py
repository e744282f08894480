"""Small models in every form that weights are streamed from: made once, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from convert.conftest import GGUF_CONFIG, LLAMA, MOE, llama_shapes, write_folder, write_gguf
from convert.gguf_files import GGUF_METADATA, GGUF_NAMES, blocks, gguf_file

from edgert.convert import convert
from edgert.llm import DEFAULT_MODEL
from edgert.loader import Model, open_model

Make = Callable[[Path], Path]  # writes a model into an empty folder
CONTEXT = 256
SHAPE = GGUF_CONFIG | {"max_position_embeddings": CONTEXT, "num_hidden_layers": 4}
ODD_SHAPE = LLAMA | {
    "max_position_embeddings": CONTEXT, "num_hidden_layers": 4, "hidden_size": 256, "head_dim": 64,
    "intermediate_size": 500,  # the last strip is not full
}  # fmt: skip
# Squared ReLU: the columns of down_proj lie neuron by neuron; their last group is not full.
ARCEE = ODD_SHAPE | {"architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2"}
UNTIED = {"tie_word_embeddings": False}
LLAMA_KEYS = GGUF_METADATA | {"llama.context_length": CONTEXT}
EXPERTS, TOP_K, MIXTURE_LAYERS = 24, 3, 2
MIXTURE = MOE | {
    "max_position_embeddings": CONTEXT, "num_experts": EXPERTS, "num_experts_per_tok": TOP_K,
    "num_hidden_layers": MIXTURE_LAYERS, "hidden_size": 128, "head_dim": 32, "moe_intermediate_size": 192,
}  # fmt: skip
MIXTURE_KEYS = {
    "general.architecture": "qwen3moe",
    "qwen3moe.block_count": MIXTURE["num_hidden_layers"],
    "qwen3moe.context_length": CONTEXT,
    "qwen3moe.embedding_length": MIXTURE["hidden_size"],
    "qwen3moe.feed_forward_length": MIXTURE["intermediate_size"],
    "qwen3moe.attention.head_count": MIXTURE["num_attention_heads"],
    "qwen3moe.attention.head_count_kv": MIXTURE["num_key_value_heads"],
    "qwen3moe.attention.key_length": MIXTURE["head_dim"],
    "qwen3moe.attention.layer_norm_rms_epsilon": 1e-5,
    "qwen3moe.rope.freq_base": 10000.0,
    "qwen3moe.expert_count": EXPERTS,
    "qwen3moe.expert_used_count": TOP_K,
    "qwen3moe.expert_feed_forward_length": MIXTURE["moe_intermediate_size"],
}
MIXTURE_NAMES = GGUF_NAMES | {
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
    "lm_head": "output",
}  # fmt: skip


def converted(config: dict[str, object], quant: str, outliers: float | None = None) -> Make:
    def make(folder: Path) -> Path:
        source = write_folder(folder / "source", config, "float16")
        convert(source.path, folder / "out", quant=quant, outliers=outliers)
        return folder / "out"

    return make


def floats(config: dict[str, object], dtype: str, *, stacked: bool = False) -> Make:
    return lambda folder: write_folder(folder / "source", config, dtype, stacked=stacked).path


def gguf(kind: str, **others: str) -> Make:
    """q_proj and k_proj in RoPE pairs, as the architecture llama has them."""
    return lambda folder: write_gguf(folder / "model.gguf", kind, LLAMA_KEYS, others)[0]


def mixture_gguf(kind: str, *, top_k: int = TOP_K, num_layers: int = MIXTURE_LAYERS) -> Make:
    """All experts of a layer in one tensor; routers are f32."""

    def make(folder: Path) -> Path:
        rng = np.random.default_rng(5)
        stacks: dict[str, list[np.ndarray]] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for name, shape in llama_shapes(MIXTURE | {"num_hidden_layers": num_layers}):
            stem = name.removesuffix(".weight")
            if stem.startswith("model.layers."):
                _, _, layer, inner = stem.split(".", 3)
                is_expert = ".experts." in inner
                short = f"ffn_{inner.split('.')[-1][:-5]}_exps" if is_expert else MIXTURE_NAMES[inner]
                short = f"blk.{layer}.{short}"
            else:
                is_expert, short = False, MIXTURE_NAMES[stem]
            x = (rng.standard_normal(shape) * (0.1 if len(shape) == 2 else 1)).astype(np.float32)
            form = kind if len(shape) == 2 and "gate_inp" not in short else "f32"
            stacks.setdefault(f"{short}.weight", []).append(blocks(form, x) if len(shape) == 2 else x)
            shapes[f"{short}.weight"] = (EXPERTS, *shape) if is_expert else shape
        tensors = {
            name: (
                kind if len(shapes[name]) > 1 and "gate_inp" not in name else "f32",
                np.stack(raws) if len(raws) > 1 else raws[0],
                shapes[name],
            )
            for name, raws in stacks.items()
        }
        keys = {"qwen3moe.expert_used_count": top_k, "qwen3moe.block_count": num_layers}
        return gguf_file(folder / "model.gguf", MIXTURE_KEYS | keys, tensors)

    return make


DENSE: dict[str, Make] = {
    "bundled": lambda folder: DEFAULT_MODEL,
    "c4": converted(SHAPE, "c4"),
    "p4 untied": converted(ODD_SHAPE | UNTIED, "p4"),
    "q4_k": converted(SHAPE | UNTIED, "q4_k"),
    "q5_k": converted(SHAPE, "q5_k"),
    "c4 with outliers": converted(ODD_SHAPE, "c4", 0.02),
    "arcee c4": converted(ARCEE, "c4"),
    "arcee p8 with outliers": converted(ARCEE, "p8", 0.01),
    "f16": floats(ODD_SHAPE, "float16"),
    "f32 untied": floats(ODD_SHAPE | UNTIED, "float32"),
    "gguf q4_0": gguf("q4_0"),
    "gguf q4_k and f16": gguf("q4_k", q_proj="q8_0", down_proj="f16", v_proj="f32", embed_tokens="q6_k"),
}
MIXTURES: dict[str, Make] = {
    "c4": converted(MIXTURE, "c4"),
    "p4": converted(MIXTURE, "p4"),
    "f16": floats(MIXTURE, "float16"),
    "f32 stacked": floats(MIXTURE, "float32", stacked=True),
    "gguf q4_0": mixture_gguf("q4_0"),
    "gguf q8_0, one expert a token": mixture_gguf("q8_0", top_k=1),
}
DEEP_LAYERS = 3
DEEP_MIXTURES: dict[str, Make] = {
    "c4": converted(MIXTURE | {"num_hidden_layers": DEEP_LAYERS}, "c4"),
    "p4 with outliers": converted(MIXTURE | {"num_hidden_layers": DEEP_LAYERS}, "p4", 0.02),
    "f16": floats(MIXTURE | {"num_hidden_layers": DEEP_LAYERS}, "float16"),
    "gguf q4_0": mixture_gguf("q4_0", num_layers=DEEP_LAYERS),
}
VIEWS = {"p4 untied": 2, "c4": 3, "arcee c4": 2}  # and at fewer bits


class Models:
    """Opens them; each is written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[Make, Path] = {}

    def path(self, make: Make) -> Path:
        if make not in self._paths:
            folder = self._folder / str(len(self._paths))
            folder.mkdir()
            self._paths[make] = make(folder)
        return self._paths[make]

    def dense(self, name: str, bits: int | None = None) -> Model:
        return open_model(self.path(DENSE[name]), bits=bits)

    def mixture(self, name: str) -> Model:
        return open_model(self.path(MIXTURES[name]))

    def deep_mixture(self, name: str) -> Model:
        return open_model(self.path(DEEP_MIXTURES[name]))
