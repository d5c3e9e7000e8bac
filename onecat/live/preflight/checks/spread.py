"""Identical requests take the same time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.answers import Repeats


@check(
    "preflight.spread",
    title="The same request takes the same time",
    why="Identical requests, one at a time, do the same work. When their times scatter, something else takes turns "
    "with the server: another program, clocks that go up and down, a busy disk or network.",
    fix=("see what else runs: onecat top", "onecat doctor --only 'gpu.*'"),
    source=("https://www.itl.nist.gov/div898/handbook/eda/section3/eda356.htm",),
    requires=needs(Repeats),
    group="answers",
    place=3,
)
def spread(look: Look) -> Iterator[Verdict]:
    """Standard deviation of the times of the identical requests. Limit: preflight.spread_ms."""
    seen = look.of(Repeats)
    if len(seen.seconds) < 2:
        yield Verdict("skip", "Not checked: fewer than two of the requests were answered")
        return
    deviation, mean = statistics.stdev(seen.seconds) * 1000, statistics.fmean(seen.seconds) * 1000
    limit = look.limits.spread_ms
    told = f"{deviation:.0f} ms standard deviation, mean {mean:.0f} ms; limit {limit:g} ms"
    evidence: tuple[str, ...] = (
        f"shortest of {len(seen.seconds)}: {min(seen.seconds) * 1000:.0f} ms; "
        f"longest: {max(seen.seconds) * 1000:.0f} ms",
        "each: " + " ".join(f"{each * 1000:.0f}" for each in seen.seconds) + " ms",
    )
    if seen.in_between:
        evidence = (f"{seen.in_between} requests of others ran meanwhile", *evidence)
    if deviation <= limit:
        yield Verdict("pass", told, evidence=evidence)
        return
    yield Verdict(
        "warn",
        told,
        evidence=evidence,
        fix=(
            f"see what else runs there: onecat top {look.name}{look.host_option}",
            "or allow more: preflight.spread_ms in onecat.yaml",
        ),
    )
