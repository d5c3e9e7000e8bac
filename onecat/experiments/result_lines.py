"""The lines of a result file (schema onecat.bench/1): each is one JSON object, told apart by its key.

    {"schema": "onecat.bench/1", "id": ..., "kind": ..., "started_at": ..., "environment": ..., ...}    the first line
    {"block": {..., "requests": {"index": [0, 1, ...], "start": [0.0, 0.1, ...], ...}}}
    {"sample": {"time": ..., ...}}
    {"resumed_at": ...}
    {"finished_at": ..., "verdict": ...}

Requests are kept by column, as data frames take them (`pandas.DataFrame(line["block"]["requests"])`), which is a third
of the size of an object for each, and times to the microsecond. Keys and lines that are not known are left out by
readers, so that the schema can grow.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, get_args

from onecat.experiments.records import (
    RESULT_SCHEMA,
    Arrivals,
    Block,
    Environment,
    Experiment,
    Kind,
    Objectives,
    Request,
    Workload,
)

Record = TypeVar("Record", Workload, Arrivals, Objectives, Environment)

DIGITS = 6
"""Digits of a second that are kept: a microsecond, far below what a network and two clocks let anybody measure."""


def text_of(document: Mapping[str, Any]) -> str:
    """A line with its end.

    Raises ValueError for a number that JSON does not have, TypeError for a value that it has no form for.
    """
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def with_nulls(value: Any) -> Any:
    """Plain data in which null stands for the numbers that JSON does not have: a metric may be NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: with_nulls(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_nulls(each) for each in value]
    return value


def header_document(experiment: Experiment) -> dict[str, Any]:
    """The first line."""
    return {
        "schema": RESULT_SCHEMA,
        "id": experiment.id,
        "kind": experiment.kind,
        "started_at": experiment.started_at,
        "environment": with_nulls(dataclasses.asdict(experiment.environment)),
        "objectives": dataclasses.asdict(experiment.objectives),
        "settings": with_nulls(experiment.settings),
    }


def header_from(document: Mapping[str, Any]) -> Experiment:
    """The experiment of a first line, without what the lines after it add.

    Raises KeyError, TypeError or ValueError when the line is not as it should be; the schema is the caller's to check.
    """
    if document["kind"] not in get_args(Kind):
        raise ValueError(f"kind {document['kind']!r} is none of {', '.join(get_args(Kind))}")
    return Experiment(
        id=_text(document["id"]),
        kind=document["kind"],
        started_at=_moment(document["started_at"]),
        environment=_record(Environment, document["environment"]),
        blocks=(),
        objectives=_record(Objectives, document.get("objectives") or {}),
        settings=dict(document.get("settings") or {}),
    )


def block_document(block: Block) -> dict[str, Any]:
    """A block, its requests by column."""
    requests = block.requests
    columns = {
        "index": [each.index for each in requests],
        "start": _times(each.start for each in requests),
        "input_tokens": [each.input_tokens for each in requests],
        "output_tokens": [each.output_tokens for each in requests],
        "ttft": [None if each.ttft is None else round(each.ttft, DIGITS) for each in requests],
        "end_to_end": _times(each.end_to_end for each in requests),
        "inter_token": [_times(each.inter_token) for each in requests],
        "error": [each.error for each in requests],
        "message": [each.message for each in requests],
    }
    return {
        "number": block.number,
        "arm": block.arm,
        "warm_up": block.warm_up,
        "endpoint": block.endpoint,
        "started_at": block.started_at,
        "seconds": round(block.seconds, DIGITS),
        "workload": dataclasses.asdict(block.workload),
        "arrivals": dataclasses.asdict(block.arrivals),
        "requests": columns,
    }


def block_from(document: Mapping[str, Any]) -> Block:
    """A block of a line.

    Raises KeyError, TypeError or ValueError when the line is not as it should be, as with columns of unequal length.
    """
    columns = document["requests"]
    starts: Sequence[float] = columns["start"]
    requests = tuple(
        map(
            Request,
            *_same_length(
                columns["index"],
                starts,
                columns["input_tokens"],
                columns["output_tokens"],
                columns["ttft"],
                columns["end_to_end"],
                list(map(tuple, columns.get("inter_token") or [()] * len(starts))),
                columns.get("error") or [None] * len(starts),
                columns.get("message") or [""] * len(starts),
            ),
        )
    )
    return Block(
        number=_number(document["number"]),
        endpoint=_text(document["endpoint"]),
        started_at=_moment(document["started_at"]),
        seconds=float(document["seconds"]),
        requests=requests,
        arrivals=_record(Arrivals, document["arrivals"]),
        workload=_record(Workload, document["workload"]),
        arm=_text(document.get("arm", "")),
        warm_up=bool(document.get("warm_up", False)),
    )


def _same_length(*columns: Sequence[Any]) -> Sequence[Sequence[Any]]:
    lengths = {len(each) for each in columns}
    if len(lengths) > 1:
        raise ValueError(f"columns of {', '.join(map(str, sorted(lengths)))} requests in one block")
    return columns


def _record(kind: Callable[..., Record], document: Mapping[str, Any]) -> Record:
    """A record of the fields that it knows; those that a later version added are left out."""
    known = {each.name for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in document.items() if name in known})


def _times(values: Iterable[float]) -> list[float]:
    return [round(each, DIGITS) for each in values]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where text belongs")
    return value


def _moment(value: Any) -> str:
    datetime.fromisoformat(_text(value).replace("Z", "+00:00"))
    return str(value)


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} where a whole number belongs")
    return value
