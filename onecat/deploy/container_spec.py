"""What a server's container is and may do, once, as the Docker Engine's API and as `docker run` say it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onecat.deploy import container_health
from onecat.deploy.releases import reachable

if TYPE_CHECKING:
    from onecat.config import Deployment
    from onecat.planner.records import Plan

GIB = 2**30
SERVER_PORT = 8000
SECRET_MOUNT = "/run/secrets/api_key"
GUARD_MOUNT = "/run/onecat/guard"
STATE_MOUNT = "/run/onecat/state"
STATE_FILE = "state.json"
GUARD_FILE = "guard.pyz"
STOP_SECONDS = 30
LOG_BYTES, LOG_PIECES = "16m", 4
HEALTH_INTERVAL_SECONDS = 10
HEALTH_RETRIES = 3
_INSIDE = f"http://127.0.0.1:{SERVER_PORT}"
# A check before the first answer waits for it (container_health): no limit, as near as Docker can say it.
HEALTH_TIMEOUT_HOURS = 24 * 365
_NANOSECONDS = 10**9


@dataclass(frozen=True)
class ContainerSpec:
    """Everything that decides how the container runs.

    host, port: address on the host that is published to the server's port SERVER_PORT; user: `uid:gid`;
    gpus: how many NVIDIA GPUs; gpu_ids: exactly which, UUIDs or indices, then gpus is their number; cdi: whether the
    daemon hands them out as CDI devices (nvidia.com/gpu=ID).
    secret_file: file on the host mounted at SECRET_MOUNT.
    selinux: whether the daemon confines containers by SELinux labels. devices: nodes of the host that the server may
    use beyond NVIDIA's; groups: ids of the groups that own them. mounts: (path on the host, path in the container),
    read-only. cache_volume: named volume for compiled kernels, mounted at cache_directory; cache_labels: whose it is.
    host_ipc: the host's IPC namespace in place of a /dev/shm of shm_bytes. memory_bytes, cpus: limits; None: none.
    cpuset_cpus, cpuset_mems: CPUs and NUMA nodes it stays on, as 0-15,32-47. locked_memory: no limit on locked memory,
    for RDMA between hosts. silence_seconds: see container_health.
    guard_directory, state_directory: on the host, of `onecat.deploy.container_guard`, which then counts crashes as
    max_crashes, stable_seconds and backoff_* of onecat.yaml's `restart` say; None: whoever starts the container does.
    image_entrypoint: what the guard starts.
    host_network: the host's network in place of a published port. has_server: whether the server answers in it, for
    the health check; it does not in a node that only works for another's.
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
    max_crashes: int = 10
    stable_seconds: float = 600.0
    backoff_seconds: float = 1.0
    backoff_max_seconds: float = 30.0
    silence_seconds: float = 600.0
    secret_file: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    selinux: bool = False
    devices: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    cache_volume: str | None = None
    cache_directory: str = ""
    cache_labels: dict[str, str] = field(default_factory=dict)
    gpu_ids: tuple[str, ...] = ()
    cdi: bool = False
    host_ipc: bool = False
    memory_bytes: int | None = None
    cpus: float | None = None
    cpuset_cpus: str | None = None
    cpuset_mems: str | None = None
    locked_memory: bool = False
    guard_directory: str | None = None
    state_directory: str | None = None
    image_entrypoint: tuple[str, ...] = ()
    host_network: bool = False
    has_server: bool = True


def planned_spec(
    plan: Plan, deployment: Deployment, *, name: str, image: str, user: tuple[int, int], labels: Mapping[str, str]
) -> ContainerSpec:
    """What plan and onecat.yaml say of the container of a server; nothing that only its host knows.

    Parameters:
        plan: one for a container. user: (uid, gid) in it.
    """
    assert plan.container is not None
    limits = deployment.container
    return ContainerSpec(
        name=name,
        image=image,
        command=plan.server_args,
        env=dict(plan.env),
        model_directory=plan.model_directory,
        model_mount=plan.container.model_mount,
        host=plan.host,
        port=plan.port,
        shm_bytes=plan.container.shm_bytes,
        gpus=plan.container.gpus,
        devices=plan.container.devices,
        mounts=tuple((each.source, each.target) for each in plan.container.mounts),
        user=f"{user[0]}:{user[1]}",
        max_crashes=deployment.restart.max_crashes,
        silence_seconds=deployment.start.silence_seconds,
        labels=dict(labels),
        host_ipc=limits.host_ipc,
        memory_bytes=None if limits.memory_gib is None else int(limits.memory_gib * GIB),
        cpus=limits.cpus,
    )


class Setting(NamedTuple):
    """One thing the container gets: as words of `docker run`, and as part of the API's POST /containers/create."""

    words: tuple[str, ...]
    body: Mapping[str, Any]


def to_document(spec: ContainerSpec) -> dict[str, Any]:
    """A specification as the content of container.json."""
    return asdict(spec)


def from_document(document: Mapping[str, Any]) -> ContainerSpec:
    """The specification that a container.json tells of."""
    known = {each.name for each in fields(ContainerSpec)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items() if name in known
    }
    values["mounts"] = tuple((source, target) for source, target in document.get("mounts", ()))
    return ContainerSpec(**values)


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


def health_command(spec: ContainerSpec) -> str:
    """The health check as a shell command line inside the container; see `onecat.deploy.container_health`."""
    program = Path(container_health.__file__).read_text(encoding="utf-8")
    url = f"http://{reachable(spec.host)}:{spec.port}/health" if spec.host_network else f"{_INSIDE}/health"
    return shlex.join(["python3", "-c", program, url, f"{spec.silence_seconds:g}", f"{STATE_MOUNT}/{STATE_FILE}"])


def process(spec: ContainerSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The container's entry point, empty for the image's own, and the words behind it."""
    if spec.guard_directory is None:
        return (), spec.command
    limits = {
        "max-crashes": spec.max_crashes,
        "stable-seconds": spec.stable_seconds,
        "backoff-seconds": spec.backoff_seconds,
        "backoff-max-seconds": spec.backoff_max_seconds,
    }
    words = [f"--{name}={value:g}" for name, value in limits.items()]
    return ("python3",), (f"{GUARD_MOUNT}/{GUARD_FILE}", *words, "--", *spec.image_entrypoint, *spec.command)


def settings(spec: ContainerSpec) -> list[Setting]:
    """All the container gets, in both notations. It keeps no right it does not need.

    There is no restart policy: that comes when the release is accepted, or from whoever starts the container.
    """
    return [
        *_rights(spec),
        *_limits(spec),
        *(_bind(source, target, writable) for source, target, writable in _binds(spec)),
        *_cache(spec),
        *_accelerators(spec),
        *_about(spec),
    ]


def create_body(spec: ContainerSpec) -> dict[str, Any]:
    """The body of POST /containers/create (https://docs.docker.com/reference/api/engine/)."""
    entrypoint, command = process(spec)
    body: dict[str, Any] = {"Image": spec.image, "Cmd": list(command)}
    if entrypoint:
        body["Entrypoint"] = list(entrypoint)
    for setting in (*settings(spec), *_health(spec)):
        _merge(body, setting.body)
    return body


def run_argv(spec: ContainerSpec, docker: str) -> list[str]:
    """The same container as `docker run` in the foreground, for a systemd unit.

    It is removed at its end and has no restart policy, which does not go with a process manager
    (https://docs.docker.com/engine/containers/start-containers-automatically/); nor a health check: the unit has one.
    """
    entrypoint, command = process(spec)
    argv = [docker, "run", "--rm", "--name", spec.name, "--pull", "never", "--no-healthcheck"]
    for setting in settings(spec):
        argv += setting.words
    for word in entrypoint:
        argv += ["--entrypoint", word]
    return [*argv, spec.image, *command]


def _rights(spec: ContainerSpec) -> Iterable[Setting]:
    yield Setting((), {"HostConfig": {"RestartPolicy": {"Name": "no"}}})
    yield Setting(("--init",), {"HostConfig": {"Init": True}})
    yield Setting(("--read-only",), {"HostConfig": {"ReadonlyRootfs": True}})
    yield Setting(("--user", spec.user), {"User": spec.user})
    yield Setting(("--cap-drop", "ALL"), {"HostConfig": {"CapDrop": ["ALL"]}})
    for option in security_options(spec):
        yield Setting(("--security-opt", option), {"HostConfig": {"SecurityOpt": [option]}})
    # exec: torch compiles kernels into its cache and loads them from there.
    options = "rw,exec,nosuid,nodev,mode=1777"
    yield Setting(("--tmpfs", f"/tmp:{options}"), {"HostConfig": {"Tmpfs": {"/tmp": options}}})  # noqa: S108
    if spec.host_network:
        yield Setting(("--network", "host"), {"HostConfig": {"NetworkMode": "host"}})
        return
    address = f"[{spec.host}]" if ":" in spec.host else spec.host
    port = f"{SERVER_PORT}/tcp"
    binding = {"HostIp": spec.host, "HostPort": str(spec.port)}
    yield Setting(
        ("--publish", f"{address}:{spec.port}:{SERVER_PORT}"),
        {"ExposedPorts": {port: {}}, "HostConfig": {"PortBindings": {port: [binding]}}},
    )


def _limits(spec: ContainerSpec) -> Iterable[Setting]:
    if spec.host_ipc:
        yield Setting(("--ipc", "host"), {"HostConfig": {"IpcMode": "host"}})
    else:
        yield Setting(("--shm-size", str(spec.shm_bytes)), {"HostConfig": {"ShmSize": spec.shm_bytes}})
    # No limit of open files: the daemon's own is the most it can give, and vLLM raises the soft one to 65535 itself
    # (vllm/utils/system_utils.py, set_ulimit).
    if spec.locked_memory:
        limit = {"Name": "memlock", "Soft": -1, "Hard": -1}
        yield Setting(("--ulimit", "memlock=-1:-1"), {"HostConfig": {"Ulimits": [limit]}})
    if spec.memory_bytes is not None:
        yield Setting(("--memory", str(spec.memory_bytes)), {"HostConfig": {"Memory": spec.memory_bytes}})
    if spec.cpus is not None:
        yield Setting(("--cpus", f"{spec.cpus:g}"), {"HostConfig": {"NanoCpus": round(spec.cpus * _NANOSECONDS)}})
    if spec.cpuset_cpus is not None:
        yield Setting(("--cpuset-cpus", spec.cpuset_cpus), {"HostConfig": {"CpusetCpus": spec.cpuset_cpus}})
    if spec.cpuset_mems is not None:
        yield Setting(("--cpuset-mems", spec.cpuset_mems), {"HostConfig": {"CpusetMems": spec.cpuset_mems}})
    log = {"max-size": LOG_BYTES, "max-file": str(LOG_PIECES)}
    words = [word for name, value in log.items() for word in ("--log-opt", f"{name}={value}")]
    body = {"HostConfig": {"LogConfig": {"Type": "json-file", "Config": log}}}
    yield Setting(("--log-driver", "json-file", *words), body)


def _binds(spec: ContainerSpec) -> Iterable[tuple[str, str, bool]]:
    """What the container sees of the host: path there, path in the container, whether it may write."""
    yield spec.model_directory, spec.model_mount, False
    if spec.secret_file is not None:
        yield spec.secret_file, SECRET_MOUNT, False
    for source, target in spec.mounts:
        yield source, target, False
    if spec.guard_directory is not None and spec.state_directory is not None:
        yield spec.guard_directory, GUARD_MOUNT, False
        yield spec.state_directory, STATE_MOUNT, True


def _bind(source: str, target: str, writable: bool) -> Setting:
    words = ["type=bind", f"source={source}", f"target={target}", *([] if writable else ["readonly"])]
    body: dict[str, Any] = {"Type": "bind", "Source": source, "Target": target}
    return Setting(("--mount", _csv_record(words)), _mount(body if writable else {**body, "ReadOnly": True}))


def _cache(spec: ContainerSpec) -> Iterable[Setting]:
    if spec.cache_volume is None:
        return
    labels = [f"volume-label={name}={value}" for name, value in spec.cache_labels.items()]
    words = ["type=volume", f"source={spec.cache_volume}", f"target={spec.cache_directory}", *labels]
    body: dict[str, Any] = {"Type": "volume", "Source": spec.cache_volume, "Target": spec.cache_directory}
    if labels:  # as the command sends it
        body["VolumeOptions"] = {"Labels": spec.cache_labels, "DriverConfig": {}}
    yield Setting(("--mount", _csv_record(words)), _mount(body))


def _mount(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"HostConfig": {"Mounts": [body]}}


def _accelerators(spec: ContainerSpec) -> Iterable[Setting]:
    if spec.gpu_ids and spec.cdi:
        names = [f"nvidia.com/gpu={each}" for each in spec.gpu_ids]
        request: dict[str, Any] = {"Driver": "cdi", "DeviceIDs": names}
        yield Setting(tuple(word for name in names for word in ("--device", name)), _request(request))
    elif spec.gpu_ids:
        # A list of ids is one field of a CSV record (docker run, --gpus).
        request = {"Driver": "", "Count": 0, "DeviceIDs": list(spec.gpu_ids), "Capabilities": [["gpu"]], "Options": {}}
        yield Setting(("--gpus", f'"device={",".join(spec.gpu_ids)}"'), _request(request))
    elif spec.gpus:
        request = {"Driver": "", "Count": spec.gpus, "Capabilities": [["gpu"]], "Options": {}}
        yield Setting(("--gpus", str(spec.gpus)), _request(request))
    for each in spec.devices:
        device = {"PathOnHost": each, "PathInContainer": each, "CgroupPermissions": "rw"}
        yield Setting(("--device", f"{each}:{each}:rw"), {"HostConfig": {"Devices": [device]}})
    for group in spec.groups if spec.devices else ():
        yield Setting(("--group-add", str(group)), {"HostConfig": {"GroupAdd": [str(group)]}})


def _request(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"HostConfig": {"DeviceRequests": [request]}}


def _health(spec: ContainerSpec) -> Iterable[Setting]:
    if not spec.has_server:
        return
    body = {
        "Test": ["CMD-SHELL", health_command(spec)],
        "Interval": HEALTH_INTERVAL_SECONDS * _NANOSECONDS,
        "Timeout": HEALTH_TIMEOUT_HOURS * 3600 * _NANOSECONDS,
        "Retries": HEALTH_RETRIES,
    }
    yield Setting((), {"Healthcheck": body})


def _about(spec: ContainerSpec) -> Iterable[Setting]:
    yield Setting(("--stop-timeout", str(STOP_SECONDS)), {"StopTimeout": STOP_SECONDS})
    for name, value in environment(spec).items():
        yield Setting(("--env", f"{name}={value}"), {"Env": [f"{name}={value}"]})
    for name, value in spec.labels.items():
        yield Setting(("--label", f"{name}={value}"), {"Labels": {name: value}})


def _merge(body: dict[str, Any], part: Mapping[str, Any]) -> None:
    for name, value in part.items():
        if isinstance(value, Mapping):
            _merge(body.setdefault(name, {}), value)
        elif isinstance(value, list):
            body.setdefault(name, []).extend(value)
        else:
            body[name] = value


def _csv_record(fields: Iterable[str]) -> str:
    """A --mount value is a CSV record, so a field with a comma or quote is quoted (docker run, --mount)."""
    return ",".join('"' + text.replace('"', '""') + '"' if set(text) & set(',"') else text for text in fields)
