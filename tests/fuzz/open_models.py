"""The child of mutate.py: opens each model, asks for two tokens, closes it; an EdgertError is a good answer.

open_models.py [--core PATH_OF_CORE_MODULE] MODEL...
"""

import importlib.util
import sys

ADDRESS_SPACE_BYTES = 3 << 30


def use_core(path: str) -> None:
    """Takes this build of the core in the place of the one that lies beside edgert."""
    spec = importlib.util.spec_from_file_location("edgert._core", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["edgert._core"] = module
    spec.loader.exec_module(module)


def main() -> None:
    models = sys.argv[1:]
    if models[:1] == ["--core"]:
        use_core(models[1])
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
