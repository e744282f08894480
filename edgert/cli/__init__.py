"""The `edgert` command: one file per command; this one turns errors into one line and an exit code."""

from __future__ import annotations

import gc
import io
import os
import sys

from edgert.errors import EdgertError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141


def main() -> None:
    """Runs the command line and exits: 0, 1 with `error: ...` on stderr, 2 for a wrong option, 130 after Ctrl-C."""
    start_quickly()
    sys.exit(run_command(sys.argv[1:]))


def start_quickly() -> None:
    """Settings of the process that make its imports quicker; most of the time to the first token is imports."""
    # Of what imports make hardly anything is garbage: look for some later.
    gc.set_threshold(100_000)
    # No command uses numpy's linear algebra: it need not start threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def run_command(arguments: list[str]) -> int:
    """The exit code of `edgert` with these arguments."""
    try:
        from edgert.cli.app import run_app

        # What the terminal's encoding cannot show must not end an answer.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        code = run_app(arguments)
        sys.stdout.flush()
        return code
    except EdgertError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`): nothing more can be said, at the flush of the exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CLOSED_PIPE
    except OSError as error:
        return _fail(f"{error.filename or 'system'}: {error.strerror or error}")
    except MemoryError:
        return _fail("no memory is left; free some, or use a smaller model or context")


def _fail(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_ERROR
