"""Forms of a report, and from which status on it is a failure: options of commands that report findings."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer


class Format(str, Enum):
    text = "text"
    json = "json"
    markdown = "markdown"
    junit = "junit"


class Threshold(str, Enum):
    fail = "fail"
    warn = "warn"
    info = "info"


OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="CHECK", help="Make only these checks, as gpu.* (repeat, or separate by commas)."),
]
SkipOption = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="CHECK", help="Leave these checks out (repeat, or separate by commas)."),
]
FailOnOption = Annotated[Threshold, typer.Option("--fail-on", help="Exit code 1 from this status on.")]
FormatOption = Annotated[Format, typer.Option("--format", help="Form of the output.")]


def parts(words: list[str] | None) -> tuple[str, ...]:
    """The words of an option that is repeated, or has several between commas."""
    return tuple(part.strip() for word in words or () for part in word.split(","))
