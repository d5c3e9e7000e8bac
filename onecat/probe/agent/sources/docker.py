"""The Docker daemon, asked over its socket."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import http.client
import json
import os
import socket

from onecat.probe.agent.core import Unknown
from onecat.probe.agent.sources.storage import filesystem, read_mounts


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.socket_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.socket_path)


def docker(machine, emit):
    address = docker_address(machine)
    facts = {"socket": address}
    scheme, _, place = address.partition("://")
    emit(doing="asking the Docker daemon at " + address)
    try:
        if scheme == "unix":
            if not os.path.exists(place):
                has_client = machine.find_program("docker") is not None
                facts["state"] = "unreachable" if has_client else "absent"
                facts["error"] = place + " does not exist"
                emit(docker=facts)
                return
            connection = UnixConnection(place, machine.timeout)  # type: http.client.HTTPConnection
        elif scheme == "tcp" and not os.environ.get("DOCKER_TLS_VERIFY"):
            connection = http.client.HTTPConnection(place, timeout=machine.timeout)
        else:
            raise Unknown("error", "DOCKER_HOST is " + address + ": this probe speaks unix:// and plain tcp:// only")
        version = docker_get(connection, "/version")
        info = docker_get(connection, "/info")
    except PermissionError as error:
        facts.update(state="forbidden", error=error.strerror)
        emit(docker=facts)
        return
    except (OSError, http.client.HTTPException, ValueError) as error:
        facts.update(state="unreachable", error=str(error) or type(error).__name__)
        emit(docker=facts)
        return
    facts.update(
        state="reachable",
        server_version=version.get("Version"),
        api_version=version.get("ApiVersion"),
        storage_driver=info.get("Driver"),
        root_directory=info.get("DockerRootDir"),
        cgroup_driver=info.get("CgroupDriver"),
        cgroup_version=info.get("CgroupVersion"),
        runtimes=sorted(info.get("Runtimes") or {}),
        default_runtime=info.get("DefaultRuntime"),
        security_options=info.get("SecurityOptions") or [],
        cdi_devices=[each.get("ID", "") for each in info.get("DiscoveredDevices") or [] if each.get("Source") == "cdi"],
    )
    emit(docker=facts)
    if scheme == "unix" and info.get("DockerRootDir"):
        emit(doing="reading the free space of " + info["DockerRootDir"])
        emit(filesystems=[filesystem(machine, "docker", info["DockerRootDir"], read_mounts(machine))])


def docker_address(machine):
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    system = machine.path("/var/run/docker.sock")
    rootless = os.path.join(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}"), "docker.sock")
    if machine.is_running and not os.path.exists(system) and os.path.exists(rootless):
        return "unix://" + rootless
    return "unix://" + system


def docker_get(connection, path):
    connection.request("GET", path, headers={"Host": "localhost"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise ValueError(f"the daemon answers {answer.status} to {path}: {body[:200].decode(errors='replace')}")
    document = json.loads(body.decode())
    if not isinstance(document, dict):
        raise ValueError("what answers at " + path + " is not a Docker daemon")
    return document


SOURCES = {"docker": docker}
