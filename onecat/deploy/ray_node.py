"""The program that runs in the container of a Ray node: the head with its server, or a worker.

It is mounted into the image and needs Python 3.8 and what the image has: ray, and the server.

    ray_node.py head --address A:P --nodes A,B --gpus N --silence S -- RAY START... -- SERVER...
    ray_node.py worker --address A:P --silence S -- RAY START...
    ray_node.py nodes A:P          what is in the cluster, a JSON line for each change
    ray_node.py workers A:P        the nodes that vLLM's workers run on, as one JSON document

The head ends, and its container with it, when Ray or the server ends, or when no node has joined for `silence` seconds
while one is missing. `ray start` gives up by a clock of its own (RAYS_OWN_LIMIT_SECONDS), which says nothing on a busy
host: it is started again, as long as the silence allows. Exit codes: the server's; 0 when it was told to stop; 75 when
the cluster did not become complete, Ray ended or a port is taken; 78 when the image lacks a program (EX_TEMPFAIL,
EX_CONFIG of sysexits.h).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import NamedTuple, NoReturn

INCOMPLETE, UNUSABLE = 75, 78
STOP_SECONDS = 20
POLL_SECONDS = 0.5
RAYS_OWN_LIMIT_SECONDS = 30
"""For how long `ray start` waits until the head knows the node (raylet_start_wait_time_s, ray/_private/node.py of 2.60,
which no option changes). One that ended sooner has failed, and would once more."""

JOIN_TRIES = 2
"""Of those that fail: the head may answer before it can be joined."""

RAYS_PARTS = ("raylet", "gcs_server")
"""Programs without which `ray start` waits for nothing."""

WORKER_CLASSES = ("RayWorkerProc", "RayWorkerWrapper")
"""Of vLLM 0.27.1 (vllm/v1/executor/ray_executor_v2.py, ray_utils.py)."""


def say(text: str) -> None:
    print(f"onecat: {text}", flush=True)


class _Member(NamedTuple):
    """A living node. name: Ray's id for it, which is another one each time it joins."""

    gpus: int
    name: str


class Stopped(Exception):
    """This container shall end."""


def head(options: dict[str, str], start: list[str], server: list[str]) -> int:
    """Start Ray, wait until all nodes are there, then run the server as long as both live."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    address, silence = options["address"], float(options["silence"])
    processes: list[subprocess.Popen[bytes]] = []
    try:
        _need_ports(start)
        ray = _Ray(start, silence, processes)
        watch = _Watch(address, processes)
        members = _complete(ray, watch, options["nodes"].split(","), int(options["gpus"]), silence)
        if members is None:
            return INCOMPLETE
        say(f"the cluster is complete; starting the server: {' '.join(server)}")
        running = _started(server, processes, RAY_ADDRESS=address)
        while running.poll() is None:
            if ray.ended():
                say("the server cannot go on without Ray")
                return INCOMPLETE
            # The server may wait for ever for a worker that is gone, and one that comes back does not know it.
            found = watch.latest() or members
            lost = sorted(address for address, member in members.items() if found.get(address) != member)
            if lost:
                say(f"node {', '.join(lost)} left: the server cannot go on")
                return INCOMPLETE
            time.sleep(POLL_SECONDS)
        say(f"the server ended with status {running.returncode}")
        return running.returncode if running.returncode > 0 else 1
    except Stopped:
        return 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for process in reversed(processes):
            _end(process)


def _stop(number: int, frame: object) -> None:
    raise Stopped


def _started(argv: list[str], processes: list[subprocess.Popen[bytes]], **variables: str) -> subprocess.Popen[bytes]:
    try:
        process = subprocess.Popen(argv, env={**os.environ, **variables})
    except FileNotFoundError:
        _missing(argv[0])
    processes.append(process)
    return process


class _Ray:
    """`ray start ... --block`."""

    def __init__(self, start: list[str], silence: float, processes: list[subprocess.Popen[bytes]]) -> None:
        self._start = start
        self._silence = silence
        self._processes = processes
        self._first = self._began = time.monotonic()
        self._failures = 0
        self._parts: dict[int, str] = {}
        self._process = _started(start, processes)

    def ended(self) -> bool:
        """Whether it has ended; what is left of it is ended too."""
        lost = self._lost_parts()
        if lost and self._process.poll() is None:
            say(f"Ray's {', '.join(lost)} ended")
            _end(self._process)
        if self._process.poll() is None:
            return False
        say(f"Ray ended with status {self._process.returncode}")
        return True

    def over(self) -> bool:
        """Whether it has ended for good; else it is started again."""
        if not self.ended():
            return False
        now = time.monotonic()
        self._failures = self._failures + 1 if now - self._began < RAYS_OWN_LIMIT_SECONDS else 0
        if self._failures >= JOIN_TRIES or now - self._first > self._silence:
            return True
        say("starting Ray once more")
        subprocess.run([self._start[0], "stop", "--force"], stdout=subprocess.DEVNULL, check=False)
        self._processes.remove(self._process)
        self._began, self._parts = time.monotonic(), {}
        self._process = _started(self._start, self._processes)
        return False

    def _lost_parts(self) -> list[str]:
        alive = {pid: name for pid, name in _children(self._process.pid).items() if name in RAYS_PARTS}
        lost = [name for pid, name in self._parts.items() if pid not in alive]
        self._parts.update(alive)
        return lost


def _children(parent: int) -> dict[int, str]:
    """The names of a process's living children by their ids."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - one file of plain functions
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
                    name, _, rest = stream.read().partition("(")[2].rpartition(")")
            except OSError:
                continue
            state, owner = rest.split()[:2]
            if int(owner) == parent and state not in "ZX":
                found[int(entry)] = name
    return found


def taken_ports(start: list[str]) -> list[str]:
    """The options of a `ray start` whose ports somebody listens on, as --port=6379."""
    taken = []
    for word in start:
        option, _, value = word.partition("=")
        if option.endswith("port") and value.isdigit() and not option.endswith("worker-port"):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("", int(value)))
                except OSError:
                    taken.append(word)
    return taken


def _missing(program: str) -> NoReturn:
    say(f"there is no program {program} in this image")
    sys.exit(UNUSABLE)


def _need_ports(start: list[str]) -> None:
    taken = taken_ports(start)
    if taken:
        say(f"somebody else listens on ports that Ray needs on this host: {', '.join(taken)}")
        sys.exit(INCOMPLETE)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _complete(ray: _Ray, watch: _Watch, expected: list[str], gpus: int, silence: float) -> dict[str, _Member] | None:
    """The nodes once all expected ones are alive with all GPUs; None when nothing has changed for `silence` seconds."""
    say(f"waiting for {len(expected)} Ray nodes with {gpus} GPUs: {', '.join(expected)}")
    seen: dict[str, _Member] = {}
    since = time.monotonic()
    while set(expected) - set(seen) or sum(each.gpus for each in seen.values()) < gpus:
        if ray.over():
            return None
        found = watch.latest()
        if found is not None and found != seen:
            for node in sorted(set(found) - set(seen)):
                say(f"node {node} joined with {found[node].gpus} GPUs ({len(found)} of {len(expected)})")
            for node in sorted(set(seen) - set(found)):
                say(f"node {node} left")
            seen, since = found, time.monotonic()
        if time.monotonic() - since > silence:
            missing = sorted(set(expected) - set(seen))
            count = sum(each.gpus for each in seen.values())
            told = f"missing: {', '.join(missing)}" if missing else f"{count} of {gpus} GPUs"
            say(f"the cluster is not complete and no node has come for {silence:.0f} s; {told}")
            return None
        time.sleep(POLL_SECONDS)
    return seen


class _Watch:
    """A process of its own that is in the cluster, so that this one never is."""

    def __init__(self, address: str, processes: list[subprocess.Popen[bytes]]) -> None:
        self._address = address
        self._processes = processes
        self._latest: dict[str, _Member] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def latest(self) -> dict[str, _Member] | None:
        if self._process is None or self._process.poll() is not None:
            if self._process is not None:
                self._processes.remove(self._process)
            if answers(self._address):
                argv = [sys.executable, __file__, "nodes", self._address]
                self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                self._processes.append(self._process)
                threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        return self._latest

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"{"):
                self._latest = {node: _Member(*each) for node, each in json.loads(line).items()}


def answers(address: str) -> bool:
    """Whether somebody listens at ADDRESS:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return True
    except OSError:
        return False


def worker(options: dict[str, str], start: list[str]) -> int:
    """Wait until the head answers, then join it; the head may answer before it can be joined."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        silence = float(options["silence"])
        _wait_for_head(options["address"], silence)
        _need_ports(start)
        ray = _Ray(start, silence, processes)
        while not ray.over():
            time.sleep(POLL_SECONDS)
        return INCOMPLETE
    except Stopped:
        return 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for process in processes:
            _end(process)


def _wait_for_head(address: str, silence: float) -> None:
    limit = time.monotonic() + silence
    if not answers(address):
        say(f"waiting for the head at {address}")
        while not answers(address):
            if time.monotonic() > limit:
                say(f"the head at {address} has not answered for {silence:.0f} s: is its port open to this host?")
                sys.exit(INCOMPLETE)
            time.sleep(POLL_SECONDS)


def nodes(address: str) -> NoReturn:
    """Print each living node's GPUs and Ray's id for it by its address, whenever that changes."""
    import ray  # type: ignore[import-not-found]

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    told = None
    while True:
        alive = [each for each in ray.nodes() if each["Alive"]]
        found = {each["NodeManagerAddress"]: (int(each["Resources"].get("GPU", 0)), each["NodeID"]) for each in alive}
        if found != told:
            print(json.dumps(found), flush=True)
            told = found
        time.sleep(POLL_SECONDS)


def workers(address: str) -> int:
    """Print vLLM's living workers: name, class, address of the node."""
    import ray
    from ray.util.state import list_actors  # type: ignore[import-not-found]

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    by_id = {each["NodeID"]: each["NodeManagerAddress"] for each in ray.nodes()}
    found = [
        {"name": each.name, "class": each.class_name, "node": by_id.get(each.node_id, each.node_id)}
        for each in list_actors(filters=[("state", "=", "ALIVE")], limit=1000)
        if each.class_name in WORKER_CLASSES
    ]
    print(json.dumps(sorted(found, key=lambda each: each["name"])), flush=True)
    return 0


def main(arguments: list[str]) -> int:
    role, *rest = arguments
    if role == "nodes":
        return nodes(rest[0])
    if role == "workers":
        return workers(rest[0])
    options: dict[str, str] = {}
    while rest and rest[0] != "--":
        name, value, *rest = rest
        options[name[2:]] = value
    commands: list[list[str]] = [[]]
    for word in rest[1:]:
        # The server's own words may hold another `--`.
        if word == "--" and len(commands) == 1:
            commands.append([])
        else:
            commands[-1].append(word)
    if role == "head":
        return head(options, *commands)
    return worker(options, commands[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
