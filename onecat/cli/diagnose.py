"""`onecat diagnose`: causes in a log."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console

if TYPE_CHECKING:
    from onecat.observe import Diagnosis


def register(app: typer.Typer) -> None:
    app.command("diagnose", help="Read a server's log and tell the causes it points to.")(diagnose)


def diagnose(
    file: Annotated[str, typer.Argument(help="A log file, or - for standard input.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.diagnose/1).")] = False,
) -> None:
    from onecat.observe import diagnose, to_json

    with log_lines(file) as lines:
        diagnoses = diagnose(lines)
    if as_json:
        console.print_json(to_json(diagnoses))
    elif not diagnoses:
        print("no known cause in this log")
    else:
        print("\n\n".join(text(diagnosis) for diagnosis in diagnoses))


@contextlib.contextmanager
def log_lines(file: str) -> Iterator[Iterable[str]]:
    """The lines of a file or of standard input (`-`) as they are read, whatever bytes are among them."""
    from pathlib import Path

    from onecat.errors import OnecatError

    if file == "-":
        yield io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")
        return
    try:
        stream = Path(file).open(encoding="utf-8", errors="replace")  # noqa: SIM115 - closed below
    except OSError as error:
        raise OnecatError(
            f"the log cannot be read: {error.strerror}",
            where=file,
            expected="a log file that this user may read, or - for standard input",
            next_steps=["onecat logs NAME | onecat diagnose -"],
        ) from error
    with stream:
        yield stream


def text(diagnosis: Diagnosis) -> str:
    """A diagnosis for a person."""
    lines = [f"{diagnosis.cause}", f"  signature: {diagnosis.signature} (confidence: {diagnosis.confidence})"]
    lines += [f"  line {evidence.line}: {evidence.text[:200]}" for evidence in diagnosis.evidence]
    lines += [f"  fix:       {step}" for step in diagnosis.fix]
    lines += [f"  source:    {source}" for source in diagnosis.source]
    return "\n".join(lines)
