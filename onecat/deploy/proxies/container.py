"""An nginx in a container of its own, on the host's network: for hosts with Docker, and without nginx.

Its root is read-only and its configuration mounted so; it writes logs, and nothing else that outlives it. Docker starts
it again after a reboot.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

from onecat.deploy.container import HOME_LABEL, connect, home_identity, name_taken, translated
from onecat.deploy.nginx_build import NginxBuild
from onecat.deploy.proxies.directory import DirectoryNginx
from onecat.deploy.proxies.program import need_build
from onecat.deploy.releases import ProxyKind
from onecat.deploy.site import Site
from onecat.deploy.store import read_json, write_json
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy.store import DeploymentStore
    from onecat.hosts import Machine

# What root needs to give its workers another user and to have them open a port below 1024; all else is dropped.
_CAPABILITIES_OF_ROOT = ("CHOWN", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
_STOP_SECONDS = 10
_ARGUMENTS_LABEL = "io.onecat.proxy"
_POLL_SECONDS = 0.05


class ContainerNginx(DirectoryNginx):
    """See Proxy."""

    kind: ProxyKind = "container"
    after_reboot = True
    pid_file = "temporary/nginx.pid"
    folder_ending = "-container"

    def __init__(self, store: DeploymentStore) -> None:
        super().__init__(store)
        self._container = f"onecat-{store.name}-nginx"
        self._document = f"{self._directory}/container.json"
        self._clients: dict[str | None, Any] = {}
        self._builds: dict[str, NginxBuild] = {}

    def remove(self) -> None:
        self._end()
        self._forget_keys()

    def _end(self) -> None:
        """Let the container finish its answers for a while, and take it away."""
        document = read_json(self._machine, self._document)
        if document is None:
            return
        docker_host = document.get("docker_host")
        with self._translated(docker_host):
            found = self._find(docker_host)
            if found is not None:
                found.stop(timeout=_STOP_SECONDS)
                found.remove(force=True)
        self._machine.remove(self._document)

    def pid(self) -> int | None:
        document = read_json(self._machine, self._document)
        if document is None:
            return None
        docker_host = document.get("docker_host")
        with self._translated(docker_host):
            found = self._find(docker_host)
            return found.attrs["State"]["Pid"] or None if found is not None else None

    def argv(self, *words: str) -> tuple[Machine, list[str]]:
        document = read_json(self._machine, self._document) or {}
        given = document.get("docker_host")
        docker = ["docker"] if given is None else ["docker", "--host", given]
        return self._machine, [*docker, "exec", self._container, "nginx", *argv(self._directory, *words)]

    def _build(self, site: Site) -> NginxBuild:
        image = site.image or ""
        if image not in self._builds:
            self._builds[image] = need_build(self._once(site, None, "-V")[0], image)
        return self._builds[image]

    def _worker_user(self) -> str | None:
        return None  # the image's own, of which nobody else knows the name

    def _test(self, site: Site, directory: str) -> str | None:
        said, status = self._once(site, directory, "-t")
        return None if status == 0 else said

    def _reload(self, site: Site) -> str | None:
        with self._translated(site.docker_host):
            found = self._find(site.docker_host)
            if found is not None and found.labels.get(_ARGUMENTS_LABEL) == self._identity(site):
                # Not by a signal from Docker: after `docker kill`, whatever the signal, it starts no container again.
                status, said = found.exec_run(["nginx", *argv(self._directory, "-s", "reload")])
                return None if status == 0 else said.decode(errors="replace")
        # Another image or another certificate's files: that takes a new container.
        self._end()
        return self._start(site)

    def _start(self, site: Site) -> str | None:
        write_json(self._machine, self._document, {"image": site.image, "docker_host": site.docker_host})
        with self._translated(site.docker_host):
            client = self._client(site.docker_host)
            left = self._named(site.docker_host)
            if left is not None and not self._is_ours(left):
                raise name_taken(left.name, left.short_id, left.status)
            if left is not None:
                left.remove(force=True)
            arguments = create_arguments(site, self._directory, (self._machine.user_id, self._machine.group_id))
            labels = {
                HOME_LABEL: home_identity(self._machine),
                "io.onecat.deployment": self._name,
                _ARGUMENTS_LABEL: self._identity(site),
            }
            made = client.containers.create(
                **arguments,
                name=self._container,
                labels=labels,
                restart_policy={"Name": "unless-stopped"},
                command=argv(self._directory, "-g", "daemon off;"),
            )
            made.start()
            return self._first_words(made)

    def _first_words(self, made: Any) -> str | None:
        """Wait until it has workers; what it said when it ended in place of that."""
        limit = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < limit:
            made.reload()
            if made.attrs["RestartCount"] or made.status == "exited":
                said = made.logs(tail=20).decode(errors="replace")
                made.remove(force=True)
                self._machine.remove(self._document)
                return said or "it ended without a word"
            if self.workers():
                return None
            time.sleep(_POLL_SECONDS)
        return made.logs(tail=20).decode(errors="replace") or "nginx in its container starts no worker"

    def _once(self, site: Site, directory: str | None, *words: str) -> tuple[str, int]:
        """What nginx of this image says, and its exit status."""
        user = (self._machine.user_id, self._machine.group_id)
        with self._translated(site.docker_host):
            client = self._client(site.docker_host)
            ran = client.containers.create(
                **create_arguments(site, directory, user), command=argv(directory, *words) if directory else list(words)
            )
            try:
                ran.start()
                status = int(ran.wait()["StatusCode"])
                return ran.logs().decode(errors="replace"), status
            finally:
                ran.remove(force=True)

    def _identity(self, site: Site) -> str:
        client = self._client(site.docker_host)
        arguments = create_arguments(site, self._directory, (self._machine.user_id, self._machine.group_id))
        decisive = {**arguments, "image": client.images.get(site.image).id}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=str).encode()).hexdigest()[:12]

    def _find(self, docker_host: str | None) -> Any | None:
        """Our container; None where there is none, or where another ONECAT_HOME's has its name."""
        found = self._named(docker_host)
        return found if found is not None and self._is_ours(found) else None

    def _is_ours(self, container: Any) -> bool:
        return bool(container.labels.get(HOME_LABEL) == home_identity(self._machine))

    def _named(self, docker_host: str | None) -> Any | None:
        from docker.errors import NotFound

        try:
            return self._client(docker_host).containers.get(self._container)
        except NotFound:
            return None

    def _client(self, docker_host: str | None) -> Any:
        if docker_host not in self._clients:
            self._clients[docker_host] = connect(self._machine.docker_host(docker_host))
        return self._clients[docker_host]

    def _translated(self, docker_host: str | None) -> Any:
        return translated(self._machine.docker_host(docker_host), None)


def argv(directory: str, *words: str) -> list[str]:
    """nginx's arguments for the files in a directory."""
    return ["-p", f"{directory}/", "-c", "nginx.conf", *words]


def create_arguments(site: Site, directory: str | None, user: tuple[int, int]) -> dict[str, Any]:
    """What the docker SDK gets for a container of this site, without its name and command.

    Parameters:
        directory: nginx's files, on the host and in the container; None: it gets none.
        user: who onecat is on the host, as (uid, gid): whose files those are.
    """
    if site.image is None:
        raise OnecatError(
            "there is no image for the nginx in a container",
            where="proxy.image",
            next_steps=["set proxy.image in onecat.yaml"],
            code=ExitCode.ROLLED_BACK,
        )
    mounts = [] if directory is None else [_mount(directory, read_only=True)]
    if directory is not None:
        mounts += [_mount(f"{directory}/{name}", read_only=False) for name in ("logs", "temporary")]
    if site.tls is not None and directory is not None:
        mounts += [_mount(path, read_only=True) for path in (site.tls.certificate, site.tls.key)]
    return {
        "image": site.image,
        "entrypoint": ["nginx"],
        "user": f"{user[0]}:{user[1]}",
        "network_mode": "host",
        "stop_signal": "SIGQUIT",
        "read_only": True,
        "cap_drop": ["ALL"],
        "cap_add": list(_CAPABILITIES_OF_ROOT) if user[0] == 0 else [],
        "security_opt": ["no-new-privileges"],
        "mounts": mounts,
        "tmpfs": {
            path: "mode=1777,size=16m" for path in ("/var/lib/nginx", "/var/cache/nginx", "/var/log/nginx", "/run")
        },
        "log_config": {"type": "json-file", "config": {"max-size": "10m", "max-file": "2"}},
        "pids_limit": 1024,
    }


def _mount(path: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": path, "Target": path, "ReadOnly": read_only}
