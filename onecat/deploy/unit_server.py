"""The server of a release in a container that systemd looks after: one unit per release, on any host.

The unit's file, its health gate and two marks that say whether it may start are root's: those marks are looked at
each time systemd starts the unit, so that accepting a release needs no `systemctl daemon-reload`.
"""

from __future__ import annotations

import functools
import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat.deploy import daemon_reload, units
from onecat.deploy.container import SAVED_LOG, ContainerServer, need_spec
from onecat.deploy.container_spec import STOP_SECONDS, ContainerSpec
from onecat.deploy.server import Activity, ServerState
from onecat.deploy.store import read_json, understood, write_json
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.config.schema import Restart
    from onecat.hosts import Completed, Machine

UNIT_DIRECTORY = "/etc/systemd/system"
STATE_DIRECTORY = "/var/lib/onecat/units"
UNIT_FOLDER = "systemd"
GATE_FILE = "health-gate.sh"
_SETTINGS_FILE = "unit.json"
# sd_booted(3): there where systemd is the first program.
_BOOTED = "/run/systemd/system"
# The first that finds a new unit without being told (systemd's NEWS, v246).
_FINDS_UNITS_SINCE = 246
_PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "Result", "MainPID", "NRestarts", "NeedDaemonReload", "Job"),
    *("ExecMainCode", "ExecMainStatus", "ExecMainStartTimestamp", "ExecMainExitTimestamp"),
)
# systemctl stop waits for `docker stop`, then for systemd's own limit.
_STOP_LIMIT_SECONDS = 2.0 * STOP_SECONDS + 60.0
# The gate asks each second; a release is accepted right after its server has answered.
_ACCEPT_LIMIT_SECONDS = 60.0
_FOLLOW_SECONDS = 0.5
_SAVED_LINES = 5000


@dataclass(frozen=True)
class Condition:
    """What `systemctl show` tells of a unit: its properties by name."""

    properties: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.properties.get(name, "")

    def number(self, name: str) -> int:
        return int(self[name] or 0)


def unit_name(spec: ContainerSpec) -> str:
    return f"{spec.name}.service"


def parse_show(text: str) -> Condition:
    """The output of `systemctl show --property=...`."""
    return Condition({name: value for name, _, value in (line.partition("=") for line in text.splitlines())})


def state_of(found: Condition, accepted: bool) -> ServerState:
    """A unit's state in our words. accepted: whether a crash is answered by a restart."""
    active, sub = found["ActiveState"], found["SubState"]
    restarts = found.number("NRestarts")
    last_exit = _told_exit(found)
    if found["LoadState"] != "loaded":
        return ServerState("absent")
    if active == "activating" and sub == "auto-restart":
        if not accepted:
            return ServerState("exited", last_exit=last_exit)
        return ServerState("backing-off", None, None, restarts, restarts + 1, last_exit)
    if active == "deactivating" and found["Result"] != "success" and not accepted:
        return ServerState("exited", None, None, restarts, restarts, last_exit)
    if active in ("active", "activating", "deactivating") and found.number("MainPID"):
        started = _timestamp(found["ExecMainStartTimestamp"])
        return ServerState("running", found.number("MainPID"), started, restarts, restarts, last_exit)
    if active == "deactivating":
        return ServerState("running", None, None, restarts, restarts, last_exit)
    if active == "activating" or found.number("Job"):
        return ServerState("starting", None, None, restarts, restarts, last_exit)
    # Each crash of an accepted one is answered by a restart, until the start limit, or one that would change nothing.
    if active == "failed" and accepted:
        return ServerState("keeps-crashing", None, None, restarts, restarts + 1, last_exit)
    if active == "failed" or not accepted:
        return ServerState("exited", None, None, restarts, restarts, last_exit)
    return ServerState("stopped", None, None, restarts, restarts, last_exit)


# waitid(2): how a process ended.
_EXITED = 1


def _told_exit(found: Condition) -> str | None:
    if not found["ExecMainExitTimestamp"]:
        return None
    code, status = found.number("ExecMainCode"), found["ExecMainStatus"]
    ended = f"exited with status {status}" if code == _EXITED else f"was killed by signal {status}"
    return f"{ended} at {_timestamp(found['ExecMainExitTimestamp'])}"


_SYSTEMD_TIME = re.compile(r"\w{3} (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC")


def _timestamp(text: str) -> str | None:
    """`Mon 2026-11-30 02:09:36 UTC` as RFC 3339."""
    found = _SYSTEMD_TIME.fullmatch(text)
    return f"{found[1]}T{found[2]}Z" if found else None


@dataclass(frozen=True)
class Entry:
    """One line of the journal. text: with its time before it; cursor: its place."""

    text: str
    cursor: str


def parse_journal(text: str) -> list[Entry]:
    """The output of `journalctl --output json`; a message that is no text comes as numbers."""
    entries = []
    for line in text.splitlines():
        row = json.loads(line)
        message = row.get("MESSAGE") or ""
        if isinstance(message, list):
            message = bytes(message).decode("utf-8", "replace")
        microseconds = int(row["__REALTIME_TIMESTAMP"])
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(microseconds // 10**6))
        entries += [
            Entry(f"{at}.{microseconds % 10**6:06d}Z {part}", row["__CURSOR"]) for part in message.split("\r") if part
        ]
    return entries


def check_host(machine: Machine, docker_host: str | None, allow_daemon_reload: bool) -> None:
    """Raises OnecatError where the units of a host cannot be ours, or its systemd would have to be reloaded and must
    not be."""
    if machine.status(_BOOTED) is None:
        raise OnecatError(
            "service: systemd, and systemd does not run here",
            where=f"service, on {machine.name}",
            expected="a host whose first program is systemd",
            next_steps=["write service: docker in onecat.yaml: Docker then starts the server again"],
        )
    if machine.root() is None:
        raise OnecatError(
            "service: systemd needs root, and this user cannot become root",
            where=f"service, on {machine.name}",
            expected="root, or a user who may use sudo",
            next_steps=["run onecat as root, or let this user use sudo", "or write service: docker in onecat.yaml"],
        )
    docker_client(machine)
    _check_daemon(machine, docker_host)
    version = re.search(rb"systemd (\d+)", machine.run(["systemctl", "--version"]).stdout)
    if not allow_daemon_reload and version is not None and int(version[1]) < _FINDS_UNITS_SINCE:
        daemon_reload.check(machine, docker_host)


def _check_daemon(machine: Machine, docker_host: str | None) -> None:
    """The unit waits for docker.service and sees the sockets of the system, not those of users and of /tmp."""
    path = "" if docker_host is None else docker_host.removeprefix("unix://")
    if path and (not path.startswith(("/run/", "/var/run/")) or path.startswith("/run/user/")):
        raise OnecatError(
            f"service: systemd, and the Docker daemon is at {docker_host}",
            where=f"DOCKER_HOST, on {machine.name}",
            expected="the system's own daemon, at unix:///run/docker.sock",
            next_steps=["unset DOCKER_HOST", "or write service: docker in onecat.yaml"],
        )
    found = machine.run(["systemctl", "show", "docker.service", "--property=LoadState"])
    if found.stdout.strip() != b"LoadState=loaded":
        raise OnecatError(
            "service: systemd, and there is no docker.service",
            where=f"service, on {machine.name}",
            expected="a Docker daemon that systemd starts as docker.service (a snap, or a rootless daemon, is none)",
            next_steps=["install it: apt-get install docker.io", "or write service: docker in onecat.yaml"],
        )


def docker_client(machine: Machine) -> str:
    """The path of Docker's client on a host. Raises OnecatError where it is missing."""
    found = machine.run(["sh", "-c", "command -v docker"])
    path = found.stdout.decode().strip()
    if found.exit_code != 0 or not path.startswith("/"):
        raise OnecatError(
            "service: systemd needs Docker's command line, which is missing",
            where=f"docker, on {machine.name}",
            next_steps=["install it: apt-get install docker-ce-cli (or docker.io)"],
        )
    return path


class UnitServer:
    """The server of the release in `directory`; implements `onecat.deploy.server.Server`."""

    def __init__(self, machine: Machine, directory: str, docker_host: str | None) -> None:
        self._machine = machine
        self._directory = directory
        self._docker_host = docker_host
        self._container = ContainerServer(machine, directory, docker_host)

    @classmethod
    def prepare(
        cls,
        machine: Machine,
        directory: str,
        spec: ContainerSpec,
        docker_host: str | None,
        *,
        deployment: str,
        number: int,
        restart: Restart,
        allow_daemon_reload: bool,
    ) -> UnitServer:
        """Write the unit and what belongs to it into the release's directory.

        Parameters:
            spec: of a container without a guard: systemd answers crashes. image: best an id.
            allow_daemon_reload: whether containers of this host may lose their GPUs when this release needs a reload.
        """
        docker = docker_client(machine)
        state = f"{STATE_DIRECTORY}/{spec.name}"
        # A deployment that was removed may have had a release of this name, whose lines the journal still holds.
        identity = uuid.uuid4().hex
        unit = units.container_unit(
            number,
            deployment,
            spec,
            restart,
            docker_host,
            docker=docker,
            gate=f"{state}/{GATE_FILE}",
            state_directory=state,
            identity=identity,
        )
        folder = f"{directory}/{UNIT_FOLDER}"
        machine.make_directory(folder)
        settings = {"allow_daemon_reload": allow_daemon_reload, "identity": identity}
        ContainerServer.prepare(machine, directory, spec, docker_host)
        write_json(machine, f"{folder}/{_SETTINGS_FILE}", settings)
        machine.write(f"{folder}/{unit_name(spec)}", unit.encode(), 0o644)
        machine.write(f"{folder}/{GATE_FILE}", units.gate_script(spec, docker).encode(), 0o755)
        return cls(machine, directory, docker_host)

    def start(self) -> None:
        root, name, state = self._root(), self._unit, self._state_directory
        if self._is_anothers():
            raise OnecatError(
                f"there is a unit {name} already, and not from this deployment of this ONECAT_HOME",
                expected="one deployment of a name on a host",
                where=f"{UNIT_DIRECTORY}/{name}",
                next_steps=[
                    "give this deployment another name in onecat.yaml",
                    f"or end the other one, when nobody needs it: systemctl disable --now {name}, then remove its file",
                ],
                code=ExitCode.ROLLED_BACK,
            )
        self._container.make_room()
        root.make_directory(state, 0o755)
        root.remove(f"{state}/accepted")
        root.write(f"{state}/starting", b"", 0o644)
        self._install(f"{UNIT_FOLDER}/{GATE_FILE}", f"{state}/{GATE_FILE}", 0o755)
        self._install(f"{UNIT_FOLDER}/{name}", f"{UNIT_DIRECTORY}/{name}", 0o644)
        # Before systemd reads it, so that it knows; without the mark `accepted` it starts at no boot.
        self._systemctl("enable", "--no-reload", name)
        found = self._show()
        if found["LoadState"] != "loaded" or found["NeedDaemonReload"] == "yes":
            daemon_reload.reload(root, self._docker_host, self._settings()["allow_daemon_reload"])
        root.run(["systemctl", "reset-failed", name])
        self._systemctl("start", "--no-block", name)

    def accept(self) -> None:
        root, name = self._root(), self._unit
        limit = time.monotonic() + _ACCEPT_LIMIT_SECONDS
        while (found := self._show())["ActiveState"] == "activating" and time.monotonic() < limit:
            time.sleep(0.1)
        if found["ActiveState"] != "active":
            raise OnecatError(
                f"systemd does not take {name} for started: it is {found['ActiveState']} ({found['Result']})",
                where=name,
                next_steps=[f"systemctl status {name}", f"journalctl --unit {name}"],
                code=ExitCode.ROLLED_BACK,
            )
        root.write(f"{self._state_directory}/accepted", b"", 0o644)

    def stop(self) -> None:
        root, name = self._root(), self._unit
        path = f"{UNIT_DIRECTORY}/{name}"
        if self._is_anothers() or (root.status(path) is None and self._show()["LoadState"] != "loaded"):
            return
        self._systemctl("stop", name, timeout=_STOP_LIMIT_SECONDS)
        lines = self.last_lines(_SAVED_LINES)
        self._machine.write(f"{self._directory}/{SAVED_LOG}", "".join(f"{line}\n" for line in lines).encode())
        if root.status(path) is not None:
            self._systemctl("disable", "--no-reload", name)
        root.remove(path)
        root.remove(self._state_directory)
        root.run(["systemctl", "reset-failed", name])
        # One that was enabled when the host started stays in systemd's memory until a reload; start it cannot.
        if self._show()["LoadState"] == "loaded" and not daemon_reload.containers_at_risk(root, self._docker_host):
            daemon_reload.reload(root, self._docker_host, allowed=False)

    def state(self) -> ServerState:
        if self._is_anothers():
            return ServerState("absent")
        return state_of(self._show(), self._machine.status(f"{self._state_directory}/accepted") is not None)

    def activity(self) -> Activity:
        return self._container.activity()

    def last_lines(self, count: int) -> list[str]:
        entries = self._journal("--lines", str(count))
        if entries:
            return [entry.text for entry in entries][-count:]
        saved = self._machine.read(f"{self._directory}/{SAVED_LOG}") or b""
        return saved.decode("utf-8", "replace").splitlines()[-count:]

    def lines(self, since: float | None = None) -> Iterator[str]:
        words = self._journal_argv(*(() if since is None else (f"--since=@{since:.6f}",)))
        found, rest = False, b""
        with self._root().start(words) as talk:
            while data := talk.receive():
                *lines, rest = (rest + data).split(b"\n")
                for entry in parse_journal(b"\n".join(lines).decode("utf-8", "replace")):
                    found = True
                    yield entry.text
        if not found:
            saved = self._machine.read(f"{self._directory}/{SAVED_LOG}") or b""
            yield from saved.decode("utf-8", "replace").splitlines()

    def follow(self, count: int | None) -> Iterator[str]:
        entries = self._journal("--lines", "all" if count is None else str(count))
        yield from (entry.text for entry in entries) if entries else self.last_lines(count or _SAVED_LINES)
        while True:
            gone = self.state().condition in ("absent", "stopped", "exited", "keeps-crashing")
            after = (f"--after-cursor={entries[-1].cursor}",) if entries else ()
            new = self._journal(*after)
            yield from (entry.text for entry in new)
            entries = new or entries
            if gone:
                return
            time.sleep(_FOLLOW_SECONDS)

    # --- on the host --------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _spec(self) -> ContainerSpec:
        return need_spec(self._machine, self._directory)

    @property
    def _unit(self) -> str:
        return unit_name(self._spec)

    @property
    def _state_directory(self) -> str:
        return f"{STATE_DIRECTORY}/{self._spec.name}"

    def _is_anothers(self) -> bool:
        """Whether a unit of our name was made elsewhere, as by another ONECAT_HOME: it is left alone."""
        found = self._machine.read(f"{UNIT_DIRECTORY}/{self._unit}")
        return found is not None and f"{units.RELEASE_FIELD}={self._identity}".encode() not in found

    @functools.cached_property
    def _identity(self) -> str:
        return str(self._settings()["identity"])

    def _root(self) -> Machine:
        root = self._machine.root()
        if root is None:
            raise OnecatError(
                f"{self._unit} is a unit of systemd, and this user cannot become root",
                where=self._machine.name,
                next_steps=["run the command as root, or as a user who may use sudo"],
            )
        return root

    def _install(self, name: str, path: str, mode: int) -> None:
        content = self._machine.read(f"{self._directory}/{name}")
        if content is None:
            raise OnecatError(f"{self._directory}/{name} is missing", code=ExitCode.NEEDS_PERSON)
        root = self._root()
        if root.read(path) != content:
            root.write(path, content, mode)

    def _show(self) -> Condition:
        argv = ["env", "LC_ALL=C", "TZ=UTC", "systemctl", "show", self._unit]
        done = self._machine.run([*argv, f"--property={','.join(_PROPERTIES)}"])
        if done.exit_code != 0:
            raise _refused(done, self._machine.name)
        return parse_show(done.stdout.decode("utf-8", "replace"))

    def _systemctl(self, *words: str, timeout: float = 60.0) -> None:
        done = self._root().run(["systemctl", *words], timeout=timeout)
        if done.exit_code != 0:
            raise _refused(done, self._machine.name)

    def _journal(self, *words: str) -> list[Entry]:
        """What the release's server has printed, and its gate."""
        done = self._root().run(self._journal_argv(*words))
        return parse_journal(done.stdout.decode("utf-8", "replace"))

    def _journal_argv(self, *words: str) -> list[str]:
        argv = ["journalctl", "--quiet", "--no-pager", "--output", "json", *words]
        return [*argv, f"{units.RELEASE_FIELD}={self._identity}"]

    def _settings(self) -> dict[str, Any]:
        path = f"{self._directory}/{UNIT_FOLDER}/{_SETTINGS_FILE}"
        document = read_json(self._machine, path)
        if document is None:
            raise OnecatError(f"{path} is missing on {self._machine.name}", code=ExitCode.NEEDS_PERSON)
        with understood(self._machine, path):
            return {"identity": document["identity"], "allow_daemon_reload": document["allow_daemon_reload"]}


def _refused(done: Completed, host: str) -> OnecatError:
    return OnecatError(
        f"systemd refused: {' '.join(done.argv)}",
        where=host,
        details=done.stderr.decode("utf-8", "replace").strip().splitlines()[-5:],
        next_steps=["read systemd's reason above", "systemctl --failed"],
        code=ExitCode.ROLLED_BACK,
    )
