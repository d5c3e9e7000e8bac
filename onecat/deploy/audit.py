"""The audit log of a deployment: who did what when, one JSON object per line, never rewritten."""

from __future__ import annotations

import getpass
import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from onecat.deploy.supervisor import timestamp

if TYPE_CHECKING:
    from onecat.hosts import Machine

AUDIT_FILE = "audit.jsonl"


@dataclass(frozen=True)
class Entry:
    """One thing that was done. who, operator: user and machine it was done from; event: as `switched`, `stopped`."""

    time: str
    who: str
    operator: str
    event: str
    release: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class AuditLog:
    """The log in the directory of a deployment on its host."""

    def __init__(self, machine: Machine, directory: str) -> None:
        self._machine = machine
        self._path = f"{directory}/{AUDIT_FILE}"

    def record(self, event: str, release: int | None = None, **details: Any) -> None:
        """Write down that something was done. details: small values, never secrets. Raises OSError or OnecatError."""
        entry = Entry(timestamp(time.time()), user_name(), platform.node(), event, release, details)
        self._machine.append(self._path, (json.dumps(asdict(entry), ensure_ascii=False) + "\n").encode())

    def entries(self) -> tuple[Entry, ...]:
        """All that was done, oldest first; a line that was cut off by a crash is left out, and what stands behind it
        in the same line."""
        lines = (self._machine.read(self._path) or b"").decode("utf-8", "replace").split("\n")
        return tuple(entry for entry in map(_entry, lines) if entry is not None)


def _entry(line: str) -> Entry | None:
    try:
        return Entry(**json.loads(line))
    except (ValueError, TypeError):
        return None


def user_name() -> str:
    """The operator's name on the machine they type on; their number where they have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
