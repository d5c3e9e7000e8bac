"""The nginx program on a host, and what it says when it refuses."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from onecat.deploy.nginx_build import NginxBuild, parse_build
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy.site import Site
    from onecat.hosts import Completed, Machine

# Also where an ordinary user's PATH does not lead.
_FIND = 'PATH="$PATH:/usr/sbin:/usr/local/sbin:/usr/local/nginx/sbin"; command -v nginx'
RELOAD_SECONDS = 30.0
_BIND_SECONDS = 4.0
_POLL_SECONDS = 0.02
_PLACE = re.compile(r" in (\S+:\d+)$")


def find_nginx(machine: Machine) -> str | None:
    """The path of the nginx program on a host; None where there is none."""
    found = machine.run(["sh", "-c", _FIND]).stdout.decode(errors="replace").strip()
    return found or None


def need_nginx(machine: Machine) -> str:
    """The path of the nginx program on a host. Raises OnecatError where there is none."""
    program = find_nginx(machine)
    if program is None:
        raise OnecatError(
            "nginx is not installed" + ("" if machine.is_local else f" on {machine.name}"),
            next_steps=["install it: apt-get install nginx", "or set proxy.kind: none in onecat.yaml"],
            code=ExitCode.ROLLED_BACK,
        )
    return program


def build_of(machine: Machine, program: str) -> NginxBuild:
    """Which nginx a program is. Raises OnecatError when it is none."""
    asked = machine.run([program, "-V"])
    return need_build((asked.stderr + asked.stdout).decode(errors="replace"), program)


def need_build(text: str, where: str) -> NginxBuild:
    """Which nginx printed this for -V. Raises OnecatError when none did."""
    build = parse_build(text)
    if build is None:
        raise OnecatError(
            "this is no nginx, or it does not run",
            where=where,
            details=text.splitlines()[:5],
            next_steps=["install nginx: apt-get install nginx"],
            code=ExitCode.ROLLED_BACK,
        )
    return build


def require_modules(site: Site, build: NginxBuild, where: str) -> None:
    """Raises OnecatError when an nginx was built without what the site needs, as small packages are."""
    missing = site.missing_modules(build)
    if missing:
        raise OnecatError(
            f"this nginx was built without {', '.join(missing)}",
            expected="one with everything that the proxy section of onecat.yaml asks for",
            where=where,
            next_steps=["install the whole one: apt-get install nginx"],
            code=ExitCode.ROLLED_BACK,
        )


def worker_user(machine: Machine) -> str | None:
    """`user group` of the workers: nobody when we are root, else nginx runs as ourselves anyway."""
    if machine.user_id != 0:
        return None
    group = machine.run(["id", "-gn", "nobody"]).stdout.decode(errors="replace").strip()
    return f"nobody {group}" if group else "nobody"


def master_state(machine: Machine, pid: int) -> str | None:
    """The command line of a process, when it lives; else None."""
    try:
        title = (machine.read(f"/proc/{pid}/cmdline") or b"").decode(errors="replace").replace("\0", " ")
        stat = (machine.read(f"/proc/{pid}/stat") or b") X").decode(errors="replace").rpartition(")")[2].split()
    except ProcessLookupError:  # it ended while its file was open
        return None
    return None if not stat or stat[0] in "ZX" else title


def workers_of(machine: Machine, pid: int | None) -> frozenset[int]:
    """The worker processes of a master process."""
    try:
        children = None if pid is None else machine.read(f"/proc/{pid}/task/{pid}/children")
    except ProcessLookupError:
        children = None
    return frozenset(int(word) for word in (children or b"").split())


def objection_to_reload(
    machine: Machine, workers: Callable[[], frozenset[int]], before: frozenset[int], log: tuple[str, int]
) -> str | None:
    """Wait until an nginx that was told to reload works by its new configuration; its words when it does not.

    A master that cannot do what it is told goes on as before, and says so in its log alone. It has done it when new
    workers run and the old ones take no request any more.

    Parameters:
        workers: asks for the master's children now. before: those it had. log: its error log, and its size before.
    """
    began = time.monotonic()
    while True:
        now = workers()
        if now - before and all(_shuts_down(machine, pid) for pid in now & before):
            return None
        waited = time.monotonic() - began
        said = (machine.read(log[0]) or b"")[log[1] :].decode(errors="replace")
        # It tries five times in 2.5 s to listen where somebody else does.
        if "still could not bind()" in said or ("[emerg]" in said and waited > _BIND_SECONDS):
            return said
        if waited > RELOAD_SECONDS:
            return said or "nginx has not taken up its new configuration, and does not say why"
        time.sleep(_POLL_SECONDS)


def _shuts_down(machine: Machine, pid: int) -> bool:
    title = master_state(machine, pid)
    return title is None or "shutting down" in title


def size_of(machine: Machine, path: str) -> int:
    """Bytes in a file; 0 when there is none."""
    found = machine.status(path)
    return 0 if found is None else found.size


def words_of(done: Completed) -> str:
    """All that nginx has said."""
    return (done.stderr + done.stdout).decode(errors="replace")


def place_of(output: str) -> str | None:
    """The `file:line` that nginx objects to."""
    for line in output.splitlines():
        found = _PLACE.search(line.strip())
        if found is not None and "[emerg]" in line:
            return found[1]
    return None


def refused(output: str, where: str, found: str | None = None) -> OnecatError:
    """What to tell for an nginx that ended with an error. found: what that means; None: told from nginx's words."""
    lines = [line for line in output.splitlines() if "[emerg]" in line or "[error]" in line] or output.splitlines()
    steps = ["read nginx's words above; onecat's templates or the proxy section of onecat.yaml are at fault"]
    if "Permission denied" in output and "bind()" in output:
        found = "nginx may not use that port: below 1024 it needs root"
        steps = ["set proxy.listen in onecat.yaml to a port above 1023, or run onecat as root"]
    elif "Address already in use" in output:
        found = "the port of proxy.listen is in use"
        steps = ["find who listens there: ss -ltnp", "stop it, or set another proxy.listen in onecat.yaml"]
    elif "cannot load certificate" in output or "SSL_CTX_use_PrivateKey" in output:
        found = "nginx cannot use the certificate or the key of proxy.tls"
        steps = ["see nginx's words above", "openssl x509 -noout -subject -enddate -in CERTIFICATE"]
    told = found or "nginx does not accept its configuration"
    return OnecatError(told, where=where, details=lines[:5], next_steps=steps, code=ExitCode.ROLLED_BACK)
