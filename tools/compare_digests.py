"""Run the digest program of two machines and compare what they print (run by `make neon` and `make kernels`)."""

import argparse
import shlex
import subprocess
import sys


def run_digest(command: str) -> tuple[list[str], list[str]]:
    """The `name digest` lines that the program prints, and the others, which begin with `#` and tell of the machine.

    Ends this program if a level of that machine differs from its scalar code.
    """
    run = subprocess.run(shlex.split(command), capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line]
    about = [line for line in lines if line.startswith("#")]
    if run.returncode != 0:
        sys.exit("\n".join([f"{command}: exit code {run.returncode}", *about, run.stderr]))
    return [line for line in lines if not line.startswith("#")], about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--native", required=True, help="command of the program built for this machine")
    parser.add_argument("--foreign", required=True, help="command of the other one, with its emulator")
    arguments = parser.parse_args()
    (native, about_native), (foreign, about_foreign) = run_digest(arguments.native), run_digest(arguments.foreign)
    print("\n".join([*about_native, *about_foreign]))
    different = [f"{a!r} != {b!r}" for a, b in zip(native, foreign, strict=False) if a != b]
    if len(native) != len(foreign):
        different.append(f"{len(native)} lines here, {len(foreign)} there")
    if different or not native:
        sys.exit("\n".join(different[:20]) or "the digest program printed nothing")
    print(f"{len(native)} digests are equal; the last: {native[-1]}")


if __name__ == "__main__":
    main()
