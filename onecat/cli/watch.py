"""Watching: examine again and again, and show what has changed. `onecat doctor --watch` calls it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onecat.doctor import Report


def watch(examine: Callable[[], Report], code_of: Callable[[Report], int], *, interval: float, as_json: bool) -> int:
    """Examine every `interval` seconds until Ctrl-C. Returns the exit code of the last result.

    On a terminal: a view of what is wrong now and of the latest changes. Elsewhere: a line for each change, after the
    whole first report. As JSON: a line for each examination, a document in the form onecat.doctor/1 with `time` and
    `changes`. The interval is between the end of one examination and the begin of the next. A Ctrl-C before there is
    a result raises KeyboardInterrupt.

    Parameters:
        examine: makes one report; it may take long and is interrupted by Ctrl-C.
        code_of: the exit code that a report means.
    """
    from onecat.doctor import changes, remembered

    show = _view(as_json)
    last: Report | None = None
    known: Report | None = None
    try:
        while True:
            last = examine()
            show(datetime.now().astimezone(), last, changes(known, last) if known else (), known is None)
            known = remembered(known, last) if known else last
            time.sleep(interval)
    except KeyboardInterrupt:
        if last is None:
            raise
        return code_of(last)


def _view(as_json: bool) -> Callable[..., None]:
    if as_json:
        from onecat.render.watch import json_line

        return lambda *seen: print(json_line(*seen[:3]), flush=True)
    from rich.console import Console

    from onecat.render.watch import Screen, appended_lines

    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        return Screen(console).show
    from onecat.render.text import print_lines

    def append(*seen: object) -> None:
        print_lines(console, appended_lines(*seen, width=min(console.width, 100)))  # type: ignore[arg-type]
        console.file.flush()

    return append
