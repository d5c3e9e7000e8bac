"""The agent as one program: boot.py, its modules and pynvml in one text that any Python from 3.6 on can run."""

from __future__ import annotations

import base64
import functools
import importlib
import importlib.util
import pkgutil
import zlib
from pathlib import Path

from onecat.errors import ExitCode, OnecatError

AGENT = "onecat.probe.agent"


@functools.cache
def program() -> bytes:
    """The text of the agent, to be run as `python3 -I -S -` with it on standard input.

    Raises OnecatError when nvidia-ml-py is not installed beside onecat.
    """
    modules = {name: "" for name in ("onecat", "onecat.probe", AGENT, f"{AGENT}.sources")}
    modules[f"{AGENT}.core"] = _packed(Path(__file__).parent / "agent" / "core.py")
    modules["pynvml"] = _packed(_pynvml())
    for name, file in _sources().items():
        modules[name] = _packed(file)
    boot = (Path(__file__).parent / "agent" / "boot.py").read_text(encoding="utf-8")
    return f"MODULES = {modules!r}\nINDEX = {source_index()!r}\n{boot}".encode()


@functools.cache
def source_index() -> dict[str, str]:
    """The name of each source and the module that has it."""
    return {source: name for name in _sources() for source in importlib.import_module(name).SOURCES}


def _sources() -> dict[str, Path]:
    folder = Path(__file__).parent / "agent" / "sources"
    return {f"{AGENT}.sources.{each.name}": folder / f"{each.name}.py" for each in pkgutil.iter_modules([str(folder)])}


def _pynvml() -> Path:
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise OnecatError(
            "the package nvidia-ml-py is missing beside onecat",
            next_steps=["reinstall onecat with its dependencies"],
            code=ExitCode.NEEDS_PERSON,
        )
    return Path(found.origin)


def _packed(file: Path) -> str:
    return base64.b85encode(zlib.compress(file.read_bytes(), 6)).decode()
