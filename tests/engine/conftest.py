"""A tiny folder in Hugging Face's form, and the bundled model, opened once."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import edgert
from edgert.llm import LLM

VOCAB, HIDDEN, HEADS, HEAD_DIM, FFN, LAYERS = 48, 32, 2, 16, 48, 2
# A prompt with this token gives logits that are not finite.
POISON = 47


def make_folder(folder: Path, *, is_poisoned: bool) -> Path:
    """A random llama without a tokenizer; a poisoned one has an infinite embedding."""
    rng = np.random.default_rng(3)
    shapes = {"model.embed_tokens": (VOCAB, HIDDEN), "lm_head": (VOCAB, HIDDEN)}
    for i in range(LAYERS):
        p = f"model.layers.{i}"
        shapes |= {f"{p}.self_attn.{name}_proj": (HEADS * HEAD_DIM, HIDDEN) for name in "qkvo"}
        shapes |= {f"{p}.mlp.{name}_proj": (FFN, HIDDEN) for name in ("gate", "up")}
        shapes[f"{p}.mlp.down_proj"] = (HIDDEN, FFN)
    weights = {f"{name}.weight": rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    if is_poisoned:
        weights["model.embed_tokens.weight"][POISON] = np.inf
    norms = ["model.norm"] + [
        f"model.layers.{i}.{name}" for i in range(LAYERS) for name in ("input_layernorm", "post_attention_layernorm")
    ]
    weights |= {f"{name}.weight": np.ones(HIDDEN, dtype=np.float32) for name in norms}
    save_file(weights, folder / "model.safetensors")
    config = {
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("tiny"), is_poisoned=False)


@pytest.fixture(scope="session")
def poisoned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("poisoned"), is_poisoned=True)


@pytest.fixture
def tiny(tiny_folder: Path) -> Iterator[LLM]:
    with edgert.load(tiny_folder, threads=1) as llm:
        yield llm


@pytest.fixture(scope="session")
def bundled_model() -> Iterator[LLM]:
    with edgert.load(threads=2) as llm:
        yield llm


@pytest.fixture
def bundled(bundled_model: LLM) -> Iterator[LLM]:
    """The bundled model, without kept conversations; every test must leave no pages behind."""
    bundled_model.clear_cache()
    yield bundled_model
    bundled_model.clear_cache()
    assert bundled_model.kv_bytes == 0


@pytest.fixture
def load_with_pages(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> Callable[[int], LLM]:
    """Opens the tiny model with memory for so many KV pages, one of them kept back for copies."""
    from edgert.engine import kv_plan, opening
    from edgert.loader import open_model

    page = kv_plan.page_bytes(open_model(tiny_folder).graph, "f16")

    def load(num_pages: int) -> LLM:
        monkeypatch.setattr(opening, "available_bytes", lambda: round(num_pages * page / kv_plan.MEMORY_SHARE) + 1)
        return edgert.load(tiny_folder, threads=1, batch_tokens=32)

    return load
