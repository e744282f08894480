"""Who may import whom: the tables of docs/architecture.md, held against every import and #include of the tree."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A unit may import itself and every unit of a later line, never one of its own line or before it.
PYTHON_LINES: list[set[str]] = [
    {"__main__"},
    {"cli", "server"},
    {"llm", "convert", "verify"},
    {"engine"},
    {"drafters", "kv", "loader", "tokenizer", "chat"},
    {"models", "offload", "quant", "files", "device"},
    {"graph", "config", "hub"},
    {"_core", "errors", "whole_file"},
]
# Units that may import less than the lines allow.
PYTHON_NARROW: dict[str, set[str]] = {
    "models": {"graph", "config", "errors"},
    "quant": {"_core", "errors"},
    "offload": {"_core", "errors", "whole_file"},
    "hub": {"errors", "whole_file"},
    "graph": {"errors"},
    "config": {"errors"},
    "errors": set(),
    "whole_file": set(),
}
# Third-party packages, and the only units that may import them.
PYTHON_PACKAGES: dict[str, set[str]] = {
    "numpy": {
        "cli",
        "llm",
        "convert",
        "verify",
        "engine",
        "drafters",
        "kv",
        "loader",
        "tokenizer",
        "quant",
        "offload",
        "files",
        "device",
    },
    "typer": {"cli"},
    "prompt_toolkit": {"cli"},
    "psutil": {"device"},
    "tokenizers": {"tokenizer"},
    "jinja2": {"chat"},
    "safetensors": {"convert", "files"},
    "huggingface_hub": {"hub"},
    "typing_extensions": {"llm", "cli", "engine"},  # under TYPE_CHECKING only
}
OLDEST_PYTHON = (3, 10)
STANDARD = sys.stdlib_module_names

CPP_FOLDERS: dict[str, set[str]] = {
    "base": set(),
    "codes": {"base"},
    "scales": {"base"},
    "formats": {"codes", "scales", "base"},
    "io": {"base"},
    "kernels": {"formats", "codes", "scales", "base"},
    "sample": {"kernels", "formats", "base"},
    "kv": {"formats", "io", "base"},
    "weights": {"formats", "io", "base"},
    "graph": {"kernels", "kv", "weights", "sample", "formats", "codes", "scales", "io", "base"},
}
CPP_EVERYTHING = {"bindings", "tests", "fuzz"}
# System headers that belong to some folders only; a pattern, and the folders (as path prefixes under csrc).
CPP_HEADERS: list[tuple[str, tuple[str, ...]]] = [
    (r"pybind11/.*", ("bindings",)),
    (r"(imm|x86|xmm|emm|amx)\w*intrin\.h|arm_neon\.h|arm_fp16\.h", ("kernels/simd", "kernels/isa")),
    (r"fcntl\.h|sys/stat\.h|sys/uio\.h|fstream|filesystem|cstdio|stdio\.h", ("io", "tests", "fuzz")),
    (r"iostream", ("tests", "fuzz")),
]


def _units_of(node: ast.AST, package: list[str]) -> Iterator[str]:
    """Dotted names that an import statement asks for; `package` is the importing package, outermost first."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*parts, *([node.module] if node.module else [])])
        if module == "edgert":
            yield from (f"edgert.{alias.name}" for alias in node.names)
        else:
            yield module


def python_violations(unit: str, package: list[str], source: str) -> list[str]:
    """Imports in `source`, a module of `unit`, that the tables forbid."""
    line = next(i for i, units in enumerate(PYTHON_LINES) if unit in units)
    later = set().union(*PYTHON_LINES[line + 1 :])
    allowed = {unit} | PYTHON_NARROW.get(unit, later)
    found = []
    for node in ast.walk(ast.parse(source, feature_version=OLDEST_PYTHON)):
        for name in _units_of(node, package):
            top, _, rest = name.partition(".")
            if top == "edgert":
                target = rest.partition(".")[0]
                is_allowed = target in allowed or target == "__version__"
            elif top in STANDARD or top == "__future__":
                is_allowed = True
            else:
                is_allowed = unit in PYTHON_PACKAGES.get(top, set())
            if not is_allowed:
                found.append(f"{unit} imports {name}")
    return found


def cpp_violations(path: str, source: str) -> list[str]:
    """Includes in `source`, the file csrc/`path`, that the tables forbid."""
    folder = path.partition("/")[0]
    allowed = {folder} | CPP_FOLDERS.get(folder, set())
    found = []
    for kind, header in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', source, re.MULTILINE):
        if kind == '"':
            target = header.partition("/")[0]
            if "/" not in header or ".." in header:
                found.append(f"{path} includes {header!r}, expected a path from csrc/")
            elif folder not in CPP_EVERYTHING and target not in allowed:
                found.append(f"{path} includes {header!r}")
        for pattern, prefixes in CPP_HEADERS:
            if re.fullmatch(pattern, header) and not any(path.startswith(f"{prefix}/") for prefix in prefixes):
                found.append(f"{path} includes <{header}>, which belongs to {', '.join(prefixes)}")
    return found


def python_modules() -> Iterator[tuple[str, list[str], Path]]:
    """Unit, package and path of every module of edgert in the tree."""
    for folder in ("edgert", "quant", "offload", "models"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            if folder == "edgert" and (len(parts) < 2 or parts[1] in ("quant", "offload", "models")):
                continue  # the links: those files come under their own folder
            dotted = parts if folder == "edgert" else ["edgert", *parts]
            if dotted == ["edgert", "__init__"]:
                continue  # the export list may name everything
            yield dotted[1], dotted[:-1], path


def test_every_python_unit_is_in_the_table() -> None:
    known = set().union(*PYTHON_LINES)
    assert {unit for unit, _, _ in python_modules()} <= known


def test_python_imports() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {violation}"
        for unit, package, path in python_modules()
        for violation in python_violations(unit, package, path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_cpp_folder_is_in_the_table() -> None:
    folders = {path.relative_to(ROOT / "csrc").parts[0] for path in (ROOT / "csrc").rglob("*") if path.is_file()}
    assert folders <= CPP_FOLDERS.keys() | CPP_EVERYTHING


def test_cpp_includes() -> None:
    found = []
    for path in sorted((ROOT / "csrc").rglob("*")):
        if path.suffix in (".h", ".cpp"):
            found += cpp_violations(path.relative_to(ROOT / "csrc").as_posix(), path.read_text(encoding="utf-8"))
    assert found == []


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("engine", "import edgert.llm"),
        ("engine", "from edgert import cli"),
        ("engine", "def late():\n    from ..convert import plan"),
        ("loader", "from edgert.tokenizer import Tokenizer"),
        ("models", "import numpy as np"),
        ("models", "from edgert.quant import formats"),
        ("models", "from .. import quant"),
        ("quant", "from edgert.graph import Graph"),
        ("offload", "import edgert.device"),
        ("engine", "import psutil"),
        ("cli", "import torch"),
    ],
)
def test_a_forbidden_python_import_is_found(unit: str, source: str) -> None:
    assert len(python_violations(unit, ["edgert", unit], source)) == 1


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("cli", "from edgert.llm import load\nimport typer"),
        ("models", "from edgert.graph import Graph\nfrom .blocks import attention\nimport dataclasses"),
        ("quant", "import numpy as np\nfrom edgert import _core"),
        ("engine", "from ..kv import pages"),
    ],
)
def test_an_allowed_python_import_is_not_found(unit: str, source: str) -> None:
    assert python_violations(unit, ["edgert", unit], source) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("kernels/dispatch.cpp", '#include "graph/plan.h"'),
        ("kv/page.cpp", '#include "weights/store.h"'),
        ("weights/store.cpp", '#include "kernels/pack.h"'),
        ("graph/plan.cpp", "#include <pybind11/pybind11.h>"),
        ("kernels/generic/gemv.inl.h", "#include <immintrin.h>"),
        ("base/cpu.cpp", "#include <arm_neon.h>"),
        ("weights/store.cpp", "#include <fcntl.h>"),
        ("graph/plan.cpp", '#include "../base/cpu.h"'),
        ("graph/plan.cpp", '#include "plan.h"'),
    ],
)
def test_a_forbidden_include_is_found(path: str, source: str) -> None:
    assert cpp_violations(path, source) != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("bindings/runtime.cpp", '#include <pybind11/pybind11.h>\n#include "graph/plan.h"'),
        ("graph/plan.cpp", '#include <vector>\n#include "kernels/kernel_table.h"\n#include "graph/plan.h"'),
        ("kernels/simd/avx2.h", "#include <immintrin.h>"),
        ("io/file.cpp", "#include <fcntl.h>"),
    ],
)
def test_an_allowed_include_is_not_found(path: str, source: str) -> None:
    assert cpp_violations(path, source) == []
