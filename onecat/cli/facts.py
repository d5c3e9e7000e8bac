"""`onecat facts`: what onecat sees of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli import console


def register(app: typer.Typer) -> None:
    app.command("facts", help="Print what onecat sees of this machine; `doctor --from` reads the JSON back.")(facts)


def facts(
    root: Annotated[
        str, typer.Option("--root", metavar="DIR", help="Read /proc, /sys and /etc below this directory.")
    ] = "/",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3600, metavar="SECONDS", help="For each source of facts.")
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (onecat.facts/1).")] = False,
) -> None:
    from onecat.facts import to_json
    from onecat.probe import ProbeOptions, collect_local

    observed = collect_local(ProbeOptions(console.existing_directory(root), timeout))
    if as_json:
        console.print_json(to_json(observed))
        return
    import yaml

    print(yaml.safe_dump(_known(to_json(observed)), sort_keys=False, allow_unicode=True, width=80), end="")


def _known(value: object) -> object:
    """The document without what is not known, long lists of words on one line."""
    if isinstance(value, dict):
        return {key: _known(each) for key, each in value.items() if each is not None and each != ()}
    if isinstance(value, (list, tuple)):
        return " ".join(value) if value and all(isinstance(each, str) for each in value) else [_known(e) for e in value]
    return value
