"""Docker Compose: the server with nginx before it, complete in one directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onecat.deploy.cache_volume import CACHE_DIRECTORY
from onecat.deploy.container_spec import SECRET_MOUNT, STOP_SECONDS
from onecat.deploy.export.gateway import Gateway, gateway
from onecat.deploy.export.marking import marked
from onecat.deploy.export.records import ExportedFile, Form
from onecat.deploy.export.server import (
    HEALTH_RETRIES,
    HEALTH_SECONDS,
    LONGEST_START_SECONDS,
    ExportedServer,
    describe,
)
from onecat.deploy.export.yaml_text import dump

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

NAME = "compose"
_LISTEN = 8080
# The kernel's limits for locked memory, stack and open files, as NVIDIA's and vLLM's own run commands have them.
_TMPFS = "/tmp:rw,exec,nosuid,nodev,mode=1777"  # noqa: S108 - inside the container; exec: torch loads what it compiles


def render(request: Request) -> tuple[ExportedFile, ...]:
    server = describe(request)
    front = gateway(request, NAME, f"0.0.0.0:{_LISTEN}", f"server:{server.port}")
    document: dict[str, Any] = {"name": request.name, "services": {"server": _server(server, front)}}
    if front is not None:
        document["services"]["nginx"] = _nginx(front, server, request.deployment.rollout.drain_seconds)
    document["volumes"] = {"cache": {}}
    if server.has_key:
        document["secrets"] = {"api_key": {"file": "./secrets/api_key"}}
    files = [ExportedFile("compose.yaml", marked(NAME, _notes(request, server, front), dump(_escaped(document))))]
    files += front.files if front is not None else ()
    if server.has_key:
        files.append(ExportedFile(".gitignore", marked(NAME, ("The key belongs in no repository.",), "/secrets/\n")))
    return tuple(files)


FORM = Form(NAME, "Docker Compose: server and nginx in one directory", True, render)


def _server(server: ExportedServer, front: Gateway | None) -> dict[str, Any]:
    uid, gid = server.user
    service: dict[str, Any] = {
        "image": server.image,
        "pull_policy": "missing",
        "command": list(server.arguments),
        "user": f"{uid}:{gid}",
        "environment": dict(server.environment),
        "init": True,
        **_confined(server.selinux),
        "tmpfs": [_TMPFS],
        "ulimits": {"memlock": -1, "stack": 64 * 2**20, "nofile": 65535},
    }
    service |= {"ipc": "host"} if server.shm_bytes is None else {"shm_size": server.shm_bytes}
    service["volumes"] = [
        *(_bind(source, target) for source, target in ((server.model_directory, server.model_mount), *server.mounts)),
        {"type": "volume", "source": "cache", "target": CACHE_DIRECTORY},
    ]
    if server.has_key:
        service["secrets"] = [{"source": "api_key", "target": SECRET_MOUNT.rpartition("/")[2]}]
    if server.devices:
        service["devices"] = [f"{each}:{each}" for each in server.devices]
    if server.groups:
        service["group_add"] = [str(each) for each in server.groups]
    if server.accelerator == "nvidia" and server.accelerators:
        which = {"device_ids": list(server.gpu_ids)} if server.gpu_ids else {"count": server.accelerators}
        device = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    if server.memory_bytes is not None:
        service["mem_limit"] = server.memory_bytes
    if server.cpus is not None:
        service["cpus"] = server.cpus
    if front is None:
        service["ports"] = [_published(server.host, server.published_port, server.port)]
    service["healthcheck"] = {
        "test": ["CMD", *server.health_command],
        "interval": f"{HEALTH_SECONDS}s",
        "timeout": f"{HEALTH_SECONDS}s",
        "retries": HEALTH_RETRIES,
        "start_period": f"{LONGEST_START_SECONDS}s",
    }
    return service | {
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_SECONDS}s",
        "logging": _logging(),
        "labels": dict(server.labels),
    }


def _nginx(front: Gateway, server: ExportedServer, drain_seconds: int) -> dict[str, Any]:
    uid, gid = server.user
    return {
        "image": front.image,
        "pull_policy": "missing",
        "command": list(front.command),
        "user": f"{uid}:{gid}",
        **_confined(server.selinux),
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
    where = f"{front.host}:{front.port}" if front is not None else f"{server.host}:{server.published_port}"
    notes = [
        "",
        f"Serves {request.plan.served_name} at http://{where}/v1. Needs Docker Compose 2.17 or later. What to do first:",
        f"- the images must be there, or be pulled: {server.image}" + (f", {front.image}" if front is not None else ""),
        f"- user {uid} in the container must be able to read the model: chmod -R a+rX {server.model_directory}",
    ]
    if server.has_key:
        notes.append(
            f"- put the API key where that user alone may read it: sudo install -D -o {uid} -g {gid} -m 0400 KEYFILE "
            "secrets/api_key"
        )
    if server.accelerator == "nvidia":
        notes.append("- NVIDIA's container toolkit must be set up: sudo nvidia-ctk runtime configure; restart Docker")
    if server.devices and not server.groups:
        notes.append("- the server gets device nodes and no group: export with --group of the group that owns them")
    if request.deployment.container.numa_node is not None:
        notes.append(
            "- container.numa_node is not in here, because it needs the host's CPU numbers: add cpuset: to the server"
        )
    return [
        *notes,
        "Then: docker compose up --detach --wait",
        "",
        f"A start has no fixed limit: within {LONGEST_START_SECONDS // 3600} h of start_period a bad health check",
        "counts for nothing, and the first good one ends it. Restarting is unless-stopped, so it comes back with the host.",
        "A change of image or arguments stops the old server before the new one starts: onecat up can do it without.",
    ]
