"""Is a budget of memory obeyed, and what does it cost? A model with `--ram` at shares of its size, against without.

Each budget is checked with `edgert run`: peak memory as the kernel counts it, token ids, what the page cache holds of
the files. Then it is timed token by token in rounds (no budget, first budget, second ...), and the disk is read before
and after each run. The files leave the page cache before every run. The floor of a token is the longer of two times:
its bytes over the disk's rate, and what it takes without a budget. Linux.

    python benchmarks/budget.py llama-8b/c4 llama-8b/q4_0_m --models FOLDER --check
    python benchmarks/budget.py llama-8b/c4 --models FOLDER --policies balanced first none --check
    python benchmarks/budget.py llama-8b/c4 --models FOLDER --shares 0.5 --prompt-tokens 2000 --check
    python benchmarks/budget.py llama-8b/c4 --models FOLDER --shares 0.6 --bits 2 --check
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _common import import_tree, markdown_table, report
from _disk import cached_bytes, evict, model_files, num_bytes, read_rate
from _duel import made, median
from _memory_group import Ended, run

import_tree()
from edgert.engine.offload_items import MIN_CONTEXT  # noqa: E402
from edgert.llm import DEFAULT_MODEL  # noqa: E402
from edgert.offload import POLICIES, Placement  # noqa: E402
from edgert.offload.prediction import predict  # noqa: E402

TEXT = "Once upon a time there was"
# Greedy, a model of random weights repeats one token, with and without mistakes.
SAMPLING = ("--temp", "2", "--seed", "1")
PROMPT_TOKENS = 4
# While a prompt was read, less of the model was kept: the first token reads that again.
SETTLING_TOKENS = 1
PEAK_BAR = 1.03
CACHED_BAR = 0.03  # of the budget
TIME_BAR = 1.15
PREDICTION_BAR = 0.15
PROMPT_READ_BAR, PROMPT_RATE_BAR = 1.1, 0.8


class Disk:
    """The rate of the disk between runs, with a model's files out of the page cache."""

    def __init__(self, files: Sequence[Path], seconds: float) -> None:
        self._files, self._seconds = files, seconds
        self._largest = max(files, key=lambda path: path.stat().st_size)

    def measure(self) -> float:
        return read_rate(self._largest, self._seconds)

    def timed(self, run_args: Sequence[object]) -> dict[str, Any]:
        """A run of _budget_ours.py, and the disk's rates before and after it."""
        before = self.measure()
        evict(self._files)
        ended = run([sys.executable, str(Path(__file__).with_name("_budget_ours.py")), *map(str, run_args)])
        if ended.failure:
            sys.exit(f"_budget_ours.py {' '.join(map(str, run_args))}: {ended.failure}")
        result: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
        return result | {"disk_rates": [before, self.measure()]}


def steady(run: dict[str, Any]) -> tuple[float, float]:
    """Seconds and bytes read of a token, the mean of those after the prompt's and the settling ones."""
    first = 1 + SETTLING_TOKENS
    times, sums = run["token_s"][first:], run["token_read_bytes"][first:]
    return sum(times) / len(times), sum(sums) / len(sums)


def answer(model: Path, files: Sequence[Path], arguments: argparse.Namespace, ram_bytes: int | None) -> dict[str, Any]:
    """What `edgert run` says and takes."""
    evict(files)
    options = [] if ram_bytes is None else ["--ram", str(ram_bytes)]
    command = [
        sys.executable, "-m", "edgert", "run", "-m", str(model), "-p", TEXT, "-n", str(arguments.tokens), *SAMPLING,
        "--ignore-eos", "--json", "--threads", str(arguments.threads), *options, *bits_options(arguments),
    ]  # fmt: skip
    ended: Ended = run(command)
    ids = json.loads(ended.out)["tokens"] if ended.failure is None else None
    return {"failure": ended.failure, "ids": ids, "peak_bytes": ended.peak_bytes, "cached_bytes": cached_bytes(files)}


def bits_options(arguments: argparse.Namespace) -> list[str]:
    return ["--bits", str(arguments.bits), "-c", str(MIN_CONTEXT)] if arguments.bits else []


def decode(name: str, model: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each budget and policy."""
    files = model_files(model)
    file_bytes = num_bytes(files)
    budgets = {share: int(share * file_bytes) for share in arguments.shares}
    expected = answer(model, files, arguments, None)
    if expected["failure"]:
        sys.exit(f"{name}: edgert run without a budget: {expected['failure']}")
    answers = {share: answer(model, files, arguments, ram_bytes) for share, ram_bytes in budgets.items()}
    cases = [(share, policy) for share in budgets if not answers[share]["failure"] for policy in arguments.policies]
    whole_runs: list[dict[str, Any]] = []
    runs: dict[tuple[float, str], list[dict[str, Any]]] = {case: [] for case in cases}
    disk = Disk(files, arguments.disk_seconds)
    basis = (model, arguments.threads, PROMPT_TOKENS, 1 + SETTLING_TOKENS + arguments.tokens)
    for _ in range(arguments.rounds):
        whole_runs.append(disk.timed([*basis, 0, POLICIES[0], arguments.bits]))
        for (share, policy), done in runs.items():
            done.append(disk.timed([*basis, budgets[share], policy, arguments.bits]))
    compute_s = median([steady(one)[0] for one in whole_runs])
    rows = []
    for share, ram_bytes in budgets.items():
        obeyed = answers[share] | {"has_same_ids": answers[share]["ids"] == expected["ids"]}
        row = {
            "case": name,
            "bits": arguments.bits,
            "share": share,
            "budget_bytes": ram_bytes,
            "file_bytes": file_bytes,
            **obeyed,
        }
        if obeyed["failure"]:
            rows.append(row | {"policy": ""})
        for policy in arguments.policies if not obeyed["failure"] else ():
            rows.append(row | {"policy": policy} | times(runs[share, policy], ram_bytes, file_bytes, compute_s))
    return rows


def times(runs: list[dict[str, Any]], ram_bytes: int, file_bytes: int, compute_s: float) -> dict[str, Any]:
    """What the runs of one budget took, against the floor and against what was predicted."""
    token_s, read_bytes = (median(values) for values in zip(*map(steady, runs), strict=True))
    rate = median([rate for one in runs for rate in one["disk_rates"]])
    floor_s = max(read_bytes / rate, compute_s)
    placement = Placement(**runs[-1]["placement"])
    predicted_s = predict(placement, disk_bytes_per_s=rate, compute_s=compute_s).token_s
    must_bytes = max(0, file_bytes - ram_bytes)
    return {
        "token_s": token_s, "token_read_bytes": read_bytes, "must_read_bytes": must_bytes, "disk_bytes_per_s": rate,
        "compute_s": compute_s, "ratio": token_s / floor_s, "ratio_must": token_s / max(must_bytes / rate, compute_s),
        "planned_read_bytes": placement.streamed_bytes_per_token, "predicted_s": predicted_s,
        "predicted_ratio": predicted_s / token_s, "runs": runs,
    }  # fmt: skip


def missed(row: dict[str, Any]) -> list[str]:
    """The bars that this budget does not reach, in words."""
    if row["failure"]:
        return [row["failure"]]
    out = []
    if (peak := row["peak_bytes"] / row["budget_bytes"]) > PEAK_BAR:
        out.append(f"peak {peak:.2f} > {PEAK_BAR} of the budget")
    if (cached := row["cached_bytes"] / row["budget_bytes"]) > CACHED_BAR:
        out.append(f"page cache {cached:.2f} > {CACHED_BAR} of the budget")
    if not row["has_same_ids"]:
        out.append("other tokens than without a budget")
    if row["policy"] == POLICIES[0] and row["ratio"] > TIME_BAR:
        out.append(f"time {row['ratio']:.2f} > {TIME_BAR} x the floor")
    if row["bits"] and row["token_read_bytes"] > 0:
        out.append(f"reads {row['token_read_bytes']:.0f} bytes a token at {row['bits']} bits")
    if row["policy"] == POLICIES[0] and abs(row["predicted_ratio"] - 1) > PREDICTION_BAR:
        out.append(f"predicted {row['predicted_ratio']:.2f} of what was measured")
    return out


def misplaced(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Where a policy is not faster than the next one, in words."""
    token_s = {(row["case"], row["share"], row["policy"]): row["token_s"] for row in rows if not row["failure"]}
    return [
        f"{case} at {share:.0%}: {better} {1e3 * seconds:.0f} ms, {worse} {1e3 * token_s[case, share, worse]:.0f} ms"
        for (case, share, better), seconds in token_s.items()
        for worse in POLICIES[POLICIES.index(better) + 1 :]
        if (case, share, worse) in token_s and seconds >= token_s[case, share, worse]
    ]


def prompts(name: str, model: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each budget: what a long prompt reads, and how fast it is."""
    files = model_files(model)
    file_bytes = num_bytes(files)
    disk = Disk(files, arguments.disk_seconds)
    basis = (model, arguments.threads, arguments.prompt_tokens, 1)
    budgets = {share: int(share * file_bytes) for share in arguments.shares}
    whole_runs: list[dict[str, Any]] = []
    runs: dict[float, list[dict[str, Any]]] = {share: [] for share in budgets}
    for _ in range(arguments.rounds):
        whole_runs.append(disk.timed(basis))
        for share, done in runs.items():
            done.append(disk.timed([*basis, budgets[share]]))
    whole_s = median([one["token_s"][0] for one in whole_runs])
    rows = []
    for share, done in runs.items():
        prompt_s = median([one["token_s"][0] for one in done])
        rows.append({
            "case": name, "share": share, "budget_bytes": budgets[share], "file_bytes": file_bytes,
            "prompt_tokens": arguments.prompt_tokens, "prompt_tokens_per_s": arguments.prompt_tokens / prompt_s,
            "whole_tokens_per_s": arguments.prompt_tokens / whole_s, "rate_ratio": whole_s / prompt_s,
            "load_read_bytes": median([one["load_read_bytes"] for one in done]),
            "read_ratio": median([one["token_read_bytes"][0] for one in done]) / file_bytes,
            "disk_bytes_per_s": median([rate for one in done for rate in one["disk_rates"]]), "runs": done,
        })  # fmt: skip
    return rows


def prompt_missed(row: dict[str, Any]) -> list[str]:
    out = []
    if row["read_ratio"] > PROMPT_READ_BAR:
        out.append(f"read {row['read_ratio']:.2f} > {PROMPT_READ_BAR} x the file")
    if row["rate_ratio"] < PROMPT_RATE_BAR:
        out.append(f"rate {row['rate_ratio']:.2f} < {PROMPT_RATE_BAR} of that without a budget")
    return out


DECODE_HEADER = [
    "case", "budget MiB", "of the file", "policy", "peak", "page cache MB", "same ids", "MB read/token",
    "file - budget MB", "disk MB/s", "compute ms", "token ms", "x the floor", "x with file - budget", "predicted",
]  # fmt: skip
PROMPT_HEADER = [
    "case", "budget MiB", "of the file", "tokens", "tokens/s", "without a budget", "ratio", "read x the file",
    "disk MB/s",
]  # fmt: skip


def decode_cells(row: dict[str, Any]) -> list[str]:
    cells = [row["case"], f"{row['budget_bytes'] / 2**20:.0f}", f"{row['share']:.0%}", row["policy"]]
    if row["failure"]:
        return [*cells, row["failure"], *[""] * (len(DECODE_HEADER) - len(cells) - 1)]
    return [
        *cells, f"{row['peak_bytes'] / row['budget_bytes']:.2f}", f"{row['cached_bytes'] / 1e6:.0f}",
        "yes" if row["has_same_ids"] else "no", f"{row['token_read_bytes'] / 1e6:.0f}",
        f"{row['must_read_bytes'] / 1e6:.0f}", f"{row['disk_bytes_per_s'] / 1e6:.0f}", f"{1e3 * row['compute_s']:.1f}",
        f"{1e3 * row['token_s']:.1f}", f"{row['ratio']:.2f}", f"{row['ratio_must']:.2f}",
        f"{row['predicted_ratio']:.2f}",
    ]  # fmt: skip


def prompt_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["case"], f"{row['budget_bytes'] / 2**20:.0f}", f"{row['share']:.0%}", str(row["prompt_tokens"]),
        f"{row['prompt_tokens_per_s']:.1f}", f"{row['whole_tokens_per_s']:.1f}", f"{row['rate_ratio']:.2f}",
        f"{row['read_ratio']:.2f}", f"{row['disk_bytes_per_s'] / 1e6:.0f}",
    ]  # fmt: skip


@contextmanager
def models(arguments: argparse.Namespace) -> Iterator[list[tuple[str, Path]]]:
    """(name, path) of each case; those that are synthesised for this run go with it."""
    with tempfile.TemporaryDirectory() as scratch:
        cases = [made(text, arguments.models or Path(scratch), DEFAULT_MODEL) for text in arguments.cases]
        yield [(case.name, case.ours) for case in cases]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["llama-1b/p4"], metavar="CASE", help="a model, or SHAPE/FORMAT")
    parser.add_argument(
        "--models", type=Path, help="folder where synthesised models are kept (default: a temporary one)"
    )
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[0.25, 0.5, 0.75], help="budgets / size of the files"
    )
    parser.add_argument(
        "--policies", nargs="+", default=POLICIES[:1], choices=POLICIES, help="ways to choose what stays"
    )
    parser.add_argument("--bits", type=int, default=0, help="of the weights that are used: then nothing shall be read")
    parser.add_argument("--prompt-tokens", type=int, default=0, help="measure prompts of so many tokens instead")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16, help="decoded tokens of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--disk-seconds", type=float, default=2.0, help="of reading, before and after each run")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a bar is missed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    is_prompt = arguments.prompt_tokens > 0
    with models(arguments) as found:
        rows = [row for case in found for row in (prompts if is_prompt else decode)(*case, arguments)]
    failures = [
        f"{row['case']} at {row['share']:.0%}{' ' + row['policy'] if 'policy' in row else ''}: {what}"
        for row in rows
        for what in (prompt_missed if is_prompt else missed)(row)
    ]
    failures += [] if is_prompt else misplaced(rows)
    verdict = [f"missed: {'; '.join(failures)}" if failures else "every bar that was measured is reached"]
    header, cells = (PROMPT_HEADER, prompt_cells) if is_prompt else (DECODE_HEADER, decode_cells)
    table = markdown_table(header, [cells(row) for row in rows])
    report({"rows": rows, "missed": failures}, table + verdict, as_json=arguments.json)
    sys.exit(arguments.check and bool(failures))


if __name__ == "__main__":
    main()
