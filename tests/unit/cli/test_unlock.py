"""`onecat unlock` on this machine: who holds a deployment is told, and nothing happens unasked."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onecat.deploy.store import LOCK, DeploymentStore
from onecat.hosts import LocalMachine
from onecat.paths import home

PROGRAM = """
import sys, time
from pathlib import Path
from onecat.deploy.store import DeploymentStore
from onecat.hosts import LocalMachine
with DeploymentStore(LocalMachine(Path(sys.argv[1])), "demo").lock("onecat up", sys.argv[2]):
    print("held", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def somebody_at_work(data: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, data, LOCK], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def onecat(*words: str) -> subprocess.CompletedProcess[str]:
    """The real command, with nobody at a terminal."""
    program = Path(sys.executable).with_name("onecat")
    return subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def test_a_lock_is_broken_when_somebody_says_so_and_not_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONECAT_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    data = home().data
    store = DeploymentStore(LocalMachine(data), "demo")
    store.machine.make_directory(store.directory)
    with somebody_at_work(data) as process:
        refused = onecat("unlock", "demo")
        assert refused.returncode == 2 and "nobody is there to be asked" in refused.stderr
        assert "onecat unlock demo --yes" in refused.stderr
        assert "runs `onecat up` since 20" in refused.stderr and f"(pid {process.pid} there)" in refused.stderr
        assert process.poll() is None
        broken = onecat("unlock", "demo", "--yes", "--json")
        assert broken.returncode == 0, broken.stderr
        process.wait(timeout=10)
    document = json.loads(broken.stdout)
    assert (document["held"], document["broken"], document["holder"]["pid"]) == (True, True, process.pid)
    assert store.audit.entries()[-1].event == "unlocked"
    assert "nobody holds the lock" in onecat("unlock", "demo").stdout
    none = onecat("unlock", "other")
    assert none.returncode == 2 and "there is no deployment other" in none.stderr and none.stdout == ""
