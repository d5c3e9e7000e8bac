"""The last lines of the sampling agent on a host, after boot.py."""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="name-defined"
# binascii, marshal, zlib and MAGIC_NUMBER: boot.py needs them.
# ruff: noqa: F821, F401

import binascii
import marshal
import os
import sys
import zlib
from _frozen_importlib_external import MAGIC_NUMBER

from onecat.probe.agent.sampling.main import main

code = main(sys.argv[1:])
sys.stdout.flush()
os._exit(code)
