"""Options that all commands share which write a checkpoint tensor by tensor."""

from __future__ import annotations

import re
from typing import Annotated

import typer

JobsOption = Annotated[
    int, typer.Option("--jobs", min=0, max=256, help="Threads that compute; 0: one for each processor.")
]
RestartOption = Annotated[bool, typer.Option("--restart", help="Throw away what an unfinished run has made in DST.")]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="DST may hold other files; those of the same names are replaced.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")]

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]?)(i?)B?")
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def byte_count(text: str, option: str) -> int:
    """`5GB`, `500 MB`, `2GiB`, `1000000` as bytes.

    Raises typer.BadParameter for what is no size, or none above 0; it names the option.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no size: give it as 5GB or 500MB", param_hint=option)
    base = 1024 if found[3] else 1000
    count = int(float(found[1]) * base ** _UNITS[found[2].upper()])
    if count < 1:
        raise typer.BadParameter(f"{text!r} is no size above 0", param_hint=option)
    return count
