"""The child of mutate.py: opens each model, asks for two tokens, closes it; an EdgertError is a good answer.

open_models.py [--core PATH_OF_CORE_MODULE] MODEL...
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

ADDRESS_SPACE_BYTES = 3 << 30


class CoreFinder(MetaPathFinder):
    """Finds edgert._core at `path` instead of beside edgert."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_file_location(fullname, self._path) if fullname == "edgert._core" else None


def main() -> None:
    models = sys.argv[1:]
    if models[:1] == ["--core"]:
        sys.meta_path.insert(0, CoreFinder(models[1]))
        models = models[2:]
    else:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    import edgert
    from edgert.errors import EdgertError

    for model in models:
        try:
            with edgert.load(model, threads=2) as llm:
                prompt = "then" if llm.tokenizer is not None else [1, 2, 3]
                for _ in llm.stream(prompt, max_tokens=2, temperature=0):
                    pass
            print("ran", flush=True)
        except EdgertError as error:
            print("refused", type(error).__name__, str(error).replace("\n", " ")[:200], flush=True)


if __name__ == "__main__":
    main()
