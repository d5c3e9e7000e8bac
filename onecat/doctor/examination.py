"""Runs the checks."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from onecat.doctor.consequences import told_once
from onecat.doctor.context import Context, Settings
from onecat.doctor.findings import Finding, Suitability
from onecat.doctor.hardware import is_virtual_machine
from onecat.doctor.registry import Check, Needed, Rule, Seen, Verdict, all_checks
from onecat.errors import OnecatError
from onecat.facts import Facts

if TYPE_CHECKING:
    from onecat.config import Profile


_ABOUT_ONE_RUN = ("serving.log", "docker.smoke")
"""Checks of what one server or image did, which says nothing about what else the host can run."""


def examine(
    facts: Facts,
    profile: Profile | None = None,
    settings: Settings | None = None,
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    checks: Sequence[Check] | None = None,
) -> tuple[Finding, ...]:
    """All findings about one host, in the order of the checks' ids. Pure.

    Parameters:
        facts: what was observed.
        profile: what the host is to run; None judges only what is wrong for any.
        settings: what the deployment asks for, by default ports 8000 and 8080.
        only, skip: ids or shell patterns of ids (`gpu.*`) to make or to leave out.
        checks: the checks to choose from, all by default.

    What follows from another finding is told as information that points to it; see consequences.py.

    Raises OnecatError (exit code 2) when a word of `only` or `skip` fits no check.
    """
    context = Context(facts, profile, settings or Settings())
    chosen = select(all_checks() if checks is None else checks, only, skip)
    return told_once(_finding(check, verdict, context) for check in chosen for verdict in verdicts(check, context))


def select(
    checks: Sequence[Rule[Seen]], only: Sequence[str], skip: Sequence[str], example: str = "gpu.count or 'pcie.*'"
) -> tuple[Rule[Seen], ...]:
    """The checks that `only` names (all when empty) less those that `skip` names.

    Raises OnecatError (exit code 2) when a word fits no check; example: words that fit, to be told then.
    """
    for pattern in (*only, *skip):
        if not any(fnmatch.fnmatchcase(check.id, pattern) for check in checks):
            raise OnecatError(
                f"no check fits {pattern!r}",
                expected=f"ids or patterns such as {example}",
                next_steps=["list all checks: onecat explain"],
            )

    if not only and not skip:
        return tuple(checks)

    def named(check: Rule[Seen], patterns: Iterable[str]) -> bool:
        return any(fnmatch.fnmatchcase(check.id, pattern) for pattern in patterns)

    return tuple(check for check in checks if (not only or named(check, only)) and not named(check, skip))


def suitability(facts: Facts, profiles: Iterable[Profile], settings: Settings | None = None) -> tuple[Suitability, ...]:
    """For each profile: the runtimes in which no check fails on this host, and otherwise what fails or is not known."""
    base = settings or Settings()
    checks = select(all_checks(), (), _ABOUT_ONE_RUN)
    results = []
    for profile in profiles:
        failures: dict[str, tuple[Finding, ...]] = {}
        unknown: dict[str, tuple[str, ...]] = {}
        for runtime in profile.launch.runtimes:
            context = Context(facts, profile, replace(base, runtime=runtime))
            made = [(check, verdict) for check in checks for verdict in verdicts(check, context)]
            faults = told_once(
                _finding(check, verdict, context) for check, verdict in made if verdict.status in ("fail", "warn")
            )
            failures[runtime] = tuple(finding for finding in faults if finding.status == "fail")
            known = {check.id for check, verdict in made if verdict.status != "skip"}
            unknown[runtime] = () if failures[runtime] else _undecided(known, profile, runtime)
        runtimes = tuple(runtime for runtime in failures if not failures[runtime] and not unknown[runtime])
        open_questions = () if runtimes else tuple(dict.fromkeys(each for ids in unknown.values() for each in ids))
        is_refused = not runtimes and not open_questions
        missing = tuple(dict.fromkeys(each for failed in failures.values() for each in failed)) if is_refused else ()
        results.append(Suitability(profile.name, runtimes, missing, open_questions))
    return tuple(results)


def _undecided(made: Collection[str], profile: Profile, runtime: str) -> tuple[str, ...]:
    """The checks that nobody can do without to say yes, and that are not among those that were made."""
    needed = ["os.architecture", "memory.total"]
    if profile.hardware.accelerator == "nvidia":
        needed += ["gpu.count", "gpu.compute-capability", "driver.minimum"]
    if profile.hardware.accelerator == "ascend":
        needed.append("ascend.present")
    if runtime == "container":
        needed.append("docker.daemon")
    return tuple(check for check in needed if check not in made)


def verdicts(check: Rule[Seen], seen: Seen) -> list[Verdict]:
    """What a check says; a skip with the reason where it cannot be made or has a fault of its own."""
    if (reason := _first_reason(check.requires, seen)) is not None:
        return [Verdict("skip", f"Not checked: {reason}")]
    try:
        said = list(check.body(seen))
    except Exception as error:  # noqa: BLE001 - a broken check says nothing about the host and must not hide the others
        evidence = (f"{type(error).__name__}: {error}",)
        return [Verdict("skip", "Not checked: onecat has a fault in this check", evidence=evidence)]
    if (reason := _first_reason(check.to_pass, seen)) is not None:
        unproven = f"Nothing seen, but not all could be: {reason}"
        return [Verdict("skip", unproven, each.subject) if each.status == "pass" else each for each in said]
    return said


def _first_reason(requirements: Iterable[Needed[Seen]], seen: Seen) -> str | None:
    return next((reason for each in requirements if (reason := each(seen)) is not None), None)


_OF_THE_HOST = ("apparmor.", "clock.", "docker.", "driver.", "gpu.", "nvlink.", "pcie.", "selinux.")
"""Areas whose faults are put right on the machine, never in a container on it."""
_ON_THE_HOST = "on the host of this container:"
_BY_HAND = re.compile(r"\b(reseat|risers?|firmware setup|main board|power (off|cables?)|slots?|airflow|off and on)\b")
"""What is done at a machine itself, out of reach of a virtual one on it."""


def _fix(check: Check, verdict: Verdict, context: Context) -> tuple[str, ...]:
    """What to do, with the place to do it where that is another one than the host that was looked at."""
    if context.is_container:
        is_elsewhere = check.id.startswith(_OF_THE_HOST) and verdict.fix
        if is_elsewhere and not any("container" in line or "onecat" in line for line in verdict.fix):
            return (_ON_THE_HOST, *verdict.fix)
    elif is_virtual_machine(context):
        return tuple(f"below this virtual machine: {line}" if _BY_HAND.search(line) else line for line in verdict.fix)
    return verdict.fix


def _finding(check: Check, verdict: Verdict, context: Context) -> Finding:
    return finding_of(check, replace(verdict, fix=_fix(check, verdict, context)))


def finding_of(check: Rule[Seen], verdict: Verdict) -> Finding:
    """A verdict with what its check says for all of them, where it says nothing else."""
    return Finding(
        check=check.id,
        status=verdict.status,
        title=verdict.title,
        subject=verdict.subject,
        evidence=verdict.evidence,
        why=verdict.why or check.why,
        fix=verdict.fix,
        source=verdict.source or check.source,
    )
