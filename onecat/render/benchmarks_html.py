"""What benchmarks measured, as one HTML page that needs nothing else: no script, font, image or address of the network.

Its content security policy forbids all but its own style sheet, so a name that somebody gave a model can do nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence

from onecat.experiments.comparability import Difference
from onecat.experiments.report import Report
from onecat.render import benchmark_figures as figures
from onecat.render.benchmark_charts import Figure, report_figures
from onecat.render.plots import chart_svg, swatch_svg, tag, text, void_tag
from onecat.resources import resource_directory


def report_html(report: Report) -> str:
    """The page of one run or of several side by side."""
    style = (resource_directory("templates") / "benchmarks" / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        void_tag("meta", charset="utf-8"),
        void_tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void_tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("title", text(f"onecat bench: {figures.report_title(report)}")),
        # Within a style element nothing is escaped; the sheet is ours.
        f"<style>{style}</style>",
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', *_body(report)), lang='en')}\n"


def _body(report: Report) -> Iterator[str]:
    yield tag("header", *_header(report))
    yield "<main>"
    if report.mattering:
        yield _warning(report)
    for run in report.runs:
        sentences = list(figures.verdict_lines(run.experiment.verdict))
        if sentences:
            of_run = f"{run.name}: " if len(report.runs) > 1 else ""
            said = [tag("p", text((of_run if place == 0 else "") + each)) for place, each in enumerate(sentences)]
            yield tag("section", *said, class_="verdict")
    if not report.series:
        yield tag("p", "Nothing was measured yet.", class_="lead")
    if len(report.series) == 1:
        yield tag("p", text(figures.headline(report.series[0])), class_="lead")
    others = [each for each in report.differences if each.role != "matters"]
    if others:
        yield tag(
            "section", tag("h2", "What is compared"), _difference_table(others, [run.name for run in report.runs])
        )
    if report.series:
        yield _tables(report)
        charts = [_figure(each) for each in report_figures(report)]
        yield tag("section", tag("h2", "Charts"), tag("div", *charts, class_="charts"))
    yield _environment(report)
    yield "</main>"


def _header(report: Report) -> Iterator[str]:
    yield tag("h1", text(figures.report_title(report)))
    if len(report.runs) == 1:
        yield tag("p", text(figures.span_text(report.runs[0].experiment)), class_="faint")
    rows = figures.common_conditions(report)
    yield tag("dl", *(tag("dt", text(name)) + tag("dd", text(said)) for name, said in rows))


def _warning(report: Report) -> str:
    names = [run.name for run in report.runs]
    told = "They differ in what the figures depend on; a difference between the figures says nothing about the server."
    content = (tag("h2", "These runs are not comparable"), tag("p", told), _difference_table(report.mattering, names))
    return tag("section", *content, class_="warning")


def _difference_table(found: Sequence[Difference], names: Sequence[str]) -> str:
    head = tag("thead", tag("tr", tag("th", ""), *(tag("th", text(name), scope="col") for name in names)))
    rows = []
    for each in found:
        why = tag("small", text(each.why)) if each.why and each.role == "matters" else ""
        cells = (tag("td", text(value), class_="text") for value in each.values)
        look = "matters" if each.role == "matters" else None
        rows.append(tag("tr", tag("th", text(each.what), why, scope="row"), *cells, class_=look))
    return tag("div", tag("table", head, tag("tbody", *rows)), class_="wide", tabindex="0")


def _tables(report: Report) -> str:
    content = [tag("div", *map(_table, figures.all_tables(report)), class_="tables")]
    errors = [tag("li", text(each)) for each in figures.error_lines(report.series)]
    if errors:
        content.append(tag("h3", "Errors") + tag("ul", *errors, class_="errors"))
    note = tag("p", "The small range under a figure is its 95 % interval.", class_="note")
    return tag("section", tag("h2", "Figures"), note, *content)


def _table(table: figures.Table) -> str:
    heads = (tag("th", text(each), scope="col") for each in table.head)
    head = tag("thead", tag("tr", tag("th", ""), *heads))
    rows = []
    for row in table.rows:
        cells = [_cell(name, each) for name, each in zip(table.head, row.cells, strict=True)]
        rows.append(tag("tr", tag("th", text(row.label), scope="row"), *cells))
    notes = "".join(tag("p", text(each), class_="note") for each in table.notes)
    shown = tag("table", tag("caption", text(table.title)), head, tag("tbody", *rows), class_="figures")
    return tag("div", tag("div", shown, class_="wide", tabindex="0"), notes)


def _cell(name: str, cell: figures.Cell) -> str:
    is_bad = name == "failed" and bool(cell.value)
    interval = tag("small", text(re.sub(r"(?<=\d)-", "\N{EN DASH}", cell.interval))) if cell.interval else ""
    return tag("td", text(cell.text), interval, class_="bad" if is_bad else None, title=cell.note or None)


def _figure(figure: Figure) -> str:
    entries = (tag("li", swatch_svg(series), tag("span", text(name))) for series, name in figure.legend)
    legend = tag("ul", *entries, class_="legend") if figure.legend else ""
    return tag("figure", chart_svg(figure.chart), tag("figcaption", legend, text(figure.note)))


def _environment(report: Report) -> str:
    rows = [
        tag("tr", tag("th", text(f"{whose} {name}".strip()), scope="row"), tag("td", text(said), class_="text"))
        for whose, name, said in figures.environment_rows(report)
    ]
    return tag(
        "section",
        tag("h2", "Environment"),
        tag("div", tag("table", tag("tbody", *rows)), class_="wide", tabindex="0"),
        tag(
            "p", text(f"Measured and written by onecat {report.runs[0].experiment.environment.onecat}."), class_="note"
        ),
    )
