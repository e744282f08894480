"""The scripts run, and count what they say: on the bundled model, without llama.cpp."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import FOLDER, script
from convert.conftest import LLAMA, write_folder

from edgert.llm import DEFAULT_MODEL


def run(name: str, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, str(FOLDER / name), *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    return result


def test_decode_without_a_peer() -> None:
    (result,) = run("decode.py", DEFAULT_MODEL, "--rounds", 1, "--tokens", 16, "--check")["results"]
    assert result["ratio_python"] is None
    assert result["missed"] == []
    assert result["share"] == pytest.approx(result["tokens_per_s"] * result["token_bytes"] / result["bandwidth"])


def test_prefill_and_small_batches_without_a_peer() -> None:
    (result,) = run("prefill.py", DEFAULT_MODEL, "--rounds", 1, "--tokens", 64)["results"]
    assert result["tokens_per_s"] > 0
    (result,) = run("small_batch.py", DEFAULT_MODEL, "--rounds", 1, "--threads", 1)["results"]
    assert list(result["ratios"]) == [str(n) for n in result["sizes"]]
    assert result["ratios"]["1"] == 1
    assert result["ratios"]["64"] > 1


def test_kernels_count_published_bits() -> None:
    results = run(
        "kernels.py", "--formats", "p4", "q4_k", "--shapes", "4096x4096", "--threads", 1, "--weight-bytes", 20_000_000,
        "--passes", 1, "--rounds", 1,
    )["results"]  # fmt: skip
    bits_of = {"p4": 4.25, "q4_k": 4.5}
    assert {result["format"] for result in results} == set(bits_of)
    for result in results:  # one for each kernel of a format
        bits = bits_of[result["format"]]
        assert result["gb_per_s"] * 1e3 * result["us"] == pytest.approx(4096 * 4096 * bits / 8)
        assert result["gmac_per_s"] == pytest.approx(result["g_weights_per_s"])


def test_bars_of_kernels() -> None:
    kernels = script("kernels")
    sys.modules.pop("kernels")  # else it would hide tests/kernels
    assert kernels.gemv_bar("avx512vnni", "p4", 4.25) == 0.95
    assert kernels.gemv_bar("amx", "q6_k", 6.56) == 0.92
    assert kernels.gemv_bar("avx512vnni", "tq1_0", 1.69) == 0.80
    assert kernels.gemv_bar("avx2", "p1", 1.25) is None
    fast = {"tokens": 1, "isa": "avx2", "format": "p2", "bits": 2.25, "share": 0.91, "shape": "", "threads": 2}
    assert kernels.missed(fast) is None
    assert kernels.missed(fast | {"share": 0.89}) == "share 0.89 < 0.9"


def test_bytes_of_a_token_are_those_that_llama_cpp_reports() -> None:
    """MB of the weights that a token touches, as measured with llama.cpp's own files of these shapes."""
    results = {one["case"]: one for one in run("floor.py", "--bandwidth", 24)["results"]}
    expected = {"q4_0_m": 4357, "q4_k_m": 4616, "q2_k_m": 2998, "q8_0": 7974}
    assert {kind: round(results[f"llama-8b/{kind}"]["bytes"] / 1e6) for kind in expected} == expected
    assert results["llama-8b/q8_0"]["most_tokens_per_s"] == pytest.approx(24e9 / 7974e6, rel=1e-3)


def test_a_case_that_is_none_is_one_error() -> None:
    done = subprocess.run([sys.executable, str(FOLDER / "decode.py"), "llama-9b/p4"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("case: found 'llama-9b/p4', expected")


def test_neurons(tmp_path: Path) -> None:
    """Those that are active, and no others; half of the inputs of a squared ReLU are below 0 at random."""
    config = LLAMA | {
        "architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2", "intermediate_size": 500,
        "max_position_embeddings": 256,
    }  # fmt: skip
    model = write_folder(tmp_path / "arcee", config, "float16").path
    result = run("neurons.py", model, "--format", "p4", "--tokens", 100, "--cache", 0.3)
    assert result["is_identical"]
    assert result["requested_of_missed"] <= 1.3
    assert result["requested_bytes"] <= result["sector_bytes"]
    assert result["neurons"] == 1000
    assert result["record_bytes"] == 64 // 16 * 8
    assert 0.2 < result["active_share"] < 0.6
    missed = (1 - result["hit_rate"]) * result["active_share"] * result["neurons"] * result["steps"]
    assert result["missed_bytes"] == pytest.approx(missed * result["record_bytes"])
    assert "calibrated" not in result
    known = run("neurons.py", model, "--format", "p4", "--tokens", 100, "--cache", 0.3, "--calibration", "random")
    assert known["is_identical"]
    assert known["hit_rates"] == result["hit_rates"]
    assert known["hit_rates"]["prompt"] == 0
    assert all(0 < known["calibrated"]["hit_rates"][phase] < 1 for phase in ("first", "later"))
    missed = (1 - known["calibrated"]["hit_rate"]) * result["active_share"] * result["neurons"] * result["steps"]
    assert known["calibrated"]["missed_bytes"] == pytest.approx(missed * result["record_bytes"])
