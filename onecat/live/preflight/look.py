"""What the checks of preflight look at: one host of a deployment, with what was observed there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from onecat.config.schema import Deployment, Preflight, Profile
    from onecat.deploy import Release
    from onecat.planner.records import Plan

Record = TypeVar("Record")


@dataclass(frozen=True)
class Unknown:
    """Why something was not observed. evidence: what was seen instead, as a person would quote it."""

    reason: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Look:
    """A release that should serve on one host.

    deployment, profile, plan: what it was made from. observed: by the type of record, the record or an `Unknown`.
    """

    host: str
    release: Release
    deployment: Deployment
    profile: Profile
    plan: Plan
    limits: Preflight
    observed: Mapping[type[Any], Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The deployment's name."""
        return self.deployment.name

    @property
    def host_option(self) -> str:
        """What a command about this host needs, to stand at its end."""
        return "" if self.host == "local" else f" --host {self.host}"

    def of(self, kind: type[Record]) -> Record:
        """What was observed; a check that asks for it `needs` it."""
        found = self.observed[kind]
        assert isinstance(found, kind)
        return found


@dataclass(frozen=True)
class Need:
    """A reason to skip a check where its record is not there; see onecat.doctor.registry.Needed."""

    kind: type[Any]

    def __call__(self, look: Look) -> str | None:
        found = look.observed[self.kind]
        return "; ".join((found.reason, *found.evidence[:1])) if isinstance(found, Unknown) else None


def needs(*kinds: type[Any]) -> tuple[Need, ...]:
    """What a check requires to be observed."""
    return tuple(Need(kind) for kind in kinds)
