"""`python -m edgert`: the command line."""

from edgert.cli import main

if __name__ == "__main__":
    main()
