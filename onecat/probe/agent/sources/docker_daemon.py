"""The Docker daemon, asked over its socket, and the settings that it was started with."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH111, PTH114, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import json
import os
import re
import socket
import struct

from onecat.probe.agent.core import as_int
from onecat.probe.agent.sources.storage import filesystem, read_mounts

MOST_CONTAINERS = 40
MOST_IMAGES = 60
MOST_LABELS = 40
SERVING = re.compile(
    r"vllm|onecat|1cat|sglang|lmdeploy|ollama|llama|triton|tensorrt|text-generation|cuda|nvidia|pytorch|torch|ascend|cann",
    re.IGNORECASE,
)
SECRET = re.compile(r"token|secret|password|api.?key", re.IGNORECASE)


CREDENTIALS = struct.Struct("3i")


class Daemon:
    """Answers of one daemon. Requests are HTTP/1.0, so that each answer ends with its connection.

    pid: the process that made the socket: the daemon, or systemd for it.
    """

    def __init__(self, address, timeout):
        scheme, _, place = address.partition("://")
        self.timeout = timeout
        self.api_version = None
        self.pid = None  # type: int | None
        if scheme == "unix":
            self.family, self.place = socket.AF_UNIX, place
        else:
            host, _, port = place.rstrip("/").rpartition(":")
            self.family, self.place = socket.AF_INET6 if ":" in host else socket.AF_INET, (host.strip("[]"), int(port))

    def get(self, path, kind):
        with socket.socket(self.family, socket.SOCK_STREAM) as connection:
            connection.settimeout(self.timeout)
            connection.connect(self.place)
            if self.family == socket.AF_UNIX:
                credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
                self.pid = CREDENTIALS.unpack(credentials)[0]
            connection.sendall(("GET " + path + " HTTP/1.0\r\nHost: localhost\r\n\r\n").encode())
            data = b""
            while True:
                more = connection.recv(1 << 20)
                if not more:
                    break
                data += more
        head, _, body = data.partition(b"\r\n\r\n")
        first, *fields = head.decode("latin-1").split("\r\n")
        if not first.startswith("HTTP/"):
            raise ValueError("what answers at " + path + " does not speak HTTP")
        status = first.split(" ")[1] if " " in first else ""
        if status != "200":
            raise ValueError(
                "the daemon answers " + status + " to " + path + ": " + body[:200].decode(errors="replace")
            )
        names = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        self.api_version = names.get("api-version", self.api_version)
        document = json.loads(body.decode("utf-8", "replace"))
        if not isinstance(document, kind):
            raise ValueError("what answers at " + path + " is not a Docker daemon")
        return document


def ask(machine, address, emit):
    """All that a daemon tells of itself, its containers and its images."""
    emit(doing="asking the Docker daemon at " + address)
    facts = {"socket": address}
    try:
        daemon = Daemon(address, machine.timeout)
        info = daemon.get("/info", dict)
    except PermissionError as error:
        facts.update(state="forbidden", error=error.strerror)
        emit(docker=facts)
        return
    except (OSError, ValueError) as error:
        facts.update(state="unreachable", error=str(error) or type(error).__name__)
        emit(docker=facts)
        return
    facts.update(
        state="reachable",
        server_version=info.get("ServerVersion"),
        api_version=daemon.api_version,
        storage_driver=info.get("Driver"),
        root_directory=info.get("DockerRootDir"),
        cgroup_driver=info.get("CgroupDriver"),
        cgroup_version=info.get("CgroupVersion"),
        runtimes=sorted(info.get("Runtimes") or {}),
        default_runtime=info.get("DefaultRuntime"),
        security_options=info.get("SecurityOptions") or [],
        cdi_devices=[each.get("ID", "") for each in info.get("DiscoveredDevices") or [] if each.get("Source") == "cdi"],
        logging_driver=info.get("LoggingDriver"),
    )
    emit(docker=facts)
    if address.startswith("unix:"):
        emit(docker=daemon_settings(machine, info, daemon.pid))
    emit(doing="asking the Docker daemon for its containers")
    emit(docker={"containers": containers(daemon, info)})
    emit(doing="asking the Docker daemon for its images")
    emit(docker={"images": images(daemon)})
    if address.startswith("unix:") and info.get("DockerRootDir"):
        emit(doing="reading the free space of " + info["DockerRootDir"])
        emit(filesystems=[filesystem(machine, "docker", info["DockerRootDir"], read_mounts(machine))])


def daemon_settings(machine, info, pid):
    """The defaults for containers that only the daemon's own settings tell: its file, and its command line."""
    if "name=rootless" in (info.get("SecurityOptions") or []):
        place = os.path.expanduser("~/.config/docker/daemon.json")
    else:
        place = "/etc/docker/daemon.json"
    arguments = daemon_arguments(machine, pid)
    place = next((value for name, value in arguments if name == "--config-file"), place)
    try:
        settings = json.loads(machine.read(place) or "{}") if machine.exists(place) else {}
    except (OSError, ValueError):
        return {}
    options = dict(settings.get("log-opts") or {}) if isinstance(settings, dict) else {}
    options.update(value.partition("=")[::2] for name, value in arguments if name == "--log-opt")
    size = next((value for name, value in arguments if name == "--default-shm-size"), settings.get("default-shm-size"))
    return {
        "log_options": [[str(name), str(value)] for name, value in sorted(options.items())],
        "shm_size": size_in_bytes(size),
    }


def daemon_arguments(machine, pid):
    """The options of a running dockerd, as pairs of name and value; none where its process cannot be told."""
    if pid is None or machine.read_or_none(f"/proc/{pid}/comm") != "dockerd":
        pid = machine.read_or_none("/var/run/docker.pid")
    words = (machine.read_or_none(f"/proc/{pid}/cmdline") or "").split("\0") if pid else []
    pairs = []
    for number, word in enumerate(words):
        name, separator, value = word.partition("=")
        if name.startswith("--"):
            pairs.append((name, value if separator else (words[number + 1 : number + 2] or [""])[0]))
    return pairs


def size_in_bytes(value):
    """A size as Docker reads it: bytes, or a number with b, k, m, g and perhaps another b."""
    match = re.match(r"(\d+(?:\.\d+)?)\s*([bkmg]?)i?b?$", str(value).strip().lower()) if value else None
    return int(float(match.group(1)) * 1024 ** "bkmg".index(match.group(2) or "b")) if match else None


def containers(daemon, info):
    """Running containers first, then the newest others; the rest is left out."""
    listed = daemon.get("/containers/json?all=1", list)
    listed.sort(key=lambda each: each.get("State") != "running")
    found = []
    for each in listed[:MOST_CONTAINERS]:
        try:
            found.append(container(daemon.get("/containers/" + each["Id"] + "/json", dict), info.get("DefaultRuntime")))
        except ValueError:
            continue  # Gone since it was listed.
    return found


def container(details, default_runtime):
    host = details.get("HostConfig") or {}
    config = details.get("Config") or {}
    devices = [each.get("PathOnHost", "") for each in host.get("Devices") or []]
    ports = {
        as_int(binding.get("HostPort"))
        for bindings in list((host.get("PortBindings") or {}).values())
        + list(((details.get("NetworkSettings") or {}).get("Ports") or {}).values())
        for binding in bindings or []
    }
    has_own_memory = (host.get("IpcMode") or "private") in ("private", "shareable")
    return {
        "name": details.get("Name", "").lstrip("/"),
        "image": config.get("Image"),
        "state": (details.get("State") or {}).get("Status"),
        "restart_policy": (host.get("RestartPolicy") or {}).get("Name") or "no",
        "shm_size": host.get("ShmSize") if has_own_memory else None,
        "ipc_mode": host.get("IpcMode"),
        "network_mode": host.get("NetworkMode"),
        "runtime": host.get("Runtime"),
        "gpus": asks_for_gpus(host, config, devices, default_runtime),
        "privileged": host.get("Privileged"),
        "security_options": host.get("SecurityOpt") or [],
        "ports": sorted(ports - {None, 0}),
        "device_paths": devices,
    }


def asks_for_gpus(host, config, devices, default_runtime):
    """By --gpus, by a CDI name, by the NVIDIA runtime with its variable, or by device files."""
    for request in host.get("DeviceRequests") or []:
        capabilities = [name for group in request.get("Capabilities") or [] for name in group]
        names = request.get("DeviceIDs") or []
        if "gpu" in capabilities or request.get("Driver") == "nvidia" or any("/gpu" in name for name in names):
            return True
    variables = dict(each.partition("=")[::2] for each in config.get("Env") or [])
    visible = variables.get("NVIDIA_VISIBLE_DEVICES", variables.get("ASCEND_VISIBLE_DEVICES", "void"))
    if (host.get("Runtime") or default_runtime) in ("nvidia", "ascend") and visible not in ("", "void", "none"):
        return True
    return any(path.startswith(("/dev/nvidia", "/dev/davinci")) for path in devices)


def images(daemon):
    found = []
    for each in daemon.get("/images/json", list):
        tags = [tag for tag in each.get("RepoTags") or [] if tag != "<none>:<none>"]
        labels = {name: value for name, value in (each.get("Labels") or {}).items() if not SECRET.search(name)}
        if SERVING.search(" ".join(tags + list(labels))):
            found.append(
                {
                    "id": each.get("Id", ""),
                    "tags": tags,
                    "size": each.get("Size"),
                    "labels": [[name, str(value)[:300]] for name, value in sorted(labels.items())[:MOST_LABELS]],
                }
            )
    return found[:MOST_IMAGES]
