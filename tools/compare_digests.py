"""Run the digest program of two machines and compare what they print (run by `make neon`)."""

import argparse
import shlex
import subprocess
import sys


def digest_lines(command: str) -> list[str]:
    """The `name digest` lines that the program prints, without those that begin with `#`: they tell of the machine."""
    run = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True)
    return [line for line in run.stdout.splitlines() if line and not line.startswith("#")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--native", required=True, help="command of the program built for this machine")
    parser.add_argument("--foreign", required=True, help="command of the other one, with its emulator")
    arguments = parser.parse_args()
    native, foreign = digest_lines(arguments.native), digest_lines(arguments.foreign)
    different = [f"{a!r} != {b!r}" for a, b in zip(native, foreign, strict=False) if a != b]
    if len(native) != len(foreign):
        different.append(f"{len(native)} lines here, {len(foreign)} there")
    if different or not native:
        print("\n".join(different[:20]) or "the digest program printed nothing")
        sys.exit(1)
    print(f"{len(native)} digests are equal; the last: {native[-1]}")


if __name__ == "__main__":
    main()
