"""`rollback` and `restart`: make a release that was kept anew, from what lies beside it; onecat.yaml is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecat.deploy.leftovers import clean_up
from onecat.deploy.preparing import check_before, prepare_run
from onecat.deploy.request import Report, Run
from onecat.deploy.rollout import change, unchanged
from onecat.deploy.saved_request import saved_request
from onecat.deploy.servers import server_of
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy.front import Front
    from onecat.deploy.releases import Purpose, Release
    from onecat.deploy.store import DeploymentStore
    from onecat.facts import Facts


def rollback(
    store: DeploymentStore,
    number: int | None = None,
    facts: Facts | None = None,
    report: Report = lambda text: None,
    front: Front | None = None,
) -> Release:
    """Make an earlier release serve again, as a new one with the same plan, by the same steps as `up`.

    Parameters:
        number: which one; None: the one that served before the current one.
        facts: of the host, for its GPUs and memory; None: not looked.
        front: the nginx of several hosts, this one among them; None: nginx runs on this one.

    Raises OnecatError as `up` does; with code USAGE where there is no such release.
    """
    with store.lock("onecat rollback"):
        store.refuse_canary()
        run = _prepared(store, rollback_target(store, number), "rollback", facts, report, front)
        clean_up(run)
        current = store.current()
        if current is not None and unchanged(run, current):
            report(f"release {current.number} is the same and serves: nothing to do")
            return current
        return change(run, current)


def restart(
    store: DeploymentStore,
    facts: Facts | None = None,
    report: Report = lambda text: None,
    front: Front | None = None,
) -> Release:
    """Start the current release anew, as a new one with the same plan, by the same steps as `up`. See `rollback`."""
    with store.lock("onecat restart"):
        store.refuse_canary()
        run = _prepared(store, restart_target(store), "restart", facts, report, front)
        clean_up(run)
        return change(run, store.current())


def repeated_run(
    store: DeploymentStore,
    release: Release,
    purpose: Purpose,
    facts: Facts | None,
    report: Report,
    front: Front | None = None,
) -> Run:
    """What the steps work with that make a kept release anew. Raises OnecatError; nothing is changed."""
    return prepare_run(saved_request(store.machine, release, purpose, facts), store.machine, report, front)


def _prepared(
    store: DeploymentStore,
    release: Release,
    purpose: Purpose,
    facts: Facts | None,
    report: Report,
    front: Front | None,
) -> Run:
    again = "restarting" if purpose == "restart" else "going back to"
    report(f"{again} release {release.number}, of {release.created_at[:16].replace('T', ' ')} UTC")
    return check_before(repeated_run(store, release, purpose, facts, report, front))


def rollback_target(store: DeploymentStore, number: int | None) -> Release:
    """The release that a rollback means.

    By default the newest that served and differs from the current one; the current one itself where a newer one was
    begun and never came to serve, or has failed and left it stopped. Releases of experiments are not meant, and from
    one of those it goes to the newest other. Raises OnecatError when there is none.
    """
    kept = store.releases()
    if number is not None:
        found = next((each for each in kept if each.number == number), None)
        if found is None:
            raise _no_release(f"there is no release {number}", store, kept)
        return found
    current = store.current()
    if current is not None:
        newer = [each for each in kept if each.number > current.number]
        begun = any(each.outcome == "starting" for each in newer)
        if begun or (newer and server_of(store.machine, current).state().condition in ("absent", "stopped")):
            return current
    served = [each for each in kept if each.served_at is not None and each.purpose != "bench"]
    from_experiment = current is not None and current.purpose == "bench"
    earlier = [each for each in served if current is None or from_experiment or _differs(each, current)]
    if not earlier:
        raise _no_release("there is no earlier release to go back to", store, kept)
    return earlier[-1]


def _differs(release: Release, current: Release) -> bool:
    return release.number < current.number and release.fingerprint != current.fingerprint


def restart_target(store: DeploymentStore) -> Release:
    """The release that a restart means: the current one, or the last that served. Raises OnecatError."""
    served = [each for each in store.releases() if each.served_at is not None]
    release = store.current() or next(iter(served[::-1]), None)
    if release is None:
        raise _no_release("no release has served yet", store, store.releases())
    return release


def _no_release(found: str, store: DeploymentStore, kept: tuple[Release, ...]) -> OnecatError:
    numbers = ", ".join(f"{each.number} ({each.outcome})" for each in kept)
    return OnecatError(
        f"{found} of deployment {store.name}",
        expected=f"one of: {numbers}" if numbers else None,
        next_steps=[f"onecat releases {store.name}", "onecat up"],
        code=ExitCode.USAGE,
    )
