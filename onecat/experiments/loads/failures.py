"""What went wrong with a request, told from what the engine's benchmark says of it.

For an answer that is not 200 it keeps the reason phrase alone ("Service Unavailable"), for an exception the traceback,
of which the program keeps the last line (vllm/benchmarks/lib/endpoint_request_func.py, 0.18 to 0.27).
"""

from __future__ import annotations

from http import HTTPStatus

from onecat.experiments.loads.engine_program import TIMED_OUT

KINDS = {
    "connect": "no connection: nothing listens there, or the name is not known",
    "broken": "the connection ended in the midst of the answer",
    "timed-out": "no whole answer within the time limit",
    "overloaded": "refused for load: 429 or 503",
    "gateway": "the proxy got no answer of the server: 502 or 504",
    "key": "the API key is missing or wrong: 401 or 403",
    "rejected": "the request itself was refused: another 4xx, as for a prompt that is too long",
    "server": "the server failed: another 5xx",
    "incomplete": "the answer has fewer tokens than were asked for, or none",
    "other": "something else; see the message",
}
"""Kinds of errors and what they mean."""

LONGEST_MESSAGE = 300

# nginx has phrases of its own: ngx_http_header_filter_module.c, ngx_http_status_lines.
_NGINX = {
    "gateway time-out": 504,
    "request entity too large": 413,
    "service temporarily unavailable": 503,
    "request time-out": 408,
}
_STATUS = {each.phrase.lower(): each.value for each in HTTPStatus} | _NGINX
_OF_STATUS = {429: "overloaded", 503: "overloaded", 502: "gateway", 504: "gateway", 401: "key", 403: "key"}
_EXCEPTIONS = (
    ("Connect call failed", "connect"),
    ("ConnectorError", "connect"),
    ("ConnectorDNSError", "connect"),
    ("CertificateError", "connect"),
    ("ConnectionRefusedError", "connect"),
    ("ServerDisconnectedError", "broken"),
    ("ClientPayloadError", "broken"),
    ("ClientOSError", "broken"),
    ("ConnectionResetError", "broken"),
    ("BrokenPipeError", "broken"),
    ("TimeoutError", "timed-out"),
    ("Never received a valid chunk", "incomplete"),
)


def kind_of(text: str) -> str:
    """The kind of an error, one of KINDS, by its text."""
    if text == TIMED_OUT:
        return "timed-out"
    status = _STATUS.get(text.strip().lower())
    if status is not None:
        return kind_of_status(status)
    return next((kind for word, kind in _EXCEPTIONS if word in text), "other")


def kind_of_status(status: int) -> str:
    """The kind of an answer with a status of 400 or more."""
    return _OF_STATUS.get(status, "server" if status >= 500 else "rejected")


def message_of(text: str) -> str:
    """What is kept of an error's text, with the number of a status that only its phrase tells."""
    status = _STATUS.get(text.strip().lower())
    told = text.removeprefix("onecat: ") if status is None else f"{status} {text.strip()}"
    return told[:LONGEST_MESSAGE]
