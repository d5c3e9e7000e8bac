"""A Python of this machine that can load models: with torch and transformers, which onecat itself does not need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import OnecatError
from onecat.images.interpreters import Interpreter, interpreters
from onecat.images.native import MARKER

if TYPE_CHECKING:
    from onecat.paths import Home

_HAS_BOTH = """\
import importlib.util
print(all(importlib.util.find_spec(each) for each in ("torch", "transformers")))
"""


def interpreter_with_torch(home: Home, given: Path | None = None) -> Path:
    """The interpreter that is given, else that of a native runtime of onecat, else one that runs onecat or `python3`.

    Raises OnecatError (exit code 2) when it has no torch and transformers, with how to get one that has.
    """
    if given is not None:
        if Interpreter(given).answers(_HAS_BOTH) == "True":
            return given
        raise OnecatError(
            f"{given} is no Python that has torch and transformers",
            expected="the interpreter of an environment with vLLM, or with torch and transformers",
            where=str(given),
            next_steps=[f"see: {given} -c 'import torch, transformers'", *_STEPS],
        )
    for each in (*_runtimes(home), *interpreters(["3"])):
        if each.answers(_HAS_BOTH) == "True":
            return each.path
    raise OnecatError(
        "no Python with torch and transformers was found, which perplexity is measured with",
        expected="a native runtime of onecat, or an environment with vLLM",
        next_steps=list(_STEPS),
    )


_STEPS = (
    "make one: onecat build --profile cpu --runtime native (1 GB of download, 4.5 GB of disk)",
    "or name one: --python /path/to/environment/bin/python",
)


def _runtimes(home: Home) -> Iterator[Interpreter]:
    """Of the native runtimes that are whole, those for the CPU and new ones first."""
    found = sorted(home.runtimes.glob(f"*/{MARKER}"), key=lambda each: -each.stat().st_mtime)
    for marker in sorted(found, key=lambda each: "cpu" not in each.parent.name):
        yield Interpreter(marker.parent / "bin" / "python")
