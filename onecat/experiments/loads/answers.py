"""From what the driver's program answers to a block."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from onecat.experiments.loads.failures import kind_of, message_of
from onecat.experiments.records import Arrivals, Block, Endpoint, Request, Workload


def block_of(
    answer: Mapping[str, Any],
    endpoint: Endpoint,
    workload: Workload,
    arrivals: Arrivals,
    *,
    number: int,
    arm: str,
    warm_up: bool,
) -> Block:
    """The block that an answer (see engine_program) tells of."""
    began = datetime.fromtimestamp(float(answer["started_at"]), timezone.utc)
    return Block(
        number=number,
        endpoint=endpoint.label,
        started_at=began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        seconds=float(answer["seconds"]),
        requests=tuple(request_of(each) for each in answer["requests"]),
        arrivals=arrivals,
        workload=workload,
        arm=arm,
        warm_up=warm_up,
    )


def request_of(told: Mapping[str, Any]) -> Request:
    """One request.

    The engine's benchmark takes a stream that ends early, without an error of HTTP, for an answer. One that was to go
    on to a number of tokens and has fewer is none.
    """
    error, message = None, ""
    if not told["success"]:
        error, message = kind_of(told["error"]), message_of(told["error"])
    elif told["wanted_tokens"] and told["output_tokens"] < told["wanted_tokens"]:
        error, message = "incomplete", f"{told['output_tokens']} of {told['wanted_tokens']} tokens"
    return Request(
        index=int(told["index"]),
        start=float(told["start"]),
        input_tokens=int(told["input_tokens"]),
        output_tokens=int(told["output_tokens"]),
        ttft=None if told["ttft"] is None else float(told["ttft"]),
        end_to_end=float(told["seconds"]),
        inter_token=tuple(map(float, told["inter_token"])),
        error=error,
        message=message,
    )
