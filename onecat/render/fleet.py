"""The summary of several hosts: a matrix of checks by hosts, the hosts that could not be reached, and totals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from onecat.doctor import STATUSES, HostReport, Report, Status, summary
from onecat.render.columns import clip, pad, width

SYMBOLS: dict[Status, str] = {"fail": "F", "warn": "w", "info": "i", "pass": ".", "skip": "-"}
LEGEND = "F fail  w warn  i info  . pass  - skipped"
NOTHING = " "

_LONGEST_CHECK = 30
_GROUP = 5


@dataclass(frozen=True)
class Matrix:
    """The worst status of each check on each host that was reached. rows: the check's id, and a status per host."""

    hosts: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Status | None, ...]], ...]


def matrix(report: Report, *, verbose: bool = False) -> Matrix:
    """The matrix of a report: the checks with trouble on some host first by how grave; with `verbose` all checks."""
    hosts = [host for host in report.hosts if host.reachable]
    worst = [_worst(host) for host in hosts]
    checks = {check for statuses in worst for check in statuses}
    rows = [(check, tuple(statuses.get(check) for statuses in worst)) for check in checks]
    if not verbose:
        rows = [row for row in rows if any(status in ("fail", "warn", "info") for status in row[1])]
    return Matrix(tuple(host.name for host in hosts), tuple(sorted(rows, key=_gravity)))


def matrix_lines(table: Matrix, columns: int) -> Iterator[str]:
    """A matrix as text, in blocks of as many hosts as fit side by side."""
    if not table.rows:
        return
    first = min(max(width(check) for check, _ in table.rows), _LONGEST_CHECK, max(columns // 2, 10)) + 2
    cell = max(map(width, table.hosts))
    yield LEGEND
    if first + (cell + 1) * len(table.hosts) <= columns:
        yield " " * first + " ".join(pad(name, cell) for name in table.hosts).rstrip()
        for check, statuses in table.rows:
            yield (
                pad(clip(check, first - 2), first) + " ".join(pad(_symbol(each), cell) for each in statuses)
            ).rstrip()
        return
    yield from _numbered_blocks(table, first, columns)


def _numbered_blocks(table: Matrix, first: int, columns: int) -> Iterator[str]:
    """Blocks whose hosts are numbers, read downwards, with the list of names after them."""
    groups = max((columns - first + 1) // (_GROUP + 1), 1)
    numbers = [str(number) for number in range(1, len(table.hosts) + 1)]
    digits = len(numbers[-1])
    for start in range(0, len(numbers), groups * _GROUP):
        block = slice(start, start + groups * _GROUP)
        for digit in range(digits):
            yield (" " * first + _grouped(number.rjust(digits)[digit] for number in numbers[block])).rstrip()
        for check, statuses in table.rows:
            cells = [_symbol(status) for status in statuses[block]]
            yield (pad(clip(check, first - 2), first) + _grouped(cells)).rstrip()
        yield ""
    yield from _in_columns(
        [f"{number:>{digits}} {name}" for number, name in zip(numbers, table.hosts, strict=True)], columns
    )


def totals_line(report: Report) -> str:
    """How many hosts there are, how they are, and how many findings there are of each status."""
    reached = [host for host in report.hosts if host.reachable]
    grouped = [(_of_all(host), host) for host in reached]
    parts = [
        f"{len(report.hosts)} hosts",
        *(
            f"{count} {words}"
            for words, count in (
                ("not reachable", len(report.hosts) - len(reached)),
                ("with failures", sum(status == "fail" for status, _ in grouped)),
                ("with warnings only", sum(status == "warn" for status, _ in grouped)),
                ("fine", sum(status not in ("fail", "warn") for status, _ in grouped)),
            )
            if count
        ),
    ]
    counts = ", ".join(f"{count} {status}" for status, count in summary(report.findings).items() if count)
    return f"{parts[0]}: {', '.join(parts[1:])}; {counts or 'no findings'}"


def _of_all(host: HostReport) -> Status:
    return min((finding.status for finding in host.findings), key=STATUSES.index, default="pass")


def _worst(host: HostReport) -> dict[str, Status]:
    worst: dict[str, Status] = {}
    for finding in host.findings:
        known = worst.get(finding.check, finding.status)
        # A check that passes for one GPU and cannot judge another has told something: pass outranks skip.
        worst[finding.check] = min(known, finding.status, key=STATUSES.index)
    return worst


def _gravity(row: tuple[str, tuple[Status | None, ...]]) -> tuple[int, int, str]:
    check, statuses = row
    ranks = [STATUSES.index(status) for status in statuses if status is not None]
    return min(ranks), -ranks.count(min(ranks)), check


def _symbol(status: Status | None) -> str:
    return NOTHING if status is None else SYMBOLS[status]


def _grouped(cells: Iterable[str]) -> str:
    text = "".join(cells)
    return " ".join(text[start : start + _GROUP] for start in range(0, len(text), _GROUP))


def _in_columns(entries: Sequence[str], columns: int) -> Iterator[str]:
    widest = max(map(width, entries)) + 2
    in_line = max(columns // widest, 1)
    for start in range(0, len(entries), in_line):
        yield "".join(pad(each, widest) for each in entries[start : start + in_line]).rstrip()
