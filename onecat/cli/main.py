"""Entry point of the `onecat` command. It loads the rest where a Ctrl-C meets no traceback."""

from __future__ import annotations

import gc
import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells and Typer have it."""


def main() -> None:
    """Run the command line; never shows a traceback unless `--debug` is given."""
    # Hardly anything that a command makes is garbage: to look for it as often as Python does takes a tenth of its time.
    gc.set_threshold(10_000, 20, 20)
    try:
        from onecat.cli.application import run

        run()
    except KeyboardInterrupt:
        print("\nonecat: interrupted; type the same command again to go on from here", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        # Python looks through everything once more when it ends, and there is nothing that needs it.
        gc.freeze()
