"""A log of a vLLM server, or any program's text with errors in it, kept for the diagnoses of onecat.observe."""

from __future__ import annotations

import re

from onecat.probe.importers.registry import Capture, Part, importer

FIRST_LINES = 500
LAST_LINES = 1500
TELLING_LINES = 1000
LONGEST_LINE = 2000

_STRONG = re.compile(
    r"^.{0,80}?(?:(?:INFO|WARNING|ERROR|DEBUG) [0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} \["
    r"|vLLM API server version|Uvicorn running on|\(EngineCore|Traceback \(most recent call last\):"
    r"|NCCL (?:WARN|INFO|ERROR) )",
    re.MULTILINE,
)
_WEAK = re.compile(
    r"\b[A-Z]\w{1,40}(?:Error|Exception)\b|\berror: |CUDA error|\bERROR\b|core dumped|\bKilled\b|ptxas fatal|NCCL WARN"
)
_TELLING = re.compile(r"error|exception|warn|traceback|killed|cuda|nccl|fail|fatal|abort|refused|denied", re.IGNORECASE)
_VERSION = re.compile(
    r"(?:vLLM API server version|LLM engine \(v|vLLM version) ?v?([0-9]{1,3}\.[0-9]{1,4}[\w.+]{0,40})"
)


@importer("server log", recognises=lambda text: _STRONG.search(text) is not None, hints=("log", "vllm", "server"))
def server_log(capture: Capture) -> Part:
    """Its lines, with those left out that tell least where there are too many, and the engine's version."""
    return _part(capture)


def _holds_error(text: str) -> bool:
    # A document in JSON is data of some other program, whatever words it holds.
    return text.lstrip()[:1] not in ("{", "[{") and _WEAK.search(text) is not None


@importer("error text", recognises=_holds_error, last_resort=True, hints=("error",))
def error_text(capture: Capture) -> Part:
    """Text of no other form that holds an error: a pasted message, a log of another program."""
    return _part(capture)


def _part(capture: Capture) -> Part:
    lines = [line.rstrip()[:LONGEST_LINE] for line in capture.text.strip("\n").split("\n")]
    log = {"name": capture.name, "lines": _shortened(lines)}
    version = _VERSION.search(capture.text)
    if version:
        log["engine_version"] = version.group(1)
    return {"server_logs": [log]}


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= FIRST_LINES + LAST_LINES + TELLING_LINES:
        return lines
    middle = [line for line in lines[FIRST_LINES:-LAST_LINES] if _TELLING.search(line)][:TELLING_LINES]
    left_out = len(lines) - FIRST_LINES - LAST_LINES - len(middle)
    return [*lines[:FIRST_LINES], *middle, f"[{left_out} lines left out]", *lines[-LAST_LINES:]]
