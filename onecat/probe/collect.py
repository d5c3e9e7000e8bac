"""Sends the agent to a host and reads its answer."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from datetime import datetime
from typing import Any

from onecat import paths as onecat_paths
from onecat.errors import ExitCode, OnecatError
from onecat.facts import SCHEMA, Clock, Facts
from onecat.hosts import Completed, LocalTransport, SudoPasswords, SudoRefusedError, SudoTransport, Transport
from onecat.probe.options import ProbeOptions
from onecat.probe.program import agent_argv, most_seconds, program, remote_argv

GRACE_SECONDS = 5.0
"""Time beyond the sources' own limit for starting Python and sending the answer."""

_PACKING = threading.Lock()
"""Held while the agent is packed, so that of many threads only the first one does it."""

COLLECTOR_MARK = b"===== onecat: "
"""Begins every section of what the collector of hosts without Python prints (agent/collector.sh)."""


def collect(
    transport: Transport, options: ProbeOptions | None = None, sudo_passwords: SudoPasswords | None = None
) -> Facts:
    """Observe one host.

    Parameters:
        transport: the way to it.
        options: what to observe. With sudo, a host that does not let onecat become root is observed without, and a note
            of its facts says so.
        sudo_passwords: where the password comes from that sudo may want; None takes sudo only without one.

    Raises OnecatError (exit code 3) when the host cannot be reached or the agent cannot run there.
    """
    chosen = options or ProbeOptions()
    if chosen.sudo and sudo_passwords is not None and sudo_passwords.can_ask:
        try:
            return _observe(SudoTransport(transport, sudo_passwords), replace(chosen, sudo=False))
        except SudoRefusedError as refusal:
            return _with_refusal(_observe(transport, chosen), refusal)
    return _observe(transport, chosen)


def collect_local(options: ProbeOptions | None = None) -> Facts:
    """Observe this machine; see collect. The space that always matters is where onecat keeps its data."""
    return collect(LocalTransport(), for_this_machine(options or ProbeOptions()))


def for_this_machine(options: ProbeOptions) -> ProbeOptions:
    """Options that also ask for the space where onecat keeps its data."""
    return replace(options, paths={"data": str(onecat_paths.home().data), **options.paths})


def most_seconds_of(transport: Transport, options: ProbeOptions) -> float:
    """The longest time that collect takes, the person's answers not counted."""
    return transport.seconds_to_reach + 2 * (most_seconds(options) + GRACE_SECONDS)


def _observe(transport: Transport, options: ProbeOptions) -> Facts:
    argv = remote_argv(options, transport.name)
    if transport.python is not None and not options.sudo:
        argv = agent_argv(transport.python, options, transport.name)
    with _PACKING:
        agent = program()
    completed = transport.run(argv, stdin=agent, timeout=most_seconds(options) + GRACE_SECONDS)
    ended = time.time()
    facts = _facts(completed, transport.name)
    if isinstance(transport, LocalTransport):
        return facts
    offset = clock_offset(facts.collected_at, ended - completed.seconds, ended)
    return replace(facts, clock=replace(facts.clock or Clock(), offset_seconds=offset))


def _facts(completed: Completed, host: str) -> Facts:
    from onecat.probe.merging import facts_from_document

    try:
        return facts_from_document(_document(completed.stdout, host))
    except ValueError as error:
        raise OnecatError(
            f"the probe gave no facts (exit code {completed.exit_code}): {error}",
            where=host,
            details=completed.stderr.decode(errors="replace").splitlines()[-5:],
            code=ExitCode.UNREACHABLE,
        ) from error


def _document(output: bytes, host: str) -> dict[str, Any]:
    """The agent's document; what the collector printed becomes one with a capture. A login shell may print before."""
    start = output.find(COLLECTOR_MARK)
    if start >= 0 and not output[:start].strip().startswith(b"{"):
        text = output[start:].decode(errors="replace")
        return {"schema": SCHEMA, "host": host, "captures": [{"name": "collector", "text": text}]}
    document = json.loads(output[max(output.find(b'{"'), 0) :])
    if not isinstance(document, dict):
        raise ValueError(f"it holds {type(document).__name__} and no object")
    return document


def clock_offset(collected_at: str | None, sent: float, received: float) -> float | None:
    """How far a host's clock is ahead of this machine's, in seconds; as little as the times allow.

    Parameters:
        collected_at: when the host began to observe, in whole seconds by its clock.
        sent, received: when the question left and the answer came, in seconds by the clock of this machine.
    """
    try:
        stamp = datetime.fromisoformat((collected_at or "").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
    earliest, latest = stamp - received, stamp + 1.0 - sent
    if earliest <= 0 <= latest:
        return 0.0
    return round(earliest if earliest > 0 else latest, 1)


def _with_refusal(facts: Facts, refusal: SudoRefusedError) -> Facts:
    notes = [
        replace(note, text=f"{refusal.found}: observed without root") if note.source == "sudo" else note
        for note in facts.notes
    ]
    return replace(facts, notes=tuple(notes))
