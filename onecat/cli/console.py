"""How commands talk to people: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import sys
import unicodedata
from pathlib import Path
from typing import Annotated, Any

import typer

from onecat.errors import ExitCode, OnecatError
from onecat.render.columns import STEERING

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

PROGRESS = "onecat.progress"
"""Name of the logger that carries progress lines."""


def prepare_streams() -> None:
    """Make the three standard streams safe to use, whatever the shell left of them.

    A closed one becomes the null device, so that no file that is opened later takes its number. A character that the
    terminal's encoding lacks is written as its escape: a name in another script is no reason to fail.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Send what is still to be written on standard output nowhere: Python would fail once more while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


def draws_blocks() -> bool:
    """Whether standard output is a terminal that shows block elements."""
    return sys.stdout.isatty() and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def print_json(document: Any) -> None:
    """Print one JSON document on standard output, on one line where no person reads it.

    It is in ASCII where standard output is no UTF-8, and never has a character that steers.
    """
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    text = json.dumps(document, indent=2 if sys.stdout.isatty() else None, ensure_ascii=encoding != "utf8")
    print(re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text))


def existing_directory(path: str) -> str:
    """A path from the command line that must be a directory. Raises OnecatError when it is none."""
    if not Path(path).is_dir():
        found = f"{path} is not a directory" if Path(path).exists() else f"{path} does not exist"
        raise OnecatError(found, expected="a directory", where=str(Path(path).absolute()))
    return path


def end_like_ctrl_c() -> None:
    """From now on, being told to end, or losing the terminal, counts as Ctrl-C: what was begun is undone."""
    import signal

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup(1) leaves it
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def progress(text: str) -> None:
    """One line about what is going on, on standard error; silent under `--quiet`."""
    logging.getLogger(PROGRESS).info("%s", text)


def print_error(error: OnecatError, as_json: bool) -> None:
    """Print an error for a person on standard error and, under `--json`, as a document on standard output."""
    lines = [f"onecat: {error.found}"]
    if error.where:
        lines.append(f"  where:    {error.where}")
    if error.expected:
        lines.append(f"  expected: {error.expected}")
    lines += [f"  | {detail}" for detail in error.details]
    lines += [f"  next:     {step}" for step in error.next_steps]
    print("\n".join(map(_visible, lines)), file=sys.stderr, flush=True)
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


LONGEST_LINE = 1000
"""Characters of a line for a person; the JSON document holds all of it."""


def _visible(text: str) -> str:
    """`text` with control characters as escapes: names and logs of others must not steer the terminal or fill it."""
    text = text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}... ({len(text)} characters)"
    return "".join(
        each if each == "\t" or unicodedata.category(each) not in STEERING else repr(each)[1:-1] for each in text
    )


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
    found, expected = " ".join(error.format_message().split()), None
    words = re.fullmatch(r"(.*): (?:Value error, )?(.*) is not one of (.*?)\.?", found)
    if words is not None:
        found, expected = f"{words[1]}: {words[2].strip(chr(39))}", f"one of: {words[3].replace(chr(39), '')}"
    head, colon, rule = found.partition(": Input should be ")
    if colon:
        found, expected = head, rule.partition(", unable to parse")[0]
        details = error.__cause__.errors() if hasattr(error.__cause__, "errors") else ()
        found += f": {details[0]['input']}" if details else ""
    return OnecatError(found, expected=expected, next_steps=[f"{command} --help"], code=ExitCode.USAGE)


_WRONG_PATH = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)
"""Refusals that say that a path was given which cannot be meant, as a file where a directory is needed."""


def _from_os_error(error: OSError) -> OnecatError:
    ours = _may_be_onecats(error.filename)
    other_home = ["set ONECAT_HOME to a directory that can be written"] if ours else []
    steps = {
        errno.ENOSPC: [
            "see what is full: df -h",
            "free some space, or write to a larger disk (ONECAT_HOME: where onecat's own data goes)",
        ],
        errno.EACCES: ["check the owner and mode of that path", *other_home],
        errno.EROFS: other_home or ["name a path on a disk that can be written"],
        errno.ENOENT: [*other_home, "type the same command with --debug to see where it happened"],
        **dict.fromkeys(_WRONG_PATH, ["correct that path", *other_home]),
    }.get(error.errno or 0, ["type the same command with --debug to see where it happened"])
    return OnecatError(
        error.strerror or str(error),
        where=str(error.filename) if error.filename else None,
        next_steps=steps,
        code=ExitCode.USAGE if error.errno in _WRONG_PATH else ExitCode.NEEDS_PERSON,
    )


def _may_be_onecats(path: Any) -> bool:
    """Whether a path is one of onecat's own directories, below one, or above one that is not there yet."""
    from onecat.paths import home

    try:
        own = home()
        where = Path(os.fsdecode(path)).absolute()
    except (TypeError, OSError):
        return False
    return any(where == each or each in where.parents or where in each.parents for each in (own.data, own.cache))
