"""`onecat logs`: what the servers have written, on all hosts in the order of time, and what it means."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.cli.machines import HostOption
from onecat.cli.main import INTERRUPTED
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.cli.machines import Hosts
    from onecat.live.logs import Event, Loss
    from onecat.observe.patterns import Pattern


def register(app: typer.Typer) -> None:
    app.command("logs", help="Print the servers' logs, of several hosts merged, with diagnoses.")(logs)


def logs(
    name: Annotated[str | None, typer.Argument(help="Deployment name.", show_default=False)] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines, and releases.")] = False,
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", min=0, help="How many lines, of all hosts together; 100, with --since all."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only lines since then: 10m, 2h, 3d, 14:30 or 2026-11-30T14:30:00Z."
        ),
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="PATTERN", help="Only lines that hold this (RE2's syntax).")
    ] = None,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Small and capital letters are the same to --grep.")
    ] = False,
    release: Annotated[
        int | None, typer.Option("--release", help="Of this release; by default of the current one, and the canary.")
    ] = None,
    hosts: HostOption = None,
    nginx: Annotated[bool, typer.Option("--nginx", help="Also the logs of the nginx before it.")] = False,
    diagnose: Annotated[
        bool, typer.Option("--diagnose/--no-diagnose", help="Say behind a line what it means, where that is known.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print as JSON (onecat.logs/1); with -f one document a line.")
    ] = False,
) -> None:
    from datetime import datetime

    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.live.logs import Wanted, follow_logs, parse_since, read_logs

    if ignore_case and grep is None:
        raise OnecatError("--ignore-case without --grep", next_steps=["--grep PATTERN -i"], code=ExitCode.USAGE)
    wanted = Wanted(
        name=chosen_name(name, config),
        lines=100 if lines is None and since is None else lines,
        release=release,
        since=None if since is None else parse_since(since, datetime.now().astimezone()),
        pattern=None if grep is None else _pattern(grep, ignore_case),
        diagnose=diagnose,
        nginx=nginx,
    )
    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        if follow:
            events: Iterable[Event] = follow_logs(opened.machines, opened.desk, wanted)
        else:
            events = read_logs(opened.machines, opened.desk, wanted)
        losses = _Losses(opened)
        try:
            if as_json:
                _print_json(wanted.name, events, losses, live=follow)
            else:
                _print(events, losses, several_logs=nginx)
        except KeyboardInterrupt:
            if not follow:
                raise
            sys.exit(INTERRUPTED)  # the usual end: there is nothing to tell
        losses.tell_at_the_end(is_told=as_json and not follow)


class _Losses:
    """Hosts that were lost: told at once, where others go on, and by the exit code in the end."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._found: list[Loss] = []

    @property
    def several_hosts(self) -> bool:
        return len(self._hosts.machines) > 1

    def add(self, loss: Loss) -> None:
        from onecat.render.logs import loss_line

        if not self.several_hosts:
            raise loss.error
        self._found.append(loss)
        print(loss_line(loss), file=sys.stderr, flush=True)

    def tell_at_the_end(self, is_told: bool) -> None:
        """Raises where a host was lost. is_told: the one document says it."""
        if not self._found:
            return
        codes = [each.error.code for each in self._found if isinstance(each.error, OnecatError)]
        code = codes[0] if codes and ExitCode.UNREACHABLE not in codes else ExitCode.UNREACHABLE
        if is_told:
            raise typer.Exit(code)
        away = [each.host for each in self._found if getattr(each.error, "code", None) is ExitCode.UNREACHABLE]
        raise OnecatError(
            f"{len(self._found)} of {len(self._hosts.machines)} hosts gave no logs to the end",
            where=", ".join(each.host for each in self._found),
            details=[line for each in self._found for line in _reason(each)],
            next_steps=[f"onecat doctor --host {host}" for host in away] or ["onecat status"],
            code=code,
        )


def _reason(loss: Loss) -> list[str]:
    details = loss.error.details if isinstance(loss.error, OnecatError) else ()
    return [f"{loss.host}: {getattr(loss.error, 'found', loss.error)}", *(f"  {detail}" for detail in details)]


def _pattern(text: str, ignore_case: bool) -> Pattern:
    from onecat.observe.patterns import compile_pattern

    try:
        return compile_pattern(text, ignore_case)
    except ValueError as error:
        raise OnecatError(
            f"--grep {text}: {error}",
            expected="a regular expression of RE2: https://github.com/google/re2/wiki/Syntax",
            next_steps=["put a \\ before characters that are meant as they are: . * + ? ( ) [ ] { } | ^ $ \\"],
            code=ExitCode.USAGE,
        ) from error


def _print(events: Iterable[Event], losses: _Losses, *, several_logs: bool) -> None:
    from rich.console import Console

    from onecat.live.logs import LeftOut, Loss, Opened
    from onecat.render import columns
    from onecat.render.logs import event_line, labels, left_out_line

    screen = Console()
    colours = screen.color_system is not None and not screen.no_color
    told = losses.several_hosts
    known = labels((), told, several_logs)
    width = 0
    if isinstance(events, list):
        told_sources = (event.source for event in events if not isinstance(event, Loss | LeftOut | Opened))
        known = labels(told_sources, told, several_logs)
        width = max(map(columns.width, known.values()), default=0)
    for event in events:
        if isinstance(event, Loss):
            losses.add(event)
            continue
        if isinstance(event, LeftOut):
            print(left_out_line(event), file=sys.stderr, flush=True)
            continue
        if isinstance(event, Opened):
            known = labels((*known, *event.sources), told, several_logs)
            width = max(map(columns.width, known.values()))
            continue
        print(event_line(event, known[event.source], width, colours=colours), flush=not isinstance(events, list))


def _print_json(name: str | None, events: Iterable[Event], losses: _Losses, *, live: bool) -> None:
    import json

    from onecat.live.logs import Loss, Opened
    from onecat.render.logs import live_document, logs_document

    if not live:
        found = list(events)
        for event in found:
            if isinstance(event, Loss):
                losses.add(event)
        console.print_json(logs_document(name, found))
        return
    for event in events:
        if isinstance(event, Opened):
            continue
        print(json.dumps(live_document(name, event), ensure_ascii=True), flush=True)
        if isinstance(event, Loss):
            losses.add(event)
