"""Podman Quadlet: systemd units of the server, its cache volume and nginx, for Podman 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecat.deploy.cache_volume import CACHE_DIRECTORY
from onecat.deploy.container_spec import SECRET_MOUNT, SERVER_PORT, STOP_SECONDS, environment
from onecat.deploy.export.gateway import Gateway, gateway
from onecat.deploy.export.marking import marked
from onecat.deploy.export.records import ExportedFile, Form
from onecat.deploy.export.server import (
    HEALTH_RETRIES,
    HEALTH_SECONDS,
    LONGEST_START_SECONDS,
    ExportedServer,
    describe,
    first_steps,
    health_now,
)
from onecat.deploy.releases import reachable
from onecat.deploy.units import UNUSABLE_CONFIGURATION, assignment, command_line, start_limit_seconds
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onecat.deploy.export.records import Request

NAME = "quadlet"
_STOP_MARGIN_SECONDS = 15
_FIRST_UNPRIVILEGED_PORT = 1024
# What a drop of all rights, a read-only root and a private /tmp are called in a .container file.
_CONFINED = (("ReadOnly", "true"), ("DropCapability", "all"), ("NoNewPrivileges", "true"))


def render(request: Request) -> tuple[ExportedFile, ...]:
    server = describe(request)
    front = gateway(request, server, NAME, None, f"{reachable(server.spec.host)}:{server.spec.port}")
    name = request.name
    files = [
        ExportedFile(f"{name}.container", marked(NAME, _notes(request, server, front), _server(request, server))),
        ExportedFile(
            f"{name}-cache.volume",
            marked(
                NAME, ("Compiled kernels outlive the container.",), _text(("Volume", [("VolumeName", f"{name}-cache")]))
            ),
        ),
    ]
    if front is not None:
        notes = ("nginx in the host's network: its address for the server stays the same however often that restarts.",)
        files.append(ExportedFile(f"{name}-nginx.container", marked(NAME, notes, _nginx(request, front, server))))
        files += front.files
    return tuple(files)


FORM = Form(NAME, "Podman Quadlet: systemd units that Podman makes", True, render)


def _server(request: Request, server: ExportedServer) -> str:
    name, restart = request.name, request.deployment.restart
    container: list[tuple[str, str]] = [
        ("ContainerName", name),
        ("Image", _value(server.spec.image)),
        ("Exec", command_line(server.spec.command)),
        *(("Environment", _assignment(key, value)) for key, value in environment(server.spec).items()),
        ("User", str(server.user[0])),
        ("Group", str(server.user[1])),
        *(("PodmanArgs", f"--group-add={each}") for each in server.spec.groups),
        ("RunInit", "true"),
        *_CONFINED,
        ("Tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777"),  # noqa: S108 - inside the container
        *(
            ("Mount", _mount(source, target))
            for source, target in ((server.spec.model_directory, server.spec.model_mount), *server.spec.mounts)
        ),
        ("Volume", f"{name}-cache.volume:{CACHE_DIRECTORY}"),
        *_devices(server),
        ("PublishPort", f"{_bracketed(server.spec.host)}:{server.spec.port}:{SERVER_PORT}"),
    ]
    if server.spec.host_ipc:
        container.append(("PodmanArgs", "--ipc=host"))
    else:
        container.append(("ShmSize", str(server.spec.shm_bytes)))
    if server.spec.memory_bytes is not None:
        container.append(("PodmanArgs", f"--memory={server.spec.memory_bytes}"))
    if server.spec.cpus is not None:
        container.append(("PodmanArgs", f"--cpus={server.spec.cpus:g}"))
    if server.spec.selinux:
        container.append(("SecurityLabelDisable", "true"))
    if server.has_key:
        uid, gid = server.user
        container.append(("Secret", f"{name}-api-key,type=mount,target={SECRET_MOUNT},uid={uid},gid={gid},mode=0400"))
    container += [
        ("PodmanArgs", f"--stop-timeout={STOP_SECONDS}"),
        ("HealthCmd", _json_command(health_now())),
        ("HealthInterval", f"{HEALTH_SECONDS}s"),
        ("HealthTimeout", f"{HEALTH_SECONDS}s"),
        ("HealthRetries", str(HEALTH_RETRIES)),
        ("HealthStartPeriod", f"{LONGEST_START_SECONDS}s"),
        ("LogDriver", "journald"),
        *(("Label", _assignment(key, value)) for key, value in server.spec.labels.items()),
    ]
    return _text(
        (
            "Unit",
            [
                ("Description", _value(f"vLLM server {request.deployment.name} in a container")),
                ("Wants", "network-online.target"),
                ("After", "network-online.target"),
                ("StartLimitIntervalSec", str(start_limit_seconds(restart))),
                ("StartLimitBurst", str(restart.max_crashes)),
            ],
        ),
        ("Container", container),
        (
            "Service",
            [
                # The API server ends with status 0 when its engine has died: vllm-project/vllm issue 53726.
                ("Restart", "always"),
                ("RestartPreventExitStatus", str(UNUSABLE_CONFIGURATION)),
                ("RestartSec", str(max(1, int(restart.backoff_seconds)))),
                ("TimeoutStartSec", "infinity"),
                ("TimeoutStopSec", str(STOP_SECONDS + _STOP_MARGIN_SECONDS)),
            ],
        ),
        ("Install", [("WantedBy", "multi-user.target default.target")]),
    )


def _nginx(request: Request, front: Gateway, server: ExportedServer) -> str:
    drain = request.deployment.rollout.drain_seconds
    container: list[tuple[str, str]] = [
        ("ContainerName", f"{request.name}-nginx"),
        ("Image", _value(front.image)),
        ("Exec", command_line(front.command)),
        ("Network", "host"),
        ("User", str(server.user[0])),
        ("Group", str(server.user[1])),
        *_CONFINED,
        ("Tmpfs", "/tmp:rw,noexec,nosuid,nodev,mode=1777"),  # noqa: S108 - inside the container
        *(
            ("Volume", f"./{source}:{target}:ro{'' if server.spec.selinux else ',Z'}")
            for source, target in front.mounts
        ),
        ("LogDriver", "journald"),
        # SIGQUIT: nginx ends when the last answer has been sent.
        ("PodmanArgs", f"--stop-signal=SIGQUIT --stop-timeout={drain}"),
    ]
    if server.spec.selinux:
        container.append(("SecurityLabelDisable", "true"))
    if front.port < _FIRST_UNPRIVILEGED_PORT:
        container.append(("AddCapability", "net_bind_service"))
    unit = [
        ("Description", _value(f"nginx before the vLLM server {request.deployment.name}")),
        # After the server, so that it is stopped, and has sent the last answer, before the server is.
        ("After", f"network-online.target {request.name}.service"),
        ("Wants", f"network-online.target {request.name}.service"),
    ]
    service = [
        ("Restart", "always"),
        ("RestartSec", "1"),
        ("TimeoutStartSec", "infinity"),
        ("TimeoutStopSec", str(drain + _STOP_MARGIN_SECONDS)),
    ]
    install = [("WantedBy", "multi-user.target default.target")]
    return _text(("Unit", unit), ("Container", container), ("Service", service), ("Install", install))


def _devices(server: ExportedServer) -> Iterable[tuple[str, str]]:
    """GPUs by the Container Device Interface: `nvidia-ctk cdi list` shows the names
    (https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html)."""
    if server.accelerator == "nvidia" and server.accelerators:
        for each in server.spec.gpu_ids or [str(number) for number in range(server.accelerators)]:
            yield "AddDevice", f"nvidia.com/gpu={_value(each)}"
    for each in server.spec.devices:
        yield "AddDevice", _value(f"{each}:{each}:rw")


def _text(*sections: tuple[str, list[tuple[str, str]]]) -> str:
    """A unit file."""
    return "\n".join(f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in rows) for name, rows in sections)


def _value(text: str) -> str:
    """A value that is taken as it stands. Raises OnecatError for one that would end its line."""
    if any(not letter.isprintable() for letter in text):
        raise OnecatError(f"{text!r} has a character that has no place in a unit file", expected="printable characters")
    return text.replace("%", "%%")


def _assignment(name: str, value: str) -> str:
    """An Environment= or Label= value. Podman's generator puts it into ExecStart=, where systemd expands `$`, too."""
    return assignment(name, value).replace("$", "$$")


def _mount(source: str, target: str) -> str:
    """A Mount= value; it is a list with commas, in which Quadlet knows no quotes that every version reads alike."""
    for path in (source, target):
        if "," in path or '"' in path or "\\" in path:
            raise OnecatError(
                f"the path {path} has a comma, quote or backslash, which Quadlet cannot say",
                expected="a path without them",
                next_steps=["rename the directory, or let a link without them lead to it"],
            )
    return _value(f"type=bind,source={source},destination={target},ro=true")


def _json_command(argv: Iterable[str]) -> str:
    """A HealthCmd= as JSON, which Podman runs without a shell."""
    import json

    return json.dumps(list(argv)).replace("%", "%%").replace("$", "$$")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _notes(request: Request, server: ExportedServer, front: Gateway | None) -> list[str]:
    name = request.name
    address = f"{server.spec.host}:{server.spec.port}" if front is None else front.address
    images = server.spec.image + (f", {front.image}" if front else "")
    steps = [f"the images must be there (podman load), or be named as a registry has them: {images}"]
    if server.has_key:
        steps.append(f"the API key: podman secret create {name}-api-key KEYFILE")
        # Seen with Podman 5.4: runc makes /run/secrets read-only before the secret's file is made in it.
        steps.append("Podman must use crun, as it does by itself: runc mounts no secret below a read-only root")
    if front is not None:
        steps += front.steps
    if server.accelerator == "nvidia":
        steps.append("NVIDIA's device names: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
    steps += first_steps(request, server)
    start = f"systemctl start {name}" if front is None else f"systemctl start {name} {name}-nginx"
    return [
        "",
        f"Serves {request.plan.served_name} at {address}/v1. Needs Podman 5.0 or later.",
        "What to do first:",
        *(f"- {each}" for each in steps),
        "Then, as root: copy this directory to /etc/containers/systemd/; systemctl daemon-reload",
        f"    {start}; podman wait --condition=healthy {name}",
        "or as a user: the same in ~/.config/containers/systemd/ with systemctl --user.",
        "",
        f"A start has no fixed limit: for {LONGEST_START_SECONDS // 3600} h a bad health check counts for nothing, and",
        "the first good one ends that time; systemd waits without end.",
    ]
