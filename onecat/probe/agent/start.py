"""The last lines of the agent on a host, after boot.py: runs it, or the collector where Python is not whole.

COLLECTOR: the text of collector.sh. INDEX: the module of each source.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="name-defined"
# binascii, marshal, zlib and MAGIC_NUMBER: boot.py needs them.
# ruff: noqa: F821, F401

import os
import sys

try:
    import binascii
    import marshal
    import zlib
    from _frozen_importlib_external import MAGIC_NUMBER, PathFinder  # Without the import of importlib.

    if PathFinder.find_spec("json") is None:
        raise ImportError("json")
    from onecat.probe.agent.core import main
except ImportError:
    # A Python without the standard library (Debian's python3-minimal): what a host without Python can do, it can.
    os.execv("/bin/sh", ["sh", "-c", COLLECTOR, "onecat-probe", *sys.argv[1:]])

code = main(sys.argv[1:], INDEX)
sys.stdout.flush()
# Python would clean up first, which takes longer than some of the sources.
os._exit(code)
