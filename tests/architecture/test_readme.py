"""What README.md shows is what happens."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def run_edgert(arguments: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "edgert", *arguments], capture_output=True, text=True, cwd=folder)


def test_the_first_command_prints_what_the_readme_shows(tmp_path: Path) -> None:
    command = code_blocks("sh")[0].strip().rpartition("&&")[2]
    program, *arguments = shlex.split(command)
    assert program == ".venv/bin/edgert"
    run = run_edgert(arguments, tmp_path)
    assert run.returncode == 0, run.stderr
    assert (run.stderr + run.stdout).strip() == code_blocks("text")[0].strip()


def test_every_command_of_the_program_is_in_the_readme(tmp_path: Path) -> None:
    run = run_edgert(["--help"], tmp_path)
    commands = re.findall(r"^  (\w+) {2,}[A-Z]", run.stdout.partition("Commands:")[2], re.MULTILINE)
    assert len(commands) >= 5
    assert [name for name in commands if f"| `edgert {name}" not in README] == []


def test_the_links_of_the_documents_lead_to_files() -> None:
    missing = []
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text(encoding="utf-8")):
            if not (document.parent / target).exists():
                missing.append(f"{document.name}: {target}")
    assert missing == []
