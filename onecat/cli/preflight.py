"""`onecat preflight`: whether a deployment that runs is fit for traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.cli.changes import NameArgument
from onecat.cli.forms import FailOnOption, Format, FormatOption, OnlyOption, SkipOption, Threshold, parts
from onecat.cli.machines import HostOption
from onecat.errors import ExitCode

if TYPE_CHECKING:
    from onecat.config import Deployment
    from onecat.live.preflight import PreflightReport


def register(app: typer.Typer) -> None:
    app.command(
        "preflight",
        help="Check that a deployment that runs is fit for traffic, before clients come.",
        epilog="It sends bounded load and changes nothing. The limits are those of `preflight:` in onecat.yaml. Exit "
        "codes: 1 for findings at or above --fail-on on any host; else 3 when a host could not be reached; else 0.",
    )(preflight)


def preflight(
    name: NameArgument = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="onecat.yaml that names it, with its limits.")
    ] = None,
    hosts: HostOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="No load, no hashing of files, no other program of the engine.")
    ] = False,
    concurrent: Annotated[
        int | None, typer.Option("--concurrent", min=1, metavar="N", help="Requests at once.  [default: 64]")
    ] = None,
    requests: Annotated[
        int | None, typer.Option("--requests", min=1, metavar="N", help="Requests in all.  [default: 384]")
    ] = None,
    p99: Annotated[
        float | None,
        typer.Option("--p99", min=0.001, metavar="SECONDS", help="Limit of their P99.  [default: 1.5]"),
    ] = None,
    spread: Annotated[
        float | None,
        typer.Option("--spread", min=0.001, metavar="MS", help="Limit of ten identical requests.  [default: 50]"),
    ] = None,
    only: OnlyOption = None,
    skip: SkipOption = None,
    fail_on: FailOnOption = Threshold.fail,
    form: FormatOption = Format.text,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json (onecat.preflight/1).")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the evidence of what passed too.")] = False,
) -> None:
    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.live.preflight import Options
    from onecat.live.preflight import preflight as check

    given: dict[str, Any] = {
        "concurrent": concurrent,
        "requests": requests,
        "p99_seconds": p99,
        "spread_ms": spread,
    }
    options = Options(
        limits={key: value for key, value in given.items() if value is not None},
        deployment=_deployment(name, config),
        only=parts(only),
        skip=parts(skip),
        quick=quick,
    )
    form = Format.json if as_json else form
    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        several = len(opened.machines) > 1

        def tell(host: str, text: str) -> None:
            console.progress(f"{host}: {text}" if several else text)

        report = check(opened.machines, chosen_name(name, config), options, desk=opened.desk, tell=tell)
    _show(report, form, fail_on, verbose)
    raise typer.Exit(int(_exit_code(report, fail_on)))


def _deployment(name: str | None, config: Path | None) -> Deployment | None:
    """The onecat.yaml whose limits count: that of --config, or the one that lies here if it is of NAME."""
    from onecat.cli.up import config_file
    from onecat.config import load_deployment

    path = config_file(config) if config is not None else Path("onecat.yaml")
    if config is None and not path.exists():
        return None
    found = load_deployment(path)
    return found if config is not None or name in (None, found.name) else None


def _exit_code(report: PreflightReport, fail_on: Threshold) -> ExitCode:
    from onecat.doctor import reaches

    if any(reaches(finding, fail_on.value) for finding in report.findings):
        return ExitCode.NO
    return ExitCode.FINE if all(host.reachable for host in report.hosts) else ExitCode.UNREACHABLE


def _show(report: PreflightReport, form: Format, fail_on: Threshold, verbose: bool) -> None:
    if form is Format.json:
        from onecat.live.preflight import preflight_document

        console.print_json(preflight_document(report))
    elif form is Format.markdown:
        from onecat.render.preflight import preflight_markdown

        print(preflight_markdown(report))
    elif form is Format.junit:
        from onecat.render.junit import hosts_junit

        print(hosts_junit(report.hosts, "onecat preflight", fail_on.value), end="")
    else:
        from rich.console import Console

        from onecat.render.preflight import preflight_lines
        from onecat.render.text import print_lines

        screen = Console()
        print_lines(screen, preflight_lines(report, verbose=verbose, width=min(screen.width, 100)))
