"""How commands talk to people: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import errno
import json
import sys
from typing import Any

from onecat.errors import ExitCode, OnecatError


def quiet() -> bool:
    """Whether `--quiet` was given, before or after the command's name."""
    import click

    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().params.get("quiet"))


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def progress(text: str) -> None:
    """One line about what is going on, on standard error; silent under `--quiet`."""
    if not quiet():
        print(text, file=sys.stderr, flush=True)


def print_error(error: OnecatError, as_json: bool) -> None:
    """Print an error for a person on standard error and, under `--json`, as a document on standard output."""
    if as_json:
        print_json(
            {
                "schema": "onecat.error/1",
                "found": error.found,
                "expected": error.expected,
                "where": error.where,
                "next": list(error.next_steps),
                "details": list(error.details),
                "exit_code": int(error.code),
            }
        )
    lines = [f"onecat: {error.found}"]
    if error.where:
        lines.append(f"  where:    {error.where}")
    if error.expected:
        lines.append(f"  expected: {error.expected}")
    lines += [f"  | {detail}" for detail in error.details]
    lines += [f"  next:     {step}" for step in error.next_steps]
    print("\n".join(lines), file=sys.stderr, flush=True)


def from_os_error(error: OSError) -> OnecatError:
    """An operating system's refusal as an OnecatError."""
    place = str(error.filename) if error.filename else None
    steps = {
        errno.ENOSPC: ["free some space, or set ONECAT_HOME to a directory on a larger disk"],
        errno.EACCES: ["check the owner and mode of that path, or set ONECAT_HOME to a directory of yours"],
        errno.EROFS: ["set ONECAT_HOME to a directory that can be written"],
    }.get(error.errno or 0, ["run the same command with --debug to see where it happened"])
    return OnecatError(
        error.strerror or str(error), where=place, next_steps=steps, code=ExitCode.NEEDS_PERSON
    )


def from_bug(error: Exception) -> OnecatError:
    """An unexpected exception as an OnecatError: this is a fault of onecat."""
    return OnecatError(
        f"onecat has a fault: {type(error).__name__}: {error}",
        next_steps=["run the same command with --debug and report what it prints"],
        code=ExitCode.NEEDS_PERSON,
    )
