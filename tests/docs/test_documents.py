"""Every command and Python block of README.md and docs/ is run; where a block of text follows, that is what comes out.

The files that they name are real (placeholders.py), and models are pulled from a hub in a second process.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hub.conftest import Hub

from edgert.models import ARCHITECTURES
from edgert.quant import format as formats

from .placeholders import read_weights, write_arcee, write_folder, write_gguf

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What takes minutes or another machine; .ci/run does the same from a clean clone.
NOT_RUN = {
    ".venv/bin/pip install": "builds the core: minutes",
    "sudo apt-get install": "changes the system",
}
RUN_BY_OTHERS = {"docs/adding-a-model.md": "parts of a file of models/, held by tests/models"}


@dataclass(frozen=True)
class Block:
    """A command or program, and the text that the document shows as its output."""

    line: int
    language: str
    code: str
    shown: "str | None"


def blocks_of(text: str) -> list[Block]:
    pattern = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
    return [
        Block(text[: match.start()].count("\n") + 1, match[1], match[2], match[3]) for match in pattern.finditer(text)
    ]


def reason_not_to_run(code: str) -> "str | None":
    return next((reason for part, reason in NOT_RUN.items() if part in code), None)


def documents_with_blocks() -> list[str]:
    names = [str(path.relative_to(ROOT)) for path in DOCUMENTS if blocks_of(path.read_text(encoding="utf-8"))]
    return [name for name in names if name not in RUN_BY_OTHERS]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A folder with everything that the documents name, as PWD in the environment to run in."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    folder = tmp_path_factory.mktemp("documents")
    here, served, programs = folder / "here", folder / "served", folder / "bin"
    for path in (here, served, programs):
        path.mkdir()
    weights = read_weights()
    write_folder(here / "llama-3.2-1b", weights)
    write_arcee(here / "arcee-1b", weights)
    gguf = write_gguf(here / "model.gguf", weights).read_bytes()
    write_gguf(here / "no-template.gguf", weights, has_template=False)
    write_gguf(here / "exotic.gguf", weights, general__architecture="exotic")
    (here / "half.gguf").write_bytes(gguf[: len(gguf) // 2])
    (here / "notes.txt").write_text("The cat sat on the mat.\n", encoding="utf-8")
    (programs / "edgert").write_text(f"#!{sys.executable}\nfrom edgert.cli import main\nmain()\n", encoding="utf-8")
    (programs / "edgert").chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    hub = Hub(served)
    published = {path.name: path.read_bytes() for path in (here / "llama-3.2-1b").iterdir()}
    hub.add("Qwen/Qwen3-0.6B", published)
    hub.add("Qwen/Qwen3-0.6B-GGUF", {"Qwen3-0.6B-Q8_0.gguf": gguf, "Qwen3-0.6B-Q4_K_M.gguf": gguf})
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("EDGERT_", "HF_"))}
    yield kept | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PWD": str(here),
        "HF_ENDPOINT": hub.url,
    }
    hub.stop()


@pytest.fixture
def place(original: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A copy for each test, with an empty cache."""
    shutil.copytree(original["PWD"], tmp_path / "here")
    return original | {"PWD": str(tmp_path / "here"), "HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}


@pytest.mark.parametrize("name", documents_with_blocks())
def test_what_a_document_shows_is_what_happens(name: str, place: dict[str, str]) -> None:
    for block in blocks_of((ROOT / name).read_text(encoding="utf-8")):
        if reason_not_to_run(block.code):
            continue
        done = run(block, place)
        is_error = block.shown is not None and re.search(r"^error: ", block.shown, re.MULTILINE)
        where = f"{name}:{block.line}\n{block.code}\n{done.stdout}{done.stderr}"
        assert done.returncode == (1 if is_error else 0), where
        if block.shown is not None:
            assert matches(done.stderr + done.stdout, block.shown), f"{where}\nexpected:\n{block.shown}"


def run(block: Block, place: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    if block.language == "sh":
        command = ["bash", "-euo", "pipefail", "-c", block.code]
    else:
        command = [sys.executable, "-c", block.code]
    return subprocess.run(
        command, cwd=place["PWD"], env=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )


def matches(found: str, shown: str) -> bool:
    """Whether the output is the text shown, in which ... stands for anything."""
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("..."))
    return re.fullmatch(pattern, found.strip(), re.DOTALL) is not None


def test_a_wrong_document_is_found(place: dict[str, str]) -> None:
    command = "```sh\nedgert run 'Hello' -n 1 --temp 0\n```\n"
    text = f"a\n{command}\n```text\nno model given...\nHi\n```\n```python\n1/0\n```\n"
    shown, failing = blocks_of(text)
    assert (shown.line, failing.language) == (2, "python")
    done = run(shown, place)
    assert matches(done.stderr + done.stdout, shown.shown or "")
    assert not matches(done.stderr + done.stdout, "no model given...\nGoodbye")
    assert run(failing, place).returncode == 1


def test_what_is_not_run_is_there() -> None:
    """No reason outlives its block."""
    code = "\n".join(block.code for path in DOCUMENTS for block in blocks_of(path.read_text(encoding="utf-8")))
    assert [part for part in NOT_RUN if part not in code] == []
    assert [name for name in RUN_BY_OTHERS if not blocks_of((ROOT / name).read_text(encoding="utf-8"))] == []


def test_the_pages_name_every_architecture_and_format() -> None:
    models = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert [name for name in ARCHITECTURES if f"`{name}`" not in models] == []
    chosen = (ROOT / "docs" / "choosing-a-format.md").read_text(encoding="utf-8")
    assert [name for name in formats.names() if f"`{name}`" not in chosen and name != "f32"] == []


def test_the_examples_stand_in_the_page_as_they_are() -> None:
    page = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    examples = sorted((ROOT / "examples").glob("*.py"))
    assert [path.stem for path in examples] == ["batch", "chat", "logits", "stream"]
    programs = [block.code for block in blocks_of(page) if block.language == "python"]
    assert [path.name for path in examples if path.read_text(encoding="utf-8") not in programs] == []


@pytest.mark.parametrize("name", ["batch", "chat", "logits", "stream"])
def test_an_example_takes_a_model(name: str, place: dict[str, str]) -> None:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), "model.gguf"]
    done = subprocess.run(command, cwd=place["PWD"], env=place, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout
