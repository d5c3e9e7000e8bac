"""Start a program with a secret from a file in its environment: `python -I with_secret.py NAME FILE -- PROGRAM ARG...`.

Used by the rendered systemd unit, so that the secret stands neither in the unit nor in a command line. Standard
library only; needs nothing of onecat.
"""

import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Replaces this process by the program; returns only with a usage error (2) or when the file cannot be read (1)."""
    if len(arguments) < 4 or arguments[2] != "--":
        print("usage: with_secret.py NAME FILE -- PROGRAM ARG...", file=sys.stderr)
        return 2
    name, file, _, *argv = arguments
    try:
        os.environ[name] = Path(file).read_text(encoding="utf-8").strip()
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"with_secret.py: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
