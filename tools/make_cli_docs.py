"""Write docs/cli.md from the command line's own parser (run by `make docs`)."""

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUTPUT = ROOT / "docs" / "cli.md"
INTRODUCTION = """\
# The command line

This page is made from the parser by `make docs`. `edgert` alone shows what to do first, `edgert COMMAND --help` what is
written here.

The answer goes to stdout and everything else to stderr. Progress is shown only where stderr is a terminal, and only for
what takes longer than half a second.

## Environment

Every option of a command reads an environment variable where it is not given: `EDGERT_` and the option's long name in
capitals. An option that is given goes before its variable, and a MODEL that is given as an argument before
`EDGERT_MODEL`. A switch is `1` or `0`; an empty variable counts as unset; an option that may be repeated takes one
value from each line. A wrong value is an error that names the variable.

`EDGERT_ISA` caps the instruction set (`scalar`, `avx2`, `avx512`, ...). `EDGERT_KERNEL` forces one family of kernels
(`dot`, `avx2/dot`, ...; a wrong name is answered with the list); a product that the family cannot do takes its first
kernel. Neither changes a bit of an answer, but for two kernels that are lossy and never chosen by themselves:
`EDGERT_KERNEL=tile_bf16` (AMX) rounds float weights and their inputs to bfloat16, `EDGERT_KERNEL=lut8` sums of p1.

## Exit codes

| code | when |
|---|---|
| 0 | all went well |
| 1 | an error: one line on stderr, `error: what: found X, expected Y; do Z` |
| 2 | a wrong option or argument |
| 130 | Ctrl-C |
"""
COMPLETION = """\
## Completion

`edgert --install-completion` sets up completion of commands, options and files for the shell that it is called from
(bash, zsh, fish); `edgert --show-completion` prints the script.
"""


def import_tree() -> None:
    """Lets the script see the edgert of this tree where it was built in place, else the installed one."""
    if any((ROOT / "edgert").glob("_core*.so")):
        sys.path.insert(0, str(ROOT))


def make_docs() -> str:
    """The page."""
    from edgert.cli import description, fit_plan
    from edgert.cli.app import COMMANDS, make_command

    root = make_command()
    keys = {"show": description.KEYS, "fit": fit_plan.KEYS}
    sections = [INTRODUCTION, COMPLETION]
    for name in COMMANDS:
        command = root.get_command(None, name)
        sections.append("\n".join(_section(name, command)))
        if name in keys:
            rows = [(f"`{key}`", text) for key, text in keys[name].items()]
            sections.append(_table(("key of `--json`", "what"), rows))
    return "\n".join(sections)


def _section(name: str, command: Any) -> list[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    usage = " ".join(["edgert", name, "[OPTIONS]", *(_placeholder(param) for param in arguments)])
    summary, *rest = command.help.split("\n\n")
    lines = [f"## edgert {name}", "", *_paragraph(summary), "", "```text", usage, "```", ""]
    for paragraph in rest:
        lines += [*_paragraph(paragraph), ""]
    if arguments:
        rows = [(f"`{param.metavar or param.name.upper()}`", param.help or "") for param in arguments]
        lines += [_table(("argument", "what"), rows)]
    rows = [(_spelling(param), f"`{param.envvar}`", _meaning(param)) for param in options]
    return [*lines, _table(("option", "variable", "what"), rows)]


def _paragraph(text: str) -> list[str]:
    """A paragraph of help; one that the parser leaves as it is holds examples."""
    if not text.startswith("\b"):
        return [" ".join(text.split())]
    title, *examples = text.removeprefix("\b").strip("\n").split("\n")
    return [title, "", "```text", *(line.strip() for line in examples), "```"]


def _placeholder(argument: Any) -> str:
    text = argument.metavar or argument.name.upper()
    return text if argument.required else f"[{text}]"


def _spelling(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    return names if option.is_flag else f"{names} {option.metavar}"


def _meaning(option: Any) -> str:
    has_default = option.default not in (None, False)
    return f"{option.help or ''}{f' Default: {option.default}.' if has_default else ''}"


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    arguments = parser.parse_args()
    import_tree()
    arguments.output.write_text(make_docs(), encoding="utf-8")


if __name__ == "__main__":
    main()
