"""Text for people: failures first, one line of evidence, the fix to type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat.doctor import STATUSES, Finding, HostReport, Report, Rule, Status, Suitability, summary
from onecat.render import columns, commands
from onecat.render.fleet import matrix, matrix_lines, totals_line
from onecat.render.grouping import grouped

if TYPE_CHECKING:
    from rich.console import Console

    from onecat.knowledge.claims import Claim

STYLES: dict[Status, str] = {"fail": "bold red", "warn": "bold yellow", "info": "cyan", "pass": "green", "skip": "dim"}
_VERDICTS = {"true": "true", "false": "not true", "partly": "partly true", "unverified": "not verified"}
_DETAILED: tuple[Status, ...] = ("fail", "warn", "info")


@dataclass(frozen=True)
class Line:
    """One line of output: `style` (a Rich style) is for its first `styled` characters; what lies from the first to the
    second of `marked` is shown bold."""

    text: str
    style: str = ""
    styled: int = 0
    marked: tuple[int, int] | None = None


def print_lines(console: Console, lines: Iterable[Line]) -> None:
    """Print lines as they are, with their styles where the console shows any."""
    from rich.text import Text

    for line in lines:
        # What a host says of itself must not steer the terminal.
        text = Text(columns.harmless(line.text))
        text.stylize(line.style, 0, line.styled)
        if line.marked is not None:
            text.stylize("bold", *line.marked)
        console.print(text, soft_wrap=True, highlight=False)


def doctor_lines(report: Report, *, verbose: bool = False, width: int = 80) -> Iterator[Line]:
    """Doctor's report: host by host, then for several hosts the matrix of checks and the totals.

    `verbose` shows also what passed and what was skipped.
    """
    for host in report.hosts:
        yield from _host(host, report.profile, verbose, width)
        yield Line("")
    if len(report.hosts) > 1:
        yield from _fleet(report, verbose, width)
    shown = [finding for finding in report.findings if finding.status in _DETAILED]
    if shown:
        first = min(shown, key=lambda finding: STATUSES.index(finding.status))
        yield Line(f"The page behind a finding: onecat explain {first.check}")
    if not verbose and any(finding.status in ("pass", "skip") for finding in report.findings):
        yield Line("What passed and what was not checked: --verbose")


def _fleet(report: Report, verbose: bool, width: int) -> Iterator[Line]:
    table = matrix(report, verbose=verbose)
    if table.rows:
        yield Line("Summary", "bold", len("Summary"))
        yield from map(Line, matrix_lines(table, width))
        yield Line("")
    for host in report.hosts:
        if not host.reachable:
            text = columns.clip(f"not reachable: {host.name}: {host.reason}", width)
            yield Line(text, STYLES["fail"], len("not reachable"))
    yield from wrapped_lines(totals_line(report), width, "", "  ")


def _host(host: HostReport, profile: str | None, verbose: bool, width: int) -> Iterator[Line]:
    name = f"{host.name} for profile {profile}" if profile else host.name
    if not host.reachable:
        yield from unreachable_lines(host, name, width)
        return
    counts = ", ".join(f"{count} {status}" for status, count in summary(host.findings).items() if count)
    yield Line(f"{name}: {counts} ({host.seconds:.2f} s)", "bold", len(name))
    for status in STATUSES:
        if verbose or status in _DETAILED:
            for finding in grouped(each for each in host.findings if each.status == status):
                yield from _finding(finding, width)
    if host.suitability:
        yield Line("")
        yield from _suitability(host.suitability, width)


def unreachable_lines(host: HostReport, name: str, width: int) -> Iterator[Line]:
    """Why a host could not be reached, and what to do. name: what it is called."""
    yield from wrapped_lines(f"{name}: not reachable: {host.reason}", width, "", "  ", STYLES["fail"], len(name))
    yield from _details(host.evidence, host.fix, width)


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    is_detailed = finding.status in _DETAILED
    if finding.status in ("fail", "warn"):
        yield Line("")
    subject = f"{finding.subject}: " if finding.subject and finding.subject.lower() not in finding.title.lower() else ""
    head = f"{subject}{finding.title} [{finding.check}]"
    yield from wrapped_lines(head, width, f"{finding.status:<5} ", " " * 6, STYLES[finding.status], len(finding.status))
    if not is_detailed:
        return
    yield from _details(finding.evidence if finding.status != "info" else (), finding.fix, width)


def _details(evidence: Sequence[str], fix: Sequence[str], width: int) -> Iterator[Line]:
    """One line of evidence, and what to type."""
    if evidence:
        yield from wrapped_lines(evidence[0], width, " " * 6 + "seen: ", " " * 12)
    yield from fix_lines(fix, width)


def fix_lines(fix: Sequence[str], width: int, indent: int = 6) -> Iterator[Line]:
    """What to type, below a finding."""
    for index, step in enumerate(fix):
        yield from _step(step, width, " " * indent + ("fix:  " if index == 0 else " " * 6), " " * (indent + 6))


def _step(step: str, width: int, first: str, following: str) -> Iterator[Line]:
    """What to do: a command that can be copied, or words."""
    if commands.is_command(step):
        yield from map(Line, commands.wrap(step, width, first, following))
    else:
        yield from wrapped_lines(step, width, first, following)


def _suitability(results: Iterable[Suitability], width: int) -> Iterator[Line]:
    listed = list(results)
    able = [f"{each.profile} ({' or '.join(each.runtimes)})" for each in listed if each.runtimes]
    undecided = [each for each in listed if each.unknown]
    if len(undecided) == len(listed):
        needed = ", ".join(dict.fromkeys(check for each in undecided for check in each.unknown))
        yield from wrapped_lines(f"not checked: {needed}", width, "What this machine can run is not known: ", "  ")
        return
    head = "This machine can run: "
    if able or not undecided:
        yield from wrapped_lines(
            ", ".join(able) or "none of onecat's profiles", width, head, "  ", "bold", len(head) - 1
        )
    for unknown, profiles in _alike((", ".join(each.unknown), each.profile) for each in undecided):
        yield from wrapped_lines(f"Not known for {profiles}: not checked: {unknown}", width, "", "  ")
    for reasons, profiles in _alike((_why_not(each.missing), each.profile) for each in listed if each.missing):
        yield from wrapped_lines(f"not {profiles}: {reasons}", width, "  ", " " * 6)


_ABSENT = ("gpu.present", "ascend.present")
"""Checks beside whose failure nothing else matters: the cards of the profile are not there."""


def _why_not(missing: Iterable[Finding]) -> str:
    """What keeps a host from a profile; a GPU that is absent or broken comes first."""
    ordered = sorted(missing, key=lambda finding: not finding.check.startswith(("gpu.", "driver.", "ascend.")))
    absent = [finding for finding in ordered if finding.check in _ABSENT]
    return "; ".join(dict.fromkeys(finding.title for finding in absent or ordered))


def _alike(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """(text, profile) with the profiles of the same text in one row."""
    grouped: dict[str, list[str]] = {}
    for text, profile in rows:
        grouped.setdefault(text, []).append(profile)
    for text, profiles in grouped.items():
        yield text, ", ".join(profiles)


def explain_lines(check: Rule[Any], claims: Sequence[Claim] = (), width: int = 80) -> Iterator[Line]:
    """The page behind a check, with what is said about it elsewhere."""
    yield Line(check.id, "bold", len(check.id))
    yield from wrapped_lines(check.title, width, "  ", "  ")
    for heading, text in (("What it looks at", check.looks_at), ("Why it matters", check.why)):
        yield from _heading(heading)
        yield from wrapped_lines(text, width, "  ", "  ")
    yield from _heading("How to fix")
    for step in check.fix:
        yield from _step(step, width, "  ", "    ")
    if claims:
        yield from _heading("What how-to articles say about it, and whether it is so")
        for claim in claims:
            yield from _claim(claim, width)
    yield from _heading("Sources")
    for text in dict.fromkeys((*check.source, *(each for claim in claims for each in claim.source))):
        yield from wrapped_lines(text, width, "  ", "  ")


def claim_lines(claims: Iterable[Claim], width: int = 80) -> Iterator[Line]:
    """Claims of how-to articles, each with its verdict, the checks that look at it, and its sources."""
    for claim in claims:
        yield Line("")
        yield from _claim(claim, width)
        if claim.checks:
            yield from wrapped_lines(", ".join(claim.checks), width, "    checks: ", " " * 12)
        for address in claim.source:
            yield Line(f"    source: {address}")


def _heading(text: str) -> Iterator[Line]:
    yield Line("")
    yield Line(text, "bold", len(text))


def _claim(claim: Claim, width: int) -> Iterator[Line]:
    word = _VERDICTS[claim.verdict]
    yield from wrapped_lines(f"\u201c{claim.claim}\u201d", width, "  ", "   ")
    yield from wrapped_lines(claim.truth, width, f"    {word}: ", " " * 4)


def index_lines(checks: Iterable[Rule[Any]], width: int = 80) -> Iterator[Line]:
    """All checks with what is right when they pass."""
    for check in checks:
        yield from wrapped_lines(check.title, width, f"{check.id:<27} ", " " * 28, "bold", len(check.id))


def wrapped_lines(
    text: str, width: int, first: str, following: str, style: str = "", styled: int | None = None
) -> Iterator[Line]:
    """Text in lines of at most `width` columns where its words allow; only the first line carries a style."""
    lines = columns.wrap(text, width, first, following)
    yield Line(lines[0], style, styled or 0)
    for line in lines[1:]:
        yield Line(line)
