"""Which architectures the versions of an engine know, as far as their registries were read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packaging.version import Version

from onecat.resources import read_table

ROOM = Path(__file__).resolve().parent / "architectures"


@dataclass(frozen=True)
class Registry:
    """known: names as in config.json. removed: those that it had, with the last release that did."""

    version: str
    known: frozenset[str]
    removed: Mapping[str, str]


@dataclass(frozen=True)
class Since:
    """With which release an architecture came. after: the last that was read without it; first: the first with it."""

    after: str
    first: str


@cache
def since(family: str) -> Mapping[str, Since]:
    """The architectures that came with a release of the family that was read; none for most families."""
    path = ROOM / f"since-{family}.yaml"
    rows = read_table(path)["since"] if path.is_file() else {}
    return {name: Since(str(row["after"]), str(row["first"])) for name, row in rows.items()}


@cache
def registries(family: str) -> tuple[Registry, ...]:
    """The registries of an engine family that were read, oldest first; none for most."""
    documents = [read_table(path) for path in ROOM.glob(f"{family}-*.yaml")]
    found = [Registry(str(each["version"]), frozenset(each["known"]), dict(each["removed"])) for each in documents]
    return tuple(sorted(found, key=lambda each: Version(each.version)))


def added_after(family: str, version: str, architecture: str) -> str | None:
    """The first release that was read and has the architecture, where `version` certainly does not; None else."""
    wanted = Version(version)
    row = since(family).get(architecture)
    if row is not None and wanted <= Version(row.after):
        return row.first
    read = registries(family)
    earlier = [each for each in read if Version(each.version) <= wanted]
    exact = bool(earlier) and Version(earlier[-1].version) == wanted
    later = [each for each in read if Version(each.version) > wanted and architecture in each.known]
    if not exact or architecture in earlier[-1].known or not later:
        return None
    return later[0].version


def removed_after(family: str, version: str, architecture: str) -> str | None:
    """The last release that had an architecture which `version` no longer has; None where it has it or never did."""
    exact = next((each for each in registries(family) if Version(each.version) == Version(version)), None)
    if exact is None or architecture in exact.known:
        return None
    return exact.removed.get(architecture)
