"""What stands around a message in a log line: in a line of any log. Out: the message, and who wrote it, when.

What container engines, journald, Compose, kubectl, Ray, vLLM, PyTorch, NCCL and nginx put before a message (their
formats are named beside each form), colours, and what users sent in a line of an access log are told apart from it.
"""

from __future__ import annotations

import json
import re
import string
from dataclasses import dataclass, field

_LONGEST_HEAD = 600
"""Characters of a line in which a head is looked for, so that no line makes it slow."""
_MOST_HEADS = 8
_COLOUR = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][0-9A-Z])")
_COLOUR_FORM = rb"(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][0-9A-Z])"
COLOUR_BYTES = re.compile(rb"\x1b" + _COLOUR_FORM)
"""Terminal control sequences in the bytes of a log."""
COLOUR_JSON = re.compile(
    rb"\\u001[bB](?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\](?:[^\\]|\\[^u]){0,200}?(?:\\u0007|\\u001[bB]\\\\)|[()][0-9A-Z])"
)
"""The same as they stand in JSON."""
# Docker's and the supervisor's timestamps: RFC 3339 with a zone.
_TIMESTAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) ")
# Docker's json-file driver: https://docs.docker.com/engine/logging/drivers/json-file/
_DOCKER_JSON = re.compile(r'^\{"log":"')
# journalctl -o json: https://systemd.io/JOURNAL_EXPORT_FORMATS/#journal-json-format
_JOURNAL_JSON = re.compile(r'^\{.{0,20000}"MESSAGE"\s?:\s?["\[]', re.DOTALL)
# Ray's remark where it left out equal lines: https://docs.ray.io/en/latest/ray-observability/user-guides/configure-logging.html
_REPEATED = re.compile(r"\s{0,20}\[repeated \d{1,9}x across cluster\].{0,400}$")

_LEVEL = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
_PLACE = r"(?P<file>[\w./-]{1,120}:\d{1,6})"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_AFTER_TIME = re.compile(r"(?P<source>[\w.-]{1,100}) (?P<process>[\w@./\\:-]{1,120}?(?:\[\d{1,10}\])|kernel): ")
"""What journald puts after its time, whose form is one of those below."""
_DIGITS = string.digits
_CAPITALS = string.ascii_uppercase
_WORD = string.ascii_letters + string.digits + "_.-"
_HEADS = tuple(
    (begins, re.compile(form))
    for begins, form in (
        # RFC 3339 and its relatives; Python's asctime; with what follows in CRI's files (stdout F).
        (
            _DIGITS,
            rf"(?P<time>\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?)(?: (?:stdout|stderr) [FP])?(?: |$)",
        ),
        # vLLM: https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/logger.py
        (_CAPITALS, rf"(?P<level>{_LEVEL}) (?P<time>(?:\d{{4}}-)?\d\d-\d\d {_CLOCK}) \[?{_PLACE}\](?: |$)"),
        # Uvicorn
        (_CAPITALS, rf"(?P<level>{_LEVEL}): {{2,5}}"),
        # vLLM's processes and Ray's: (EngineCore pid=1) (RayWorkerProc pid=2, ip=10.0.0.2) (VllmWorker rank=0 pid=3)
        (
            "(",
            r"(?P<process>\((?:[A-Za-z][\w.:-]{0,60} )?(?:rank=\d{1,6} )?pid=\d{1,10}(?:, ip=[\w.:]{1,45})?\))(?: |$)",
        ),
        ("(", r"(?P<process>\((?:raylet|autoscaler)(?:, ip=[\w.:]{1,45})?\))(?: |$)"),
        # torch.distributed's workers: [rank0]:
        ("[", r"\[(?P<process>rank\d{1,6})\]:(?: |$|(?=\[))"),
        # c10's and glog's heads: [W1129 16:59:50.262538703 utils.cpp:68]
        (
            "[IWEF",
            rf"\[?(?P<level>[IWEF])(?P<time>\d{{4}} {_CLOCK}) {{1,4}}(?:\d{{1,10}} )?{_PLACE}\](?: |$)",
        ),
        # NCCL: HOST:PID:TID [DEVICE] NCCL WARN
        (_WORD, r"[\w.-]{1,100}:(?P<process>\d{1,10}):\d{1,10} \[\d{1,3}\] (?=NCCL )"),
        # nginx's error log: https://nginx.org/en/docs/ngx_core_module.html#error_log
        (
            _DIGITS,
            rf"(?P<time>\d{{4}}/\d\d/\d\d {_CLOCK}) \[(?P<level>\w{{1,8}})\] "
            r"(?P<process>\d{1,10})#\d{1,10}:(?: |$)",
        ),
        # journald: short, short-precise, short-iso, short-monotonic, short-unix: HOST PROGRAM[PID]:
        (
            _CAPITALS,
            rf"(?P<time>[A-Z][a-z]{{2}} [ \d]\d {_CLOCK}) (?P<source>[\w.-]{{1,100}}) "
            r"(?P<process>[\w@./\\:-]{1,120}?(?:\[\d{1,10}\])?): ",
        ),
        ("[", r"\[ {0,8}\d{1,9}\.\d{3,6}\] "),
        (_DIGITS, r"\d{10}\.\d{6} "),
        # dmesg -T, and SGLang's [2026-11-29 16:59:51 TP0]
        ("[", rf"\[[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ \d]\d {_CLOCK} \d{{4}}\] "),
        ("[", rf"\[(?P<time>\d{{4}}-\d\d-\d\d[ T]{_CLOCK})(?: (?P<process>[A-Z]{{2}}\d[\w ]{{0,20}}))?\](?: |$)"),
        # Ascend's runtime: [ERROR] 2026-11-29-16:59:51 (PID:123, Device:0, RankID:0)
        ("[", rf"\[(?P<level>[A-Z]{{4,8}})\] (?P<time>\d{{4}}-\d\d-\d\d-{_CLOCK}) (?P<process>\(PID:[^()]{{1,60}}\)) "),
        # Compose and Kubernetes (kubectl logs --prefix), and onecat's own logs of several hosts.
        (_WORD, r"(?P<source>[\w.-]{1,100}) {1,60}\|(?: |$)"),
        ("[", r"\[(?P<source>pod/[\w./-]{1,250})\](?: |$)"),
        # Python's logging with names: - vllm.engine - ERROR -
        ("-", rf"- (?P<file>[\w.]{{1,100}}) - (?P<level>{_LEVEL}) - "),
    )
)
"""Forms of heads, each with the ASCII characters that it can begin with."""
ALL_HEADS = tuple(form for _, form in _HEADS)
_HEADS_BY_FIRST = {chr(code): tuple(form for begins, form in _HEADS if chr(code) in begins) for code in range(128)}
_LONGEST_ACCESS = 80 << 10
# What a client may write freely: https://nginx.org/en/docs/http/ngx_http_log_module.html#log_format
_ACCESS = re.compile(r'"(?:GET|POST|PUT|PATCH|HEAD|DELETE|OPTIONS) (?P<path>[^"]{0,70000}) HTTP/[\d.]{1,3}"')
# The combined format: a request that is none, as a scanner's, stands between the quotes as it came.
_COMBINED = re.compile(
    r'(?P<client>\S{1,60} - )(?P<user>.{1,200}?)(?P<time> \[\d\d/[A-Z][a-z]{2}/\d{4}:[\d:]{8} [+-]\d{4}\] ")'
    r'(?P<request>[^"]{0,8000})(?=" \d{3} \d)'
)
_QUERY = re.compile(r"\?\S*")
# After these words vLLM writes what a client sent or was answered: entrypoints/serve/utils/server_utils.py,
# v1/engine/async_llm.py, tool_parsers/*.py, entrypoints/openai/responses/harmony.py of v0.27.1. The name of a request
# is a client's as well.
_SENT = re.compile(
    r"caught\. Request id: |Request \S{1,200} failed \((?:bad request|input error)\): |response_body=\{"
    r"|RequestValidationError: \d{1,6} validation errors?: ?|Regex timeout occurred when matching user input: "
    r"|Invalid JSON in browser tool call, using error placeholder: |Error in extracting tool call from response "
)
_SENT_WITHIN = 1000
"""Characters of a message in which such words are looked for."""
# A client's name for a model, and pydantic's words for a value, which it cuts off.
_MODEL_ASKED_FOR = re.compile(r"(?<=The model `)[^`]{0,8000}(?=` does not exist)")
_INPUT_VALUE = re.compile(r"(?<=, input_value=).{0,400}?(?=, input_type=)")
_QUOTED = re.compile(r'"[^"]{0,8000}"')
_FREE_FIELD = re.compile(r'(?<=referrer: )"[^"]{0,8000}"')


@dataclass(frozen=True)
class LogLine:
    """A line of a log.

    number: counted from 1. text: the message. plain: the line without colours and without what a container engine put
    around it. source: the host, container or pod that it says it is of. process: the process, in the log's words.
    time: in the log's words. level, file: in the log's words, as ERROR and core.py:10.
    """

    text: str
    plain: str = field(default="", compare=False)
    number: int = 0
    source: str | None = None
    process: str | None = None
    time: str | None = None
    level: str | None = None
    file: str | None = None


def plain(line: str) -> str:
    """A log line without what a container engine or the supervisor put around it, and without colours."""
    return _without_timestamp(_unwrapped(line)[0])


def heads_at(text: str, begin: int) -> tuple[re.Pattern[str], ...]:
    """The forms of heads that may match at a place of a text, by the character there."""
    return _HEADS_BY_FIRST.get(text[begin : begin + 1], ALL_HEADS)


def _without_timestamp(text: str) -> str:
    match = _TIMESTAMP.match(text)
    return text if match is None else text[match.end() :]


def read_line(line: str, number: int = 0) -> LogLine:
    """What a line says."""
    text, found = _unwrapped(line)
    bare = _without_timestamp(text)
    begin = 0
    head = text[:_LONGEST_HEAD]
    for _ in range(_MOST_HEADS):
        forms = heads_at(head, begin)
        for form in forms if begin == 0 else (_AFTER_TIME, *forms):
            match = form.match(head, begin)
            if match is not None and match.end() > begin:
                for name, value in match.groupdict().items():
                    # The innermost process is the one that wrote it; the outermost source and time are the surest.
                    if value is not None and (name == "process" or name not in found):
                        found[name] = value
                begin = match.end()
                break
        else:
            break
    text = text[begin:]
    if "across cluster]" in text:
        text = _REPEATED.sub("", text)
    if (sent := _SENT.search(text, 0, _SENT_WITHIN)) is not None:
        text = text[: sent.end()] + "..."
    if len(text) <= _LONGEST_ACCESS:
        if "The model `" in text:
            text = _MODEL_ASKED_FOR.sub(lambda asked: "..." if " " in asked[0] else asked[0], text)
        if ", input_value=" in text:
            text = _INPUT_VALUE.sub("...", text)
        if '] "' in text and (match := _COMBINED.match(text)):
            request = match["request"] if _ACCESS.fullmatch(f'"{match["request"]}"') else "..."
            rest = _QUOTED.sub('"..."', text[match.end() + 1 :])
            text = f'{match["client"]}-{match["time"]}{request}"{rest}'
        if "HTTP/" in text:
            text = _without_clients_words(text)
    return LogLine(
        text,
        bare,
        number,
        source=found.get("source"),
        process=found.get("process"),
        time=found.get("time"),
        level=found.get("level"),
        file=found.get("file"),
    )


def _unwrapped(line: str) -> tuple[str, dict[str, str]]:
    """The line out of its JSON and without colours, and what the JSON says of it."""
    line = line.rstrip("\r\n")
    found: dict[str, str] = {}
    if line.startswith("{"):
        if _DOCKER_JSON.match(line):
            line, found = _docker(line)
        elif _JOURNAL_JSON.match(line):
            line, found = _journal(line)
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    return line, found


def _docker(line: str) -> tuple[str, dict[str, str]]:
    """The text in a line of Docker's json-file driver; the line itself where it is cut off."""
    try:
        document = json.loads(line)
        text = document["log"]
    except (ValueError, RecursionError):
        return line, {}
    return (text.rstrip("\r\n"), _texts(time=document.get("time"))) if isinstance(text, str) else (line, {})


def _journal(line: str) -> tuple[str, dict[str, str]]:
    """The message of a journal entry; an array of bytes where it is not plain text."""
    try:
        entry = json.loads(line)
        text = entry["MESSAGE"]
        if isinstance(text, list):
            text = bytes(text).decode(errors="replace")
    except (ValueError, KeyError, TypeError, RecursionError):
        return line, {}
    if not isinstance(text, str):
        return line, {}
    process = entry.get("_PID") or entry.get("SYSLOG_IDENTIFIER")
    return text.rstrip("\r\n"), _texts(source=entry.get("CONTAINER_NAME") or entry.get("_HOSTNAME"), process=process)


def _texts(**values: object) -> dict[str, str]:
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _without_clients_words(text: str) -> str:
    """A line of an access log, or of nginx's error log, without what the client may have written freely."""
    match = _ACCESS.search(text)
    if match is None:
        return text
    begin, end = match.span("path")
    path = _QUERY.sub("", text[begin:end])
    path = path if " " not in path and len(path) <= 200 else "..."
    rest = text[end:]
    if "upstream: " in rest or "host: " in rest:
        rest = _FREE_FIELD.sub('"..."', rest)
    else:
        # Combined format: status, size, "referrer", "user agent", ...: what is quoted after the request.
        quote = rest.find('"')
        rest = rest[: quote + 1] + _QUOTED.sub('"..."', rest[quote + 1 :])
    return text[:begin] + path + rest
