"""Failures of a server that onecat has brought up: its supervisor writes into the log as well."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from onecat.deploy import processes
from tests.testbed.command import Onecat
from tests.testbed.ports import free_port
from tests.testbed.waiting import wait_until

CONFIGURATION = """\
name: demo
profile: cpu
model:
  path: {model}
  served_name: tiny
port: {port}
proxy:
  kind: none
rollout:
  strategy: recreate
restart:
  max_crashes: 1
env:
  VLLM_CPU_OMP_THREADS_BIND: nobind
serve:
  max-model-len: 512
  enforce-eager: true
"""


@dataclass(frozen=True)
class Supervised:
    """A deployment `demo` whose server onecat starts natively, and gives up after its first crash."""

    onecat: Onecat
    configuration: Path
    port: int

    def pid(self) -> int:
        """The server's number."""
        status = self.onecat("status", "--config", self.configuration, "--json").json()
        return int(status["deployments"][0]["pid"])

    def state(self) -> str:
        status = self.onecat("status", "--config", self.configuration, "--json").json()
        return str(status["deployments"][0]["state"])

    def log(self) -> Path:
        """The file that the supervisor keeps."""
        [path] = (self.onecat.home / "deployments" / "demo").glob("releases/*/server.log")
        return path


@contextlib.contextmanager
def supervised(onecat: Onecat, model: Path, folder: Path) -> Iterator[Supervised]:
    """What a deployment of `model` needs; taken down afterwards."""
    port = free_port()
    configuration = folder / "onecat.yaml"
    configuration.write_text(CONFIGURATION.format(model=model, port=port))
    try:
        yield Supervised(onecat, configuration, port)
    finally:
        if (onecat.home / "deployments").exists():
            onecat("down", "--config", configuration).expect(0)


def kill_the_worker(deployment: Supervised) -> None:
    """Bring it up, ask it, kill the process that computes, and wait until the supervisor has given up."""
    up = ("up", "--config", deployment.configuration, "--runtime", "native", "--json")
    endpoint = deployment.onecat(*up, timeout=400).expect(0).json()["endpoint"]
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 4}
    assert httpx.post(f"{endpoint}/v1/completions", json=body, timeout=60, trust_env=False).status_code == 200
    [worker] = [pid for pid in processes.descendants(deployment.pid()) if title(pid).startswith("VLLM::Worker")]
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: "given up" in deployment.log().read_text(), 60)


def title(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


@contextlib.contextmanager
def memory_limit(mebibytes: int) -> Iterator[Callable[[list[str]], list[str]]]:
    """A control group of so much memory and no swap; yields what puts a command into it. Needs root."""
    name = f"onecat-test-{os.getpid()}"
    first = Path("/sys/fs/cgroup/memory")
    group = (first if first.exists() else Path("/sys/fs/cgroup")) / name
    group.mkdir()
    limit = "memory.limit_in_bytes" if first.exists() else "memory.max"
    (group / limit).write_text(str(mebibytes * 2**20))
    join = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    try:
        yield lambda argv: ["sh", "-c", join, "sh", *argv]
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 30)
        group.rmdir()


def exceed_the_memory(deployment: Supervised) -> subprocess.CompletedProcess[str]:
    """A start in a control group that holds the server's programs and not what they compute with."""
    with memory_limit(900) as limited:
        argv = limited(deployment.onecat.argv("up", "--config", deployment.configuration, "--runtime", "native"))
        environment = deployment.onecat.environment()
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=300, check=False)
