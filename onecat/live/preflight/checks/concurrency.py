"""Many requests at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.load import LoadSeen
from onecat.observe.bottleneck import read_bottleneck
from onecat.observe.statistics import (
    Estimate,
    errors_by_kind,
    least_for_percentile,
    percentile_interval,
    share_interval,
)

LEAST_SAMPLES = 3
_LATE_SHARE = 0.01
"""P99 is above a limit when more than this share of the requests is."""


@check(
    "preflight.concurrency",
    title="Many requests at once are answered in time",
    why="A server that answers one request well may queue or refuse many; the slowest hundredth is what people notice.",
    fix=("onecat bench sweep finds arguments that keep the limit", "onecat top shows what holds it back"),
    source=(
        "https://docs.vllm.ai/en/latest/contributing/benchmarks.html",
        "https://online.stat.psu.edu/stat415/lesson/19",
    ),
    requires=needs(LoadSeen),
    group="load",
    place=1,
)
def concurrency(look: Look) -> Iterator[Verdict]:
    """Random prompts in a closed loop, by the engine's own benchmark: the P99 of the time to the last token with its
    95 % interval, against preflight.p99_seconds. Where the limit lies within the interval nothing is decided."""
    seen, limits = look.of(LoadSeen), look.limits
    requests = seen.block.requests
    answered = [each.end_to_end for each in requests if each.error is None]
    errors = errors_by_kind(each.error for each in requests)
    evidence = [
        f"sent to {seen.url} by {seen.driver}",
        f"answered: {len(answered)} of {len(requests)}, of {seen.input_tokens} tokens, in {seen.block.seconds:.1f} s, "
        f"{_rate(seen)}",
        *under_load(seen),
    ]
    option = look.host_option
    fix = (f"onecat bench run {look.name}{option}", "while that runs:", f"onecat top {look.name}{option}")
    if errors:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in errors.items())
        message = next((each.message for each in requests if each.error is not None and each.message), "")
        yield Verdict(
            "fail",
            f"{len(requests) - len(answered)} of {len(requests)} requests failed: {kinds}",
            evidence=(*([message] if message else []), *evidence),
            fix=(f"onecat logs {look.name}{option} --lines 500", *fix),
        )
        return
    if not answered:
        yield Verdict("fail", "No request was answered in time", evidence=tuple(evidence), fix=fix)
        return
    found = percentile_interval(answered, 99)
    limit = limits.p99_seconds
    told = f"P99 {_seconds(found)}, {limits.concurrent} at once; limit {limit:g} s"
    late = share_interval([each > limit for each in answered])
    is_late = found.low > limit if found.low is not None else (late.low or 0.0) > _LATE_SHARE
    if is_late:
        yield Verdict("fail", told, evidence=tuple(evidence), fix=fix)
    elif found.high is not None and found.high <= limit:
        yield Verdict("pass", told, evidence=tuple(evidence))
    else:
        least = least_for_percentile(99)
        more = max(least, 4 * len(requests)) if found.has_interval else least
        yield Verdict(
            "warn",
            f"Not decided: {told}",
            evidence=(found.note or "the limit lies within the interval", *evidence),
            fix=(f"onecat preflight {look.name}{option} --only preflight.concurrency --requests {more}",),
        )


def under_load(seen: LoadSeen) -> tuple[str, ...]:
    """What held the server back meanwhile, by the samples; nothing where those are too few."""
    if len(seen.samples) < LEAST_SAMPLES:
        return ()
    return (f"under load: {read_bottleneck(seen.samples).sentence}",)


def _seconds(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return f"{found.value:.2f} s"
    return f"{found.value:.2f} s ({found.low:.2f} to {found.high:.2f})"


def _rate(seen: LoadSeen) -> str:
    tokens = sum(each.output_tokens for each in seen.block.requests if each.error is None)
    return f"{tokens / seen.block.seconds:,.0f} tokens/s" if seen.block.seconds else "no rate"
