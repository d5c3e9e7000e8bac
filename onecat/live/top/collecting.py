"""Samples of one host, from the sampling agent that runs there while they are taken."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError
from onecat.live.top.samples import SampleReader
from onecat.live.top.watched import Watched
from onecat.observe.metrics import Sample
from onecat.observe.metrics.names import metric_names
from onecat.probe.sampling import SamplingOptions, local_sampling_argv, sampling_argv, sampling_program

if TYPE_CHECKING:
    from onecat.hosts import Conversation, Machine

START_SECONDS = 30.0
"""How long the first sample may take: a busy host starts Python slowly."""
SILENT_SECONDS = 10.0
"""How much later than expected a sample may come before the host counts as silent."""


def collect(
    machine: Machine, watched: Watched | None = None, *, interval: float = 1.0, count: int = 0
) -> Iterator[Sample]:
    """Samples of a host, one each `interval` seconds, until the iterator is closed or `count` have come.

    Parameters:
        machine: the host. watched: the server on it; None: GPUs and the host alone.
        interval: seconds. count: 0 for without end.

    Raises OnecatError (exit code 3) when the host is lost, stays silent, or cannot run the agent.
    """
    with sampling(machine, watched, interval=interval, count=count) as talk:
        yield from read_samples(talk, machine.name, interval)


def sampling(machine: Machine, watched: Watched | None, *, interval: float, count: int = 0) -> Conversation:
    """Start the agent on a host. Raises OnecatError (exit code 3) when that cannot be."""
    import sys

    server = watched or Watched()
    options = SamplingOptions(interval, count, server.metrics_url, wanted_metrics(), server.pids)
    argv = local_sampling_argv(sys.executable, options) if machine.is_local else sampling_argv(options)
    talk = machine.start(argv)
    try:
        talk.send(sampling_program())
    except BaseException:
        talk.close()
        raise
    return talk


def read_samples(talk: Conversation, host: str, interval: float) -> Iterator[Sample]:
    """The samples of a conversation with the agent. Raises OnecatError when it stays silent or ends with an error."""
    reader = SampleReader(host)
    patience = START_SECONDS
    while True:
        try:
            line = talk.line(patience + interval)
        except TimeoutError as error:
            found = f"the host has told nothing for {patience + interval:g} s"
            raise OnecatError(found, where=host, code=ExitCode.UNREACHABLE) from error
        if line is None:
            break
        if not line.startswith(b"{"):  # a login shell may print before
            continue
        try:
            sample = reader.read(json.loads(line), time.time())
        except ValueError as error:
            raise OnecatError(
                f"the sampling agent told what cannot be read: {error}", where=host, code=ExitCode.UNREACHABLE
            ) from error
        patience = SILENT_SECONDS
        yield sample
    said = talk.errors.decode(errors="replace").strip().splitlines()
    if talk.exit_code not in (0, None) or said:
        steps = ["install Python 3.6 or newer there"] if talk.exit_code == 127 else []
        raise OnecatError(
            said[-1] if said else f"the sampling agent ended with exit code {talk.exit_code}",
            where=host,
            details=said[-5:-1],
            next_steps=steps,
            code=ExitCode.UNREACHABLE,
        )


def wanted_metrics() -> tuple[str, ...]:
    """The names of all metrics that are read, to be kept of what a server tells: a fourth of 49 KB."""
    table = metric_names()
    return (*dict.fromkeys(each.name for each in table.names), table.process_started, table.cache_information)
