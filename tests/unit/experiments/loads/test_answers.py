"""What the driver's program answers, as blocks; what went wrong with requests, by kinds."""

from __future__ import annotations

from typing import Any

import pytest

from onecat.experiments.loads.answers import block_of, request_of
from onecat.experiments.loads.engine_program import TIMED_OUT
from onecat.experiments.loads.failures import KINDS, kind_of, message_of
from onecat.experiments.records import Arrivals, Endpoint, Workload


def told(**changes: Any) -> dict[str, Any]:
    values = {
        "index": 3,
        "start": 0.5,
        "input_tokens": 10,
        "output_tokens": 4,
        "wanted_tokens": 4,
        "ttft": 0.1,
        "inter_token": [0.01, 0.02, 0.03],
        "seconds": 0.16,
        "success": True,
        "error": "",
    }
    return {**values, **changes}


def test_a_block() -> None:
    answer = {"started_at": 1764500000.25, "seconds": 2.0, "cut_short": False, "requests": [told()]}
    block = block_of(
        answer, Endpoint("chat", "http://x", "m"), Workload(), Arrivals(2), number=5, arm="A", warm_up=True
    )
    assert (block.started_at, block.seconds, block.number, block.arm) == ("2025-11-30T10:53:20.250Z", 2.0, 5, "A")
    assert (block.endpoint, block.warm_up) == ("chat", True)
    (request,) = block.requests
    assert (request.index, request.ttft, request.end_to_end, request.error) == (3, 0.1, 0.16, None)
    assert request.inter_token == (0.01, 0.02, 0.03)


def test_an_answer_with_fewer_tokens_than_were_to_come_is_no_answer() -> None:
    request = request_of(told(output_tokens=2))
    assert (request.error, request.message) == ("incomplete", "2 of 4 tokens")
    assert request_of(told(output_tokens=2, wanted_tokens=None)).error is None  # it may end where the model ends it


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (TIMED_OUT, "timed-out"),
        ("Too Many Requests", "overloaded"),
        ("Service Temporarily Unavailable", "overloaded"),
        ("Bad Gateway", "gateway"),
        ("Gateway Time-out", "gateway"),
        ("Gateway Timeout", "gateway"),
        ("Unauthorized", "key"),
        ("Forbidden", "key"),
        ("Bad Request", "rejected"),
        ("Request Entity Too Large", "rejected"),
        ("Not Found", "rejected"),
        ("Internal Server Error", "server"),
        ("Insufficient Storage", "server"),
        ("aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host x:1 ssl:default [...]", "connect"),
        ("aiohttp.client_exceptions.ClientConnectorDNSError: Cannot connect to host x:1", "connect"),
        ("aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected", "broken"),
        ("aiohttp.client_exceptions.ClientPayloadError: Response payload is not completed", "broken"),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "broken"),
        ("Never received a valid chunk to calculate TTFT.This response will be marked as failed!", "incomplete"),
        ("ValueError: something new", "other"),
        ("", "other"),
    ],
)
def test_kinds_of_errors(text: str, kind: str) -> None:
    assert kind_of(text) == kind
    assert kind in KINDS


def test_messages_tell_the_status_and_stay_short() -> None:
    assert message_of("Bad Gateway") == "502 Bad Gateway"
    assert message_of(TIMED_OUT) == "timed out"
    assert len(message_of("x" * 10_000)) == 300


def test_a_failed_request_keeps_its_time() -> None:
    request = request_of(told(success=False, error="Bad Gateway", ttft=None, output_tokens=0, seconds=1.5))
    assert (request.error, request.message, request.ttft, request.end_to_end) == (
        "gateway",
        "502 Bad Gateway",
        None,
        1.5,
    )
