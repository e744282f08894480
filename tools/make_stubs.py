"""Write edgert/_core.pyi from the built module with pybind11-stubgen (run by `make stubs`)."""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "edgert" / "_core.pyi"


def make_stubs() -> str:
    """The stub text, with the types that mypy --strict and a reader ask for where pybind11 knows only looser ones."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pybind11_stubgen", "edgert._core", "--output-dir", folder, "--exit-code"]
        subprocess.run([*command, "--numpy-array-use-type-var"], check=True)
        text = (Path(folder) / "edgert" / "_core.pyi").read_text(encoding="utf-8")
    text = text.replace("typing.SupportsInt | typing.SupportsIndex", "int")
    text = text.replace("typing.SupportsFloat | typing.SupportsIndex", "float")
    text = re.sub(r"(?<!\| None) = None", " | None = None", text)
    text = re.sub(r"(: |-> )dict(?=[,:) ])", r"\1dict[str, typing.Any]", text)
    return re.sub(r"(: |-> )tuple(?=[,:) ])", r"\1tuple[typing.Any, ...]", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.parse_args().output.write_text(make_stubs(), encoding="utf-8")


if __name__ == "__main__":
    main()
