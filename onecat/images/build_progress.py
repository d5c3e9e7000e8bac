"""What a builder prints, read as steps: the classic builder's lines and those of BuildKit's plain progress. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

Report = Callable[[str], None]

KEPT_LINES = 5000
"""Lines of a step's output that are kept in memory to explain a failure; the log file has all of them."""
SLOW_SECONDS = 5.0
"""A step that took longer is told how long it took."""


@dataclass(frozen=True)
class Step:
    """One step of a build.

    stage: name of its stage, empty where there is one without a name. number, total: which one of how many: BuildKit
    counts within the stage, the classic builder through the whole file. seconds: how long it took; None while it runs.
    cached: its result was there already.
    """

    stage: str
    number: int
    total: int
    instruction: str
    seconds: float | None = None
    cached: bool = False

    @property
    def place(self) -> str:
        """The step in words, as `build: step 3 of 9`."""
        return (
            f"{self.stage}: step {self.number} of {self.total}" if self.stage else f"step {self.number} of {self.total}"
        )


class Progress(Protocol):
    """Reads a builder's lines in order."""

    def read(self, line: str, now: float) -> None:
        """One line without its end. now: seconds of a clock that only goes forward."""

    def finish(self, now: float) -> None:
        """The builder is done."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps so far, in the order in which they began."""

    @property
    def current(self) -> Step | None:
        """The step that failed, else the one that began last and runs."""

    @property
    def output(self) -> list[str]:
        """The last lines that `current` has printed."""


def shortened(instruction: str, limit: int = 50) -> str:
    """A Dockerfile instruction in one short line."""
    line = re.sub(r"\s+", " ", instruction)
    return line if len(line) <= limit else line[: limit - 3] + "..."


class ClassicProgress:
    """Reads the classic builder: `Step 3/12 : RUN ...`, ` ---> Using cache`, one step after the other."""

    _STEP = re.compile(r"^Step (\d+)/(\d+) : (.*)$")
    _STAGE = re.compile(r"^FROM\s+(?:--\S+\s+)*\S+(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)

    def __init__(self, report: Report) -> None:
        self._report = report
        self._steps: list[Step] = []
        self._began = 0.0
        self._stages = 0
        self._stage = ""
        self._output: deque[str] = deque(maxlen=KEPT_LINES)

    def read(self, line: str, now: float) -> None:
        """See Progress.read."""
        if found := self._STEP.match(line):
            self.finish(now)
            instruction = found[3].strip()
            if stage := self._STAGE.match(instruction):
                self._stage = stage[1] or f"stage-{self._stages}"
                self._stages += 1
            self._began = now
            self._output.clear()
            self._steps.append(Step(self._stage, int(found[1]), int(found[2]), instruction))
            self._report(f"{self._steps[-1].place}: {shortened(instruction)}")
        elif line.strip() == "---> Using cache" and self._steps:
            self._steps[-1] = replace(self._steps[-1], cached=True)
            self._report(f"{self._steps[-1].place}: cached")
        elif line.strip() and not line.startswith((" ---> ", "Removing intermediate container ")):
            self._output.append(line.rstrip())

    def finish(self, now: float) -> None:
        """See Progress.finish."""
        if self._steps and self._steps[-1].seconds is None:
            self._steps[-1] = replace(self._steps[-1], seconds=round(now - self._began, 1))
            _tell_time(self._steps[-1], self._report)

    @property
    def steps(self) -> tuple[Step, ...]:
        """See Progress.steps."""
        return tuple(self._steps)

    @property
    def current(self) -> Step | None:
        """See Progress.current."""
        return self._steps[-1] if self._steps else None

    @property
    def output(self) -> list[str]:
        """See Progress.output."""
        return list(self._output)


class BuildkitProgress:
    """Reads BuildKit's plain progress: `#7 [build 3/9] RUN ...`, `#7 12.3 output`, `#7 CACHED`, `#7 DONE 1.2s`.

    Stages that do not wait for one another run at the same time, so each line says which step it belongs to.
    """

    _LINE = re.compile(r"^#(\d+) (.*)$")
    _STEP = re.compile(r"^\[(?:\S+/\S+ )?(?:(?P<stage>[^\s\]]+) +)?(?P<number>\d+)/(?P<total>\d+)\] (?P<text>.*)$")
    _TIMED = re.compile(r"^\d+\.\d+ ?")
    _DONE = re.compile(r"^DONE (\d+(?:\.\d+)?)s$")

    def __init__(self, report: Report) -> None:
        self._report = report
        self._steps: dict[str, Step] = {}
        self._output: dict[str, deque[str]] = {}
        self._failed: str | None = None
        self._last: str | None = None

    def read(self, line: str, now: float) -> None:
        """See Progress.read."""
        found = self._LINE.match(line)
        if found is None:
            if line.strip() and set(line) != {"-"}:
                self._output.setdefault("", deque(maxlen=KEPT_LINES)).append(line.rstrip())
            return
        vertex, text = found[1], found[2]
        step = self._steps.get(vertex)
        if step is None:
            if head := self._STEP.match(text):
                stage = head["stage"] or ""
                self._steps[vertex] = Step(stage, int(head["number"]), int(head["total"]), head["text"])
                self._last = vertex
                self._report(f"{self._steps[vertex].place}: {shortened(head['text'])}")
            elif text.startswith("exporting to "):
                self._report(text)
            elif text.startswith("ERROR"):
                self._output.setdefault("", deque(maxlen=KEPT_LINES)).append(text)
            return
        if text == "CACHED":
            self._steps[vertex] = replace(step, cached=True, seconds=0.0)
            self._report(f"{step.place}: cached")
        elif done := self._DONE.match(text):
            self._steps[vertex] = replace(step, seconds=float(done[1]))
            _tell_time(self._steps[vertex], self._report)
        elif text.startswith("ERROR"):
            self._failed = self._failed or vertex
        elif self._TIMED.match(text):
            self._output.setdefault(vertex, deque(maxlen=KEPT_LINES)).append(self._TIMED.sub("", text, count=1))

    def finish(self, now: float) -> None:
        """See Progress.finish: BuildKit tells the seconds itself."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """See Progress.steps."""
        return tuple(self._steps.values())

    @property
    def current(self) -> Step | None:
        """See Progress.current."""
        vertex = self._failed or self._running()
        return self._steps[vertex] if vertex else None

    @property
    def output(self) -> list[str]:
        """See Progress.output: what the step printed, or the builder's own words where no step has failed."""
        return list(self._output.get(self._failed or "", ()))

    def _running(self) -> str | None:
        last = self._steps.get(self._last or "")
        return self._last if last and last.seconds is None else None


def _tell_time(step: Step, report: Report) -> None:
    if step.seconds is not None and step.seconds >= SLOW_SECONDS and not step.cached:
        report(f"{step.place}: done in {round(step.seconds)} s")
