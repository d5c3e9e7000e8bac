"""The first lines of the agent on a host: imports its modules from the text that onecat.probe.program put before it.

MODULES: for each module its packed text, "" for a package. INDEX: the module of each source.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disable-error-code="name-defined"
# ruff: noqa: F821

import base64
import importlib.machinery
import sys
import zlib


class Packed:
    """Finds and loads the modules of MODULES, each compiled when it is first imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in MODULES:
            return importlib.machinery.ModuleSpec(name, Packed(), is_package=not MODULES[name])  # type: ignore[arg-type]
        return None

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        text = zlib.decompress(base64.b85decode(MODULES[module.__name__])) if MODULES[module.__name__] else ""
        exec(compile(text, module.__name__, "exec"), module.__dict__)  # noqa: S102


sys.meta_path.insert(0, Packed())

from onecat.probe.agent.core import main  # noqa: E402

sys.exit(main(sys.argv[1:], INDEX))
