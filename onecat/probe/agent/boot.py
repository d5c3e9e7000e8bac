"""The first lines of programs on a host: imports their modules from the text that onecat.probe.program put before.

MODULES: for each module its packed text, "" for a package. COMPILED: the packed code of most of them, for the Python
version that has this MAGIC number. What follows (start.py, sampling/start.py) runs one of the modules.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="name-defined"
# ruff: noqa: F821

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
