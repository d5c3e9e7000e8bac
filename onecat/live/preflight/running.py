"""Preflight on all hosts of a deployment: observed at the same time, judged from what was observed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onecat.doctor import Finding, HostReport, Rule, Verdict, finding_of, select, verdicts
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import FanOut, Task
from onecat.live.preflight.limits import Options, limits_of
from onecat.live.preflight.look import Look, Need
from onecat.live.preflight.observing import observers
from onecat.live.preflight.registry import all_preflight_checks
from onecat.live.preflight.reporting import PreflightReport
from onecat.live.preflight.subject import Subject

if TYPE_CHECKING:
    from onecat.deploy import DeploymentStore
    from onecat.hosts import Desk, Machine

Tell = Callable[[str, str], None]
"""Receives the name of a host and one line about it, for a person."""


def preflight(
    machines: Sequence[Machine], name: str | None, options: Options, *, desk: Desk, tell: Tell = lambda host, text: None
) -> PreflightReport:
    """Check the deployment on these hosts.

    Parameters:
        name: of the deployment; None for the only one there is. desk: where a person is asked meanwhile; this must be
            the main thread. tell: what is about to happen that takes long or loads the server.

    A host that cannot be reached is told as one, and one without the deployment as not healthy where another has it.
    Raises OnecatError for words of options that fit no check, and where no host has such a deployment.
    """
    checks = select(all_preflight_checks(), options.only, options.skip, "preflight.health or 'preflight.nginx-*'")
    if not checks:
        raise OnecatError("no check is left", expected="--skip that leaves some of the checks of --only")
    work = functools.partial(_of_host, name=name, options=options, checks=checks, alone=len(machines) == 1, tell=tell)
    tasks = [Task(each.name, functools.partial(_asked, work, each)) for each in machines]
    outcomes = dict(FanOut(tasks, desk=desk).ended())
    reports: list[HostReport] = []
    looks: list[Look] = []
    for number in range(len(machines)):
        outcome = outcomes[number]
        error = outcome.error
        if error is None:
            assert outcome.result is not None
            report, look = outcome.result
            looks.append(look)
        elif isinstance(error, OnecatError) and error.code == ExitCode.UNREACHABLE:
            report = _unreachable(outcome.name, outcome.seconds, error)
        elif isinstance(error, OnecatError) and any(each.error is None for each in outcomes.values()):
            report = HostReport(outcome.name, True, outcome.seconds, (_not_healthy(error),))
        else:
            raise error
        reports.append(replace(report, seconds=outcome.seconds))
    return PreflightReport(
        deployment=looks[0].name if looks else name or "",
        hosts=tuple(reports),
        releases={look.host: look.release.number for look in looks},
        limits=looks[0].limits.model_dump() if looks else dict(options.limits),
    )


def _asked(
    work: Callable[[Machine], tuple[HostReport, Look]], machine: Machine, set_limit: Callable[[float], None]
) -> tuple[HostReport, Look]:
    return work(machine)


def _unreachable(host: str, seconds: float, error: OnecatError) -> HostReport:
    return HostReport(host, False, seconds, reason=error.found, evidence=error.details, fix=error.next_steps)


def _not_healthy(error: OnecatError) -> Finding:
    """What to say of a host that has no such deployment, or no release of it that serves."""
    check = next(each for each in all_preflight_checks() if each.id == "preflight.health")
    evidence = error.details or (error.where or error.found,)
    return finding_of(check, Verdict("fail", error.found, evidence=tuple(evidence), fix=tuple(error.next_steps)))


def _of_host(
    machine: Machine,
    *,
    name: str | None,
    options: Options,
    checks: Sequence[Rule[Look]],
    alone: bool,
    tell: Tell,
) -> tuple[HostReport, Look]:
    from onecat.deploy import find_deployment

    begin = time.monotonic()
    store = find_deployment(machine, name)
    subject = Subject(
        store,
        look_at(store, options),
        is_alone=alone,
        quick=options.quick,
        tell=functools.partial(tell, machine.name),
    )
    look = replace(subject.look, observed=observe(subject, checks))
    findings = judge(look, checks)
    return HostReport(machine.name, True, time.monotonic() - begin, findings), look


def look_at(store: DeploymentStore, options: Options) -> Look:
    """The release that should serve, without observations. Raises OnecatError where there is none."""
    from onecat.deploy.saved_request import saved_request

    release = store.current()
    if release is None:
        raise OnecatError(
            f"{store.name} has no release that serves",
            where=store.directory if store.machine.is_local else f"{store.directory} on {store.machine.name}",
            expected="a deployment that runs: preflight looks at what clients meet",
            next_steps=[f"onecat status {store.name}", "onecat up"],
            code=ExitCode.NO,
        )
    request = saved_request(store.machine, release, "up", None)
    deployment = options.deployment or request.deployment
    return Look(
        host=store.machine.name,
        release=release,
        deployment=request.deployment,
        profile=request.profile,
        plan=replace(request.plan, port=release.port),
        limits=limits_of(deployment, options.limits),
    )


def observe(subject: Subject, checks: Sequence[Rule[Look]]) -> Mapping[type[Any], Any]:
    """All that these checks need."""
    needed = {need.kind for check in checks for need in check.requires if isinstance(need, Need)}
    return {each.kind: each.observe(subject) for each in observers() if each.kind in needed}


def judge(look: Look, checks: Sequence[Rule[Look]]) -> tuple[Finding, ...]:
    """What the checks say. Pure."""
    return tuple(finding_of(check, verdict) for check in checks for verdict in verdicts(check, look))
