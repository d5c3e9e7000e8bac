"""An nginx of our own: files, process id and logs lie in the deployment's directory on its host; no root is needed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onecat.deploy.nginx_build import NginxBuild
from onecat.deploy.proxies.directory import DirectoryNginx
from onecat.deploy.proxies.program import build_of, master_state, need_nginx, words_of, worker_user
from onecat.deploy.releases import ProxyKind
from onecat.deploy.site import Site

if TYPE_CHECKING:
    from onecat.hosts import Completed, Machine

_QUIT_SECONDS = 10.0


class OwnNginx(DirectoryNginx):
    """See Proxy."""

    kind: ProxyKind = "own"
    after_reboot = False

    def remove(self) -> None:
        self._end()
        self._forget_keys()

    def _end(self) -> None:
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

    def pid(self) -> int | None:
        text = (self._machine.read(f"{self._directory}/{self.pid_file}") or b"").decode().strip()
        if not text.isdigit():
            return None
        title = master_state(self._machine, int(text))
        return int(text) if title is not None and f"-p {self._directory}/" in title else None

    def argv(self, *words: str) -> tuple[Machine, list[str]]:
        return self._machine, [need_nginx(self._machine), "-p", f"{self._directory}/", "-c", "nginx.conf", *words]

    def _build(self, site: Site) -> NginxBuild:
        return build_of(self._machine, need_nginx(self._machine))

    def _worker_user(self) -> str | None:
        return worker_user(self._machine)

    def _test(self, site: Site, directory: str) -> str | None:
        return _objection(self._nginx(directory, "-t"))

    def _reload(self, site: Site) -> str | None:
        return _objection(self._nginx(self._directory, "-s", "reload"))

    def _start(self, site: Site) -> str | None:
        return _objection(self._nginx(self._directory))

    def _nginx(self, directory: str, *arguments: str) -> Completed:
        return self._machine.run([need_nginx(self._machine), "-p", f"{directory}/", "-c", "nginx.conf", *arguments])


def _objection(done: Completed) -> str | None:
    return None if done.exit_code == 0 else words_of(done)
