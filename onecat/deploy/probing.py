"""Active probing of the servers behind one nginx, by a timer on nginx's host.

nginx itself learns of a server that fails from requests alone. The timer runs `onecat.deploy.member_probe` there, which
needs nothing of onecat; where that cannot be, requests are all there is, and people are told why.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.deploy import daemon_reload, member_probe
from onecat.deploy.store import read_json, write_json
from onecat.deploy.unit_server import UNIT_DIRECTORY
from onecat.deploy.units import command_line
from onecat.errors import OnecatError
from onecat.resources import render_template

if TYPE_CHECKING:
    from onecat.deploy.proxies import Proxy
    from onecat.deploy.store import DeploymentStore
    from onecat.hosts import Machine

SETTINGS_SCHEMA = "onecat.probe/1"
INTERVAL_SECONDS = 5
"""Between two looks: with member_probe.FAILURES a server that fails is left out after some 15 s."""
_BOOTED = "/run/systemd/system"
_PYTHON = "import sys; sys.exit(sys.version_info < (3, 7)); "
# What nginx needs to test its files as root: other users' logs, ports below 1024, folders for its workers.
_CAPABILITIES_OF_ROOT = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_NET_BIND_SERVICE"
_FOLDERS_OF_NGINX = ("/var/log/nginx", "/var/lib/nginx", "/var/cache/nginx", "/run")


@dataclass(frozen=True)
class Units:
    """The timer and its service, as text."""

    name: str
    timer: str
    service: str

    @property
    def files(self) -> dict[str, str]:
        """By path on the host."""
        path = f"{UNIT_DIRECTORY}/{self.name}"
        return {f"{path}.service": self.service, f"{path}.timer": self.timer}


def probe_directory(store: DeploymentStore) -> str:
    return f"{store.directory}/probe"


def unit_name(deployment: str) -> str:
    return f"onecat-{deployment}-probe"


def render_units(deployment: str, directory: str, python: str, servers_folder: str, user: int, of_host: bool) -> Units:
    """The units that look at the servers of a deployment.

    Parameters:
        directory: of the deployment on nginx's host. python: the path of Python there.
        servers_folder: where nginx's file of servers lies. user: who runs nginx's commands; 0 for root.
        of_host: whether it is the host's own nginx, whose files lie all over the host.
    """
    program, settings = f"{directory}/probe/member_probe.py", f"{directory}/probe/settings.json"
    writable = [directory, servers_folder]
    common = {"deployment": deployment, "owner": _owner(directory)}
    service = render_template(
        "systemd/probe.service.j2",
        **common,
        program=_path(program),
        user=user or None,
        exec_start=command_line([python, "-I", program, settings]),
        capabilities=_CAPABILITIES_OF_ROOT if user == 0 else "",
        writable=[
            *(f'"{_path(each)}"' for each in dict.fromkeys(writable)),
            *(f"-{each}" for each in _FOLDERS_OF_NGINX if of_host),
        ],
    )
    timer = render_template("systemd/probe.timer.j2", **common, seconds=INTERVAL_SECONDS)
    return Units(unit_name(deployment), timer, service)


def _path(path: str) -> str:
    """A path as systemd reads it: % begins a specifier (systemd.unit(5))."""
    return path.replace("%", "%%")


def _owner(directory: str) -> str:
    return f"Its deployment lies in {directory}"


def keep(store: DeploymentStore, proxy: Proxy) -> str | None:
    """See that the servers behind an nginx are looked at from now on; why that cannot be, in words, else None."""
    machine, root = store.machine, store.machine.root()
    if machine.status(_BOOTED) is None:
        return "systemd does not run there"
    if root is None:
        return "a timer of systemd's needs root"
    python = machine.run(["sh", "-c", f"python3 -I -c '{_PYTHON}' && command -v python3"])
    path = python.stdout.decode("utf-8", "replace").strip()
    if python.exit_code != 0 or not path.startswith("/"):
        return "python3 (3.7 or later) is not there"
    if not _is_ours(root, store):
        return f"another ONECAT_HOME's deployment has the timer {unit_name(store.name)}.timer"
    try:
        return _installed(store, root, proxy, path)
    except OSError as error:  # as where systemd's units lie on a file system that is never written
        return f"its timer cannot be installed: {error}"


def _installed(store: DeploymentStore, root: Machine, proxy: Proxy, python: str) -> str | None:
    as_whom, test = proxy.argv("-t")
    servers = proxy.servers_path()
    folder = servers.rpartition("/")[0]
    units = render_units(store.name, store.directory, python, folder, as_whom.user_id, proxy.kind == "host")
    _write(store, {"servers": servers, "test": test, "reload": proxy.argv("-s", "reload")[1]})
    return _install(root, units)


def _write(store: DeploymentStore, settings: dict[str, object]) -> None:
    """The program and what it has to know, beside the deployment."""
    machine, folder = store.machine, probe_directory(store)
    document = {
        "schema": SETTINGS_SCHEMA,
        **settings,
        "state": f"{folder}/state.json",
        "lock": f"{store.directory}/traffic.lock",
    }
    program = Path(member_probe.__file__).read_bytes()
    machine.make_directory(folder)
    if read_json(machine, f"{folder}/settings.json") != document:
        write_json(machine, f"{folder}/settings.json", document)
    if machine.read(f"{folder}/member_probe.py") != program:
        machine.write(f"{folder}/member_probe.py", program, 0o600)


def _install(root: Machine, units: Units) -> str | None:
    timer = f"{units.name}.timer"
    changed = [path for path, text in units.files.items() if root.read(path) != text.encode()]
    for path in changed:
        root.write(path, units.files[path].encode(), 0o644)
    if not changed and _shows(root, timer, "ActiveState") == "active":
        return None
    failed = _systemctl(root, "enable", "--no-reload", timer)
    if failed is None and "yes" in {
        _shows(root, each, "NeedDaemonReload") for each in (timer, f"{units.name}.service")
    }:
        try:
            daemon_reload.reload(root, None, False)
        except OnecatError as error:
            return error.found
    return failed or _systemctl(root, "restart", timer)


def remove(store: DeploymentStore) -> None:
    """Look at the servers no longer."""
    folder = probe_directory(store)
    if store.machine.status(folder) is None:
        return
    root, name = store.machine.root(), unit_name(store.name)
    paths = [f"{UNIT_DIRECTORY}/{name}.{kind}" for kind in ("timer", "service")]
    if root is not None and root.status(paths[0]) is not None and _is_ours(root, store):
        _systemctl(root, "disable", "--now", "--no-reload", f"{name}.timer")
        _systemctl(root, "stop", f"{name}.service")
        for path in paths:
            root.remove(path)
        root.run(["systemctl", "reset-failed", f"{name}.service"])
    (root or store.machine).remove(folder)


def missing(store: DeploymentStore) -> str | None:
    """Why the servers behind the nginx of several hosts are not looked at, in words; None where they are."""
    machine = store.machine
    if machine.status(_BOOTED) is None:
        return "active probing needs systemd there"
    if machine.root() is None:
        return "active probing needs root there, or sudo"
    state = _shows(machine, f"{unit_name(store.name)}.timer", "ActiveState")
    if state != "active":
        return f"{unit_name(store.name)}.timer is {state or 'not there'}"
    if _shows(machine, f"{unit_name(store.name)}.service", "Result") not in ("success", ""):
        return f"it fails: journalctl --unit {unit_name(store.name)}.service"
    return None


def _is_ours(root: Machine, store: DeploymentStore) -> bool:
    """Whether there is no timer of that name, or this deployment's, or one of a deployment that is gone."""
    text = (root.read(f"{UNIT_DIRECTORY}/{unit_name(store.name)}.timer") or b"").decode("utf-8", "replace")
    begins = f"# {_owner('')}"
    found = next((line.removeprefix(begins) for line in text.splitlines() if line.startswith(begins)), None)
    return found in (None, store.directory) or root.status(str(found)) is None


def _shows(machine: Machine, unit: str, field: str) -> str:
    done = machine.run(["systemctl", "show", unit, "--value", f"--property={field}"])
    return done.stdout.decode("utf-8", "replace").strip()


def _systemctl(root: Machine, *words: str) -> str | None:
    """systemctl's words when it refuses."""
    done = root.run(["systemctl", *words])
    return None if done.exit_code == 0 else done.stderr.decode("utf-8", "replace").strip() or f"systemctl {words[0]}"
