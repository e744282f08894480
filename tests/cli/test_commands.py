"""chat through a pipe, bench, doctor, convert, help."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import edgert
from edgert.cli.bench import thread_list
from edgert.device.kernels import KernelChoice, add_choices, cache_file
from edgert.errors import UsageError
from edgert.llm import DEFAULT_MODEL

from .conftest import Run


def test_chat_through_a_pipe_keeps_the_conversation(edgert_run: Run) -> None:
    done = edgert_run("chat", "--stats", piped="Hello\n\nWhat is your name?\n/exit\nnever\n")
    assert done.returncode == 0
    answers = done.stdout.splitlines()
    assert len(answers) == 2
    assert "reused" in done.stderr.splitlines()[-1]
    with edgert.load() as llm:
        messages = [{"role": "user", "content": "Hello"}]
        assert llm.chat(messages, temperature=0).text == answers[0]
        messages += [{"role": "assistant", "content": answers[0]}, {"role": "user", "content": "What is your name?"}]
        assert llm.chat(messages, temperature=0).text == answers[1]


def test_chat_begins_anew_after_clear(edgert_run: Run) -> None:
    done = edgert_run("chat", "--stats", piped="Hello\n/clear\nHello\n")
    first, second = done.stdout.splitlines()
    assert first == second
    assert "reused" not in done.stderr


def test_chat_ends_with_its_input(edgert_run: Run) -> None:
    assert edgert_run("chat", piped="").returncode == 0
    assert edgert_run("chat", "model.gguf", piped="hi\n").returncode == 1


def test_bench(edgert_run: Run) -> None:
    done = edgert_run("bench", str(DEFAULT_MODEL), "-t", "1,2", "-p", "64", "-n", "8", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [row["threads"] for row in result["rows"]] == [1, 2]
    for row in result["rows"]:
        assert row["prefill_tokens_per_s"] > 0
        assert row["decode_gb_per_s"] == pytest.approx(row["decode_tokens_per_s"] * result["token_bytes"] / 1e9)
        assert row["share"] == pytest.approx(row["decode_gb_per_s"] / row["bandwidth_gb_per_s"])
    shown = edgert_run("bench", "-t", "1", "-p", "16", "-n", "4")
    assert "share" in shown.stdout


def test_bench_shows_where_the_time_of_a_step_goes(edgert_run: Run) -> None:
    shown = edgert_run("bench", "-t", "1", "-p", "16", "-n", "4", "--profile")
    assert shown.returncode == 0, shown.stderr
    prefill, decode = shown.stdout.split("\n\n")[1:]
    assert prefill.startswith("prefill with 1 threads: ")
    assert decode.startswith("decode with 1 threads: ")
    assert "us a step of 3" in decode.splitlines()[0], "the first of 4 tokens comes from the prompt"
    for title in ("linear mlp.down_proj p8 256x768", "attention", "start of a step", "outside the core"):
        assert title in decode
    result = json.loads(edgert_run("bench", "-t", "1", "-p", "16", "-n", "4", "--profile", "--json").stdout)
    assert [(one["phase"], one["steps"]["num_runs"]) for one in result["profiles"]] == [("prefill", 1), ("decode", 3)]


@pytest.mark.parametrize("text", ["0", "a", "1,,2", "-1", ""])
def test_bench_refuses_thread_counts_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="-t: found"):
        thread_list(text)


def test_doctor(edgert_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, tmp_path = tmp_path / "cache", tmp_path / "folder"
    tmp_path.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    done = edgert_run("doctor", "--json", "--disk", str(tmp_path))
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)
    disk = profile["disk"]
    assert disk["is_chosen"]
    if disk["is_direct"]:
        kept = json.loads((cache / "edgert" / "disks.json").read_text())
        choice = [disk["chunk_bytes"], disk["depth"], disk["gb_per_s"]]
        assert kept["disks"] == {str(tmp_path.stat().st_dev): choice}
    assert profile["isa"] in [level["name"] for level in profile["isa_levels"]]
    assert profile["bandwidth_gb_per_s"]["1"] > 0
    assert {"p4", "q8_0", "f32"} <= profile["kernels"].keys()
    assert list(tmp_path.iterdir()) == []
    shown = edgert_run("doctor", "--disk", str(tmp_path), isa="scalar")
    assert "scalar; usable:" in shown.stdout
    assert re.search(r"^disk .* GB/s at .*, in requests of (256 KiB|1 MiB|2 MiB), \d+ at a time", shown.stdout, re.M)
    assert edgert_run("doctor", "--disk", "nowhere").returncode == 1


def test_doctor_shows_the_kernels_of_this_cpu(edgert_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    empty = edgert_run("doctor", "--kernels")
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "run a model while the machine is quiet" in empty.stderr
    choice = KernelChoice(
        isa="avx512vnni",
        threads=2,
        format="p4",
        rows=4096,
        cols=2048,
        tokens=8,
        kernel="dot",
        seconds={"avx2/dot": 2.5e-4, "dot": 1.25e-4},
    )
    add_choices(cache_file(), [choice])
    shown = edgert_run("doctor", "--kernels").stdout.splitlines()
    assert " ".join(shown[1].split()) == "avx512vnni 2 p4 4096 x 2048 5-8 dot: dot 125.0, avx2/dot 250.0"
    listed = json.loads(edgert_run("doctor", "--kernels", "--json").stdout)["choices"]
    assert [KernelChoice(**values) for values in listed] == [choice]
    monkeypatch.setenv("EDGERT_KERNEL", "magic")
    for arguments in (["doctor", "--kernels"], ["run", "hi"]):
        refused = edgert_run(*arguments)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.splitlines()[-1].startswith("error: EDGERT_KERNEL: found 'magic'")


def test_convert_then_run(edgert_run: Run, tmp_path: Path) -> None:
    done = edgert_run("convert", str(DEFAULT_MODEL), "copy")
    if done.returncode:
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    assert edgert_run("convert", "nowhere", "copy2").returncode == 1
    refused = edgert_run("convert", str(DEFAULT_MODEL), "copy3", "-q", "p4", "--q-bits", "4")
    assert refused.returncode == 1
    assert "found both" in refused.stderr
    assert not (tmp_path / "copy3").exists()


def test_fewer_bits_of_a_model_without_such_parts_are_one_error(edgert_run: Run) -> None:
    for arguments in (["run", str(DEFAULT_MODEL), "hi"], ["bench", str(DEFAULT_MODEL)]):
        done = edgert_run(*arguments, "--bits", "2")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "bits: found weights in p8, expected p2 to p7 or c2 to c4" in done.stderr


@pytest.mark.parametrize("name", ["run", "chat", "convert", "bench", "doctor"])
def test_each_help_has_a_line_an_example_and_options(edgert_run: Run, name: str) -> None:
    done = edgert_run(name, "--help")
    assert done.returncode == 0
    assert f"Usage: edgert {name}" in done.stdout
    assert f"    edgert {name}" in done.stdout or f"| edgert {name}" in done.stdout
    assert "Example" in done.stdout
    assert "Options:" in done.stdout


def test_version_and_no_command(edgert_run: Run) -> None:
    assert edgert_run("--version").stdout == f"edgert {edgert.__version__}\n"
    assert "Commands:" in edgert_run("--help").stdout


def test_a_plain_edgert_shows_what_to_do_first(edgert_run: Run) -> None:
    done = edgert_run()
    assert (done.returncode, done.stderr) == (0, "")
    commands = re.findall(r"^  edgert (\w+) ", done.stdout, re.MULTILINE)
    assert {"run", "chat", "convert", "doctor"} <= set(commands)
    assert "edgert --help" in done.stdout
    # The first thing to do works as it stands.
    line = next(line for line in done.stdout.splitlines() if line.startswith("  edgert run"))
    assert edgert_run(*shlex.split(line.split("   ")[0])[1:]).returncode == 0


def test_help_into_a_closed_pipe(command: list[str]) -> None:
    line = " ".join(f"'{part}'" for part in command)
    done = subprocess.run(["sh", "-c", f"{line} run --help | head -n 1"], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("Usage")
    assert done.stderr == ""
