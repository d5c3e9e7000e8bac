"""How commands talk to people: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import errno
import json
import logging
import sys
from typing import Any

import typer

from onecat.errors import ExitCode, OnecatError

PROGRESS = "onecat.progress"
"""Name of the logger that carries progress lines."""


def configure(quiet: bool) -> None:
    """Send progress lines to standard error, or nowhere under `--quiet`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger(PROGRESS)
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.WARNING if quiet else logging.INFO)


def quiet() -> bool:
    """Whether progress is switched off."""
    return not logging.getLogger(PROGRESS).isEnabledFor(logging.INFO)


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def progress(text: str) -> None:
    """One line about what is going on, on standard error; silent under `--quiet`."""
    logging.getLogger(PROGRESS).info("%s", text)


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


def as_onecat_error(error: Exception) -> OnecatError:
    """Any exception as what a user is told: a usage error, a refusal of the operating system, or a fault of onecat."""
    if isinstance(error, OnecatError):
        return error
    if isinstance(error, typer.BadParameter) or hasattr(error, "format_message"):
        return _from_usage_error(error)
    if isinstance(error, OSError):
        return _from_os_error(error)
    return OnecatError(
        f"onecat has a fault: {type(error).__name__}: {error}",
        next_steps=["type the same command with --debug and report what it prints"],
        code=ExitCode.NEEDS_PERSON,
    )


def _from_usage_error(error: Any) -> OnecatError:
    command = error.ctx.command_path if getattr(error, "ctx", None) else "onecat"
    return OnecatError(error.format_message(), next_steps=[f"{command} --help"], code=ExitCode.USAGE)


def _from_os_error(error: OSError) -> OnecatError:
    steps = {
        errno.ENOSPC: ["free some space, or set ONECAT_HOME to a directory on a larger disk"],
        errno.EACCES: ["check the owner and mode of that path, or set ONECAT_HOME to a directory of yours"],
        errno.EROFS: ["set ONECAT_HOME to a directory that can be written"],
    }.get(error.errno or 0, ["type the same command with --debug to see where it happened"])
    return OnecatError(
        error.strerror or str(error),
        where=str(error.filename) if error.filename else None,
        next_steps=steps,
        code=ExitCode.NEEDS_PERSON,
    )
