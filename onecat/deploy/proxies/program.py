"""The nginx program on a host, and what it says when it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.hosts import Completed, Machine

# Also where an ordinary user's PATH does not lead.
_FIND = 'PATH="$PATH:/usr/sbin:/usr/local/sbin:/usr/local/nginx/sbin"; command -v nginx'


def find_nginx(machine: Machine) -> str | None:
    """The path of the nginx program on a host; None where there is none."""
    found = machine.run(["sh", "-c", _FIND]).stdout.decode(errors="replace").strip()
    return found or None


def missing_nginx(machine: Machine) -> OnecatError:
    """What to tell when there is no nginx that a release counts on."""
    return OnecatError(
        "nginx is not installed" + ("" if machine.is_local else f" on {machine.name}"),
        next_steps=["install it: apt-get install nginx-light", "or set proxy.kind: none in onecat.yaml"],
        code=ExitCode.ROLLED_BACK,
    )


def worker_user(machine: Machine) -> str | None:
    """`user group` of the workers: nobody when we are root, else nginx runs as ourselves anyway."""
    if machine.user_id != 0:
        return None
    group = machine.run(["id", "-gn", "nobody"]).stdout.decode(errors="replace").strip()
    return f"nobody {group}" if group else "nobody"


def refused(done: Completed, where: str, found: str | None = None) -> OnecatError:
    """What to tell for an nginx that ended with an error. found: what that means; None: told from nginx's words."""
    output = done.stderr.decode(errors="replace")
    lines = [line for line in output.splitlines() if "[emerg]" in line or "[error]" in line] or output.splitlines()
    steps = ["read nginx's words above; onecat's templates or the proxy section of onecat.yaml are at fault"]
    if "Permission denied" in output and "bind()" in output:
        found = "nginx may not use that port: below 1024 it needs root"
        steps = ["set proxy.listen in onecat.yaml to a port above 1023, or run onecat as root"]
    elif "Address already in use" in output:
        found = "the port of proxy.listen is in use"
        steps = ["find who listens there: ss -ltnp", "stop it, or set another proxy.listen in onecat.yaml"]
    told = found or "nginx does not accept its configuration"
    return OnecatError(told, where=where, details=lines[:5], next_steps=steps, code=ExitCode.ROLLED_BACK)
