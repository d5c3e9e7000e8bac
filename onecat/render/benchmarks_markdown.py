"""What benchmarks measured, as Markdown, for issues, merge requests and chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onecat.experiments.comparability import Difference
from onecat.experiments.report import Report
from onecat.render import benchmark_figures as figures
from onecat.render.markdown import escape


def report_markdown(report: Report) -> str:
    """One run or several side by side."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    names = [run.name for run in report.runs]
    yield f"# {escape(figures.report_title(report))}"
    yield ""
    if len(report.runs) == 1:
        yield escape(figures.span_text(report.runs[0].experiment))
        yield ""
    if report.mattering:
        yield "> **Not comparable.** These runs differ in what the figures depend on:"
        yield ">"
        for line in _differences(report.mattering, names):
            yield f"> {line}"
        yield ""
    for run in report.runs:
        for place, sentence in enumerate(figures.verdict_lines(run.experiment.verdict)):
            of_run = f"{escape(run.name)}: " if len(report.runs) > 1 else ""
            yield f"**{of_run}{escape(sentence)}**" if place == 0 else escape(sentence)
            yield ""
    if not report.series:
        yield "Nothing was measured yet."
        yield ""
    if len(report.series) == 1:
        yield escape(figures.headline(report.series[0]))
        yield ""
    for name, said in figures.common_conditions(report):
        yield f"- {escape(name)}: {escape(said)}"
    yield ""
    others = [each for each in report.differences if each.role != "matters"]
    if others:
        yield "## What is compared"
        yield ""
        yield from _differences(others, names)
        yield ""
    if report.series:
        yield from _figures(report)
    yield "## Environment"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for whose, name, said in figures.environment_rows(report):
        yield f"| {escape(f'{whose} {name}'.strip())} | {escape(said)} |"


def _figures(report: Report) -> Iterator[str]:
    yield "## Figures"
    yield ""
    yield "In brackets: 95 % intervals."
    yield ""
    for table in figures.all_tables(report):
        yield f"### {escape(table.title)}"
        yield ""
        yield f"| | {' | '.join(map(escape, table.head))} |"
        yield "|---" + "|---:" * len(table.head) + "|"
        for row in table.rows:
            cells = (f"{each.text} ({each.interval})" if each.interval else each.text for each in row.cells)
            yield f"| {escape(row.label)} | {' | '.join(cells)} |"
        yield ""
        for note in table.notes:
            yield escape(note)
            yield ""
    errors = list(figures.error_lines(report.series))
    if errors:
        yield "### Errors"
        yield ""
        for each in errors:
            yield f"- {escape(each)}"
        yield ""


def _differences(found: Sequence[Difference], names: Sequence[str]) -> Iterator[str]:
    yield f"| | {' | '.join(map(escape, names))} |"
    yield "|---" * (len(names) + 1) + "|"
    for each in found:
        why = f" ({escape(each.why)})" if each.why and each.role == "matters" else ""
        yield f"| {escape(each.what)}{why} | {' | '.join(map(escape, each.values))} |"
