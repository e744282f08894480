"""Write edgert/_core.pyi from the built module with pybind11-stubgen (run by `make stubs`)."""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "edgert" / "_core.pyi"


def make_stubs() -> str:
    """The stub text; values that depend on the build are taken out."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pybind11_stubgen", "edgert._core", "--output-dir", folder, "--exit-code"]
        subprocess.run([*command, "--numpy-array-use-type-var"], check=True)
        text = (Path(folder) / "edgert" / "_core.pyi").read_text(encoding="utf-8")
    return re.sub(r"^(__version__: str) = .*$", r"\1", text, flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.parse_args().output.write_text(make_stubs(), encoding="utf-8")


if __name__ == "__main__":
    main()
