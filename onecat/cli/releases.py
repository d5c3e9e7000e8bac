"""`onecat releases`: the releases of a deployment that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.cli.changes import COLUMNS, ConfigOption, NameArgument
from onecat.cli.machines import HostOption

if TYPE_CHECKING:
    from onecat.deploy import DeploymentStore, Release


def register(app: typer.Typer) -> None:
    app.command("releases", help="List the releases of a deployment, and what became of each.")(releases)


def releases(
    name: NameArgument = None,
    config: ConfigOption = None,
    hosts: HostOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.releases/1).")] = False,
) -> None:
    from onecat import deploy
    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.cli.status import chosen_name

    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        stores = [deploy.find_deployment(each, chosen_name(name, config)) for each in opened.machines]
        if as_json:
            documents = [deploy.releases_document(each) for each in stores]
            console.print_json({"schema": "onecat.releases/1", "deployments": documents})
            return
        blocks = ["\n".join(lines(each)) for each in stores]
    if len(blocks) > 1:
        blocks = [f"{each.machine.name}:\n{block}" for each, block in zip(stores, blocks, strict=True)]
    print("\n\n".join(blocks))


def lines(store: DeploymentStore) -> list[str]:
    """The releases as a table of at most 80 columns, the newest first; the current one has a star."""
    current = store.current()
    number = None if current is None else current.number
    rows = [_row(each, each.number == number) for each in store.releases()[::-1]]
    head = ("", "NO", "OUTCOME", "MADE (UTC)", "HOW", "START", "GAP", "BY")
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head) - 1)]
    table = []
    for row in [head, *rows]:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        table.append("  ".join([*cells, row[-1]]).rstrip()[:COLUMNS])
    return table


def _row(release: Release, is_current: bool) -> tuple[str, ...]:
    repeated = f"{release.purpose} {'to' if release.purpose == 'rollback' else 'of'} {release.origin}"
    return (
        "*" if is_current else "",
        str(release.number),
        release.outcome,
        release.created_at[:16].replace("T", " "),
        release.strategy if release.origin is None else repeated,
        "" if release.start_seconds is None else f"{release.start_seconds:.0f} s",
        "" if release.gap_seconds is None else f"{release.gap_seconds:.0f} s",
        release.created_by,
    )
