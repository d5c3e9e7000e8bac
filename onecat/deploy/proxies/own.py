"""An nginx of our own: files, process id and logs lie in the deployment's directory on its host; no root is needed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onecat.deploy.proxies.program import find_nginx, missing_nginx, refused, worker_user
from onecat.deploy.releases import ProxyKind
from onecat.deploy.site import Site, render_main, render_site

if TYPE_CHECKING:
    from onecat.deploy.store import DeploymentStore
    from onecat.hosts import Completed

_QUIT_SECONDS = 10.0
_ACCESS_LOG = "logs/access.log"


class OwnNginx:
    """See Proxy."""

    kind: ProxyKind = "own"
    after_reboot = False

    def __init__(self, store: DeploymentStore) -> None:
        self._machine = store.machine
        self._directory = store.proxy_directory

    def check(self, site: Site, directory: str) -> None:
        self._machine.make_directory(directory)
        self._write(directory, self._files(site))
        tested = self._nginx(directory, "-t")
        if tested.exit_code != 0:
            raise refused(tested, directory, "nginx does not accept the configuration written for it")

    def apply(self, site: Site) -> None:
        self._machine.make_directory(self._directory)
        files = self._files(site)
        before = {name: self._machine.read(f"{self._directory}/{name}") for name in files}
        self._write(self._directory, files)
        tested = self._nginx(self._directory, "-t")
        done = tested
        if tested.exit_code == 0:
            done = self._nginx(self._directory, *(("-s", "reload") if self.running() else ()))
        if done.exit_code != 0:
            self._write(self._directory, {name: text for name, text in before.items() if text is not None})
            raise refused(done, self._directory, "nginx could not be started" if tested.exit_code == 0 else None)

    def remove(self) -> None:
        pid = self.pid()
        if pid is None:
            return
        for signal in ("QUIT", "TERM", "KILL"):
            self._machine.run(["kill", f"-{signal}", str(pid)])
            limit = time.monotonic() + _QUIT_SECONDS
            while self.pid() is not None and time.monotonic() < limit:
                time.sleep(0.05)
            if self.pid() is None:
                return

    def running(self) -> bool:
        return self.pid() is not None

    def pid(self) -> int | None:
        """The master process, when it runs and is this instance's."""
        text = (self._machine.read(f"{self._directory}/nginx.pid") or b"").decode().strip()
        if not text.isdigit():
            return None
        title = (self._machine.read(f"/proc/{text}/cmdline") or b"").decode(errors="replace").replace("\0", " ")
        state = (self._machine.read(f"/proc/{text}/stat") or b") X").decode(errors="replace").rpartition(")")[2].split()
        return int(text) if f"-p {self._directory}/" in title and state[0] not in "ZX" else None

    def workers(self) -> frozenset[int]:
        pid = self.pid()
        children = None if pid is None else self._machine.read(f"/proc/{pid}/task/{pid}/children")
        return frozenset(int(word) for word in (children or b"").split())

    def access_lines(self, count: int) -> list[str]:
        content = self._machine.read(f"{self._directory}/{_ACCESS_LOG}") or b""
        return content.decode("utf-8", "replace").splitlines()[-count:]

    def _files(self, site: Site) -> dict[str, bytes]:
        program = self._program()
        options = self._machine.run([program, "-V"]).stderr.decode(errors="replace")
        return {
            "nginx.conf": render_main(site, worker_user(self._machine), options).encode(),
            "site.conf": render_site(site, _ACCESS_LOG).encode(),
        }

    def _write(self, directory: str, files: dict[str, bytes]) -> None:
        for name in ("logs", "temporary"):
            self._machine.make_directory(f"{directory}/{name}")
        for name, content in files.items():
            self._machine.write(f"{directory}/{name}", content)

    def _program(self) -> str:
        program = find_nginx(self._machine)
        if program is None:
            raise missing_nginx(self._machine)
        return program

    def _nginx(self, directory: str, *arguments: str) -> Completed:
        return self._machine.run([self._program(), "-p", f"{directory}/", "-c", "nginx.conf", *arguments])
