"""Which nginx stands before a deployment on a host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onecat.deploy.client_keys import read_client_keys
from onecat.deploy.container import image_id
from onecat.deploy.proxies.host import host_configuration, not_running, running_pid
from onecat.deploy.proxies.program import build_of, find_nginx
from onecat.deploy.releases import ProxyKind
from onecat.deploy.site import Site, site_of, with_keys
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.config import Deployment
    from onecat.hosts import Machine


@dataclass(frozen=True)
class ProxyChoice:
    """The nginx that is taken, and why. kind: None where the host has none. docker_host: of one in a container."""

    kind: ProxyKind | None
    why: str
    docker_host: str | None = None


def choose_proxy(
    machine: Machine, deployment: Deployment, docker_host: str | None = None, current: ProxyKind | None = None
) -> ProxyChoice:
    """The nginx for this deployment.

    Parameters:
        docker_host: the Docker daemon as the host names it; None for the usual one.
        current: the kind that its current release has; it is kept while it works, since two kinds cannot listen at
            one address.

    Raises OnecatError when the kind that proxy.instance names is not to be had.
    """
    tries = {
        "host": lambda: _host(machine),
        "own": lambda: _own(machine),
        "container": lambda: _container(machine, deployment.proxy.image, docker_host),
    }
    wanted = deployment.proxy.instance
    if wanted != "auto":
        why = tries[wanted]()
        if isinstance(why, OnecatError):
            raise why
        return ProxyChoice(wanted, "proxy.instance says so", docker_host if wanted == "container" else None)
    order: list[ProxyKind] = ["host", "own", "container"]
    if current is not None:
        order.sort(key=lambda kind: kind != current)
    reasons: list[str] = []
    for kind in order:
        why = tries[kind]()
        if isinstance(why, str):
            kept = (
                "it stands before the current release" if kind == current else "; ".join(dict.fromkeys((why, *reasons)))
            )
            return ProxyChoice(kind, kept, docker_host if kind == "container" else None)
        reasons.append(why.found)
    if deployment.proxy.keys_file is not None or deployment.proxy.tls is not None:
        raise OnecatError(
            "there is no nginx that could keep the door: " + "; ".join(dict.fromkeys(reasons)),
            expected="one, since onecat.yaml has proxy.keys_file or proxy.tls",
            where=machine.name,
            next_steps=["install it: apt-get install nginx"],
            code=ExitCode.ROLLED_BACK,
        )
    return ProxyChoice(None, "; ".join(dict.fromkeys(reasons)))


def site_for(choice: ProxyChoice, deployment: Deployment, server_key: str | None) -> Site:
    """The deployment's site for the nginx that was chosen, with the clients' keys and without a server behind it.

    Parameters:
        server_key: the server's own API key, where it has one.

    Raises OnecatError (usage).
    """
    in_container = choice.kind == "container"
    return with_keys(
        replace(
            site_of(deployment),
            image=deployment.proxy.image if in_container else None,
            docker_host=choice.docker_host if in_container else None,
        ),
        read_client_keys(deployment, server_key),
    )


def _host(machine: Machine) -> str | OnecatError:
    root = machine.root()
    if root is None:
        step = "run onecat as root, or with sudo" if machine.is_local else f"let your user on {machine.name} use sudo"
        return _refused("the host's nginx gets sites from root alone", step)
    if find_nginx(root) is None:
        return _refused(_missing(machine), "install it: apt-get install nginx")
    found = host_configuration(root)
    if isinstance(found, OnecatError):
        return found
    if running_pid(root, found.pid_path(build_of(root, str(find_nginx(root))))) is None:
        return not_running(root)
    return "the host's nginx runs, and onecat is root"


def _own(machine: Machine) -> str | OnecatError:
    if find_nginx(machine) is None:
        return _refused(_missing(machine), "install it: apt-get install nginx")
    return "nginx is installed"


def _container(machine: Machine, image: str, docker_host: str | None) -> str | OnecatError:
    try:
        there = image_id(machine.docker_host(docker_host), image) is not None
    except OnecatError as error:
        return error
    if not there:
        step = f"docker pull {image}"
        return _refused(f"the Docker daemon has no image {image}", step, "or name another one: proxy.image")
    return f"the Docker daemon has the image {image}"


def _missing(machine: Machine) -> str:
    return "nginx is not installed" + ("" if machine.is_local else f" on {machine.name}")


def _refused(found: str, *steps: str) -> OnecatError:
    return OnecatError(found, where="proxy.instance", next_steps=steps, code=ExitCode.ROLLED_BACK)
