"""Docker Compose: the server with nginx before it, complete in one directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onecat.deploy.cache_volume import CACHE_DIRECTORY
from onecat.deploy.container_spec import (
    HEALTH_TIMEOUT_HOURS,
    SECRET_MOUNT,
    SERVER_PORT,
    STOP_SECONDS,
    environment,
)
from onecat.deploy.export.gateway import Gateway, gateway
from onecat.deploy.export.marking import marked
from onecat.deploy.export.records import ExportedFile, Form
from onecat.deploy.export.server import (
    HEALTH_RETRIES,
    HEALTH_SECONDS,
    ExportedServer,
    describe,
    first_steps,
    health_on_silence,
)
from onecat.deploy.export.yaml_text import dump

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

NAME = "compose"
_LISTEN = 8080
_HEALTH_SECONDS = 5
_TMPFS = "/tmp:rw,exec,nosuid,nodev,mode=1777"  # noqa: S108 - inside the container; exec: torch loads what it compiles


def render(request: Request) -> tuple[ExportedFile, ...]:
    server = describe(request)
    front = gateway(request, server, NAME, f"0.0.0.0:{_LISTEN}", f"server:{SERVER_PORT}")  # noqa: S104 - inside the container
    document: dict[str, Any] = {"name": request.name, "services": {"server": _server(server, front)}}
    if front is not None:
        document["services"]["nginx"] = _nginx(front, server, request.deployment.rollout.drain_seconds)
    document["volumes"] = {"cache": {}}
    if server.has_key:
        document["secrets"] = {"api_key": {"file": "./secrets/api_key"}}
    files = [ExportedFile("compose.yaml", marked(NAME, _notes(request, server, front), dump(_escaped(document))))]
    files += front.files if front is not None else ()
    if "secrets" in dump(document):
        files.append(ExportedFile(".gitignore", marked(NAME, ("Secrets belong in no repository.",), "/secrets/\n")))
    return tuple(files)


FORM = Form(NAME, "Docker Compose: server and nginx in one directory", True, render)


def _server(server: ExportedServer, front: Gateway | None) -> dict[str, Any]:
    uid, gid = server.user
    service: dict[str, Any] = {
        "image": server.spec.image,
        "pull_policy": "missing",
        "command": list(server.spec.command),
        "user": f"{uid}:{gid}",
        "environment": environment(server.spec),
        "init": True,
        **_confined(server.spec.selinux),
        "tmpfs": [_TMPFS],
    }
    service |= {"ipc": "host"} if server.spec.host_ipc else {"shm_size": server.spec.shm_bytes}
    service["volumes"] = [
        *(
            _bind(source, target)
            for source, target in ((server.spec.model_directory, server.spec.model_mount), *server.spec.mounts)
        ),
        {"type": "volume", "source": "cache", "target": CACHE_DIRECTORY},
    ]
    if server.has_key:
        service["secrets"] = [{"source": "api_key", "target": SECRET_MOUNT.rpartition("/")[2]}]
    if server.spec.devices:
        service["devices"] = [f"{each}:{each}" for each in server.spec.devices]
    if server.spec.groups:
        service["group_add"] = [str(each) for each in server.spec.groups]
    if server.accelerator == "nvidia" and server.accelerators:
        which = {"device_ids": list(server.spec.gpu_ids)} if server.spec.gpu_ids else {"count": server.accelerators}
        device = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    if server.spec.memory_bytes is not None:
        service["mem_limit"] = server.spec.memory_bytes
    if server.spec.cpus is not None:
        service["cpus"] = server.spec.cpus
    if front is None:
        service["ports"] = [_published(server.spec.host, server.spec.port, SERVER_PORT)]
    service["healthcheck"] = {
        "test": ["CMD", *health_on_silence(server.spec)],
        # Docker makes the first check this long after the start: `--wait` waits for it.
        "interval": f"{_HEALTH_SECONDS}s",
        "timeout": f"{HEALTH_TIMEOUT_HOURS}h",
        "retries": HEALTH_RETRIES * HEALTH_SECONDS // _HEALTH_SECONDS,
    }
    return service | {
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_SECONDS}s",
        "logging": _logging(),
        "labels": server.spec.labels,
    }


def _nginx(front: Gateway, server: ExportedServer, drain_seconds: int) -> dict[str, Any]:
    uid, gid = server.user
    return {
        "image": front.image,
        "pull_policy": "missing",
        "command": list(front.command),
        "user": f"{uid}:{gid}",
        **_confined(server.spec.selinux),
        "tmpfs": ["/tmp:rw,noexec,nosuid,nodev,mode=1777"],  # noqa: S108 - inside the container
        "volumes": [_bind(f"./{source}", target) for source, target in front.mounts],
        "ports": [_published(front.host, front.port, _LISTEN)],
        # Started, not healthy: while the server loads, clients get nginx's 502 in OpenAI's form. nginx looks the
        # server's name up when it starts, so it follows one that was made anew.
        "depends_on": {"server": {"condition": "service_started", "restart": True}},
        "restart": "unless-stopped",
        # SIGQUIT: nginx ends when the last answer has been sent; compose stops it before the server.
        "stop_signal": "SIGQUIT",
        "stop_grace_period": f"{drain_seconds}s",
        "logging": _logging(),
    }


def _confined(selinux: bool) -> dict[str, Any]:
    options = ["no-new-privileges:true", *(["label=disable"] if selinux else [])]
    return {"read_only": True, "cap_drop": ["ALL"], "security_opt": options}


def _logging() -> dict[str, Any]:
    return {"driver": "json-file", "options": {"max-size": "16m", "max-file": "4"}}


def _bind(source: str, target: str) -> dict[str, Any]:
    """A read-only mount; a directory that is missing is an error and not made."""
    options = {"create_host_path": False}
    return {"type": "bind", "source": source, "target": target, "read_only": True, "bind": options}


def _published(host: str, port: int, target: int) -> dict[str, Any]:
    address = {} if host in ("*", "") else {"host_ip": host}
    return {"mode": "ingress", **address, "target": target, "published": str(port), "protocol": "tcp"}


def _escaped(value: Any) -> Any:
    """Every `$` of the texts doubled: Compose would put variables in their place
    (https://docs.docker.com/reference/compose-file/interpolation/)."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    return value


def _notes(request: Request, server: ExportedServer, front: Gateway | None) -> list[str]:
    uid, gid = server.user
    address = f"{server.spec.host}:{server.spec.port}" if front is None else front.address
    steps = [f"the images must be there, or be pulled: {server.spec.image}" + (f", {front.image}" if front else "")]
    if server.has_key:
        steps.append(f"the API key: sudo install -D -o {uid} -g {gid} -m 0400 KEYFILE secrets/api_key")
    if front is not None:
        steps += front.steps
    if server.accelerator == "nvidia":
        steps.append("NVIDIA's container toolkit: sudo nvidia-ctk runtime configure, then restart Docker")
    steps += first_steps(request, server)
    return [
        "",
        f"Serves {request.plan.served_name} at {address}/v1. Needs Docker Compose 2.17 or later.",
        "What to do first:",
        *(f"- {each}" for each in steps),
        "Then: docker compose up --detach --wait",
        "",
        "A start has no fixed limit: the health check waits for a server that loads, however long that takes, and",
        f"fails when that has neither logged, read nor computed for {server.spec.silence_seconds:g} s.",
        "unless-stopped: it comes back with the host. A change of image or arguments stops the old server before the",
        "new one starts; onecat up can do it without a gap.",
        *(() if front is None else ("nginx sees the network's gateway, not this host, in requests from it.",)),
    ]
