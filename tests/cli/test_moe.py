"""`edgert moe`: a routing recorded from a small model, and simulated."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from core.moe_model import EXPERTS, LAYERS, TOP_K, write_moe

from edgert.llm import DEFAULT_MODEL, load
from edgert.offload import expert_trace

from .conftest import Run

TEXT = "Once upon a time there was a cat. It sat on the mat, and the dog looked at it for a long while.\n" * 12


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a text and its routing."""
    import subprocess

    from .conftest import COMMAND

    folder = tmp_path_factory.mktemp("moe")
    write_moe(folder / "model")
    (folder / "notes.txt").write_text(TEXT, encoding="utf-8")
    arguments = ["moe", "profile", "model", "--text", "notes.txt", "-o", "routing.npz"]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("routing.npz: ")
    return folder


def test_profile_records_every_token_of_the_text(traced: Path) -> None:
    trace = expert_trace.load(traced / "routing.npz")
    with load(traced / "model") as llm:
        assert llm.tokenizer is not None
        ids = llm.tokenizer.encode(TEXT)
        length = min(512, llm.context)
        llm.start_routing_trace()
        llm.logits(ids[:length])
        layers = llm.stop_routing_trace()
    assert trace.token_ids.tolist() == list(ids)
    assert trace.text_starts.tolist() == list(range(0, len(ids), length))
    assert trace.experts.shape == (len(ids), LAYERS, TOP_K)
    for layer, (experts, weights, _) in enumerate(layers):
        assert (trace.experts[:length, layer] == experts).all()
        assert (trace.weights[:length, layer] == weights).all()


def test_profile_stops_at_max_tokens(traced: Path, edgert_run: Run, tmp_path: Path) -> None:
    done = edgert_run(
        "moe", "profile", str(traced / "model"), "--text", str(traced / "notes.txt"), "--max-tokens", "33"
    )
    assert done.returncode == 0, done.stderr
    trace = expert_trace.load(tmp_path / "routing.npz")
    assert (trace.num_tokens, trace.expert_bytes.shape) == (33, (LAYERS, EXPERTS))


def test_simulate_prints_a_table(traced: Path, edgert_run: Run) -> None:
    done = edgert_run("moe", "simulate", str(traced / "routing.npz"), "--budget", "40%,80%")
    assert done.returncode == 0, done.stderr
    runs, recalls = done.stdout.split("\n\n")
    header, *rows = runs.splitlines()
    assert header.split()[:4] == ["budget", "policy", "predictor", "hits"]
    assert len(rows) == 2 * (6 + 8)
    assert {row.split()[0] for row in rows} == {"40%", "80%"}
    belady = next(row for row in rows if "belady" in row)
    assert belady.split()[5] == "1.00"
    # By layer, and their mean in the rows above.
    names, *layers = (line.split() for line in recalls.splitlines())
    assert [layer[:2] for layer in layers] == [["layer", str(i)] for i in range(LAYERS)]
    for column, predictor in enumerate(names[1:], 2):
        shares = [float(layer[column].rstrip("%")) for layer in layers]
        (mean,) = {row.split()[-2] for row in rows if row.split()[2] == predictor}
        assert abs(sum(shares) / LAYERS - float(mean.rstrip("%"))) < 0.11
    alone = edgert_run("moe", "simulate", str(traced / "routing.npz"), "--budget", "40%", "--predictor", "none")
    assert (alone.returncode, "recall " in alone.stdout.split("\n", 1)[1]) == (0, False)


def test_simulate_as_json_and_as_a_picture(traced: Path, edgert_run: Run, tmp_path: Path) -> None:
    arguments = ["--policy", "lru,score", "--predictor", "none,blend", "--disk", "2MB/s", "--layer-ms", "4", "--json"]
    done = edgert_run("moe", "simulate", str(traced / "routing.npz"), *arguments, "--plot", "hits.svg")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["device"] == {
        "disk_bytes_per_s": 2e6,
        "layer_s": 0.004,
        "token_s": 0.0,
        "before_router": 0.5,
        "latency_s": 0.0,
    }
    names = [(run["policy"], run["predictor"]) for run in result["runs"][: len(result["runs"]) // 2]]
    assert names == [("lru", "none"), ("belady", "none"), ("lru", "blend"), ("score", "none"), ("score", "blend")]
    for run in result["runs"]:
        assert run["elapsed_s"] == pytest.approx(run["compute_s"] + run["stall_s"])
        assert 0 <= run["hit_rate"] <= 1 and len(run["recall"]) == LAYERS
    picture = ElementTree.parse(tmp_path / "hits.svg").getroot()
    lines = [element for element in picture if element.tag.endswith("polyline")]
    assert len(lines) == 5 and all(len(line.get("points", "").split()) == 2 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "TRACE", "--budget", "25"], "--budget: found '25', expected shares such as 25%,50%"),
        (["simulate", "TRACE", "--budget", "0%"], "--budget: found '0%'"),
        (["simulate", "TRACE", "--budget", "101%"], "--budget: found '101%'"),
        (["simulate", "TRACE", "--disk", "fast"], "--disk: found 'fast', expected a rate such as 500MB/s"),
        (["simulate", "TRACE", "--disk", "0MB/s"], "--disk: found '0MB/s'"),
        (["simulate", "TRACE", "--disk", "1.2.3MB/s"], "--disk: found '1.2.3MB/s'"),
        (["simulate", "TRACE", "--layer-ms", "0"], "--layer-ms: found 0.0"),
        (["simulate", "TRACE", "--layer-ms", "nan"], "--layer-ms: found nan"),
        (["simulate", "TRACE", "--policy", "mru"], "policy: found 'mru', expected one of lru"),
        (["simulate", "TRACE", "--predictor", "mru"], "predictor: found 'mru', expected one of none"),
        (["simulate", "nowhere.npz"], "nowhere.npz: no such file"),
        (["simulate", "NOTES"], "found no routing trace"),
        (["profile", "MODEL"], "--text: found none"),
        (["profile", "MODEL", "--text", "nowhere.txt"], "nowhere.txt: No such file"),
        (["profile", "MODEL", "--text", "TRACE"], "found no UTF-8"),
        (["profile", "MODEL", "--text", "/dev/null"], "--text: found no tokens"),
        (["profile", "MODEL", "--text", "NOTES", "--max-tokens", "0"], "--max-tokens: found 0"),
        (["profile", "DENSE", "--text", "NOTES"], "found no mixture-of-experts layer"),
    ],
)
def test_what_is_wrong_is_one_line(traced: Path, edgert_run: Run, arguments: list[str], message: str) -> None:
    real = {
        "TRACE": traced / "routing.npz",
        "NOTES": traced / "notes.txt",
        "MODEL": traced / "model",
        "DENSE": DEFAULT_MODEL,
    }
    done = edgert_run("moe", *(str(real.get(word, word)) for word in arguments))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_group_without_a_command_shows_its_commands(edgert_run: Run) -> None:
    done = edgert_run("moe")
    assert "profile" in done.stdout + done.stderr and "simulate" in done.stdout + done.stderr
    assert edgert_run("moe", "wrong").returncode == 2
    assert "Record which experts" in edgert_run("moe", "profile", "--help").stdout


def test_fewer_experts_are_said_to_be_lossy(traced: Path, edgert_run: Run) -> None:
    command = ["run", str(traced / "model"), "-p", "Once", "-n", "4", "--temp", "0", "--json"]
    plain = edgert_run(*command)
    assert (plain.returncode, plain.stderr, json.loads(plain.stdout)["lossy"]) == (0, "", {})
    fewer = edgert_run(*command, "--active-experts", "1", "--min-expert-weight", "0.25")
    assert (fewer.returncode, fewer.stderr) == (0, "lossy: --active-experts 1 --min-expert-weight 0.25\n")
    assert json.loads(fewer.stdout)["lossy"] == {"active_experts": 1, "min_expert_weight": 0.25}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--active-experts", "3"), "active_experts: found 3, expected at most the 2 that each token"),
        (("--miss-bits", "2"), "miss_bits: found experts in f32, expected p3 to p7, c3 or c4"),
        (("--miss-bits", "9"), "miss_bits: found 9, expected 2 to 7"),
        (("--min-expert-weight", "2"), "min_expert_weight: found 2.0, expected a finite number of at least 0"),
    ],
)
def test_what_a_mixture_cannot_do_is_one_error(
    traced: Path, edgert_run: Run, options: tuple[str, str], error: str
) -> None:
    done = edgert_run("run", str(traced / "model"), "-p", "Once", *options)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert error in done.stderr
