"""`onecat explain`: the page behind a check."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli import console


def register(app: typer.Typer) -> None:
    app.command("explain", help="Say what a check of doctor looks at, why, and how to fix what it finds.")(explain)


def explain(
    check: Annotated[str | None, typer.Argument(metavar="[CHECK]", help="Id of a check; without it: list all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (onecat.explain/1).")] = False,
) -> None:
    from onecat.doctor import all_checks, find_check

    checks = all_checks() if check is None else (find_check(check),)
    if as_json:
        from onecat.render.json import explain_document

        console.print_json(explain_document(checks))
        return
    from rich.console import Console

    from onecat.render.text import explain_lines, index_lines, print_lines

    screen = Console()
    width = min(screen.width, 100)
    print_lines(screen, index_lines(checks, width) if check is None else explain_lines(checks[0], width))
