"""What brings a container's server back, and what does not: crashes, a restarted dockerd, a rebooted host."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onecat.deploy import processes
from tests.testbed.deployments import SmallDeployment
from tests.testbed.test_up_container import ask, boxed, ours, server_image

__all__ = ["boxed", "server_image"]


def server_process(boxed: SmallDeployment, docker_client: Any) -> int | None:
    """The host's number of the server's process in the container, not of its entry point or its guard."""
    (container,) = ours(docker_client)
    if container.attrs["State"]["Status"] != "running":
        return None
    for pid in processes.descendants(container.attrs["State"]["Pid"]):
        words = command_line(pid)
        if words[:3] == ["python3", "-u", "/server.py"]:
            return pid
    return None


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill_server(boxed: SmallDeployment, docker_client: Any, before: int | None = None) -> int:
    """Kill the server as soon as there is another one than `before`."""
    limit = time.monotonic() + 20
    while (pid := server_process(boxed, docker_client)) in (None, before):
        assert time.monotonic() < limit, boxed.status()
        time.sleep(0.02)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def test_a_killed_server_is_started_again(boxed: SmallDeployment, docker_client: Any) -> None:
    release = boxed.up()
    kill_server(boxed, docker_client)
    found = boxed.wait_for(lambda found: found.state == "serving" and found.restarts == 1)
    assert (found.crashes_in_a_row, found.last_exit is not None) == (1, True)
    assert ask(release.endpoint).status_code == 200


def test_killed_ten_times_in_a_row_it_keeps_crashing_and_says_why(boxed: SmallDeployment, docker_client: Any) -> None:
    boxed.up()
    killed = None
    for _ in range(10):
        killed = kill_server(boxed, docker_client, killed)
    found = boxed.wait_for(lambda found: found.state == "keeps-crashing")
    assert (found.crashes_in_a_row, found.restarts, found.pid) == (10, 9, None)
    assert "killed by SIGKILL" in (found.cause or "")
    assert "exited with status 137" in (found.cause or "")
    assert "onecat up" in found.next_steps
    (container,) = ours(docker_client)
    container.restart(timeout=5)
    boxed.wait_for(lambda found: found.state == "keeps-crashing")
    assert server_process(boxed, docker_client) is None
    assert boxed.up().number == 2
    assert (boxed.status().state, boxed.status().crashes_in_a_row) == ("serving", 0)
