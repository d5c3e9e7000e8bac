"""The plan of a build as it is told: for people, and as a document. Pure."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

from onecat.images.build_plan import GIB, BuildPlan
from onecat.images.disk import megabytes


def plan_document(plan: BuildPlan) -> dict[str, Any]:
    """The plan as part of the onecat.build/1 document."""
    document = asdict(plan)
    document["host"]["images"] = [
        {"image": image, "size_bytes": size} for image, size in sorted(plan.host.images.items())
    ]
    return document


def size_range(low: float | None, high: float | None) -> str:
    """A range of bytes for people; what is not known is said to be unknown."""
    if low is None and high is None:
        return "size unknown"
    if high is None:
        return f"at least {megabytes(low or 0)}"
    if low is None or megabytes(low) == megabytes(high):
        return megabytes(high)
    return f"{megabytes(low)} to {megabytes(high)}"


def minutes_range(low: float | None, high: float | None) -> str:
    """A range of minutes for people."""
    if low is None or high is None:
        return "unknown"
    return f"{_time(low)} to {_time(high)}"


def _time(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def plan_lines(plan: BuildPlan) -> list[str]:
    """The plan for people, in lines of at most 80 columns where names allow it."""
    if plan.up_to_date:
        return [f"plan: {plan.tag} is up to date; nothing to do"]
    host = plan.host
    memory = f"{host.memory_bytes / GIB:.1f} GiB" if host.memory_bytes else "memory unknown"
    lines = [
        f"plan: {plan.goal} {plan.tag} for profile {plan.profile}",
        f"  on:       Docker {host.version} at {host.address}",
        f"            {host.cpus} processors, {memory}; builder: {plan.builder}",
        f"  context:  {megabytes(plan.context_bytes)}, {plan.context[:19]}",
    ]
    free = "unknown from here" if host.free_bytes is None else f"{megabytes(host.free_bytes)} free"
    wanted = "" if plan.disk_wanted is None else f"; the profile wants {megabytes(plan.disk_wanted)}"
    lines.append(f"  disk:     {free} at {host.data_root}{wanted}")
    for download in plan.downloads:
        lines.append(f"  download: {download.what}: {size_range(download.low, download.high)}")
        lines.append(f"            by {download.by}, from {download.origin}")
    if not plan.downloads:
        lines.append("  download: nothing")
    fetching = [f"{step.stage} (line {step.line})" for step in plan.steps if step.fetches]
    lines.append(f"  steps:    {len(plan.steps)}; with a network: {len(fetching) or 'none'}")
    lines += [f"            {each}" for each in fetching]
    if plan.max_jobs is not None:
        lines.append(f"  jobs:     {plan.max_jobs} (--max-jobs): {plan.why_jobs}")
    lines.append(f"  time:     {_time_told(plan)}")
    lines += [f"  warning:  {each}" for each in plan.warnings]
    lines += [f"  problem:  {each}" for each in plan.problems]
    return [part for line in lines for part in _wrapped(line)]


def _wrapped(line: str) -> list[str]:
    """A line in pieces of at most 80 columns; what has no blank stays whole, to be copied."""
    return textwrap.wrap(line, 80, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False)


def _time_told(plan: BuildPlan) -> str:
    parts = []
    if plan.last_seconds is not None:
        parts.append(f"{_time(plan.last_seconds / 60)} the last time")
    if plan.compile is not None:
        units = f"{plan.compile.units} files" if plan.compile.units else "files not counted"
        parts.append(f"compiling {minutes_range(plan.compile.low, plan.compile.high)} ({units}); downloads unknown")
    return "; ".join(parts) or "unknown: it was not built here before"
