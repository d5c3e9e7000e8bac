"""`onecat` as a person types it, without a process of its own: to start one takes longer than what most tests ask."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

from onecat.cli import application


def run_onecat(
    *arguments: str, directory: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What a command prints and its exit code; standard input is empty.

    Parameters:
        directory: the working directory. environment: variables over those of the tests.
    """
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    code = None
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "80", **(environment or {})}),
        mock.patch.object(sys, "argv", ["onecat", *arguments]),
        mock.patch.object(sys, "stdin", io.StringIO()),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
        _within(directory),
    ):
        try:
            application.run()
        except SystemExit as ended:
            code = ended.code
    assert code is None or isinstance(code, int), code
    out, err = (each.buffer.getvalue().decode() for each in map(_flushed, streams))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(arguments, code or 0, out, err)


def _flushed(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    stream.flush()
    return stream


@contextlib.contextmanager
def _within(directory: Path | None) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory or before)
    try:
        yield
    finally:
        os.chdir(before)
