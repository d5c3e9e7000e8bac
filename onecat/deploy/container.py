"""The container runtime: the server in a Docker container, restarted by Docker's own restart policy."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from onecat.deploy.server import Activity, ServerState
from onecat.deploy.store import deployments_directory, read_json, write_json
from onecat.errors import ExitCode, OnecatError
from onecat.images.docker_engine import client_arguments, engine_address, require_recent, unreachable

if TYPE_CHECKING:
    from onecat.hosts import Machine

SERVER_PORT = 8000
SECRET_MOUNT = "/run/secrets/api_key"
SPEC_FILE = "container.json"
SAVED_LOG = "server.log"
STOP_SECONDS = 30
HOME_LABEL = "io.onecat.home"
_SAVED_LINES = 5000
# User and group of nobody in Debian's images, where neither the operator nor the model's owner is an ordinary user.
NOBODY = (65534, 65534)


@dataclass(frozen=True)
class ContainerSpec:
    """Everything that decides how the container runs.

    host, port: address on the host that is published to the server's port SERVER_PORT; user: `uid:gid`;
    secret_file: file on the host mounted at SECRET_MOUNT; max_crashes: crashes after which Docker gives up.
    selinux: whether the daemon confines containers by SELinux labels. devices: nodes of the host that the server may
    use beyond NVIDIA's; groups: ids of the groups that own them. mounts: (path on the host, path in the container),
    read-only. cache_volume: named volume for compiled kernels, mounted at cache_directory; cache_labels: whose it is.
    """

    name: str
    image: str
    command: tuple[str, ...]
    env: dict[str, str]
    model_directory: str
    model_mount: str
    host: str
    port: int
    shm_bytes: int
    gpus: int
    user: str
    max_crashes: int
    secret_file: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    selinux: bool = False
    devices: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    cache_volume: str | None = None
    cache_directory: str = ""
    cache_labels: dict[str, str] = field(default_factory=dict)


def environment(spec: ContainerSpec) -> dict[str, str]:
    """The container's variables: caches lie under /tmp, because the root file system is read-only and the user id has
    no entry in the image's passwd file (getpass.getuser, which torch asks, then needs USER)."""
    return {"HOME": "/tmp", "USER": "onecat", "XDG_CACHE_HOME": "/tmp/cache", **spec.env}  # noqa: S108 - a tmpfs


def security_options(spec: ContainerSpec) -> list[str]:
    """The container's --security-opt values.

    Under SELinux a container may read neither an ordinary directory nor the GPU device files. Relabelling the model
    (`:Z`) would take it from everybody else, so label separation is off for this one container; the rest of the host
    stays confined (https://docs.docker.com/engine/containers/run/#security-configuration).
    """
    return ["no-new-privileges", *(["label=disable"] if spec.selinux else [])]


def create_arguments(spec: ContainerSpec) -> dict[str, Any]:
    """The arguments of the Docker SDK's `containers.create` for a container that keeps no rights it does not need.

    It starts without a restart policy: that comes when the release is accepted (`restart_policy`).
    """
    from docker.types import DeviceRequest, LogConfig, Mount

    mounts = [Mount(spec.model_mount, spec.model_directory, type="bind", read_only=True)]
    if spec.secret_file is not None:
        mounts.append(Mount(SECRET_MOUNT, spec.secret_file, type="bind", read_only=True))
    mounts += [Mount(target, source, type="bind", read_only=True) for source, target in spec.mounts]
    if spec.cache_volume is not None:
        mounts.append(Mount(spec.cache_directory, spec.cache_volume, type="volume", labels=spec.cache_labels))
    arguments: dict[str, Any] = {
        "image": spec.image,
        "command": list(spec.command),
        "name": spec.name,
        "environment": environment(spec),
        "mounts": mounts,
        "ports": {f"{SERVER_PORT}/tcp": (spec.host, spec.port)},
        "shm_size": spec.shm_bytes,
        "user": spec.user,
        "cap_drop": ["ALL"],
        "security_opt": security_options(spec),
        "init": True,
        "read_only": True,
        # exec: torch compiles kernels into its cache and loads them from there.
        "tmpfs": {"/tmp": "rw,exec,nosuid,nodev,mode=1777"},  # noqa: S108 - inside the container
        "labels": spec.labels,
        "log_config": LogConfig(type="json-file", config={"max-size": "16m", "max-file": "4"}),
        "detach": True,
    }
    if spec.gpus:
        arguments["device_requests"] = [DeviceRequest(count=spec.gpus, capabilities=[["gpu"]])]
    if spec.devices:
        arguments["devices"] = [f"{each}:{each}:rw" for each in spec.devices]
        arguments["group_add"] = [str(each) for each in spec.groups]
    return arguments


def restart_policy(max_crashes: int) -> dict[str, Any]:
    """Docker's restart policy for at most `max_crashes` crashes. Docker counts restarts, and takes 0 for no limit."""
    if max_crashes <= 1:
        return {"Name": "no", "MaximumRetryCount": 0}
    return {"Name": "on-failure", "MaximumRetryCount": max_crashes - 1}


def run_argv(spec: ContainerSpec, docker: str) -> list[str]:
    """The same container as `docker run` in the foreground, for a systemd unit.

    It is removed at its end and has no restart policy, which does not go with a process manager
    (https://docs.docker.com/engine/containers/start-containers-automatically/).
    """
    address = f"[{spec.host}]" if ":" in spec.host else spec.host
    argv = [docker, "run", "--rm", "--name", spec.name, "--init", "--read-only", "--user", spec.user]
    argv += ["--cap-drop", "ALL"]
    for option in security_options(spec):
        argv += ["--security-opt", option]
    argv += ["--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777", "--shm-size", str(spec.shm_bytes)]
    argv += ["--publish", f"{address}:{spec.port}:{SERVER_PORT}"]
    argv += ["--mount", _mount_option(spec.model_directory, spec.model_mount)]
    if spec.secret_file is not None:
        argv += ["--mount", _mount_option(spec.secret_file, SECRET_MOUNT)]
    if spec.gpus:
        argv += ["--gpus", str(spec.gpus)]
    for source, target in spec.mounts:
        argv += ["--mount", _mount_option(source, target)]
    if spec.cache_volume is not None:
        labels = [f"volume-label={name}={value}" for name, value in spec.cache_labels.items()]
        fields = ["type=volume", f"source={spec.cache_volume}", f"target={spec.cache_directory}", *labels]
        argv += ["--mount", _csv_record(fields)]
    for each in spec.devices:
        argv += ["--device", f"{each}:{each}:rw"]
    for group in spec.groups if spec.devices else ():
        argv += ["--group-add", str(group)]
    for name, value in environment(spec).items():
        argv += ["--env", f"{name}={value}"]
    for name, value in spec.labels.items():
        argv += ["--label", f"{name}={value}"]
    return [*argv, spec.image, *spec.command]


def _mount_option(source: str, target: str) -> str:
    """A --mount value of a path that the container may read."""
    return _csv_record(["type=bind", f"source={source}", f"target={target}", "readonly"])


def _csv_record(fields: Iterable[str]) -> str:
    """A --mount value is a CSV record, so a field with a comma or quote is quoted (docker run, --mount)."""
    return ",".join('"' + text.replace('"', '""') + '"' if set(text) & set(',"') else text for text in fields)


def container_user(operator: tuple[int, int], model_owner: tuple[int, int]) -> tuple[int, int]:
    """Who the server is inside the container, as (uid, gid): the operator; for root the model's owner; else nobody."""
    if operator[0] != 0:
        return operator
    return model_owner if model_owner[0] != 0 else NOBODY


class ContainerServer:
    """The server of the release in `directory`; implements `onecat.deploy.server.Server`."""

    def __init__(self, machine: Machine, directory: str, docker_host: str | None) -> None:
        self._machine = machine
        self._directory = directory
        self._docker_host = machine.docker_host(docker_host)
        self._connection: Any = None

    @classmethod
    def prepare(cls, machine: Machine, directory: str, spec: ContainerSpec, docker_host: str | None) -> ContainerServer:
        write_json(machine, f"{directory}/{SPEC_FILE}", asdict(spec))
        return cls(machine, directory, docker_host)

    def start(self) -> None:
        spec = self._spec()
        client = self._client()
        with translated(self._docker_host, spec):
            self._make_room()
            container = client.containers.create(**create_arguments(spec))
            try:
                container.start()
            except BaseException:
                container.remove(force=True)
                raise

    def accept(self) -> None:
        spec = self._spec()
        with translated(self._docker_host, spec):
            container = self._find()
            if container is not None:
                container.update(restart_policy=restart_policy(spec.max_crashes))

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
        return ServerState("absent") if container is None else state_of(container.attrs, spec.max_crashes)

    def activity(self) -> Activity:
        with translated(self._docker_host, self._spec()):
            container = self._find()
            return Activity(0.0, 0) if container is None else activity_of(container.stats(stream=False, one_shot=True))

    def last_lines(self, count: int) -> list[str]:
        with translated(self._docker_host, self._spec()):
            container = self._find()
            if container is not None:
                text = container.logs(timestamps=True, tail=count).decode("utf-8", "replace")
                return [line for part in text.splitlines() for line in part.split("\r")]
        saved = self._machine.read(f"{self._directory}/{SAVED_LOG}") or b""
        return saved.decode("utf-8", "replace").splitlines()[-count:]

    def follow(self, count: int) -> Iterator[str]:
        with translated(self._docker_host, self._spec()):
            container = self._find()
            if container is None:
                yield from self.last_lines(count)
                return
            rest = b""
            for data in container.logs(timestamps=True, tail=count, stream=True, follow=True):
                *lines, rest = (rest + data).split(b"\n")
                yield from (line.decode("utf-8", "replace").rstrip("\r") for line in lines)
            if rest:
                yield rest.decode("utf-8", "replace")

    def _spec(self) -> ContainerSpec:
        path = f"{self._directory}/{SPEC_FILE}"
        document = read_json(self._machine, path)
        if document is None:
            raise OnecatError(f"{path} is missing on {self._machine.name}", code=ExitCode.NEEDS_PERSON)
        lists = {name: tuple(document.get(name, ())) for name in ("command", "devices", "groups")}
        mounts = tuple((source, target) for source, target in document.get("mounts", ()))
        return ContainerSpec(**{**document, **lists, "mounts": mounts})

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

    def _make_room(self) -> None:
        """Remove what an earlier start left under our name. Raises OnecatError when another's container has it."""
        container = self._named()
        if container is None:
            return
        if not self._is_ours(container):
            raise name_taken(container.name, container.short_id, container.status)
        container.remove(force=True)


def state_of(inspected: Mapping[str, Any], max_crashes: int) -> ServerState:
    """What `docker inspect` says, in our words."""
    state = inspected["State"]
    restarts = inspected.get("RestartCount", 0)
    policy = inspected["HostConfig"]["RestartPolicy"]
    code = state["ExitCode"]
    told = f"exited with status {code}" + (", the kernel's OOM killer struck" if state.get("OOMKilled") else "")
    last_exit = None if state["FinishedAt"].startswith("0001-") else f"{told} at {state['FinishedAt']}"
    status = state["Status"]
    if status == "restarting":
        return ServerState("backing-off", None, None, restarts, restarts + 1, last_exit)
    if status in ("running", "paused"):
        return ServerState("running", state["Pid"], state["StartedAt"], restarts, restarts, last_exit)
    if status == "created":
        return ServerState("starting")
    accepted = policy.get("Name") == "on-failure" or max_crashes <= 1
    if accepted and code != 0 and restarts + 1 >= max_crashes:
        return ServerState("keeps-crashing", None, None, restarts, restarts + 1, last_exit)
    return ServerState("exited", None, None, restarts, restarts, last_exit)


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


def confines_by_selinux(docker_host: str | None) -> bool:
    """Whether the daemon runs with --selinux-enabled, so that its containers are confined. Raises OnecatError."""
    with translated(docker_host, None):
        return has_selinux(connect(docker_host).info().get("SecurityOptions") or ())


def has_selinux(options: Iterable[str]) -> bool:
    """Whether `SecurityOptions` of `docker info` (`name=seccomp,profile=builtin`, ...) name SELinux."""
    return any(part == "name=selinux" for option in options for part in option.split(","))


def image_id(docker_host: str | None, image: str) -> str | None:
    """What the image's name means to the daemon now; None when it has no such image. Raises OnecatError."""
    from docker.errors import ImageNotFound

    with translated(docker_host, None):
        try:
            return str(connect(docker_host).images.get(image).id)
        except ImageNotFound:
            return None


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


def missing_image(image: str, profile: str) -> OnecatError:
    return OnecatError(
        f"the image {image} is not there",
        next_steps=[f"onecat build --profile {profile}"],
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


def labels(deployment: str, number: int, profile: str, fingerprint: str, home: str) -> dict[str, str]:
    """The container's labels; `home` is the `home_identity` of its ONECAT_HOME."""
    return {
        HOME_LABEL: home,
        "io.onecat.deployment": deployment,
        "io.onecat.release": str(number),
        "io.onecat.profile": profile,
        "io.onecat.plan": fingerprint,
        "io.onecat.created": str(int(time.time())),
    }
