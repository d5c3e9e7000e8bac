"""Markdown, for issues and chat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from onecat.doctor import STATUSES, Finding, HostReport, Report, summary
from onecat.render.columns import harmless
from onecat.render.fleet import matrix, totals_line
from onecat.render.grouping import grouped


def doctor_markdown(report: Report, *, verbose: bool = False) -> str:
    """Doctor's report as Markdown. `verbose` lists also what passed and what was skipped."""
    lines = [line for host in report.hosts for line in _host(host, report.profile, verbose)]
    if len(report.hosts) > 1:
        lines = [*_fleet(report, verbose), *lines]
    return "\n".join(lines)


def _fleet(report: Report, verbose: bool) -> Iterator[str]:
    """The totals and the matrix of checks by hosts, as a table."""
    yield f"# {len(report.hosts)} hosts"
    yield ""
    yield escape(totals_line(report))
    yield ""
    table = matrix(report, verbose=verbose)
    if table.rows:
        yield "| check | " + " | ".join(map(escape, table.hosts)) + " |"
        yield "|---" * (len(table.hosts) + 1) + "|"
        for check, statuses in table.rows:
            yield f"| `{check}` | " + " | ".join(status or "" for status in statuses) + " |"
        yield ""


def _host(host: HostReport, profile: str | None, verbose: bool) -> Iterator[str]:
    yield f"## {escape(host.name)}{f' for profile {escape(profile)}' if profile else ''}"
    yield ""
    if not host.reachable:
        yield from unreachable_markdown(host)
        return
    yield ", ".join(f"{count} {status}" for status, count in summary(host.findings).items())
    yield ""
    for status in STATUSES:
        found = [each for each in host.findings if each.status == status]
        if found and (verbose or status not in ("pass", "skip")):
            yield f"### {status}"
            yield ""
            for finding in grouped(found):
                yield from finding_markdown(finding)
            yield ""
    if host.suitability:
        able = [f"{each.profile} ({' or '.join(each.runtimes)})" for each in host.suitability if each.runtimes]
        open_ = [each.profile for each in host.suitability if each.unknown]
        yield f"This machine can run: {', '.join(able) or 'none of the profiles'}"
        if open_:
            yield f"Not known, because facts are missing: {', '.join(open_)}"
        yield ""


def unreachable_markdown(host: HostReport) -> Iterator[str]:
    """Why a host could not be reached."""
    yield f"Not reachable: {escape(host.reason or '')}"
    yield from _details(host.evidence, host.fix, "")
    yield ""


def finding_markdown(finding: Finding) -> Iterator[str]:
    """One finding as an item of a list, with its evidence and fixes."""
    subject = f"{escape(finding.subject)}: " if finding.subject else ""
    yield f"- **{subject}{escape(finding.title)}** (`{finding.check}`)"
    yield from _details(finding.evidence, finding.fix, "  ")


def _details(evidence: Sequence[str], fix: Sequence[str], indent: str) -> Iterator[str]:
    if not indent and (evidence or fix):
        yield ""
    for line in evidence:
        yield f"{indent}- seen: {_code(line)}"
    for line in fix:
        yield f"{indent}- fix: {_code(line)}"


def escape(text: str) -> str:
    """Text in which Markdown sees no markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", harmless(text, " "))


def _code(text: str) -> str:
    """Text as a code span, whatever backticks are in it."""
    ticks = max((len(run) for run in re.findall(r"`+", text)), default=0) + 1
    fence = "`" * ticks
    padding = " " if ticks > 1 else ""
    return harmless(f"{fence}{padding}{text}{padding}{fence}", " ")
