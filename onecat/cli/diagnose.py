"""`onecat diagnose`: causes in logs."""

from __future__ import annotations

import sys
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.cli.log_files import STANDARD_INPUT, chunks_of, open_log
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.observe import Diagnoser, Diagnosis, Evidence, Standing


class FailOn(str, Enum):
    """From which severity of a cause on the exit code is 1."""

    fail = "fail"
    warn = "warn"
    never = "never"


def register(app: typer.Typer) -> None:
    app.command(
        "diagnose",
        help="Read a server's log, and others that go with it, and tell the causes they point to.",
        epilog="Exit codes: 0 whatever is found, unless --fail-on is given: then 1 for a cause of that severity. What "
        "a later start in the same log got over is no cause of the present state.",
    )(diagnose)


def diagnose(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Logs that belong together, as a server's and nginx's, also compressed ones; - is standard input.",
        ),
    ],
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also consequences of a cause, what earlier starts failed by, and messages that frighten without "
            "reason.",
        ),
    ] = False,
    fail_on: Annotated[FailOn, typer.Option(help="Exit code 1 for causes from this severity on.")] = FailOn.never,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.diagnose/1).")] = False,
) -> None:
    from onecat.observe import Diagnoser

    diagnoser = Diagnoser()
    size = _read(diagnoser, files)
    found = diagnoser.finish(every=True)
    causes = [each for each in found if each.standing == "cause"]
    shown = list(found) if everything else causes
    hidden = Counter(each.standing for each in found[len(shown) :])
    exception = None if causes else diagnoser.first_exception()
    if as_json:
        _print_json(shown, hidden, exception)
    else:
        _print(shown, hidden, exception, is_empty=size == 0)
    if any(_reaches(each, fail_on) for each in causes):
        raise typer.Exit(ExitCode.NO)


def _read(diagnoser: Diagnoser, files: list[str]) -> int:
    """Read the logs; how many bytes they have. Raises OnecatError when one of them cannot be read."""
    twice = [name for name, count in Counter(files).items() if count > 1]
    if twice:
        raise OnecatError(f"{twice[0]} is given twice", expected="each log once", next_steps=["onecat diagnose --help"])
    # Each is opened before the first one is read: a wrong name is told at once.
    streams = [(name, open_log(name)) for name in files]
    if STANDARD_INPUT in files and sys.stdin.isatty():
        console.progress("reading a log from the terminal; Ctrl-D ends it")
    size = 0
    for name, stream in streams:
        with stream:
            size += diagnoser.read(chunks_of(stream, name), None if len(files) == 1 else name)
    return size


def _print_json(shown: list[Diagnosis], hidden: Counter[Standing], exception: Evidence | None) -> None:
    from onecat.observe import to_json

    told = None if exception is None else {"line": exception.line, "text": exception.text}
    console.print_json({**to_json(shown), "not_shown": dict(hidden), "first_exception": told})


def _print(shown: list[Diagnosis], hidden: Counter[Standing], exception: Evidence | None, *, is_empty: bool) -> None:
    from rich.console import Console

    from onecat.render.diagnoses import diagnosis_lines
    from onecat.render.text import print_lines

    screen = Console()
    print_lines(screen, diagnosis_lines(shown, hidden, exception, is_empty=is_empty, width=min(screen.width, 100)))


def _reaches(diagnosis: Diagnosis, fail_on: FailOn) -> bool:
    return fail_on is not FailOn.never and (diagnosis.severity == "fail" or diagnosis.severity == fail_on.value)
