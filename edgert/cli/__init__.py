"""The `edgert` command: one file per command; this one turns errors into one line and an exit code."""

from __future__ import annotations

import gc
import os
import sys

from edgert.errors import EdgertError, OutputError, one_line

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130


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
        return _run(arguments)
    except OutputError as error:
        from edgert.cli.streams import STDOUT, drop

        drop(STDOUT)
        return _fail(str(error))
    except EdgertError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _interrupted()
    except OSError as error:
        return _fail(f"{error.filename or 'system'}: {error.strerror or error}")
    except MemoryError:
        return _fail("no memory is left; free some, or use a smaller model or context")


def _run(arguments: list[str]) -> int:
    from edgert.cli.streams import open_streams

    open_streams()
    from edgert.cli.app import run_app

    code = run_app(arguments)
    sys.stdout.flush()
    return code


def _fail(message: str) -> int:
    from edgert.cli.terminal import notice

    notice(f"error: {one_line(' '.join(message.split()))}")
    return EXIT_ERROR


def _interrupted() -> int:
    import signal

    from edgert.cli.terminal import notice

    # A second Ctrl-C must not break the end of the process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # On a terminal the answer's line ends here, behind the ^C that the terminal shows.
    notice("\ninterrupted" if sys.stdout.isatty() and sys.stderr.isatty() else "interrupted")
    return EXIT_INTERRUPTED
