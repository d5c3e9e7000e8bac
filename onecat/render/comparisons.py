"""What `onecat diff` has found, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onecat.render import columns
from onecat.render.text import Line

_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_MADE_ANEW_BY_RESTART = {"container", "unit"}


def comparison_lines(found: Mapping[str, Any], *, several_hosts: bool = False, width: int = 80) -> Iterator[Line]:
    """One deployment of the onecat.diff/1 document: what `up` would change, then what was changed by hand."""
    name = f"{found['host']} {found['deployment']}" if several_hosts else found["deployment"]
    if found["same"]:
        yield Line(
            f"{name}: release {found['release']} is what is asked for, and as it was written", "green", len(name)
        )
        return
    if found["changes"]:
        yield Line(f"{name}: onecat up would change", "bold", len(name))
        yield from _differences(found["changes"], width)
    if found["drift"]:
        yield Line(f"{name}: changed on the host since release {found['release']} was deployed", "bold", len(name))
        yield from _differences(found["drift"], width)
        # `up` finds the release healthy and leaves it; what nginx is told it writes anew by itself.
        if {each["kind"] for each in found["drift"]} & _MADE_ANEW_BY_RESTART:
            host = f" --host {found['host']}" if several_hosts else ""
            yield Line(f"  next: onecat restart {found['deployment']}{host}   (makes it anew, as it was written)")


def _differences(found: Sequence[Mapping[str, Any]], width: int) -> Iterator[Line]:
    for each in found:
        first, *others = columns.wrap(each["what"], width, "  ", "    ")
        yield Line(first)
        yield from map(Line, others)
        for line in each["diff"]:
            # A line of a diff is for copying and stays whole.
            yield Line(f"    {line}", _STYLES.get(line[:1], ""), len(line) + 4)
