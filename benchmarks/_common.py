"""What every script here shares: the description of the machine, the report, children in another Python."""

import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent


def import_tree() -> None:
    """Lets a script see the edgert of this tree where it was built in place, else the installed one."""
    if any((ROOT / "edgert").glob("_core*.so")):
        sys.path.insert(0, str(ROOT))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """Name of the CPU, threads that we may use, memory in GiB, system."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def report(result: Mapping[str, Any], lines: Sequence[str], *, as_json: bool) -> None:
    """Prints machine, command and result; as one JSON object, or as text of which the last line is the figure."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    about = machine()
    if as_json:
        # What was not measured is a NaN, for which JSON has no word but null.
        known = json.loads(json.dumps(result), parse_constant=lambda _: None)
        print(json.dumps({"machine": about, "command": command, **known}, indent=1))
        return
    print(f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB, {about['system']}")
    print(f"$ {command}")
    print("\n".join(lines))


def run_child(python: str, script: str, *arguments: object, environment: Mapping[str, str] | None = None) -> Any:
    """Runs benchmarks/`script` with `python`; its last line of output is JSON. A failure ends this program."""
    command = [python, str(HERE / script), *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if run.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit code {run.returncode}\n{run.stderr[-2000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def read_bytes() -> int:
    """What this process has had read from disks so far, page faults included (Linux)."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise OSError("/proc/self/io: found no read_bytes")


def marks_of(tokens: Iterable[Any]) -> dict[str, list[float]]:
    """Seconds until each token came, the first one's after the prompt, and the bytes that were read meanwhile."""
    times, sums = [time.perf_counter()], [read_bytes()]
    for _ in tokens:
        times.append(time.perf_counter())
        sums.append(read_bytes())
    return {
        "token_s": [after - before for before, after in pairwise(times)],
        "token_read_bytes": [after - before for before, after in pairwise(sums)],
    }


def serve(subject: object) -> None:
    """Answers each line ["method", arguments...] of stdin with a line of JSON, until stdin ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        print(json.dumps(getattr(subject, method)(*arguments)), flush=True)


class Side:
    """A child that serves: it keeps its model open between the turns of a comparison. Context manager."""

    def __init__(self, python: str, script: str, *arguments: object) -> None:
        self._command = [python, str(HERE / script), "serve", *map(str, arguments)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by __exit__
        self._child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._read()

    def ask(self, method: str, *arguments: object) -> Any:
        assert self._child.stdin is not None
        print(json.dumps([method, *arguments]), file=self._child.stdin, flush=True)
        return json.loads(self._read())

    def _read(self) -> str:
        """The next line; a child that ends instead ends this program."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._errors.seek(0)
            text = self._errors.read().decode(errors="replace")
            sys.exit(f"{shlex.join(self._command)}: exit code {self._child.wait()}\n{text[-2000:]}")
        return line

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()
        self._errors.close()


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
