"""`onecat bench report`: shows result files, one or several side by side, in the form that is wanted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onecat.cli import console
from onecat.cli.outputs import ForceOption, Output
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.experiments.report import Report, Run

Form = Literal["text", "markdown", "html", "json"]
_SUFFIXES: dict[str, Form] = {
    ".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown", ".json": "json", ".txt": "text"
}  # fmt: skip


def add_to(group: typer.Typer) -> None:
    group.command(
        "report",
        help="Show what was measured, or compare several runs: in the terminal, as Markdown, or as a page with plots.",
        epilog="Without FILE it lists the results that there are. Runs that differ in what matters are not compared: "
        "exit code 1, unless --anyway.",
    )(report)


def report(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Result files, or their names in the list (a part will do); latest."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORM", help="text (default, or as --output ends), markdown, html, json."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write it here; - prints it.")
    ] = None,
    force: ForceOption = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare runs that differ in what matters, and tell the differences.")
    ] = False,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="TEXT", help="What a run is called; repeat, in the order of the files."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="In text: all that is known of the servers.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    wanted = _form(form, output, as_json)
    if not files:
        _check_listing(wanted, output)
        _list(wanted)
        return
    names = _names(files, labels or ())
    writes = _output(files, wanted, output, force)
    if writes is not None:
        writes.check()
    found = _read(files, names, anyway)
    if writes is None and wanted == "text":
        _print(found, verbose)
    elif writes is None and wanted == "json":
        from onecat.render.benchmark_reports import report_document

        console.print_json(report_document(found))
    else:
        text = _text(found, wanted, verbose)
        if writes is None:
            print(text, end="")
            return
        kept = writes.write(text, 0o644)
        if kept is not None:
            console.progress(f"the old one is kept as {kept}")
        if not writes.is_printed:
            print(writes.file)


def _form(form: str | None, output: str | None, as_json: bool) -> Form:
    forms: tuple[Form, ...] = ("text", "markdown", "html", "json")
    if as_json and form not in (None, "json"):
        raise OnecatError(
            f"--json and --format {form} are both given", expected="one of them", next_steps=["leave out --json"]
        )
    if as_json:
        return "json"
    if form is None:
        return _SUFFIXES.get(Path(output).suffix.lower(), "text") if output else "text"
    for each in forms:
        if form == each:
            return each
    raise OnecatError(
        f"there is no form {form!r}", expected=f"one of: {', '.join(forms)}", next_steps=["onecat bench report --help"]
    )


def _names(files: Sequence[str], labels: Sequence[str]) -> list[str]:
    """What the runs are called."""
    if labels and len(labels) != len(files):
        raise OnecatError(
            f"{len(labels)} labels for {len(files)} files",
            expected="one --label for each file, in their order, or none",
        )
    if len(set(labels)) < len(labels) or not all(each.strip() for each in labels):
        raise OnecatError("two runs would be called the same, or nothing", expected="a --label of its own for each")
    return list(labels) or [f"run {number}" for number in range(1, len(files) + 1)]


def _output(files: Sequence[str], form: Form, output: str | None, force: bool) -> Output | None:
    """Where the report goes: a page is for a browser, so a terminal is told where it lies instead."""
    command = "onecat bench report ... --output"
    if output is not None:
        return Output(output, command, force)
    if form == "html" and sys.stdout.isatty():
        stem = Path(files[0]).stem if len(files) == 1 else "comparison"
        return Output(f"{stem}.html", command, force)
    return None


def _read(files: Sequence[str], names: Sequence[str], anyway: bool) -> Report:
    from onecat.experiments.comparability import check_comparable
    from onecat.experiments.places import find_result
    from onecat.experiments.report import Run, make_report
    from onecat.experiments.results import read_experiment

    runs: list[Run] = []
    for file, name in zip(files, names, strict=True):
        path = find_result(file)
        runs.append(Run(name, str(path), read_experiment(path)))
    if len(runs) > 1 and not anyway:
        check_comparable([run.experiment for run in runs], names)
    return make_report(runs)


def _print(found: Report, verbose: bool) -> None:
    from rich.console import Console

    from onecat.render.benchmarks import report_lines
    from onecat.render.text import print_lines

    screen = Console()
    print_lines(screen, report_lines(found, min(screen.width, 100), verbose=verbose))


def _text(found: Report, form: Form, verbose: bool) -> str:
    if form == "html":
        from onecat.render.benchmarks_html import report_html

        return report_html(found)
    if form == "markdown":
        from onecat.render.benchmarks_markdown import report_markdown

        return report_markdown(found)
    if form == "json":
        import json

        from onecat.render.benchmark_reports import report_document

        return json.dumps(report_document(found), indent=2, ensure_ascii=False) + "\n"
    from onecat.render.benchmarks import report_lines
    from onecat.render.columns import harmless

    return "".join(f"{harmless(each.text)}\n" for each in report_lines(found, verbose=verbose))


def _check_listing(form: Form, output: str | None) -> None:
    if form in ("markdown", "html") or output is not None:
        raise OnecatError(
            "no result file is named",
            expected="the file to report on",
            next_steps=["onecat bench report latest --format html", "see which there are: onecat bench report"],
        )


def _list(form: Form) -> None:
    from onecat.experiments.places import list_results

    listing = list_results()
    if form == "json":
        from onecat.render.benchmark_reports import listing_document

        console.print_json(listing_document(listing))
        return
    from rich.console import Console

    from onecat.render.benchmarks import listing_lines
    from onecat.render.text import print_lines

    screen = Console()
    print_lines(screen, listing_lines(listing, min(screen.width, 100)))
