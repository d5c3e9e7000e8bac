"""Options that several commands have in common, as records: a command takes them as one parameter."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any


def takes_records(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function that takes records of options.

    A parameter that is annotated with a dataclass stands for the fields of it, which are annotated as Typer wants
    parameters to be and have defaults; the function gets the record.
    """
    parameters: list[inspect.Parameter] = []
    records: dict[str, type[Any]] = {}
    for each in inspect.signature(command, eval_str=True).parameters.values():
        if not dataclasses.is_dataclass(each.annotation):
            parameters.append(each)
            continue
        records[each.name] = typing.cast(type[Any], each.annotation)
        hints = typing.get_type_hints(each.annotation, include_extras=True)
        parameters += [
            inspect.Parameter(field.name, each.kind, default=field.default, annotation=hints[field.name])
            for field in dataclasses.fields(each.annotation)
        ]

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        for name, record in records.items():
            values[name] = record(**{field.name: values.pop(field.name) for field in dataclasses.fields(record)})
        command(**values)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {each.name: each.annotation for each in parameters}
    return expanded
