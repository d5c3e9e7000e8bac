"""Python's tracebacks in the lines of a log, put together for each process, with those that they were raised from.

The form: https://docs.python.org/3/library/traceback.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from onecat.observe.lines import LogLine

_BEGIN = "Traceback (most recent call last):"
_JOINTS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,100}(?:\([\w.]{1,100}\))?(?::|$)")
_FRAME = re.compile(r'^\s+File "')


@dataclass
class Raised:
    """One exception: the line that names it, and the lines of its traceback."""

    begin: int
    line: LogLine | None = None
    end: int = 0


@dataclass
class Chain:
    """Exceptions of one process that were raised one from the other; the first one is the root."""

    process: str | None
    raised: list[Raised] = field(default_factory=list)

    @property
    def root(self) -> LogLine | None:
        """The line that names the exception that came first."""
        return next((each.line for each in self.raised if each.line is not None), None)

    def holding(self, number: int) -> Raised | None:
        """The exception in whose traceback a line stands."""
        return next((each for each in self.raised if each.begin <= number <= (each.end or number)), None)


@dataclass
class _Reader:
    chain: Chain | None = None
    in_frames: bool = False
    joined: bool = False


def chains(lines: Iterable[LogLine]) -> list[Chain]:
    """The chains of exceptions in the lines, in the order in which they begin."""
    found: list[Chain] = []
    readers: dict[tuple[str | None, str | None], _Reader] = {}
    for line in lines:
        reader = readers.setdefault((line.source, line.process), _Reader())
        text = line.text
        if text.strip() == _BEGIN:
            if reader.chain is None or not reader.joined:
                reader.chain = Chain(line.process)
                found.append(reader.chain)
            reader.chain.raised.append(Raised(line.number))
            reader.in_frames, reader.joined = True, False
        elif reader.chain is not None:
            _go_on(reader, line, text)
    return found


def _go_on(reader: _Reader, line: LogLine, text: str) -> None:
    assert reader.chain is not None
    raised = reader.chain.raised[-1]
    if text.strip() in _JOINTS:
        reader.joined = True
    elif reader.in_frames:
        if text[:1] not in ("", " ", "\t") and _EXCEPTION.match(text):
            raised.line, raised.end, reader.in_frames = line, line.number, False
    elif _FRAME.match(text) and line.number <= raised.end + 3:
        # Ray names the error before the frames as well as after them.
        raised.line, reader.in_frames = None, True
