"""Values of the command line that are what they should be as they are typed.

Typer 0.28 and later turns each value into its type by a pydantic adapter, also a word into a word and nothing into
nothing. To load pydantic for that is a third of the time that a command takes to start. Words, paths and what is not
given need no adapter; all else goes on to Typer's, as do values that Typer would refuse.
Source of what they must come to: https://github.com/fastapi/typer/blob/0.29.2/typer/_adapters.py, _param_types.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATH_FLAGS = ("exists", "writable", "resolve_path", "allow_dash", "path_type")
"""What Typer looks at beyond whether a path can be read."""


def take_plain_values(command: Any) -> None:
    """Let all parameters of a command and of those below it take plain values as they are.

    Does nothing with a Typer that has no such adapters.
    """
    parameters_of = command.get_params  # with --help, which there is only with a context

    def get_params(context: Any) -> list[Any]:
        return [_with_plain_values(each) for each in parameters_of(context)]

    command.get_params = get_params
    for below in getattr(command, "commands", {}).values():
        take_plain_values(below)


def _with_plain_values(parameter: Any) -> Any:
    asked = getattr(parameter, "get_runtime_param", None)
    if asked is not None and hasattr(parameter, "type_descriptor") and not isinstance(asked, _Plain):
        parameter.get_runtime_param = _Plain(parameter, asked)
    return parameter


class _Plain:
    """Stands in for Typer's runtime parameter. asked: gives that one."""

    def __init__(self, parameter: Any, asked: Callable[[], Any]) -> None:
        self._asked = asked
        self._info = parameter.type_descriptor.parameter_info
        self._type = parameter.type_descriptor.annotation
        self._several = parameter.multiple or parameter.nargs == -1

    def __call__(self) -> _Plain:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command gets it. Raises what Typer raises for one that it refuses."""
        if value is None:
            return () if self._several else None
        if self._info.parser is None and type(value) is str and not self._several:
            if self._type is str:
                return value
            if self._type is Path and self._any_path() and "\0" not in value and not _forbidden(value):
                return Path(value)
        return self._asked().coerce(value, param=param, ctx=ctx)

    def _any_path(self) -> bool:
        info = self._info
        return info.file_okay and info.dir_okay and not any(getattr(info, name) for name in PATH_FLAGS)


def _forbidden(path: str) -> bool:
    # Path.exists raises where a directory on the way may not be entered.
    return os.path.exists(path) and not os.access(path, os.R_OK)  # noqa: PTH110
