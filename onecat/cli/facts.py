"""`onecat facts`: what onecat sees of hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.cli.hosts import (
    ConnectTimeoutOption,
    HostsFileOption,
    HostsOption,
    LoadOption,
    ParallelOption,
    RootOption,
    SudoOption,
    TimeoutOption,
    checked_root,
    targets_of,
    wait_for,
)
from onecat.errors import ExitCode

if TYPE_CHECKING:
    from onecat.facts import Facts


def register(app: typer.Typer) -> None:
    app.command(
        "facts",
        help="Print what onecat sees of hosts; `doctor --from` reads the JSON back. The JSON of one host is a "
        "document, that of several a document in each line.",
    )(facts)


def facts(
    hosts: HostsOption = None,
    hosts_file: HostsFileOption = None,
    sudo: SudoOption = False,
    load: LoadOption = False,
    root: RootOption = "/",
    parallel: ParallelOption = 16,
    timeout: TimeoutOption = 10.0,
    connect_timeout: ConnectTimeoutOption = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (onecat.facts/1).")] = False,
) -> None:
    from onecat.probe import Observing, ProbeOptions

    targets = targets_of(hosts or ([] if hosts_file else ["local"]), hosts_file)
    options = ProbeOptions(checked_root(root, targets), timeout, sudo=sudo, load=load)
    observing = Observing(targets, options, parallel=parallel, connect_timeout=connect_timeout)
    observations = wait_for(observing, len(targets))
    seen = [each.facts for each in observations if each.facts is not None]
    _print(seen, as_json, is_alone=len(targets) == 1)
    failed = [each.error for each in observations if each.error is not None]
    if failed and len(targets) == 1:
        raise failed[0]
    for error in failed:
        console.print_error(error, as_json=False)
    raise typer.Exit(ExitCode.UNREACHABLE if failed else ExitCode.FINE)


def _print(seen: list[Facts], as_json: bool, *, is_alone: bool) -> None:
    import json

    from onecat.facts import to_json

    for each in seen:
        if not as_json:
            _print_yaml(to_json(each))
        elif is_alone:
            console.print_json(to_json(each))
        else:
            print(json.dumps(to_json(each)))


def _print_yaml(document: dict[str, object]) -> None:
    import yaml

    print(yaml.safe_dump(_known(document), sort_keys=False, allow_unicode=True, width=80, explicit_start=True), end="")


def _known(value: object) -> object:
    """The document without what is not known, long lists of words on one line."""
    if isinstance(value, dict):
        return {key: _known(each) for key, each in value.items() if each is not None and each != ()}
    if isinstance(value, (list, tuple)):
        return " ".join(value) if value and all(isinstance(each, str) for each in value) else [_known(e) for e in value]
    return value
