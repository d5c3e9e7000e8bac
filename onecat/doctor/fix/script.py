"""Renders the script."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecat import __version__
from onecat.doctor.checks.toolkit import SECURITY_FLOOR
from onecat.doctor.context import Settings
from onecat.doctor.findings import Finding, HostReport
from onecat.doctor.fix.situation import Situation
from onecat.doctor.fix.steps import STEPS, Step
from onecat.doctor.packages import Family, family
from onecat.errors import OnecatError
from onecat.facts import Facts, OperatingSystem
from onecat.resources import render_template

if TYPE_CHECKING:
    from onecat.config import Profile

_DOCKER_PACKAGES: dict[Family, tuple[str, ...]] = {
    "debian": ("docker.io", "docker-ce"),
    "redhat": ("docker-ce", "moby-engine", "docker-engine", "docker"),
}
_LONGEST_COMMENT = 300


@dataclass(frozen=True)
class _RenderedStep:
    title: str
    findings: tuple[Finding, ...]
    source: tuple[str, ...]
    text: str


def fix_script(host: HostReport, facts: Facts, profile: Profile | None = None, settings: Settings | None = None) -> str:
    """A POSIX shell script with the safe fixes for a host, for a person to review and run there as root. Pure.

    It refuses every other machine, looks before each step whether it is done, stops where a reboot must come first,
    and names above its commands the findings that they are for. What no script should decide stands in comments.

    Raises OnecatError (exit code 2) when the host's distribution is not known or has no script.
    """
    system, kind = _distribution(host, facts)
    trouble = tuple(finding for finding in host.findings if finding.status in ("fail", "warn"))
    situation = Situation(facts, profile, settings or Settings(), trouble)
    needed = [step for step in STEPS if step.is_needed(situation)]
    steps = [_render(step, situation, kind) for step in needed]
    covered = {check for step in needed for check in step.checks}
    by_hand = tuple(finding for finding in trouble if finding.check not in covered)
    values = {
        "host": host.name,
        "host_option": "" if host.name == "local" else f" --host {shlex.quote(_plain(host.name))}",
        "version": __version__,
        "system": system,
        "addresses": [shlex.quote(device.address) for device in situation.nvidia.pci_devices],
        "steps": steps,
        "by_hand": by_hand,
        "by_hand_text": f"{len(by_hand)} of doctor's findings need a decision: they are comments in this script",
        "options": _options(situation),
        "comment": _comment,
        "plain": _plain,
        "quote": shlex.quote,
    }
    body = render_template("fix/script.sh.j2", functions=(), **values)
    return render_template("fix/script.sh.j2", functions=tuple(_functions(kind, body)), **values)


def _distribution(host: HostReport, facts: Facts) -> tuple[OperatingSystem, Family]:
    system = facts.operating_system
    kind = family(system)
    if system is None or system.id is None or kind is None or kind not in _DOCKER_PACKAGES:
        name = system.pretty_name or system.id if system else None
        raise OnecatError(
            f"there is no fix script for {name or 'a distribution that is not known'}",
            expected="Debian, Ubuntu, RHEL and its likes, Fedora, openEuler or Kylin",
            where=host.name,
            next_steps=["read the fixes themselves: onecat doctor"],
        )
    return system, kind


def _render(step: Step, situation: Situation, kind: Family) -> _RenderedStep:
    text = render_template(
        f"fix/steps/{step.name}.sh.j2",
        branch=situation.driver_branch,
        flavour=situation.driver_flavour,
        docker_packages=_DOCKER_PACKAGES[kind],
        toolkit_floor=SECURITY_FLOOR,
    )
    return _RenderedStep(
        step.title,
        tuple(finding for finding in situation.trouble if finding.check in step.checks),
        step.source,
        text,
    )


def _functions(kind: Family, body: str) -> Iterator[str]:
    """The shell functions that a script calls, and those that they call, each before its first use."""
    found = [
        match
        for name in ("functions", f"families/{kind}")
        for match in _FUNCTION.finditer(render_template(f"fix/{name}.sh.j2"))
    ]
    texts = {match["name"]: match[0] for match in found}
    used: set[str] = set()
    waiting = [body]
    while waiting:
        words = set(re.findall(r"\w+", waiting.pop())) & texts.keys() - used
        used |= words
        waiting += [texts[word] for word in words]
    yield from (text for name, text in texts.items() if name in used)


_FUNCTION = re.compile(r"^(?P<name>\w+)\(\) \{(?:.*\}$|\n(?:.*\n)*?\}$)", re.MULTILINE)


def _options(situation: Situation) -> str:
    """What doctor is asked with after the fixes: as it was asked before."""
    profile = f" --profile {shlex.quote(situation.profile.name)}" if situation.profile else ""
    return profile + (f" --runtime {situation.settings.runtime}" if situation.settings.runtime else "")


def _comment(text: str) -> str:
    """Text for a comment: on one line and without control characters, so that no host can write commands."""
    line = " ".join("".join(" " if unicodedata.category(each)[0] in "CZ" else each for each in text).split())
    return line if len(line) <= _LONGEST_COMMENT else line[:_LONGEST_COMMENT] + "..."


def _plain(text: str) -> str:
    """Text in which no shell sees anything but words."""
    return re.sub(r"[^\w.:@+/ -]", "?", text, flags=re.ASCII)
