"""Samples a host at a steady pace.

Each tick asks everything at the same time: GPUs in processes of their own, since a call about a dying GPU may hang and
since NVML takes 20 ms to measure each direction of a PCIe link; the server's metrics over HTTP; the host from /proc.
What has not answered when the tick is told is left out with the reason, and comes with a later one.
"""

# ruff: noqa: PTH123
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import json
import os
import select
import sys
import time

from onecat.probe.agent.sampling.engine import Engine
from onecat.probe.agent.sampling.gpus import Gpus
from onecat.probe.agent.sampling.npus import Npus
from onecat.probe.agent.sampling.processor import Processor

STANDARD_INPUT = 0
LEAST_PATIENCE = 0.2
MOST_PATIENCE = 2.0
"""Seconds that a tick waits for GPUs and the server; the half of the interval between these."""
FIRST_PATIENCE = 3.0


def options(arguments):
    """--interval SECONDS, --count N (0: without end), --url URL, --keep NAME (of metrics), --pid N; each --keep and
    --pid may come again. --no-gpus: do not ask NVML. --no-input: do not end when the standard input does."""
    found = {"interval": 2.0, "count": 0, "url": None}  # type: dict[str, object]
    found.update({"keep": [], "pid": [], "gpus": True, "input": True})
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word in ("--no-gpus", "--no-input"):
            found[word[5:]] = False
        elif word == "--interval":
            found["interval"] = float(words.pop(0))
        elif word == "--count":
            found["count"] = int(words.pop(0))
        elif word == "--url":
            found["url"] = words.pop(0)
        elif word == "--keep":
            found["keep"].append(words.pop(0))  # type: ignore[attr-defined]
        elif word == "--pid":
            found["pid"].append(int(words.pop(0)))  # type: ignore[attr-defined]
        else:
            raise SystemExit("onecat-sampling: unknown option " + word)
    return found


def main(arguments):
    """Sample until the standard input ends, nobody reads the standard output any more, or --count is reached."""
    chosen = options(arguments)
    interval = chosen["interval"]
    patience = min(MOST_PATIENCE, max(LEAST_PATIENCE, interval / 2))
    gpus, npus = Gpus(chosen["gpus"]), Npus(interval)
    engine = Engine(chosen["url"], chosen["keep"]) if chosen["url"] else None
    processor = Processor(chosen["pid"])
    told = 0
    next_tick = time.monotonic()
    try:
        while not chosen["count"] or told < chosen["count"]:
            wait_until(next_tick, chosen["input"])
            # The first time drivers and modules are loaded.
            deadline = time.monotonic() + (patience if told else FIRST_PATIENCE)
            sample = take(deadline, gpus, npus, engine, processor)
            sys.stdout.write(json.dumps(sample, separators=(",", ":")) + "\n")
            sys.stdout.flush()
            told += 1
            next_tick = max(next_tick + interval, time.monotonic())
    except (EndOfInput, BrokenPipeError, KeyboardInterrupt):
        return 0
    finally:
        gpus.close()
    return 0


class EndOfInput(Exception):
    """Nobody looks any more."""


def wait_until(moment, watches_input):
    """Sleep, but not beyond the end of the standard input where that is watched."""
    if not watches_input:
        time.sleep(max(0.0, moment - time.monotonic()))
        return
    while True:
        remaining = moment - time.monotonic()
        if select.select([STANDARD_INPUT], [], [], max(0.0, remaining))[0] and not os.read(STANDARD_INPUT, 4096):
            raise EndOfInput
        if remaining <= 0:
            return


def take(deadline, gpus, npus, engine, processor):
    """One sample."""
    sample = {"time": time.time()}  # type: dict[str, object]
    notes = {}  # type: dict[str, str]
    gpus.ask()
    if engine is not None:
        sample["engine"] = engine.ask(deadline)
    found, why = gpus.answers(deadline)
    if found is not None:
        sample["gpus"] = found
    if why:
        notes["nvml"] = why
    text, why = npus.latest()
    if text is not None:
        sample["npu_smi"] = text
    if why:
        notes["ascend"] = why
    pids = {process["pid"] for gpu in found or [] for process in gpu.get("processes") or []}
    sample["machine"] = processor.sample(pids, gpus.pids() | npus.pids())
    sample["notes"] = notes
    return sample
