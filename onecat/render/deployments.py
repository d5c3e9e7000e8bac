"""Deployments for people: how each is, what has changed since the last look, and what was done to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from onecat.render import columns
from onecat.render.text import Line

if TYPE_CHECKING:
    from onecat.deploy.audit import Entry
    from onecat.deploy.engine import KeptChoices
    from onecat.deploy.overview import Overview

_LABEL = 13
_STYLES = {"serving": "green", "starting": "cyan", "restarting": "yellow", "stopped": "dim"}
_EXECUTION = {"eager": "eager", "compiled": "compiled", "without graphs": "no CUDA graphs", "graphs": "CUDA graphs"}


def status_lines(found: Overview, *, several_hosts: bool = False, width: int = 80) -> Iterator[Line]:
    """One deployment: its state, its parts, its engine next to the plan, warnings, what to do next."""
    yield heading(found, several_hosts=several_hosts)
    status = found.status
    release = None if status.release is None else str(status.release)
    if release is not None and found.created_at is not None:
        release += f", {found.strategy}, made {found.created_at[:16].replace('T', ' ')} UTC"
    rows: list[tuple[str, str | None]] = [
        ("release", release),
        ("canary", canary_text(found)),
        (
            "runtime",
            status.runtime and (f"{status.runtime}, kept by {found.service}" if found.service else status.runtime),
        ),
        ("container", status.container),
        ("pid", None if status.pid is None else str(status.pid)),
        ("GPUs", ", ".join(found.gpus) or None),
        ("health", status.health),
        ("model", status.model),
        ("endpoint", status.endpoint and f"{status.endpoint}/v1"),
        ("server", status.server),
        ("nginx", status.proxy),
        ("uptime", None if status.uptime_seconds is None else duration(status.uptime_seconds)),
        ("restarts", str(status.restarts) if status.restarts else None),
        ("last exit", status.last_exit),
        ("cause", status.cause),
    ]
    for label, value in rows:
        if value is not None:
            yield from _row(label, value, width)
    if found.engine is not None:
        yield from engine_lines(found.engine)
    for warning in found.warnings:
        yield from _row("warning", warning, width, "yellow")
    for step in status.next_steps:
        yield from _row("next", step, width)


def heading(found: Overview, *, several_hosts: bool = False) -> Line:
    """Name and state; of a host that could not be asked for its deployments its own name."""
    name = f"{found.host} {found.name}".rstrip() if several_hosts or not found.name else found.name
    state = found.status.state
    return Line(f"{name}: {state.replace('-', ' ')}", _STYLES.get(state, "red"), len(name))


def _row(label: str, value: str, width: int, style: str = "") -> Iterator[Line]:
    first, *others = columns.wrap(value, width, f"  {label + ':':<{_LABEL - 2}}", " " * _LABEL)
    yield Line(first, style, len(label) + 2)
    yield from map(Line, others)


def canary_text(found: Overview) -> str | None:
    """Which release is tried, and its share."""
    if found.canary is None:
        return None
    share = "a share" if found.canary.share is None else f"{found.canary.share:.0%}"
    return f"release {found.canary.release} gets {share} of the requests"


def engine_lines(kept: KeptChoices) -> Iterator[Line]:
    """What the engine chose beside what was planned; nothing where its log did not say."""
    chosen, planned = kept.chosen, kept.planned
    if chosen.empty:
        return
    differs = {each.choice for each in kept.surprises}
    rows: list[tuple[str, str, str, str | None]] = []

    def add(choice: str, name: str, found: object, wanted: object = None) -> None:
        if found is not None:
            rows.append((choice, name, _text(found), None if wanted is None else _text(wanted)))

    add("dtype", "dtype", chosen.dtype, planned.dtype)
    quantization = "none" if chosen.quantization == "None" else chosen.quantization
    add("quantization", "quantisation", quantization, planned.quantization)
    add("execution", "execution", chosen.execution and _EXECUTION[chosen.execution], "eager" if planned.eager else None)
    add("attention", "attention", ", ".join(chosen.attention) or None)
    for kernel in chosen.kernels:
        add("kernels", f"{kernel.use} kernel", kernel.name)
    for slow in chosen.slow:
        add("slow", "slow", slow.what)
    add("kv_cache_dtype", "KV cache", None if chosen.kv_cache_dtype == "auto" else chosen.kv_cache_dtype)
    add("kv_tokens", "KV tokens", chosen.kv_tokens, planned.kv_tokens)
    add("max_model_len", "context length", chosen.max_model_len, planned.max_model_len)
    add("max_concurrency", "at full length", chosen.max_concurrency and f"{chosen.max_concurrency:g} requests at once")
    add("weights_gib", "weights", chosen.weights_gib and f"{chosen.weights_gib:g} GiB per device")
    for choice, name in (("tensor_parallel", "tensor parallel"), ("pipeline_parallel", "pipeline parallel")):
        size, wanted = getattr(chosen, choice), getattr(planned, choice)
        if max(size or 1, wanted or 1) > 1:
            add(choice, name, size, wanted)
    version = " ".join(each for each in (chosen.version, f"on {chosen.device}" if chosen.device else None) if each)
    yield Line(f"  {'engine:':<{_LABEL - 2}}{version}")
    named = max(columns.width(name) for _, name, _, _ in rows)
    wide = max(columns.width(found) for _, _, found, _ in rows)
    for choice, name, value, wanted in rows:
        text = f"    {columns.pad(name, named)}  {value}"
        if wanted is not None:
            text = f"    {columns.pad(name, named)}  {columns.pad(value, wide)}  planned: {wanted}"
        yield Line(text, "yellow" if choice in differs else "", len(text))


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def duration(seconds: float) -> str:
    """Seconds in the two largest units: `3 d 4 h`, `12 s`."""
    rest = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


# --- watching ---------------------------------------------------------------------------------------------------------


def summary_line(found: Overview, *, several_hosts: bool = False) -> Line:
    """One deployment in one line, for a view of several."""
    head = heading(found, several_hosts=several_hosts)
    status = found.status
    parts = [
        None if status.release is None else f"release {status.release}",
        canary_text(found),
        None if status.uptime_seconds is None else f"up {duration(status.uptime_seconds)}",
        f"{status.restarts} restarts" if status.restarts else None,
        status.cause,
    ]
    return Line(", ".join([head.text, *(each for each in parts if each)]), head.style, head.styled)


def status_changes(before: Sequence[Overview], after: Sequence[Overview], several_hosts: bool) -> Iterator[str]:
    """What is different between two looks, one line each."""
    known = {(each.host, each.name): each for each in before}
    for found in after:
        name = f"{found.host} {found.name}" if several_hosts else found.name
        last = known.pop((found.host, found.name), None)
        if last is None:
            yield f"{name}: {found.status.state} (new)"
            continue
        if last.status.state != found.status.state:
            cause = f": {found.status.cause}" if found.status.cause else ""
            yield f"{name}: {last.status.state} -> {found.status.state}{cause}"
        if last.status.release != found.status.release:
            yield f"{name}: release {last.status.release} -> {found.status.release}"
        if last.status.restarts != found.status.restarts:
            told = f" ({found.status.last_exit})" if found.status.last_exit else ""
            yield f"{name}: restarts {last.status.restarts} -> {found.status.restarts}{told}"
        if last.canary != found.canary:
            yield f"{name}: {canary_text(found) or f'no canary any more, release {found.status.release} gets all'}"
    for (host, deployment), _ in known.items():
        yield f"{f'{host} {deployment}' if several_hosts else deployment}: gone"


def appended_lines(
    time: datetime, before: Sequence[Overview] | None, found: Sequence[Overview], *, several_hosts: bool, width: int
) -> Iterator[Line]:
    """The whole status the first time, afterwards what has changed, with the time before it."""
    if before is None:
        for each in found:
            yield from status_lines(each, several_hosts=several_hosts, width=width)
            yield Line("")
        yield Line(f"{time:%H:%M:%S} watching; changes follow, Ctrl-C ends")
        return
    for text in status_changes(before, found, several_hosts):
        first, *others = columns.wrap(text, width, f"{time:%H:%M:%S} ", " " * 9)
        yield Line(first)
        yield from map(Line, others)


def view_lines(
    time: datetime,
    found: Sequence[Overview],
    log: Sequence[tuple[datetime, str]],
    *,
    several_hosts: bool,
    width: int,
    height: int,
) -> list[Line]:
    """A screen of at most `height` lines: what is now, in full where there is room, then the latest changes."""
    head = [Line(f"{time:%H:%M:%S}  (Ctrl-C ends)", "bold", 8), Line("")]
    full: list[Line] = []
    for each in found:
        full += [*status_lines(each, several_hosts=several_hosts, width=width), Line("")]
    room = max(height - len(head) - 1, 4)
    changes = [Line(columns.clip(f"{at:%H:%M:%S} {text}", width)) for at, text in log]
    short = [summary_line(each, several_hosts=several_hosts) for each in found]
    now = full if len(full) + min(len(changes), 3) <= room else [*short, Line("")]
    now = [Line(columns.clip(line.text, width), line.style, line.styled) for line in now][:room]
    left = room - len(now)
    return [*head, *now, *(changes[-left:] if left > 0 else [])]


# --- history ----------------------------------------------------------------------------------------------------------


def history_lines(entries: Sequence[Entry], *, width: int = 80) -> Iterator[Line]:
    """What was done, oldest first, one line each: when, who, what, to which release, and the details."""
    for entry in entries:
        what = entry.event if entry.release is None else f"{entry.event} release {entry.release}"
        details = ", ".join(f"{name}: {value}" for name, value in entry.details.items() if value is not None)
        head = f"{entry.time[:19].replace('T', ' ')}  {entry.who}@{entry.operator}  "
        yield from map(Line, columns.wrap(what + (f" ({details})" if details else ""), width, head, " " * 21))
