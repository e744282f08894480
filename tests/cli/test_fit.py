"""`edgert fit`: the plan from headers, the prediction from rates that it states."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from edgert.cli.fit_plan import KEYS
from edgert.llm import DEFAULT_MODEL

from .conftest import Run

GOLDEN = Path(__file__).parents[1] / "models" / "golden"


def fitted(edgert_run: Run, *arguments: str) -> dict[str, Any]:
    done = edgert_run("fit", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    values: dict[str, Any] = json.loads(done.stdout)
    assert values.keys() == KEYS.keys()
    return values


def test_a_model_that_fits(edgert_run: Run) -> None:
    values = fitted(edgert_run, str(DEFAULT_MODEL), "--ram", "1GiB", "-c", "256")
    plan, prediction = values["plan"], values["prediction"]
    assert (values["ram_bytes"], values["context"], values["kv_format"], values["bits"]) == (1 << 30, 256, "f16", None)
    assert plan["fits"]
    assert (plan["num_pieces"], plan["streamed_bytes_per_token"]) == (0, 0)
    spent = sum(values["budget"][f"{name}_bytes"] for name in ("base", "activation", "kv", "reserve"))
    assert spent + plan["resident_bytes"] <= 1 << 30
    fits_from = values["fits_from_bytes"]
    assert fitted(edgert_run, str(DEFAULT_MODEL), "--ram", str(fits_from), "-c", "256")["plan"]["fits"]
    assert not fitted(edgert_run, str(DEFAULT_MODEL), "--ram", str(fits_from - 1), "-c", "256")["plan"]["fits"]
    assert values["minimum_bytes"] < values["fits_from_bytes"] < 1 << 30
    assert values["disk"]["gb_per_s"] > 0
    assert (prediction["limit"], prediction["disk_s"], values["advice"]) == ("memory", 0, None)
    expected_s = values["token_bytes"] / (values["bandwidth_gb_per_s"] * 1e9 * 0.85)
    assert prediction["compute_s"] == pytest.approx(expected_s)
    assert prediction["tokens_per_s"] == pytest.approx(1 / expected_s)


def test_a_model_that_does_not_fit(edgert_run: Run, tmp_path: Path) -> None:
    whole = fitted(edgert_run, str(DEFAULT_MODEL), "--ram", "1GiB", "-c", "256")
    ram = (7 * whole["minimum_bytes"] + whole["fits_from_bytes"]) // 8
    values = fitted(edgert_run, str(DEFAULT_MODEL), "--ram", str(ram), "-c", "256")
    plan, prediction = values["plan"], values["prediction"]
    assert not plan["fits"]
    assert plan["num_pieces"] > 0
    assert 0 < plan["streamed_bytes_per_token"] < values["token_bytes"]
    assert plan["ring_bytes"] <= plan["prefill_ring_bytes"] <= plan["pool_bytes"]
    spent = sum(values["budget"][f"{name}_bytes"] for name in ("base", "activation", "kv", "reserve"))
    assert spent + plan["resident_bytes"] + plan["scratch_bytes"] + plan["pool_bytes"] <= ram
    assert prediction["disk_s"] == pytest.approx(plan["streamed_bytes_per_token"] / values["disk"]["gb_per_s"] / 1e9)
    assert prediction["tokens_per_s"] == pytest.approx(1 / max(prediction["disk_s"], prediction["compute_s"]))
    # With room for all of the weights it is as fast as what fits.
    last = values["budgets"][-1]
    assert (last["share"], last["ram_bytes"]) == (1.0, values["fits_from_bytes"])
    assert last["tokens_per_s"] == pytest.approx(1 / prediction["compute_s"])
    rates = [row["tokens_per_s"] for row in values["budgets"] if row["tokens_per_s"] is not None]
    assert rates == sorted(rates)
    shown = edgert_run("fit", str(DEFAULT_MODEL), "--ram", str(ram), "-c", "256")
    assert shown.returncode == 0
    assert shown.stderr == ""
    assert re.search(r"^weights .* stay in memory as a whole$", shown.stdout, re.MULTILINE)
    assert "are read for each token" in shown.stdout
    assert re.search(r"^prediction +[\d.]+ tokens/s; the limit is ", shown.stdout, re.MULTILINE)


def test_experts_and_what_fewer_bits_give(edgert_run: Run, tmp_path: Path) -> None:
    assert edgert_run("convert", str(GOLDEN / "mixtral.gguf"), "out").returncode == 0
    values = fitted(edgert_run, "out", "--ram", "1GiB")
    assert [row["bits"] for row in values["widths"]] == [3, 2]
    fits_from = [values["fits_from_bytes"], *(row["fits_from_bytes"] for row in values["widths"])]
    assert fits_from == sorted(fits_from, reverse=True)
    assert len(set(fits_from)) == 3
    assert all(row["tokens_per_s"] > values["prediction"]["tokens_per_s"] for row in values["widths"])
    narrow = fitted(edgert_run, "out", "--ram", "1GiB", "--bits", "3")
    assert narrow["bits"] == 3
    assert [row["bits"] for row in narrow["widths"]] == [2]
    assert narrow["fits_from_bytes"] == fits_from[1]
    shown = edgert_run("fit", "out", "--ram", "1GiB")
    assert "--bits 3: " in shown.stdout
    assert fitted(edgert_run, str(GOLDEN / "mixtral.gguf"), "--ram", "1GiB")["widths"] == []


def test_keys_and_values_count(edgert_run: Run) -> None:
    f16 = fitted(edgert_run, str(DEFAULT_MODEL), "--ram", "1GiB", "-c", "640")
    q8_0 = fitted(edgert_run, str(DEFAULT_MODEL), "--ram", "1GiB", "-c", "640", "--kv-format", "q8_0")
    assert q8_0["budget"]["kv_bytes"] / f16["budget"]["kv_bytes"] == pytest.approx(8.5 / 16)
    assert fitted(edgert_run, str(DEFAULT_MODEL))["ram_bytes"] > 0  # auto


def test_keys_and_values_on_disk_are_read_for_each_token(edgert_run: Run) -> None:
    command = (str(DEFAULT_MODEL), "--ram", "1GiB", "-c", "640", "--kv-ram", "500KiB")
    values = fitted(edgert_run, *command)
    budget = values["budget"]
    assert budget["kv_bytes"] + budget["kv_ring_bytes"] <= 500 << 10
    page_bytes = fitted(edgert_run, str(DEFAULT_MODEL), "--ram", "1GiB", "-c", "640")["budget"]["kv_bytes"] // 11
    assert budget["kv_bytes"] + values["kv_disk_bytes"] == 11 * page_bytes, "640 tokens and a page for a copy"
    disk_s = values["kv_disk_bytes"] / (values["disk"]["gb_per_s"] * 1e9)
    assert values["prediction"]["disk_s"] == pytest.approx(disk_s)
    shown = edgert_run("fit", *command)
    assert re.search(r"in memory, and .* to read ahead$", shown.stdout, re.MULTILINE)
    assert re.search(r"on disk, read for each token once the context is full$", shown.stdout, re.MULTILINE)


def test_below_the_minimum(edgert_run: Run) -> None:
    done = edgert_run("fit", str(DEFAULT_MODEL), "--ram", "20MiB")
    assert (done.returncode, done.stdout) == (1, "")
    stated = re.fullmatch(
        r"error: --ram: found 20 MiB, expected at least (\d+) MiB for this model: .* for the program, .*; "
        r"give it more, a smaller context, or a smaller model\n",
        done.stderr,
    )
    assert stated is not None, done.stderr
    assert edgert_run("fit", str(DEFAULT_MODEL), "--ram", f"{stated[1]}MiB").returncode == 0
    assert edgert_run("fit", str(DEFAULT_MODEL), "--ram", f"{int(stated[1]) - 1}MiB").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--ram", "3 bananas"), "error: ram: found '3 bananas', expected a size such as 3GiB, or auto\n"),
        (("--ram", "0"), "error: ram: found '0', expected a size such as 3GiB, or auto\n"),
        (("-c", "0"), "context: found 0, expected"),
        (("--kv-ram", "auto"), "error: kv_ram: found 'auto', expected a size such as 1GiB\n"),
        (("--kv-format", "f8"), "kv_format: found 'f8', expected one of"),
        (("--bits", "9"), "bits: found 9, expected 2 to 7"),
    ],
)
def test_wrong_values(edgert_run: Run, arguments: tuple[str, ...], error: str) -> None:
    done = edgert_run("fit", str(DEFAULT_MODEL), *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert error in done.stderr
    assert done.stderr.count("\n") == 1
