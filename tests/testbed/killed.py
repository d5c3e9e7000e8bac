"""An `onecat up` in a process of its own that is killed with no chance to clean up, right after one of its steps."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.testbed.deployments import SmallDeployment

# The steps of a change, in their order, by what the audit log says of them; `locked` and `rendered` before it says.
STEPS = (
    "locked", "rendered", "up", "started", "ready", "answered", "accepted", "routed", "current", "draining", "stopped",
)  # fmt: skip

_PROGRAM = """
import os, sys
from pathlib import Path
from onecat import deploy
from onecat.deploy import leftovers, rollout
from onecat.deploy.audit import AuditLog
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment

home, model, port, proxy_port, step, *words = sys.argv[1:]
small = SmallDeployment(Home(Path(home), Path(home)), Path(model), int(port), int(proxy_port))

def die():
    os.kill(os.getpid(), 9)

def after(function, *arguments):
    result = function(*arguments)
    die()
    return result

record = AuditLog.record
AuditLog.record = lambda log, event, *more, **details: (record(log, event, *more, **details), event == step and die())
if step == "locked":
    rollout.clean_up = lambda run: die()
if step == "rendered":
    rollout.render = lambda *arguments, real=rollout.render: after(real, *arguments)
changes = {"rollout": {"strategy": "recreate"}} if "recreate" in words else {}
small.up(*(word for word in words if word != "recreate"), **changes)
"""


def up_killed_after(small: SmallDeployment, step: str, *words: str) -> None:
    """Run `up` with these words for the server until the step is done, and kill it there."""
    arguments = (small.home.data, small.model, small.port, small.proxy_port, step, *words)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, f"{step}: {done.returncode}\n{done.stderr[-3000:]}"
