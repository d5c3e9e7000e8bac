"""`env` and `printenv`: the variables that change what CUDA, NCCL, Docker and the engines do, without secrets."""

from __future__ import annotations

import re
from collections.abc import Callable

from onecat.probe.agent.sources.environment import matters, without_secrets
from onecat.probe.importers.registry import Capture, Part, importer

_VARIABLE = re.compile(r"^(?:export )?([A-Za-z_]\w{0,80})=(.{0,4000})$", re.MULTILINE)


def matching_variables(text: str) -> list[list[str]]:
    """Name and value of each variable that matters, in the order of their names; secrets are hidden."""
    # The agent's modules are untyped: Python 3.6 has to read them.
    is_told: Callable[[str], bool] = matters
    hidden: Callable[[str, str], str] = without_secrets
    found: dict[str, str] = {}
    for name, value in _VARIABLE.findall(text):
        if is_told(name):
            found.setdefault(name, value)
    return [[name, hidden(name, value)] for name, value in sorted(found.items())]


def _is_environment(text: str) -> bool:
    return (
        re.search(r"^PATH=[^\n]{0,4000}/bin", text, re.MULTILINE) is not None
        and len(_VARIABLE.findall(text[:20000])) > 2
    )


@importer("env", recognises=_is_environment, sections=("env", "printenv"), hints=("path=", "env"))
def environment(capture: Capture) -> Part:
    return {"environment": matching_variables(capture.text)}
