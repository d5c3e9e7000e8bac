"""Give nginx other keys of clients while it serves: no release is made for them, and no request is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecat.deploy import prerequisites
from onecat.deploy.client_keys import read_client_keys
from onecat.deploy.hand_edits import tell_hand_edits
from onecat.deploy.proxies import proxy_of
from onecat.deploy.site import with_keys
from onecat.deploy.traffic import Traffic
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.config import Deployment
    from onecat.deploy.store import DeploymentStore


@dataclass(frozen=True)
class KeysReload:
    """Who is let in now, by name, and whether that is other than before."""

    clients: tuple[str, ...]
    changed: bool


def reload_keys(
    store: DeploymentStore, deployment: Deployment, report: Callable[[str], None] = lambda text: None
) -> KeysReload:
    """Let nginx let in those whose keys stand in proxy.keys_file now. report: receives lines for a person.

    Raises OnecatError: for a file that is not as it should be, and where no nginx checks keys; nothing is changed then.
    """
    keys = read_client_keys(deployment, prerequisites.read_secret(prerequisites.secret_of(deployment)))
    if keys is None:
        raise OnecatError(
            "onecat.yaml names no file with keys of clients",
            where="proxy.keys_file",
            next_steps=["write one NAME KEY per line into a file, name it in onecat.yaml, then: onecat up"],
        )
    with store.lock("onecat keys reload"):
        current = store.current()
        if current is None or current.proxy_kind is None:
            raise _nobody_checks(store, "nothing is deployed behind nginx")
        traffic = Traffic(proxy_of(store, current.proxy_kind), store.machine, store.directory)
        site = traffic.site()
        if site is None or not site.checks_keys:
            raise _nobody_checks(store, "nginx checks no keys yet")
        names = tuple(dict.fromkeys(name for name, _ in keys.clients))
        changed = with_keys(site, keys) != site
        if changed:
            tell_hand_edits(store, report)
            traffic.let_in(keys)
            store.audit.record("keys", current.number, clients=list(names))
        return KeysReload(names, changed)


def _nobody_checks(store: DeploymentStore, found: str) -> OnecatError:
    return OnecatError(found, where=store.name, next_steps=["onecat up"], code=ExitCode.NO)
