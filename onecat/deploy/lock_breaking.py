"""The lock of a deployment that somebody left behind: who holds it, and breaking it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat.deploy.store import LOCK
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy.store import DeploymentStore
    from onecat.hosts import Machine

UNLOCK_SCHEMA = "onecat.unlock/1"
_END_SECONDS = 60.0
_POLL_SECONDS = 0.2
# proc(5): fdinfo tells the locks of an open file, whichever process took them; the lock is free when it is closed.
_HOLDERS = r"""
for each in /proc/[0-9]*/fd/*; do
  [ "$each" -ef "$1" ] || continue
  process=${each%/fd/*}
  if grep -q FLOCK "$process/fdinfo/${each##*/}" 2>/dev/null; then
    printf '%s %s\n' "${process#/proc/}" "$(tr '\0\n' '  ' <"$process/cmdline" | cut -c 1-4000)"
  fi
done
"""


@dataclass(frozen=True)
class HeldLock:
    """A lock that is held.

    processes: those on the host that hold it, as (pid, command line); none that we may see: another user's.
    who, operator, since, purpose: what the holder wrote; None where it did not.
    """

    host: str
    path: str
    processes: tuple[tuple[int, str], ...]
    who: str | None = None
    operator: str | None = None
    pid: int | None = None
    since: str | None = None
    purpose: str | None = None

    @property
    def told(self) -> str:
        """Who holds it, in words."""
        if self.who is None:
            return "somebody who is just starting"
        return f"{self.who} on {self.operator} runs `{self.purpose}` since {self.since} (pid {self.pid} there)"


def held_lock(store: DeploymentStore, file: str = LOCK) -> HeldLock | None:
    """The lock of a deployment; None when it is free. file: FLEET_LOCK for that on all of its hosts."""
    path = f"{store.directory}/{file}"
    content = store.machine.read(path)
    if content is None:
        return None
    text = content.decode(errors="replace")
    processes = _holders(store.machine, path)
    if not processes and not text.strip():
        return None
    if not processes and _is_free(store.machine, path):
        return None  # the words of one who was killed: the lock itself is free
    return HeldLock(store.machine.name, path, processes, **_words(text))


def break_lock(store: DeploymentStore, held: HeldLock) -> None:
    """End what holds a lock: a onecat on that host is told to go back first, as with Ctrl-C.

    Raises OnecatError when it cannot be ended.
    """
    machine = store.machine
    pids = [str(pid) for pid, _ in held.processes]
    owner = machine
    if not pids:
        owner = machine.root() or machine
        pids = [str(pid) for pid, _ in _holders(owner, held.path)]
    for signal in ("TERM", "KILL"):
        if pids:
            owner.run(["kill", f"-{signal}", *pids])
        limit = time.monotonic() + _END_SECONDS
        while time.monotonic() < limit:
            if _is_free(machine, held.path):
                store.audit.record("unlocked", None, holder=held.told)
                return
            if not pids:
                break
            time.sleep(_POLL_SECONDS)
    raise OnecatError(
        f"the lock of {store.name} is still held",
        where=f"{held.path} on {machine.name}",
        details=[held.told],
        next_steps=[f"there, as root: fuser -v {held.path}"],
        code=ExitCode.NEEDS_PERSON,
    )


def unlock_document(deployment: str, held: HeldLock | None, broken: bool) -> dict[str, Any]:
    """The `onecat.unlock/1` document."""
    holder = None
    if held is not None:
        holder = {name: getattr(held, name) for name in ("who", "operator", "pid", "since", "purpose")}
    return {
        "schema": UNLOCK_SCHEMA,
        "deployment": deployment,
        "host": None if held is None else held.host,
        "held": held is not None,
        "holder": holder,
        "broken": broken,
    }


def _holders(machine: Machine, path: str) -> tuple[tuple[int, str], ...]:
    told = machine.run(["sh", "-c", _HOLDERS, "sh", path]).stdout.decode(errors="replace")
    rows = (line.partition(" ") for line in told.splitlines())
    found = {int(pid): _shown(command) for pid, _, command in rows if pid.isdigit()}
    return tuple(sorted(found.items()))


def _shown(command: str) -> str:
    """A command line for a person: that of a lock which is held over SSH is a whole script."""
    return "onecat-lock, for a onecat on another machine" if " onecat-lock " in command else command.strip()[:200]


def _is_free(machine: Machine, path: str) -> bool:
    from onecat.hosts import LockHeldError

    try:
        with machine.lock(path, ""):
            return True
    except LockHeldError:
        return False


def _words(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
        return {name: document[name] for name in ("who", "operator", "pid", "since", "purpose")}
    except (ValueError, KeyError, TypeError):
        return {}
