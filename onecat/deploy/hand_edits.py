"""What somebody has changed by hand in files that onecat has written on a host, and the copy that is kept of it.

The next change of a deployment overwrites such files. It says so first, and leaves the edited file beside its own as
FILE.by-hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from onecat.deploy.proxies import proxy_of
from onecat.deploy.traffic import Traffic
from onecat.deploy.written_files import BY_HAND, HandEdit, compare

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.store import DeploymentStore
    from onecat.hosts import Machine


def keep_hand_edits(machine: Machine, edits: Mapping[str, bytes]) -> dict[str, str]:
    """Keep a copy of each edited file beside it; returns where, by path. edits: content by path."""
    kept = {}
    for path, content in edits.items():
        copy, number = f"{path}{BY_HAND}", 1
        while (there := machine.read(copy)) not in (None, content):
            number += 1
            copy = f"{path}{BY_HAND}.{number}"
        if there is None:
            found = machine.status(path)
            machine.write(copy, content, 0o600 if found is None else found.mode)
        kept[path] = copy
    return kept


def nginx_edits(store: DeploymentStore, release: Release) -> tuple[HandEdit, ...]:
    """What somebody has edited in nginx's files since the route was changed last."""
    if release.own_proxy_kind is None:
        return ()
    proxy = proxy_of(store, release.own_proxy_kind)
    return compare(Traffic(proxy, store.machine, store.directory).installed(), proxy.files())


def tell_hand_edits(store: DeploymentStore, report: Callable[[str], None], becomes: str = "it is written anew") -> bool:
    """Before nginx's files are overwritten: keep what somebody has edited in them, and say so. Returns whether.

    Parameters:
        becomes: what happens to such a file now, in words.
    """
    current = store.current()
    edits = () if current is None else nginx_edits(store, current)
    if current is None or current.own_proxy_kind is None or not edits:
        return False
    present = proxy_of(store, current.own_proxy_kind).files()
    owner = (store.machine.root() or store.machine) if current.own_proxy_kind == "host" else store.machine
    kept = keep_hand_edits(owner, {each.path: present[each.path] for each in edits if each.edit == "changed"})
    for each in edits:
        store.audit.record("hand-edit", current.number, path=each.path, edit=each.edit, kept=kept.get(each.path))
        report(f"warning: {each.path} was {each.edit} by hand: {becomes}" + _kept_as(kept.get(each.path)))
    return True


def _kept_as(copy: str | None) -> str:
    return "" if copy is None else f", and what was there is kept as {copy.rpartition('/')[2]} beside it"


def write_anew(store: DeploymentStore, release: Release) -> None:
    """Let nginx serve by its files as they were written last. Raises OnecatError when it refuses."""
    if release.own_proxy_kind is None:
        return
    traffic = Traffic(proxy_of(store, release.own_proxy_kind), store.machine, store.directory)
    site = traffic.site()
    if site is not None:
        traffic.route(store.machine.name, [each for each in traffic.members() if each.host == store.machine.name], site)
