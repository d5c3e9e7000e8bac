"""What `status` tells beyond the state of the server: how the release came, its canary, what its engine chose."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onecat.deploy import probing
from onecat.deploy.engine import KeptChoices, kept_choices
from onecat.deploy.lock_breaking import held_lock
from onecat.deploy.operations import STATUS_SCHEMA, DeploymentStatus, status
from onecat.deploy.proxies import proxy_of
from onecat.deploy.store import deployments, find_deployment
from onecat.deploy.traffic import Traffic
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import FanOut, Outcome, Task
from onecat.observe.choices import to_document

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.store import DeploymentStore
    from onecat.hosts import Desk, Machine


@dataclass(frozen=True)
class CanaryShare:
    """The release that is tried beside the current one. share: of the requests, 0 to 1; None: not known."""

    release: int
    share: float | None = None
    since: str | None = None


@dataclass(frozen=True)
class Overview:
    """A deployment on one host.

    host: its name. strategy: how the current release took over; created_at: when it was made. warnings: what is not
    wrong now and may be. engine: what it chose; None where the release never was ready.
    """

    status: DeploymentStatus
    host: str
    strategy: str | None = None
    created_at: str | None = None
    service: str | None = None
    gpus: tuple[str, ...] = ()
    canary: CanaryShare | None = None
    engine: KeptChoices | None = None
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.status.name


def overviews(machines: Sequence[Machine], name: str | None, desk: Desk) -> list[Overview]:
    """All deployments of these hosts, or the one called `name` on each, asked at the same time.

    desk: where a person is asked meanwhile, as for a password; this must be the main thread.

    A host that cannot be reached, or has no such deployment where another has it, is told as one. Raises OnecatError
    when there is nothing at all.
    """

    def of(machine: Machine) -> list[Overview] | OnecatError:
        try:
            stores = [find_deployment(machine, name)] if name is not None else list(deployments(machine))
        except OnecatError as error:
            if error.code == ExitCode.UNREACHABLE:
                return [_unreachable(machine, name or "", error)]
            return error
        return [_overview_or_reason(store) for store in stores]

    tasks = [Task(machine.name, functools.partial(_asked, of, machine)) for machine in machines]
    outcomes = dict(FanOut(tasks, desk=desk).ended())
    answers = [_answer(outcomes[number]) for number in range(len(machines))]
    found = [each for answer in answers if not isinstance(answer, OnecatError) for each in answer]
    if not found:
        raise next((each for each in answers if isinstance(each, OnecatError)), None) or _nothing(machines)
    missing = [
        Overview(DeploymentStatus(name or "", "stopped", cause=answer.found, next_steps=("onecat up",)), machine.name)
        for machine, answer in zip(machines, answers, strict=True)
        if isinstance(answer, OnecatError)
    ]
    return [*found, *missing]


def _asked(
    of: Callable[[Machine], list[Overview] | OnecatError], machine: Machine, set_limit: Callable[[float], None]
) -> list[Overview] | OnecatError:
    return of(machine)


def _answer(outcome: Outcome[list[Overview] | OnecatError]) -> list[Overview] | OnecatError:
    if outcome.error is not None:
        raise outcome.error
    assert outcome.result is not None
    return outcome.result


def _overview_or_reason(store: DeploymentStore) -> Overview:
    try:
        return overview(store)
    except OnecatError as error:
        if error.code != ExitCode.UNREACHABLE:
            raise
        return _unreachable(store.machine, store.name, error)


def _unreachable(machine: Machine, name: str, error: OnecatError) -> Overview:
    return Overview(DeploymentStatus(name, "unreachable", cause=error.found, next_steps=error.next_steps), machine.name)


def _nothing(machines: Sequence[Machine]) -> OnecatError:
    places = ", ".join("this machine" if each.is_local else each.name for each in machines)
    return OnecatError(f"nothing is deployed on {places}", next_steps=["onecat quickstart", "onecat init"])


def overview(store: DeploymentStore) -> Overview:
    """How a deployment is now. Raises OnecatError when its Docker daemon cannot be reached."""
    found, release = status(store), store.current()
    if release is None:
        return Overview(found, store.machine.name, warnings=_unfinished(store))
    engine = kept_choices(store.machine, release)
    surprises = () if engine is None else tuple(f"{each.what}: {each.why}" for each in engine.surprises)
    return Overview(
        status=found,
        host=store.machine.name,
        strategy=release.strategy,
        created_at=release.created_at,
        service=release.service,
        gpus=release.gpus,
        canary=_canary(store),
        engine=engine,
        warnings=(*surprises, *_unfinished(store), *_unprobed(store, release), *_after_reboot(store, release, found)),
    )


def _canary(store: DeploymentStore) -> CanaryShare | None:
    document = store.canary_document()
    if document is None:
        return None
    return CanaryShare(document["release"], document.get("share"), document.get("since"))


def _unfinished(store: DeploymentStore) -> tuple[str, ...]:
    """What a command is just doing, or left behind when it was killed."""
    kept = {each.number for each in (store.current(), store.canary()) if each is not None}
    begun = [each for each in store.releases() if each.live and each.number not in kept]
    if not begun:
        return ()
    names = f"release{'s' if len(begun) > 1 else ''} {', '.join(str(each.number) for each in begun)}"
    held = held_lock(store)
    if held is not None:
        return (f"{names}: {held.told}",)
    return (f"{names}: a command was ended before it was done; the next onecat up, rollback or down cleans up",)


def _unprobed(store: DeploymentStore, release: Release) -> tuple[str, ...]:
    """Whether the nginx before several hosts learns of one that fails from requests alone."""
    if release.own_proxy_kind is None:
        return ()
    traffic = Traffic(proxy_of(store, release.own_proxy_kind), store.machine, store.directory)
    site = traffic.site()
    if site is None or not site.probed or len(traffic.members()) <= 1:
        return ()
    why = probing.missing(store)
    return () if why is None else (f"nginx notices a host that fails by failed requests only: {why}",)


def _after_reboot(store: DeploymentStore, release: Release, found: DeploymentStatus) -> tuple[str, ...]:
    """What would not come back when the host starts anew."""
    if found.state == "stopped":
        return ()
    gone = ["the native server"] if release.service == "supervisor" else []
    if release.own_proxy_kind is not None and not proxy_of(store, release.own_proxy_kind).after_reboot:
        gone.append("its own nginx")
    if not gone:
        return ()
    return (f"when the host starts anew, {' and '.join(gone)} must be started again: onecat up",)


def overview_document(found: Overview) -> dict[str, Any]:
    """A deployment in the `onecat.status/1` document."""
    kept = found.engine
    engine = None
    if kept is not None:
        engine = {
            **to_document(kept.chosen),
            "planned": asdict(kept.planned),
            "surprises": [asdict(each) for each in kept.surprises],
        }
    return {
        **asdict(found.status),
        "host": found.host,
        "strategy": found.strategy,
        "created_at": found.created_at,
        "service": found.service,
        "gpus": found.gpus,
        "canary": None if found.canary is None else asdict(found.canary),
        "engine": engine,
        "warnings": found.warnings,
    }


def overviews_document(found: Iterable[Overview]) -> dict[str, Any]:
    """Deployments as the `onecat.status/1` document."""
    return {"schema": STATUS_SCHEMA, "deployments": [overview_document(each) for each in found]}


def overviews_exit(found: Iterable[Overview]) -> ExitCode:
    """NO when a deployment does not serve, else UNREACHABLE when a host could not be asked, else FINE."""
    states = {each.status.state for each in found}
    if states - {"serving", "unreachable"}:
        return ExitCode.NO
    return ExitCode.UNREACHABLE if "unreachable" in states else ExitCode.FINE
