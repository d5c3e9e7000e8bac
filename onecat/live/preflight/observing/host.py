"""The host as it is now, and what doctor says of it."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.doctor import Finding
from onecat.facts import Facts
from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject


@dataclass(frozen=True)
class HostSeen:
    """Fresh facts, and all that doctor finds in them for the profile."""

    facts: Facts
    findings: tuple[Finding, ...]

    def of(self, *areas: str, without: tuple[str, ...] = ()) -> tuple[Finding, ...]:
        """Doctor's findings whose check is one of these, or of these areas where a name ends in a dot."""
        exact = {name for name in areas if not name.endswith(".")}
        begins = tuple(name for name in areas if name.endswith("."))
        return tuple(
            each
            for each in self.findings
            if (each.check in exact or (begins and each.check.startswith(begins))) and each.check not in without
        )


@observer(HostSeen, place=10)
def observe_host(subject: Subject) -> HostSeen:
    """Probe the host, and let doctor judge."""
    from onecat.deploy import own_ports
    from onecat.deploy.host_facts import facts_of
    from onecat.doctor import Settings, examine

    look = subject.look
    facts = facts_of(subject.machine, {"model": look.plan.model_directory})
    settings = Settings(
        port=look.release.port,
        proxy_port=look.release.endpoint_port if look.release.own_proxy_kind is not None else None,
        runtime=look.release.runtime,
        own_ports=own_ports(subject.machine),
        own_names=tuple(name for name in (look.release.container,) if name),
        model=look.plan.model_directory,
        serve=tuple(look.deployment.serve.items()),
    )
    return HostSeen(facts, examine(facts, look.profile, settings))
