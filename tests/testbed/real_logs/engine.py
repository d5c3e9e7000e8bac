"""A real `vllm serve` whose log is kept in a file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from onecat.deploy import processes
from onecat.images import NativeRuntime
from tests.testbed.ports import free_port

PROGRAM = Path(__file__).with_name("warm_program.py")
# Other servers may stand on these cores: without binding, neither starves. Tiny models need one thread and 1 GiB.
SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


class ServerProcess(Protocol):
    """A process that was started. `wait` raises subprocess.TimeoutExpired."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(frozen=True)
class WarmProcess:
    """A server that an `EngineStarter` has become; what its folder's `exit-code` says ends it."""

    pid: int
    folder: Path

    def poll(self) -> int | None:
        path = self.folder / "exit-code"
        return int(path.read_text()) if path.exists() else None

    def wait(self, timeout: float | None = None) -> int:
        limit = time.monotonic() + (60 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > limit:
                raise subprocess.TimeoutExpired("vllm", 60 if timeout is None else timeout)
            time.sleep(0.05)
        return code


@dataclass(frozen=True)
class EngineStarter:
    """Starts servers of one runtime: those without a wrapper from a process that has vLLM's modules loaded, which is
    most of what a server takes that ends at once. Threads may share it.

    cache: where the servers keep what they find out about classes of models, each time by a process that loads vLLM.
    """

    runtime: NativeRuntime
    cache: Path
    process: subprocess.Popen[str]
    lock: threading.Lock
    started: list[ServerProcess] = field(default_factory=list)

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path, wrapper: Sequence[str]
    ) -> ServerProcess:
        """Start `vllm serve` with these arguments. wrapper: a command before it, such as `unshare --mount`."""
        process = self._start(argv, environment, folder, log, wrapper)
        self.started.append(process)
        return process

    def kill(self) -> None:
        """End all servers that run, so that who waits for one waits no longer."""
        for process in self.started:
            if process.poll() is None:
                end(process)

    def _start(
        self, argv: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path, wrapper: Sequence[str]
    ) -> ServerProcess:
        (folder / "exit-code").unlink(missing_ok=True)
        log.write_bytes(b"")
        command = self.runtime.serve_argv(argv)
        if wrapper:
            with log.open("wb") as file:
                return subprocess.Popen(
                    [*wrapper, *command], env=dict(environment), cwd=folder, stdin=subprocess.DEVNULL, stdout=file,
                    stderr=file, start_new_session=True,
                )  # fmt: skip
        order = {"argv": command[1:], "environment": dict(environment), "folder": str(folder), "log": str(log)}
        assert self.process.stdin is not None and self.process.stdout is not None
        with self.lock:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            return WarmProcess(int(self.process.stdout.readline()), folder)


@contextlib.contextmanager
def engine_starter(runtime: NativeRuntime, cache: Path) -> Iterator[EngineStarter]:
    """A starter of this runtime's servers; see there."""
    process = subprocess.Popen(
        [str(runtime.python), str(PROGRAM)], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        for line in process.stdout:
            if line == "ready\n":
                break
        yield EngineStarter(runtime, cache, process, threading.Lock())
    finally:
        process.stdin.close()
        process.wait(30)


def environment(**more: str) -> dict[str, str]:
    """A server's environment: this one's, SETTINGS, and `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PYTHON"))}
    return {**kept, **SETTINGS, **more}


@dataclass(frozen=True)
class EngineServer:
    """A server that was started; it may have ended."""

    process: ServerProcess
    log: Path
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def text(self) -> str:
        """All that it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_until_ended(self, seconds: float = 300) -> int:
        """Its exit code. Fails with the end of its log where it goes on."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on after {seconds} s\n{self.text()[-3000:]}") from None

    def wait_until_failed(self) -> None:
        """Wait for its end, or for the end of its log where it does not come up and hangs on its way out. That happens:
        a worker that gets SIGTERM while Python clears weak references goes on."""
        limit = time.monotonic() + 400
        while (code := self.process.poll()) is None and self._silent_after("EngineCore failed to start") < 5:
            assert time.monotonic() < limit, f"it neither fails nor ends\n{self.text()[-3000:]}"
            time.sleep(0.1)
        assert code != 0, self.text()[-3000:]

    def _silent_after(self, words: str) -> float:
        """For how many seconds it has said nothing more, once it has said these words."""
        return time.time() - self.log.stat().st_mtime if words in self.text() else 0

    def wait_for(self, words: str, seconds: float = 120) -> None:
        """Wait for words in its log. Fails with the log's end where it ends before, or is silent about them."""
        limit = time.monotonic() + seconds
        while words not in self.text():
            assert self.process.poll() is None, f"it ended\n{self.text()[-3000:]}"
            assert time.monotonic() < limit, f"no {words!r} in {seconds} s\n{self.text()[-3000:]}"
            time.sleep(0.1)

    def wait_until_ready(self, seconds: float = 400) -> None:
        self.wait_for("API server: HTTP server started", seconds)
        limit = time.monotonic() + 10
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.address}/health", trust_env=False).status_code == 200:
                    return
            assert time.monotonic() < limit, self.text()[-3000:]
            time.sleep(0.05)

    def post(self, path: str, body: Mapping[str, Any], **options: Any) -> httpx.Response:
        return httpx.post(f"{self.address}{path}", json=body, trust_env=False, **{"timeout": 120, **options})

    def children(self, name: str) -> list[int]:
        """The processes below it whose title begins so: `VLLM::EngineCore`, `VLLM::Worker`."""
        found = []
        for pid in processes.descendants(self.process.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(name.encode()):
                    found.append(pid)
        return found

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it as a supervisor would: a signal to the server alone; what is left of it after 30 s is killed."""
        end(self.process, number, 30)


def end(process: ServerProcess, number: int = signal.SIGKILL, seconds: float = 0) -> None:
    """Send a signal to a server, wait so long for it, and kill what is left of its session."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    for pid in processes.table():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def running(
    starter: EngineStarter,
    folder: Path,
    model: Path,
    *flags: str,
    variables: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
    port: int | None = None,
) -> Iterator[EngineServer]:
    """Start a server; nothing of it is left afterwards.

    Parameters:
        folder: where its log lies.
        flags: further arguments of `vllm serve`.
        variables: added to its environment.
        wrapper: a command before the server's, such as `unshare --mount`.
    """
    port = port or free_port()
    log = folder / "server.log"
    arguments = [str(model), "--host", "127.0.0.1", "--port", str(port), *flags]
    own = environment(**{"VLLM_CACHE_ROOT": str(starter.cache), **(variables or {})})
    server = EngineServer(starter.start(arguments, own, folder, log, wrapper), log, port)
    try:
        yield server
    finally:
        server.stop()
