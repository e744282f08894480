"""`edgert neurons`: how often neurons are active on a text, kept in the folder and read where the model is streamed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from convert.conftest import LLAMA, write_folder
from engine.streamed_models import open_with_least
from safetensors.numpy import load_file

from edgert.convert import convert
from edgert.device.read_size import ReadSize
from edgert.engine import opening
from edgert.engine.memory_plan import MemoryPlanner
from edgert.engine.neuron_frequency import FILE_NAME, load, save
from edgert.engine.opening import LoadOptions
from edgert.errors import FileFormatError, UnsupportedModelError
from edgert.llm import DEFAULT_MODEL
from edgert.llm import load as load_model
from edgert.loader import open_model
from edgert.verify import verify

from .conftest import COMMAND, Run

LAYERS, NEURONS = 2, 500
NAMES = [f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(LAYERS)]
TEXT = "Once upon a time there was a cat. It sat on the mat, and the dog looked at it for a long while.\n" * 12


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a text, and what was counted on it."""
    folder = tmp_path_factory.mktemp("neurons")
    vocab_size = json.loads((DEFAULT_MODEL / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    config = LLAMA | {
        "architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2", "hidden_size": 256,
        "head_dim": 64, "intermediate_size": NEURONS, "num_hidden_layers": LAYERS, "vocab_size": vocab_size,
        "max_position_embeddings": 256,
    }  # fmt: skip
    source = write_folder(folder / "source", config, "float16").path
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEFAULT_MODEL / name, source / name)
    convert(source, folder / "model", quant="p4")
    (folder / "notes.txt").write_text(TEXT, encoding="utf-8")
    done = subprocess.run(
        [*COMMAND, "neurons", "model", "--text", "notes.txt"], capture_output=True, text=True, cwd=folder
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"model/{FILE_NAME}: ")
    assert f"{LAYERS} matrices, {LAYERS * NEURONS} neurons, " in done.stdout
    return folder


def test_each_neuron_has_its_share_of_the_tokens(counted: Path) -> None:
    with load_model(counted / "model") as llm:
        assert llm.tokenizer is not None
        ids = llm.tokenizer.encode(TEXT)
        length = min(512, llm.context)
        assert len(ids) > length
        active = np.zeros((LAYERS, NEURONS), np.int64)
        for begin in range(0, len(ids), length):
            llm.start_neuron_counts()
            llm.logits(ids[begin : begin + length])
            for layer, (num_tokens, counts) in enumerate(llm.stop_neuron_counts().values()):
                assert num_tokens == len(ids[begin : begin + length])
                active[layer] += counts
    # A plain safetensors file.
    found = load_file(counted / "model" / FILE_NAME)
    assert list(found) == NAMES
    for name, counts in zip(NAMES, active, strict=True):
        assert found[name].dtype == np.float32
        assert (found[name] == (counts / len(ids)).astype(np.float32)).all()
    assert 0.2 < active.mean() / len(ids) < 0.6  # random weights: half of the inputs are above 0
    kept = load(open_model(counted / "model"))
    assert kept.keys() == found.keys() and all((kept[name] == found[name]).all() for name in NAMES)


def test_the_rest_of_the_folder_stays_what_it_is(counted: Path, tmp_path: Path) -> None:
    shutil.copytree(counted / "model", tmp_path / "model")
    report = verify(tmp_path / "model")
    assert [finding.message for finding in report.findings if finding.level == "error"] == []
    (tmp_path / "model" / FILE_NAME).unlink()
    assert load(open_model(tmp_path / "model")) == {}


def test_a_model_under_a_budget_gives_the_same_answer(counted: Path, tmp_path: Path, monkeypatch) -> None:
    shutil.copytree(counted / "model", tmp_path / "plain", ignore=shutil.ignore_patterns(FILE_NAME))
    prompts = ([3], [4, 5])
    with load_model(counted / "model", context=256) as llm:
        whole = [llm.generate(prompt, max_tokens=20, temperature=0).text for prompt in prompts]
    for path in (counted / "model", tmp_path / "plain"):
        with open_with_least(monkeypatch, path, extra_bytes=60_000) as llm:
            found = [llm.generate(prompt, max_tokens=20, temperature=0) for prompt in prompts]
        assert [completion.text for completion in found] == whole
        streaming = found[0].timings.streaming
        assert streaming is not None and streaming.neurons is not None and streaming.neurons.hits > 0


def test_what_the_folder_has_reaches_the_stream(counted: Path, tmp_path: Path) -> None:
    shutil.copytree(counted / "model", tmp_path / "plain", ignore=shutil.ignore_patterns(FILE_NAME))
    kept = load_file(counted / "model" / FILE_NAME)
    for path, expected in ((counted / "model", [kept[name] for name in NAMES]), (tmp_path / "plain", [])):
        model = open_model(path)
        planner = MemoryPlanner(model=model, base_bytes=0, threads=2, context=256, batch_tokens=None, kv_format="f16")
        memory, store = planner.plan(planner.minimum_bytes()), Mock()
        set_stream = opening._stream(model, memory, LoadOptions(), ReadSize(chunk_bytes=1 << 20, depth=2))
        assert set_stream is not None
        set_stream(store)
        found = store.set_stream.call_args.kwargs
        assert found["neurons"] == NAMES
        assert len(found["neuron_frequency"]) == len(expected)
        assert all((a == b).all() for a, b in zip(found["neuron_frequency"], expected, strict=True))


def edited(path: Path, change) -> None:
    content = bytearray((path / FILE_NAME).read_bytes())
    (path / FILE_NAME).write_bytes(bytes(change(content)))


def with_shares(path: Path, shares: dict[str, np.ndarray]) -> None:
    save(path, shares, 1)


HALF = np.full(NEURONS, 0.5, np.float32)
WRONG = [
    (lambda path: edited(path, lambda c: c[:-1]), "found no frequencies of neurons (file holds"),
    (lambda path: edited(path, lambda c: b""), "found no frequencies of neurons (found 0 bytes"),
    (lambda path: edited(path, lambda c: c.replace(b'neurons_version":"1', b'neurons_version":"2')), "found '2'"),
    (
        lambda path: with_shares(path, {NAMES[0]: HALF}),
        "found 1 tensors (f32 [500]), expected f32 of 500 values for each of 2 matrices",
    ),
    (lambda path: with_shares(path, {NAMES[0]: HALF, NAMES[1]: HALF[1:]}), "2 tensors"),
    (lambda path: with_shares(path, {NAMES[0]: HALF, "other": HALF}), "2 tensors"),
    (lambda path: with_shares(path, dict.fromkeys(NAMES, -HALF)), "found a value that is not from 0 to 1"),
    (lambda path: with_shares(path, dict.fromkeys(NAMES, HALF + 1)), "found a value that is not from 0 to 1"),
    (lambda path: with_shares(path, dict.fromkeys(NAMES, HALF * np.nan)), "found a value that is not from 0 to 1"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_a_file_that_is_wrong_is_one_error(counted: Path, tmp_path: Path, monkeypatch, change, message: str) -> None:
    shutil.copytree(counted / "model", tmp_path / "model")
    change(tmp_path / "model")
    with pytest.raises(FileFormatError) as raised:
        open_with_least(monkeypatch, tmp_path / "model")
    assert message in str(raised.value) and FILE_NAME in str(raised.value)
    load_model(tmp_path / "model", context=256).close()  # where everything fits nobody reads it


def test_a_model_without_such_neurons_counts_none() -> None:
    with load_model() as llm, pytest.raises(UnsupportedModelError, match="found no matrix that lies neuron by neuron"):
        llm.start_neuron_counts()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["MODEL"], "--text: found none"),
        (["MODEL", "--text", "nowhere.txt"], "nowhere.txt: No such file"),
        (["MODEL", "--text", "/dev/null"], "--text: found no tokens"),
        (["MODEL", "--text", "NOTES", "--max-tokens", "0"], "--max-tokens: found 0"),
        (["DENSE", "--text", "NOTES"], "found no matrix that lies neuron by neuron"),
        (["SOURCE", "--text", "NOTES"], "expected a folder that edgert convert made"),
    ],
)
def test_what_is_wrong_is_one_line(counted: Path, edgert_run: Run, arguments: list[str], message: str) -> None:
    real = {
        "MODEL": counted / "model",
        "NOTES": counted / "notes.txt",
        "SOURCE": counted / "source",
        "DENSE": DEFAULT_MODEL,
    }
    done = edgert_run("neurons", *(str(real.get(word, word)) for word in arguments))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert len(done.stderr.splitlines()) == 1
