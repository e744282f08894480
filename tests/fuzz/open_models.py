"""The child of mutate.py: mutates, opens, asks for two tokens and a chat prompt, closes; one line for each mutation.

open_models.py [--core PATH_OF_CORE_MODULE] SEEDS SCRATCH SEED FIRST END

The unchanged models must run first. A line is "ran", "refused ERROR" (good answers), or "fault: what was raised".
"""

import shutil
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fuzz.mutations import main_file, mutation, seed_models

BAD_SEEDS = 70  # the exit code where an unchanged model does not run
ADDRESS_SPACE_BYTES = 3 << 30
TIMEOUT_S = 120  # of one mutation: then SIGALRM ends the child
MESSAGES = [{"role": "user", "content": "then"}, {"role": "assistant", "content": "the"}]


class CoreFinder(MetaPathFinder):
    """Finds edgert._core at `path` instead of beside edgert."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_file_location(fullname, self._path) if fullname == "edgert._core" else None


def use(model: Path) -> None:
    """All that a user does with a model, small."""
    import edgert

    with edgert.load(model, threads=2) as llm:
        prompt = "then" if llm.tokenizer is not None else [1, 2, 3]
        for _ in llm.stream(prompt, max_tokens=2, temperature=0):
            pass
        llm.chat_template.render(MESSAGES)


def answer(model: Path) -> str:
    from edgert.errors import EdgertError

    signal.alarm(TIMEOUT_S)
    try:
        use(main_file(model))
        return "ran"
    except EdgertError as error:
        return f"refused {type(error).__name__}"
    except BaseException as error:
        text = " ".join(str(error).split())[:300]
        return f"fault: {type(error).__name__}: {text}"
    finally:
        signal.alarm(0)


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--core"]:
        sys.meta_path.insert(0, CoreFinder(arguments[1]))
        arguments = arguments[2:]
    else:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    seeds, scratch, seed, first, end = Path(arguments[0]), Path(arguments[1]), *map(int, arguments[2:])
    for model in seed_models(seeds):
        if (found := answer(model)) != "ran":
            print(f"{model.name}: found {found!r}, expected the valid model to run", file=sys.stderr)
            sys.exit(BAD_SEEDS)
    for number in range(first, end):
        model = mutation(seeds, scratch, seed, number)
        print(answer(model), flush=True)
        shutil.rmtree(model) if model.is_dir() else model.unlink()


if __name__ == "__main__":
    main()
