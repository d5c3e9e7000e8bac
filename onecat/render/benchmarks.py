"""What benchmarks measured, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.experiments.comparability import Difference
from onecat.render import benchmark_figures as figures
from onecat.render import columns
from onecat.render.text import Line

if TYPE_CHECKING:
    from onecat.experiments.places import Listing
    from onecat.experiments.records import Experiment
    from onecat.experiments.report import Report

_LABEL = 20
_CELL = 12


def experiment_lines(experiment: Experiment, path: Path | str, width: int = 80) -> Iterator[Line]:
    """One experiment, as the command that ran it prints it in the end: figures, verdict, and where the file is."""
    from onecat.experiments.report import Run, make_report

    yield from report_lines(make_report([Run("", str(path), experiment)]), width)


def report_lines(report: Report, width: int = 80, *, verbose: bool = False) -> Iterator[Line]:
    """One run or several side by side. verbose: also all that is known of the conditions."""
    if report.mattering:
        text = f"not comparable: these runs differ in {', '.join(each.what for each in report.mattering)}"
        yield from _wrapped(text, width, "bold yellow", len("not comparable"))
        yield Line("")
    if len(report.runs) == 1:
        title = figures.report_title(report)
        yield from _wrapped(f"{title}, {figures.span_text(report.runs[0].experiment)}", width, "bold", len(title))
    for name, text in figures.common_conditions(report):
        yield from _named(name, text, width)
    yield from _differences(report, width)
    if not report.series:
        yield Line("")
        yield Line("Nothing was measured yet.")
    else:
        yield from _figures(report, width)
    for run in report.runs:
        for number, sentence in enumerate(figures.verdict_lines(run.experiment.verdict)):
            if number == 0:
                yield Line("")
            head = f"{run.name}: " if run.name and len(report.runs) > 1 else ""
            yield from _wrapped(head + sentence, width, "bold", len(head + sentence) if number == 0 else 0)
    if verbose:
        yield from _environment(report, width)
    yield Line("")
    if len(report.runs) == 1:
        yield Line(f"results: {report.runs[0].file}")
        yield Line(f"a page with plots: onecat bench report {Path(report.runs[0].file).stem} --format html")


def table_lines(table: figures.Table, width: int = 80) -> Iterator[Line]:
    """A table with the intervals under the figures."""
    label = max(_LABEL, min(width - _CELL * len(table.head), max(columns.width(each.label) for each in table.rows) + 2))
    heads = "".join(f"{each:>{_CELL}}" for each in table.head)
    title = columns.pad(columns.clip(table.title, label - 1), label)
    if columns.width(table.title) >= label:
        yield Line(table.title, "bold", len(table.title))
        title = " " * label
    yield Line(title + heads, "bold", len(title + heads))
    for row in table.rows:
        values = "".join(f"{each.text:>{_CELL}}" for each in row.cells)
        name = f"  {row.label}"
        if columns.width(name) > label - 1:
            yield from _wrapped(row.label, width, "", 0, "  ")
            name = ""
        yield Line(columns.pad(name, label) + values)
        if any(each.interval for each in row.cells):
            text = columns.pad("", label) + "".join(f"{each.interval:>{_CELL}}" for each in row.cells)
            yield Line(text.rstrip(), "dim", len(text))
    for note in table.notes:
        yield from _wrapped(note, width, "dim", len(note) + 2, "  ")


def difference_lines(found: Sequence[Difference], names: Sequence[str], width: int = 80) -> Iterator[Line]:
    """What differs, with its value in each run."""
    for each in found:
        text = each.what if not each.why or each.role != "matters" else f"{each.what}: {each.why}"
        style = "bold yellow" if each.role == "matters" else ""
        yield from _wrapped(text, width, style, len(each.what) + 2, "  ")
        for name, value in zip(names, each.values, strict=True):
            yield from map(Line, columns.wrap(value, width, f"    {name}: ", "      "))


def listing_lines(listing: Listing, width: int = 80) -> Iterator[Line]:
    """The result files that there are, the latest last."""
    if not listing.files and not listing.others:
        yield Line(f"There are no results in {listing.directory}.")
        yield Line("Measure a deployment: onecat bench run NAME")
        return
    longest = max((len(each.path.stem) for each in listing.files), default=0)
    for each in listing.files:
        style = {"finished": "", "runs": "cyan", "cut off": "yellow"}[each.state]
        text = f"{each.state:<9} {each.path.stem:<{longest}}"
        more = "; ".join(list(figures.verdict_lines(each.experiment.verdict))[:1])
        yield Line(text.rstrip(), style, len(each.state))
        if more:
            yield from map(Line, columns.wrap(more, width, " " * 10, " " * 10))
    for path, why in listing.others:
        yield from _wrapped(f"{path.name}: {why}", width, "yellow", len(path.name), "")
    yield Line("")
    yield Line("Show one: onecat bench report NAME; the last one: onecat bench report latest")


def _figures(report: Report, width: int) -> Iterator[Line]:
    yield Line("")
    if len(report.series) == 1:
        yield from _wrapped(figures.headline(report.series[0]), width, "", 0)
        yield Line("")
    yield Line("Under each figure: its 95 % interval.", "dim", 80)
    for table in figures.all_tables(report):
        for piece in _in_width(table, width):
            yield from table_lines(piece, width)
    errors = list(figures.error_lines(report.series))
    if errors:
        yield Line("errors", "bold red", len("errors"))
        for text in errors:
            yield from _wrapped(text, width, "", 0, "  ")


def _in_width(table: figures.Table, width: int) -> Iterator[figures.Table]:
    """A table in pieces that fit a terminal, each with all rows."""
    fitting = max(1, (width - _LABEL) // _CELL)
    for first in range(0, len(table.head), fitting):
        piece = slice(first, first + fitting)
        rows = tuple(figures.Row(each.label, each.cells[piece]) for each in table.rows)
        is_last = first + fitting >= len(table.head)
        yield figures.Table(table.title, table.head[piece], rows, table.notes if is_last else ())


def _differences(report: Report, width: int) -> Iterator[Line]:
    if not report.differences:
        return
    names = [run.name for run in report.runs]
    yield Line("")
    yield Line("What differs", "bold", len("What differs"))
    yield from difference_lines(report.differences, names, width)


def _environment(report: Report, width: int) -> Iterator[Line]:
    yield Line("")
    yield Line("Environment", "bold", len("Environment"))
    for whose, name, text in figures.environment_rows(report):
        yield from _named(f"{whose} {name}".strip(), text, width)


def _named(name: str, text: str, width: int) -> Iterator[Line]:
    yield from map(Line, columns.wrap(text, width, f"  {name}: ", "      "))


def _wrapped(text: str, width: int, style: str, styled: int, indent: str = "") -> Iterator[Line]:
    first, *others = columns.wrap(text, width, indent, indent + "  ")
    yield Line(first, style, min(styled, len(first)))
    yield from map(Line, others)
