"""Watching: look again and again, and show what has changed. `doctor --watch` and `status --watch` call it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

    from onecat.deploy import Overview
    from onecat.doctor import Report
    from onecat.render.text import Line

_Seen = TypeVar("_Seen")
_KEPT_CHANGES = 100


def look_again_and_again(
    look: Callable[[], _Seen],
    show: Callable[[datetime, _Seen, _Seen | None], None],
    code_of: Callable[[_Seen], int],
    interval: float,
) -> int:
    """Look every `interval` seconds until Ctrl-C, from the end of one look to the begin of the next.

    Returns the exit code of the last result; a Ctrl-C before there is one raises KeyboardInterrupt.

    Parameters:
        look: may take long and is interrupted by Ctrl-C. show: gets the time, what was seen, and what was before.
    """
    last: _Seen | None = None
    try:
        while True:
            seen = look()
            before, last = last, seen
            show(datetime.now().astimezone(), seen, before)
            time.sleep(interval)
    except KeyboardInterrupt:
        if last is None:
            raise
        return code_of(last)


def watch(examine: Callable[[], Report], code_of: Callable[[Report], int], *, interval: float, as_json: bool) -> int:
    """Examine hosts every `interval` seconds until Ctrl-C. Returns the exit code of the last result.

    On a terminal: a view of what is wrong now and of the latest changes. Elsewhere: a line for each change, after the
    whole first report. As JSON: a line for each examination, a document in the form onecat.doctor/1 with `time` and
    `changes`.
    """
    from onecat.doctor import changes, remembered

    view = _doctor_view(as_json)
    known: list[Report] = []

    def show(now: datetime, report: Report, before: Report | None) -> None:
        view(now, report, changes(known[0], report) if known else (), before is None)
        known[:] = [remembered(known[0], report) if known else report]

    return look_again_and_again(examine, show, code_of, interval)


def watch_deployments(
    look: Callable[[], list[Overview]],
    code_of: Callable[[list[Overview]], int],
    *,
    several_hosts: bool,
    interval: float,
    as_json: bool,
) -> int:
    """Look at deployments every `interval` seconds until Ctrl-C. Returns the exit code of the last result.

    On a terminal a view that is drawn anew; elsewhere the whole status, then a line for each change. As JSON a line for
    each look, a document in the form onecat.status/1 with `time` and `changes`.
    """
    if as_json:
        return look_again_and_again(look, _print_json, code_of, interval)
    from rich.console import Console

    console = Console()
    if not _is_screen(console):
        from onecat.render.deployments import appended_lines

        def append(now: datetime, found: list[Overview], before: list[Overview] | None) -> None:
            width = min(console.width, 100)
            _append(console, appended_lines(now, before, found, several_hosts=several_hosts, width=width))

        return look_again_and_again(look, append, code_of, interval)

    from rich.live import Live
    from rich.text import Text

    from onecat.render import columns
    from onecat.render.deployments import status_changes, view_lines

    log: list[tuple[datetime, str]] = []
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def draw(now: datetime, found: list[Overview], before: list[Overview] | None) -> None:
            if before is not None:
                log.extend((now, text) for text in status_changes(before, found, several_hosts))
                del log[:-_KEPT_CHANGES]
            text = Text(no_wrap=True)
            size = {"width": console.width, "height": console.height}
            for line in view_lines(now, found, log, several_hosts=several_hosts, **size):
                shown = Text(columns.harmless(line.text))
                shown.stylize(line.style, 0, line.styled)
                text.append_text(shown).append("\n")
            live.update(text, refresh=True)

        return look_again_and_again(look, draw, code_of, interval)


def _print_json(now: datetime, found: list[Overview], before: list[Overview] | None) -> None:
    import json

    from onecat.deploy import overviews_document
    from onecat.render.deployments import status_changes

    changed = [] if before is None else list(status_changes(before, found, True))
    document = {**overviews_document(found), "time": now.isoformat(timespec="seconds"), "changes": changed}
    print(json.dumps(document, ensure_ascii=True), flush=True)


def _doctor_view(as_json: bool) -> Callable[..., None]:
    if as_json:
        from onecat.render.watch import json_line

        return lambda *seen: print(json_line(*seen[:3]), flush=True)
    from rich.console import Console

    from onecat.render.watch import Screen, appended_lines

    console = Console()
    if _is_screen(console):
        return Screen(console).show

    def append(*seen: Any) -> None:
        _append(console, appended_lines(*seen, width=min(console.width, 100)))

    return append


def _is_screen(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal


def _append(console: Console, lines: Iterable[Line]) -> None:
    from onecat.render.text import print_lines

    print_lines(console, lines)
    console.file.flush()
