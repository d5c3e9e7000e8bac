"""Preflight's page: every check of every host in a line or two, in groups; what is wrong with its evidence and fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from onecat.doctor import Finding, HostReport, summary
from onecat.live.preflight import groups
from onecat.render.grouping import grouped
from onecat.render.markdown import escape, finding_markdown, unreachable_markdown
from onecat.render.text import STYLES, Line, fix_lines, unreachable_lines, wrapped_lines

if TYPE_CHECKING:
    from onecat.live.preflight import PreflightReport

_DETAILED = ("fail", "warn", "info")
_NAME_COLUMNS = 16
_INDENT = 2 + 6 + _NAME_COLUMNS
_MOST_EVIDENCE = 3


def preflight_lines(report: PreflightReport, *, verbose: bool = False, width: int = 80) -> Iterator[Line]:
    """The page. verbose: with the evidence of what passed."""
    for host in report.hosts:
        yield from _host(host, report, verbose, width)
        yield Line("")
    yield from _verdict(report, width)
    wrong = [each for each in report.findings if each.status in ("fail", "warn")]
    if wrong:
        first = min(wrong, key=lambda each: each.status)
        yield Line(f"The page behind a check: onecat explain {first.check}")
    else:
        yield from wrapped_lines(
            f"Then: onecat bench burst {report.deployment}  (a burst of 100 at once), "
            f"onecat bench soak {report.deployment} --for 72h",
            width,
            "",
            "  ",
        )


def _verdict(report: PreflightReport, width: int) -> Iterator[Line]:
    counts = summary(report.findings)
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    lost = [host.name for host in report.hosts if not host.reachable]
    if counts["fail"] or lost:
        word, style = "not fit for traffic", STYLES["fail"]
    elif report.undecided:
        word, style = "no failure found, and not all was looked at", STYLES["warn"]
    elif counts["warn"]:
        word, style = "fit for traffic, with warnings", STYLES["warn"]
    else:
        word, style = "fit for traffic", STYLES["pass"]
    yield Line(f"{report.deployment}: {word}", style, len(f"{report.deployment}: {word}"))
    yield from wrapped_lines(told, width, "  ", "  ")
    if report.undecided:
        yield from wrapped_lines(", ".join(report.undecided), width, "  not made: ", " " * 12)
    if lost:
        yield from wrapped_lines(", ".join(lost), width, "  not reachable: ", " " * 17)


def _host(host: HostReport, report: PreflightReport, verbose: bool, width: int) -> Iterator[Line]:
    number = report.releases.get(host.name)
    name = report.deployment + ("" if number is None else f" release {number}") + f" on {host.name}"
    if not host.reachable:
        yield from unreachable_lines(host, host.name, width)
        return
    yield Line(f"{name} ({host.seconds:.0f} s)", "bold", len(name))
    for group, findings in _by_group(host.findings):
        yield Line(group, "bold", len(group))
        for finding in findings:
            yield from _finding(finding, verbose, width)


def _by_group(findings: Iterable[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    listed = list(grouped(findings))
    by_check = groups()
    for group in dict.fromkeys(by_check.values()):
        found = [each for each in listed if by_check[each.check] == group]
        if found:
            yield group, found


def _finding(finding: Finding, verbose: bool, width: int) -> Iterator[Line]:
    name = finding.check.partition(".")[2]
    subject = f"{finding.subject}: " if finding.subject and finding.subject.lower() not in finding.title.lower() else ""
    title = subject + finding.title
    if finding.status == "skip":
        title = title.removeprefix("Not checked: ")
    first = f"  {finding.status:<5} {name:<{_NAME_COLUMNS}} "
    yield from wrapped_lines(title, width, first, " " * (_INDENT + 1), STYLES[finding.status], 2 + len(finding.status))
    if finding.status in _DETAILED or verbose:
        for number, line in enumerate(finding.evidence[: None if verbose else _MOST_EVIDENCE]):
            head = "seen: " if number == 0 else "      "
            yield from wrapped_lines(line, width, " " * 8 + head, " " * 14)
    if finding.status in _DETAILED:
        yield from fix_lines(finding.fix, width, indent=8)


def preflight_markdown(report: PreflightReport) -> str:
    """The report as Markdown: a table for each host, below it what is wrong."""
    lines = []
    for host in report.hosts:
        number = report.releases.get(host.name)
        release = "" if number is None else f" release {number}"
        lines += [f"## {escape(report.deployment)}{release} on {escape(host.name)}", ""]
        if not host.reachable:
            lines += unreachable_markdown(host)
            continue
        lines += [", ".join(f"{count} {status}" for status, count in summary(host.findings).items()), ""]
        lines += ["| | check | |", "|---|---|---|"]
        for _, findings in _by_group(host.findings):
            for each in findings:
                subject = f"{escape(each.subject)}: " if each.subject else ""
                lines.append(f"| {each.status} | `{each.check}` | {subject}{escape(each.title)} |")
        lines.append("")
        wrong = [each for each in grouped(host.findings) if each.status in ("fail", "warn")]
        if wrong:
            lines += ["### To do", ""]
            for each in wrong:
                lines += finding_markdown(each)
            lines.append("")
    return "\n".join(lines)
