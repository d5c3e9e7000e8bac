"""Runs steps side by side, each with a limit of time, and goes on after those that fail."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

PAUSE = 0.2
"""Seconds between two looks at what has ended."""
GRACE = 8.0
"""Seconds between asking a step's processes to end and killing them; a step that ends servers needs some."""


@dataclass(frozen=True)
class Step:
    """A command with its environment (added to that of this process).

    needs: names of steps that must have ended well before, else this one is not started. after: those that must have
    ended, however they did. Names of steps that are not there count as done. load: how much of `capacity` it takes.
    limit: seconds.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: Sequence[str] = ()
    after: Sequence[str] = ()
    load: int = 2
    limit: float = 300.0


@dataclass(frozen=True)
class Ended:
    """How a step ended: "ok", "exit code N", "out of time" or "not started"; and the seconds it took."""

    name: str
    result: str
    seconds: float


@dataclass
class _Running:
    step: Step
    process: subprocess.Popen[bytes]
    started: float


def run_all(steps: Sequence[Step], logs: Path, capacity: int, deadline: float) -> list[Ended]:
    """Run the steps until all ended or `time.monotonic()` is `deadline`; what they print goes to LOGS/NAME.log."""
    logs.mkdir(parents=True, exist_ok=True)
    waiting, running, ended = list(steps), list[_Running](), list[Ended]()
    names = {step.name for step in steps}
    while waiting or running:
        now = time.monotonic()
        over = list[_Running]()
        for each in list(running):
            code = each.process.poll()
            out_of_time = now - each.started > each.step.limit or now > deadline
            if code is None and not out_of_time:
                continue
            over.append(each)
            result = "out of time" if code is None else "ok" if code == 0 else f"exit code {code}"
            ended.append(Ended(each.step.name, result, now - each.started))
            running.remove(each)
            print(f"[{result}] {each.step.name} {now - each.started:.0f} s", flush=True)
        with ThreadPoolExecutor(max(1, len(over))) as pool:
            list(pool.map(lambda each: stop(each.process), over))
        if now > deadline:
            return ended + [Ended(step.name, "not started", 0.0) for step in waiting]
        results = {each.name: each.result for each in ended}
        for step in list(waiting):
            if any(results.get(name, "ok") != "ok" for name in step.needs):
                ended.append(Ended(step.name, "not started", 0.0))
                waiting.remove(step)
                continue
            is_ready = all(name in results for name in {*step.needs, *step.after} & names)
            load = sum(each.step.load for each in running)
            if is_ready and (not running or load + step.load <= capacity):
                running.append(_start(step, logs))
                waiting.remove(step)
        time.sleep(PAUSE)
    return ended


def _start(step: Step, logs: Path) -> _Running:
    with (logs / f"{step.name}.log").open("wb") as log:
        process = subprocess.Popen(
            list(step.argv),
            env={**os.environ, **step.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return _Running(step, process, time.monotonic())


def stop(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process that leads a session of its own, and of that session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        until = time.monotonic() + GRACE
        while time.monotonic() < until and process.poll() is None:
            time.sleep(PAUSE)
    process.wait()
