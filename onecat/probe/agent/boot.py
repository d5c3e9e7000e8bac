"""The first lines of the agent on a host: imports its modules from the text that onecat.probe.program put before it.

COLLECTOR: the text of collector.sh. MODULES: for each module its packed text, "" for a package. COMPILED: the packed
code of most of them, for the Python version that has this MAGIC number. INDEX: the module of each source.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="name-defined"
# ruff: noqa: F821

import os
import sys


class Packed:
    """Finds and loads the modules of MODULES, each compiled when it is first imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in MODULES:
            # importlib.machinery.ModuleSpec, without the import of importlib
            return type(sys.__spec__)(name, Packed(), is_package=not MODULES[name])  # type: ignore[arg-type]
        return None

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        name = module.__name__
        if MAGIC == MAGIC_NUMBER and name in COMPILED:
            code = marshal.loads(unpacked(COMPILED[name]))  # noqa: S302 - it comes from where this program does
        else:
            code = compile(unpacked(MODULES[name]), name, "exec")
        exec(code, module.__dict__)  # noqa: S102


def unpacked(text):
    return zlib.decompress(binascii.a2b_base64(text)) if text else b""


sys.meta_path.insert(0, Packed())

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
