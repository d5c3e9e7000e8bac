"""What doctor says of a host, as one verdict of preflight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onecat.doctor import Finding, Verdict
from onecat.doctor.units import counted


def told_as_one(findings: Sequence[Finding], passed: str, evidence: tuple[str, ...] = ()) -> Iterator[Verdict]:
    """Each fault that doctor finds; where it finds none, one verdict.

    Parameters:
        passed: what is right then, with its numbers. evidence: for it.

    What doctor only mentions (info) is told as evidence. Where it could make none of its checks, neither can preflight.
    """
    faults = [each for each in findings if each.status in ("fail", "warn")]
    for each in faults:
        yield Verdict(
            each.status,
            each.title,
            each.subject,
            (*each.evidence, f"found by doctor: {each.check}"),
            fix=each.fix,
            why=each.why,
            source=each.source,
        )
    if faults:
        return
    made = [each for each in findings if each.status != "skip"]
    skipped = tuple(dict.fromkeys(f"{each.check}: {each.title}" for each in findings if each.status == "skip"))
    if not made:
        reason = next((each.title.removeprefix("Not checked: ") for each in findings), "doctor has no such check")
        yield Verdict("skip", f"Not checked: {reason}", evidence=skipped)
        return
    mentioned = tuple(f"{each.check}: {each.title}" for each in findings if each.status == "info")
    checks = f"doctor passes it by {counted(len({each.check for each in made}), 'check')}"
    yield Verdict("pass", passed, evidence=(*evidence, checks, *mentioned, *skipped))
