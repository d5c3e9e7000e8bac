"""A lock of a host that is held for moments: who finds it taken waits, and is not refused."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onecat.deploy.audit import user_name
from onecat.deploy.supervisor import timestamp
from onecat.errors import ExitCode, OnecatError
from onecat.hosts.machine import LockHeldError

if TYPE_CHECKING:
    from onecat.hosts import Machine

POLL_SECONDS = 0.1


@contextlib.contextmanager
def short_lock(machine: Machine, path: str, purpose: str, limit_seconds: float) -> Iterator[None]:
    """Hold the lock file at `path` while the block runs, also against other threads of this program.

    Parameters:
        purpose: what another one does meanwhile, in words, as `making a release`.
        limit_seconds: how long to wait for it.

    Raises OnecatError.
    """
    machine.make_directory(path.rpartition("/")[0])
    holder = {"who": user_name(), "operator": platform.node(), "pid": os.getpid(), "since": timestamp(time.time())}
    limit = time.monotonic() + limit_seconds
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(machine.lock(path, json.dumps(holder) + "\n"))
                break
            except LockHeldError as held:
                if time.monotonic() > limit:
                    raise OnecatError(
                        f"another onecat has been {purpose} for {limit_seconds:.0f} s",
                        where=held.path,
                        details=[held.holder.strip()] if held.holder.strip() else [],
                        next_steps=["see whether it hangs, and try again"],
                        code=ExitCode.ROLLED_BACK,
                    ) from held
            time.sleep(POLL_SECONDS)
        yield
