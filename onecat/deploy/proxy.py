"""nginx in front of the server: its files (pure) and onecat's own unprivileged instance of it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.deploy import processes
from onecat.deploy.releases import reachable
from onecat.errors import ExitCode, OnecatError
from onecat.files import write_atomically
from onecat.resources import render_template

if TYPE_CHECKING:
    from onecat.config import Deployment

_MODULES_WITH_TEMPORARY_FILES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_QUIT_SECONDS = 10.0
_ERRORS = (
    ("@forbidden", 403, "permission_error", "forbidden", "This address is closed to you.", ()),
    ("@not_found", 404, "invalid_request_error", "not_found", "There is nothing at this address. Use /v1/.", ()),
    ("@too_large", 413, "invalid_request_error", "request_too_large", "The request body is too large.", ()),
    ("@bad_gateway", 502, "server_error", "bad_gateway", "The model server does not answer.", (("Retry-After", "5"),)),
    ("@unavailable", 503, "server_error", "unavailable", "The model server is unavailable.", (("Retry-After", "5"),)),
    ("@gateway_timeout", 504, "server_error", "timeout", "The model server did not answer in time.", ()),
)


@dataclass(frozen=True)
class Site:
    """One server block. listen, upstream: ADDRESS:PORT; read_timeout_seconds: longest silence of the server."""

    deployment: str
    listen: str
    upstream: str
    server_name: str = "_"
    max_body_mib: int = 64
    read_timeout_seconds: int = 3600

    @property
    def identifier(self) -> str:
        """Name of upstream and log format, unique among the sites of one nginx."""
        return "onecat_" + self.deployment.replace("-", "_")

    @property
    def file_name(self) -> str:
        return f"onecat-{self.deployment}.conf"

    @property
    def endpoint(self) -> str:
        """The address for clients, without /v1."""
        host, _, port = self.listen.rpartition(":")
        return f"http://{reachable(host)}:{port}"


def site_of(deployment: Deployment, host: str, port: int) -> Site:
    """The site for a server on host:port. Raises OnecatError for a name that has no place in nginx's configuration."""
    proxy = deployment.proxy
    for key, value in (("proxy.listen", proxy.listen), ("proxy.server_name", proxy.server_name)):
        if not re.fullmatch(r"[A-Za-z0-9._*:\[\] -]+", value):
            raise OnecatError(
                f"{key} is {value!r}",
                expected="letters, digits and . _ * : - only",
                next_steps=[f"correct {key} in onecat.yaml"],
            )
    return Site(
        deployment=deployment.name,
        listen=proxy.listen,
        upstream=f"{reachable(host)}:{port}",
        server_name=proxy.server_name,
        max_body_mib=proxy.max_body_mib,
        read_timeout_seconds=proxy.read_timeout_seconds,
    )


def render_site(site: Site, access_log: str) -> str:
    """The server block with its upstream, for nginx's http context."""
    return render_template("nginx/site.conf.j2", site=site, access_log=access_log, errors=_ERRORS)


def render_main(site: Site, worker_user: str | None, build_options: str) -> str:
    """The nginx.conf of an instance of our own.

    Parameters:
        worker_user: `user group` of the worker processes when nginx is started by root, else None.
        build_options: what `nginx -V` prints; a module that was left out has no directive for its directory.
    """
    paths = tuple(
        (f"{module}_temp_path", f"temporary/{module}")
        for module in _MODULES_WITH_TEMPORARY_FILES
        if f"--without-http_{module}_module" not in build_options
    )
    return render_template("nginx/nginx.conf.j2", site=site, worker_user=worker_user, temporary_paths=paths)


def find_nginx() -> str | None:
    """The nginx program; also where an ordinary user's PATH does not lead."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/local/nginx/sbin")


def worker_user() -> str | None:
    """Who the workers shall be: nobody when we are root, else nginx runs as ourselves anyway."""
    if os.geteuid() != 0:
        return None
    import grp
    import pwd

    nobody = pwd.getpwnam("nobody")
    return f"nobody {grp.getgrgid(nobody.pw_gid).gr_name}"


def write_files(directory: Path, site: Site, program: str | None) -> None:
    """Write nginx.conf, site.conf (our own instance) and conf.d/NAME.conf (for the host's nginx) into `directory`."""
    options = "" if program is None else _run([program, "-V"]).stderr
    (directory / "conf.d").mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(directory / "nginx.conf", render_main(site, worker_user(), options))
    write_atomically(directory / "site.conf", render_site(site, "logs/access.log"))
    host_log = f"/var/log/nginx/onecat-{site.deployment}.access.log"
    write_atomically(directory / "conf.d" / site.file_name, render_site(site, host_log), 0o644)


class OwnNginx:
    """An nginx instance whose files, pid and logs all lie in `directory`."""

    def __init__(self, directory: Path, program: str) -> None:
        self._directory = directory
        self._program = program

    def check(self) -> None:
        """`nginx -t`. Raises OnecatError with nginx's own words."""
        self._make_directories()
        tested = self._nginx("-t")
        if tested.returncode != 0:
            raise self._refused(tested.stderr, "nginx does not accept the configuration written for it")

    def install(self, source: Path) -> bool:
        """Take nginx.conf and site.conf from `source`; True when that changed anything."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        changed = False
        for name in ("nginx.conf", "site.conf"):
            text = (source / name).read_text(encoding="utf-8")
            target = self._directory / name
            if not target.exists() or target.read_text(encoding="utf-8") != text:
                write_atomically(target, text)
                changed = True
        return changed

    def start_or_reload(self) -> None:
        """Make the running instance use the files in `directory`. Raises OnecatError."""
        self._make_directories()
        done = self._nginx("-s", "reload") if self.pid() is not None else self._nginx()
        if done.returncode != 0:
            raise self._refused(done.stderr, "nginx could not be started")

    def stop(self) -> None:
        """Let running answers finish for a while, then end it."""
        pid = self.pid()
        if pid is None:
            return
        for number in (signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            limit = time.monotonic() + _QUIT_SECONDS
            while self.pid() is not None and time.monotonic() < limit:
                time.sleep(0.05)
            if self.pid() is None:
                return

    def pid(self) -> int | None:
        """The master process, when it runs and is this instance's."""
        try:
            pid = int((self._directory / "nginx.pid").read_text(encoding="ascii"))
            title = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        found = processes.entry(pid)
        ours = f"-p {self._directory}/" in title.replace("\0", " ")
        return pid if ours and found is not None and found.state not in "ZX" else None

    def _make_directories(self) -> None:
        for name in ("logs", "temporary"):
            (self._directory / name).mkdir(parents=True, exist_ok=True, mode=0o700)

    def _nginx(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run([self._program, "-p", f"{self._directory}/", "-c", "nginx.conf", *arguments])

    def _refused(self, output: str, found: str) -> OnecatError:
        lines = [line for line in output.splitlines() if "[emerg]" in line or "[error]" in line] or output.splitlines()
        steps = ["read nginx's words above; onecat's templates or the proxy section of onecat.yaml are at fault"]
        if "Permission denied" in output and "bind()" in output:
            found = "nginx may not use that port: below 1024 it needs root"
            steps = ["set proxy.listen in onecat.yaml to a port above 1023, or run onecat as root"]
        elif "Address already in use" in output:
            found = "the port of proxy.listen is in use"
            steps = ["find who listens there: ss -ltnp", "stop it, or set another proxy.listen in onecat.yaml"]
        return OnecatError(
            found, where=str(self._directory), details=lines[:5], next_steps=steps, code=ExitCode.ROLLED_BACK
        )


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    # nginx keeps its standard error until it has gone to the background, so it gets a file of ours, not our terminal.
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
