"""What an nginx of our own has in common with one in a container: all its files lie in one directory of the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from onecat.deploy.client_keys import render_keys
from onecat.deploy.nginx_build import NginxBuild
from onecat.deploy.proxies.program import objection_to_reload, refused, require_modules, size_of, workers_of
from onecat.deploy.site import KEYS_FILE, SERVERS_FILE, Site, render_main, render_servers, render_site, without_marks

if TYPE_CHECKING:
    from onecat.deploy.store import DeploymentStore

ACCESS_LOG = "logs/access.log"
ERROR_LOG = "logs/error.log"
_FOLDERS = ("logs", "temporary")
LARGEST_LOG = 64 * 2**20
"""Bytes of a log above which the next change of the site begins a new one; one old one is kept."""


class DirectoryNginx(ABC):
    """The part of Proxy that is about files and workers."""

    pid_file = "nginx.pid"
    folder_ending = ""

    def __init__(self, store: DeploymentStore) -> None:
        self._machine = store.machine
        self._name = store.name
        self._directory = f"{store.proxy_directory}{self.folder_ending}"

    # --- what each kind knows ---

    @abstractmethod
    def _build(self, site: Site) -> NginxBuild: ...

    @abstractmethod
    def _worker_user(self) -> str | None: ...

    @abstractmethod
    def _test(self, site: Site, directory: str) -> str | None:
        """nginx's words when it does not accept the files in a directory."""

    @abstractmethod
    def _reload(self, site: Site) -> str | None:
        """Tell a running nginx to read its files; its words when that does not go."""

    @abstractmethod
    def _start(self, site: Site) -> str | None:
        """Start nginx; its words when it does not."""

    @abstractmethod
    def pid(self) -> int | None:
        """The master process, when it runs and is this instance's."""

    # --- what they share ---

    def access_log_path(self) -> str:
        """Where the site's access log (JSON) lies on the host."""
        return f"{self._directory}/{ACCESS_LOG}"

    def error_log_path(self) -> str:
        """Where its error log lies on the host."""
        return f"{self._directory}/{ERROR_LOG}"

    def check(self, site: Site, directory: str) -> None:
        files = self._files(site)
        if site.checks_keys and KEYS_FILE not in files:
            files[KEYS_FILE] = self._machine.read(f"{self._directory}/{KEYS_FILE}") or b""
        self._write(directory, files)
        try:
            words = self._test(site, directory)
        finally:
            # The keys of clients lie in one place only.
            self._machine.remove(f"{directory}/{KEYS_FILE}")
        if words is not None:
            raise refused(words, directory, "nginx does not accept the configuration written for it")

    def apply(self, site: Site) -> None:
        files = self._files(site)
        before = {name: self._machine.read(f"{self._directory}/{name}") for name in (*files, KEYS_FILE)}
        self._write(self._directory, files)
        found = None
        words = self._test(site, self._directory)
        if words is None:
            found = "nginx could not be started"
            self._rotate()
            words = self._reload_and_see(site) if self.running() else self._start(site)
        if words is not None:
            self._write(self._directory, {name: text for name, text in before.items() if text is not None})
            raise refused(words, self._directory, found)
        if not site.probed:
            self._machine.remove(self.servers_path())

    def files(self) -> dict[str, bytes]:
        paths = (f"{self._directory}/{name}" for name in ("nginx.conf", "site.conf", KEYS_FILE))
        found = {path: self._machine.read(path) for path in paths}
        servers = self._machine.read(self.servers_path())
        if servers is not None:
            found[self.servers_path()] = without_marks(servers.decode("utf-8", "replace")).encode()
        return {path: content for path, content in found.items() if content is not None}

    def servers_path(self) -> str:
        return f"{self._directory}/{SERVERS_FILE}"

    def running(self) -> bool:
        return self.pid() is not None

    def workers(self) -> frozenset[int]:
        return workers_of(self._machine, self.pid())

    def access_lines(self, count: int) -> list[str]:
        path = f"{self._directory}/{ACCESS_LOG}"
        return self._machine.run(["tail", "-n", str(count), path]).stdout.decode("utf-8", "replace").splitlines()

    def _files(self, site: Site) -> dict[str, bytes]:
        build = self._build(site)
        require_modules(site, build, self._machine.name)
        files = {
            "nginx.conf": render_main(site, self._worker_user(), build, self.pid_file).encode(),
            "site.conf": render_site(site, ACCESS_LOG, build).encode(),
        }
        if site.probed:
            before = self._machine.read(self.servers_path()) or b""
            files[SERVERS_FILE] = render_servers(site, before.decode("utf-8", "replace")).encode()
        if site.checks_keys and site.keys is not None:
            files[KEYS_FILE] = render_keys(site.identifier, site.keys).encode()
        return files

    def _forget_keys(self) -> None:
        """Leave no copy of the clients' keys where no nginx needs them."""
        self._machine.remove(f"{self._directory}/{KEYS_FILE}")

    def _write(self, directory: str, files: dict[str, bytes]) -> None:
        for name in _FOLDERS:
            self._machine.make_directory(f"{directory}/{name}")
        for name, content in files.items():
            self._machine.write(f"{directory}/{name}", content, 0o600)

    def _reload_and_see(self, site: Site) -> str | None:
        log = f"{self._directory}/{ERROR_LOG}"
        before, seen = self.workers(), size_of(self._machine, log)
        words = self._reload(site)
        return words if words is not None else objection_to_reload(self._machine, self.workers, before, (log, seen))

    def _rotate(self) -> None:
        """Begin new logs where the old ones are large; the start or reload that follows opens them."""
        folder = f"{self._directory}/logs"
        for name, entry in self._machine.entries(folder).items():
            if name.endswith(".log") and entry.size > LARGEST_LOG:
                self._machine.rename(f"{folder}/{name}", f"{folder}/{name}.1")
