"""Wait until a server is ready: `python -I health_gate.py URL` ends when GET URL answers 200, however long that takes.

Used by the rendered systemd units as ExecStartPost; systemd ends it when the server dies. Standard library only.
"""

import sys
import time
import urllib.error
import urllib.request


def main(arguments: list[str]) -> int:
    """Returns 0 when the server is ready, 2 for a usage error."""
    if len(arguments) != 1:
        print("usage: health_gate.py URL", file=sys.stderr)
        return 2
    # No proxy from the environment: the server is this machine's.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with opener.open(arguments[0], timeout=5) as response:
                if response.status == 200:
                    return 0
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
