"""Samples as JSON lines: written as they come, and read back without any host."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from onecat.errors import OnecatError
from onecat.live.top.history import HostView
from onecat.live.top.samples import SampleReader
from onecat.observe.metrics import Sample, sample_from_json, sample_to_json

TOP_SCHEMA = "onecat.top/1"
_LATEST_SECONDS = 253_402_214_400.0
"""Since 1970: the last day of the year 9999, up to which a moment has a date in every time zone."""


def document_of(view: HostView, deployment: str | None) -> dict[str, Any]:
    """One line of `onecat top --json`: the newest sample of a host, the rates and the reading of its last seconds."""
    return {
        "schema": TOP_SCHEMA,
        "deployment": deployment,
        "sample": sample_to_json(view.latest),
        "rates": None if view.rates is None else dataclasses.asdict(view.rates),
        "reading": dataclasses.asdict(view.reading),
    }


class Recording:
    """A file of such lines that is being written; use as a context manager. Each line is written at once.

    Raises OnecatError when the file is there already or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file: IO[str] = path.open("x", encoding="utf-8")
        except FileExistsError as error:
            raise OnecatError(
                "the file is there already",
                expected="a new file for the recording",
                where=str(path),
                next_steps=["another name", f"or look at it: onecat top --replay {path}"],
            ) from error
        except OSError as error:
            raise OnecatError(f"the recording cannot be written: {error.strerror}", where=str(path)) from error

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, document: dict[str, Any]) -> None:
        """Write one line."""
        self._file.write(json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n")
        self._file.flush()


def replayed(path: Path) -> Iterator[tuple[Sample, str | None]]:
    """The samples of a recording and the deployment of each, in their order.

    Lines of the sampling agent itself are read too (tools/h200_run has it as one file for machines without onecat). A
    last line that was cut off is left out.

    Raises OnecatError when the file cannot be read, is no recording, or holds no sample.
    """
    is_empty = True
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OnecatError(f"the recording cannot be read: {error.strerror}", where=str(path)) from error
    reader = SampleReader(path.stem)
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found = _read(json.loads(line), reader)
                if not 0 <= found[0].time < _LATEST_SECONDS:
                    raise ValueError(f"its time {found[0].time:g} is no time of a sample")
            except ValueError as error:
                if not line.endswith("\n"):
                    break
                raise OnecatError(
                    "this is no recording",
                    expected=f"lines of JSON ({TOP_SCHEMA}), as onecat top --record FILE writes them",
                    where=f"{path}:{number}",
                    details=[str(error)],
                ) from error
            is_empty = False
            yield found
    if is_empty:
        raise OnecatError(
            "the recording holds no sample",
            expected="lines that onecat top --record FILE has written",
            where=str(path),
        )


def _read(document: Any, reader: SampleReader) -> tuple[Sample, str | None]:
    if not isinstance(document, dict):
        raise ValueError("it holds no object")
    if document.get("schema") == TOP_SCHEMA:
        deployment = document.get("deployment")
        return sample_from_json(document.get("sample") or {}), deployment if isinstance(deployment, str) else None
    if "schema" not in document and "machine" in document:
        return reader.read(document, float(document.get("time") or 0)), None
    raise ValueError(f"its schema is {document.get('schema')!r}")
