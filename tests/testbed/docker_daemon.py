"""A dockerd of the tests' own: socket, data root, exec root, pid file, bridge and address range are nobody else's.

A dockerd and the rules of another one on the same machine stay as they are: ours runs with `--iptables=false` (a
dockerd rewrites the shared chains when it starts) and lives with three rules of its own, taken out at the end.
Whatever a killed run left behind is known from its `daemon.json` and removed by the next run.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from onecat.deploy import processes

PREFIX = "onecat-test-docker-"
START_SECONDS = 60
STOP_SECONDS = 60
LOG_TAIL_LINES = 60
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
# Private ranges of 8192 addresses; the first that no interface and no route of this machine touches is taken.
CANDIDATES = tuple(ipaddress.ip_network("10.224.0.0/11").subnets(new_prefix=19))


@dataclass(frozen=True)
class DockerDaemon:
    """One dockerd of the tests.

    directory: its run folder (socket, exec root, pid file, log). data_root: where images lie.
    address_range: all its networks, `a.b.c.d/19`. bridge: the name of its default network's interface.
    owner, owner_started: the process that runs the tests, and its start time in clock ticks since boot.
    forwarding_before: the kernel's ip_forward before it started.
    """

    directory: str
    data_root: str
    address_range: str
    bridge: str
    owner: int
    owner_started: str
    forwarding_before: str

    @property
    def host(self) -> str:
        """The value for DOCKER_HOST."""
        return f"unix://{self.socket}"

    @property
    def socket(self) -> Path:
        return Path(self.directory, "docker.sock")

    @property
    def pid_file(self) -> Path:
        return Path(self.directory, "docker.pid")

    @property
    def log(self) -> Path:
        return Path(self.directory, "dockerd.log")

    @property
    def bridge_address(self) -> str:
        """The bridge's own address, the first of the range's first /24."""
        network = ipaddress.ip_network(self.address_range)
        return f"{network[1]}/24"

    @property
    def pool(self) -> str:
        """The upper half of the range: networks that tests create get /24s of it."""
        return str(list(ipaddress.ip_network(self.address_range).subnets())[1])

    def argv(self) -> list[str]:
        """The daemon's command line. setpriv stops the daemon when the tests' process dies without a word."""
        directory = self.directory
        return [
            *("setpriv", "--pdeathsig", "TERM", "dockerd"),
            *("--config-file", f"{directory}/config.json", "--host", self.host, "--pidfile", str(self.pid_file)),
            *("--data-root", self.data_root, "--exec-root", f"{directory}/exec"),
            *("--containerd-namespace", self.bridge, "--containerd-plugins-namespace", f"{self.bridge}-plugins"),
            *("--bridge", self.bridge, "--default-address-pool", f"base={self.pool},size=24"),
            *("--iptables=false", "--ip6tables=false", "--shutdown-timeout", "5"),
        ]

    def rules(self) -> list[list[str]]:
        """The packet filter's rules for its networks, as arguments behind `iptables -t TABLE -I|-D`."""
        mark = ["-m", "comment", "--comment", self.bridge]
        return [
            ["nat", "POSTROUTING", "-s", self.address_range, "!", "-d", self.address_range, *mark, "-j", "MASQUERADE"],
            ["filter", "FORWARD", "-s", self.address_range, *mark, "-j", "ACCEPT"],
            ["filter", "FORWARD", "-d", self.address_range, *mark, "-j", "ACCEPT"],
        ]


@contextlib.contextmanager
def running_docker_daemon(data_root: Path) -> Iterator[DockerDaemon]:
    """Start a dockerd, yield it when it answers, and remove every trace of it but the data root. Needs root.

    Raises RuntimeError with the end of the daemon's log when it does not come up.
    """
    remove_leftovers()
    with _network_lock():
        daemon = _prepare(data_root)
    try:
        start(daemon)
        yield daemon
    finally:
        remove(daemon)


def start(daemon: DockerDaemon) -> None:
    """Start it, for the first time or again. Raises RuntimeError with the end of its log when it does not come up."""
    with daemon.log.open("ab") as log:
        process = subprocess.Popen(
            daemon.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    _wait_until_it_answers(daemon, process)


def stop(daemon: DockerDaemon) -> None:
    """Stop it as `systemctl stop docker` does: it ends its containers first."""
    _stop(daemon)


def lose_power(daemon: DockerDaemon) -> None:
    """What a power cut leaves of it: no process of its own or of a container, no run folder of a tmpfs, no mount.

    The folder above its data root must be its own, too: dockerd mounts the data root on itself.
    """
    dockerd = int(daemon.pid_file.read_text())
    shims = [pid for pid, words in _commands() if any(word.startswith(daemon.directory) for word in words)]
    lost = {dockerd, *shims}
    lost |= {pid for each in lost for pid in processes.descendants(each)}
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in lost:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    deadline = time.monotonic() + STOP_SECONDS
    while any((found := processes.entry(pid)) and found.state not in "ZX" for pid in lost):
        assert time.monotonic() < deadline, f"processes that SIGKILL does not end: {lost}"
        time.sleep(0.05)
    for mount in sorted(_mounts_below(daemon.directory, str(Path(daemon.data_root).parent)), reverse=True):
        _run(["umount", "--lazy", mount])
    shutil.rmtree(f"{daemon.directory}/exec")


def remove_leftovers() -> None:
    """Remove what dockerds of killed test runs have left on this machine."""
    for record in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/daemon.json"):
        daemon = DockerDaemon(**json.loads(record.read_text()))
        if _started(daemon.owner) != daemon.owner_started:
            remove(daemon)


def remove(daemon: DockerDaemon) -> None:
    """Stop this dockerd, by its pid, and take away its mounts, packet filter rules, bridges and run folder."""
    _stop(daemon)
    for mount in sorted(_mounts_below(daemon.directory, daemon.data_root), reverse=True):
        _run(["umount", "--lazy", mount])
    for table, chain, *rule in daemon.rules():
        while subprocess.run(["iptables", "-w", "-t", table, "-D", chain, *rule], capture_output=True).returncode == 0:
            pass
    for name in _interfaces_within(daemon.address_range):
        _run(["ip", "link", "delete", name])
    if daemon.forwarding_before == "0" and not _any_dockerd():
        FORWARDING.write_text("0")
    shutil.rmtree(daemon.directory)


def free_range() -> str:
    """An address range that no interface and no route of this machine overlaps."""
    taken = [
        ipaddress.ip_network(route["dst"], strict=False)
        for route in json.loads(_run(["ip", "-json", "-4", "route", "show", "table", "all"]))
        if route["dst"] != "default" and route.get("type", "unicast") in ("unicast", "local")
    ]
    for candidate in CANDIDATES:
        if not any(candidate.overlaps(each) for each in taken):
            return str(candidate)
    raise RuntimeError(f"no free address range for the tests among {CANDIDATES[0]} to {CANDIDATES[-1]}")


def _prepare(data_root: Path) -> DockerDaemon:
    """The run folder with its record, the bridge and the rules."""
    directory = tempfile.mkdtemp(prefix=PREFIX)
    daemon = DockerDaemon(
        directory=directory,
        data_root=str(data_root),
        address_range=free_range(),
        bridge=f"oct{os.urandom(4).hex()}",
        owner=os.getpid(),
        owner_started=_started(os.getpid()) or "",
        forwarding_before=FORWARDING.read_text().strip(),
    )
    Path(directory, "daemon.json").write_text(json.dumps(asdict(daemon)))
    Path(directory, "config.json").write_text("{}")  # not the machine's /etc/docker/daemon.json
    _run(["ip", "link", "add", "name", daemon.bridge, "type", "bridge"])
    _run(["ip", "address", "add", daemon.bridge_address, "dev", daemon.bridge])
    _run(["ip", "link", "set", "dev", daemon.bridge, "up"])
    for table, chain, *rule in daemon.rules():
        _run(["iptables", "-w", "-t", table, "-I", chain, *rule])
    return daemon


def _wait_until_it_answers(daemon: DockerDaemon, process: subprocess.Popen[bytes]) -> None:
    import docker

    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if daemon.socket.exists():
            with contextlib.suppress(docker.errors.DockerException, OSError):
                with contextlib.closing(docker.DockerClient(base_url=daemon.host, timeout=5)) as client:
                    client.ping()
                return
        time.sleep(0.1)
    tail = "\n".join(daemon.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
    raise RuntimeError(f"dockerd did not come up (exit {process.poll()}); the end of its log:\n{tail}")


def _stop(daemon: DockerDaemon) -> None:
    try:
        pid = int(daemon.pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _is_dockerd_of(daemon, pid):
            return
        os.kill(pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while _is_dockerd_of(daemon, pid) and time.monotonic() < deadline:
            time.sleep(0.1)


def _is_dockerd_of(daemon: DockerDaemon, pid: int) -> bool:
    """Whether this pid runs this daemon's dockerd: a pid alone may have a new owner. A zombie has no command line."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return daemon.host in arguments


def _any_dockerd() -> bool:
    return any(Path(words[0]).name == "dockerd" for _, words in _commands())


def _commands() -> list[tuple[int, list[str]]]:
    """The process ids and command lines of this machine."""
    return [(int(entry.parent.name), _text(entry).split("\0")) for entry in Path("/proc").glob("[0-9]*/cmdline")]


def _started(pid: int) -> str | None:
    """A process's start time in clock ticks since boot (field 22 of /proc/PID/stat, proc(5)); None if there is none."""
    text = _text(Path(f"/proc/{pid}/stat"))
    return text.rpartition(")")[2].split()[19] if text else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _mounts_below(*roots: str) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if any(point.startswith(f"{root}/") for root in roots)]


def _interfaces_within(address_range: str) -> set[str]:
    """Bridges whose address lies in the range: the default one and those of networks that tests made."""
    network = ipaddress.ip_network(address_range)
    return {
        interface["ifname"]
        for interface in json.loads(_run(["ip", "-json", "-4", "address", "show", "type", "bridge"]))
        for address in interface.get("addr_info", ())
        if ipaddress.ip_address(address["local"]) in network
    }


@contextlib.contextmanager
def _network_lock() -> Iterator[None]:
    """Two runs that start together must not choose the same range."""
    with Path(tempfile.gettempdir(), "onecat-test-network.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout
