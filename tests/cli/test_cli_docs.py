"""docs/cli.md is what the parser says, and the examples of help run as they stand."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from core.moe_model import write_moe
from docs.placeholders import read_weights, write_arcee

from edgert.cli.app import COMMANDS, make_command
from edgert.cli.moe import record
from edgert.convert import convert
from edgert.llm import load
from edgert.offload.expert_trace import save

from .conftest import COMMAND

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "models" / "golden"
MODEL = ROOT / "edgert" / "assets" / "default"
# Names that stand for something of the reader's, on a hub that is not there.
NOT_RUN = ("ORG/NAME",)
COMMAND_TREE = make_command()


def examples() -> list[str]:
    """The lines of every `Example:` in the help of a command."""
    lines = []
    for name in COMMANDS:
        for paragraph in COMMAND_TREE.get_command(None, name).help.split("\n\n"):
            if paragraph.startswith("\b"):
                lines += [line.strip() for line in paragraph.strip("\b\n").split("\n")[1:]]
    return [line for line in lines if not any(part in line for part in NOT_RUN)]


def record_routing(model: Path, trace: Path) -> None:
    with load(model) as llm:
        save(record(llm, "The cat sat on the mat. " * 20, 100), trace)


def test_the_page_is_regenerated_without_a_difference(tmp_path: Path) -> None:
    made = tmp_path / "cli.md"
    subprocess.run([sys.executable, str(ROOT / "tools" / "make_cli_docs.py"), "--output", str(made)], check=True)
    assert made.read_text() == (ROOT / "docs" / "cli.md").read_text(), "run `make docs` and commit the file"


def test_the_page_has_every_command_and_option() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    for name in COMMANDS:
        section = page.partition(f"\n## edgert {name}\n")[2].partition("\n## ")[0]
        assert section, name
        for param in COMMAND_TREE.get_command(None, name).params:
            wanted = [f"`{word}`" for word in param.opts] if param.param_type_name == "option" else [param.metavar]
            assert [word for word in wanted if word not in section] == []


@pytest.mark.parametrize("line", examples())
def test_an_example_of_help_runs(line: str, tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "llama.gguf", tmp_path / "tiny.gguf")
    if line.startswith("edgert moe"):
        write_moe(tmp_path / "moe")
        record_routing(tmp_path / "moe", tmp_path / "routing.npz")
    if line.startswith("edgert neurons"):
        write_arcee(tmp_path / "arcee", read_weights())
        convert(tmp_path / "arcee", tmp_path / "arcee-p4", quant="p4")
    (tmp_path / "notes.txt").write_text("The cat sat on the mat.\n")
    # The golden folder has no tokenizer: what talks gets the bundled model under the name of the example.
    program = f'edgert() {{ {shlex.join(COMMAND)} "$@"; }}'
    model = "tiny.gguf" if re.match(r"edgert (show|fit|bench|convert)", line) else str(MODEL)
    model = "moe" if line.startswith("edgert moe") else model
    words = re.sub(r"\bmodel\.gguf\b", shlex.quote(model), line).replace("llama-3.2-1b ", "tiny.gguf ")
    if line.startswith("edgert bench"):
        words += " -p 16 -n 4"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{program}; {words}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
