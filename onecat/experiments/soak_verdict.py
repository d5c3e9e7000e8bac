"""Whether a server has stood a soak: each demand with what was found. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from onecat.experiments.records import Experiment
from onecat.experiments.report import moment
from onecat.experiments.soak import Design, seconds_done
from onecat.observe.statistics import Estimate, errors_by_kind, share_interval, slope_interval

MIB = 2**20
DAY = 86400.0
LEAST_SECONDS = 1800.0
"""Growth is told of any time, but judged only from half an hour on: before that a server still fills its caches."""
SETTLING = 0.1
"""The first part of the readings that growth is not read from."""
_UNDECIDED = "not shown either way"
_LEAST_ANSWERS = 20
_MOST_MORE_SECONDS, _MOST_FACTOR = 30 * DAY, 1e6

# passed: all demands are kept. failed: one is not. unfinished: the time is not over. too-short: nothing speaks against
# it, but growth is not judged yet. undecided: growth is known too badly to tell whether it keeps its limit.
Answer = Literal["passed", "failed", "unfinished", "too-short", "undecided"]


@dataclass(frozen=True)
class Demand:
    """One thing that was looked at. kept: None: it cannot be judged. text: what was found, in a sentence. is_growth:
    whether it is growth of memory that is known: the verdict waits until it can be judged.
    """

    name: str
    kept: bool | None
    text: str
    estimate: Estimate | None = None
    is_growth: bool = False


@dataclass(frozen=True)
class Verdict:
    answer: Answer
    seconds: float
    demands: tuple[Demand, ...]

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        lasted = duration(self.seconds)
        broken = [each.name for each in self.demands if each.kept is False]
        return {
            "passed": f"it stood {lasted} of load",
            "failed": f"it did not stand the load: {', '.join(broken)}",
            "unfinished": f"unfinished after {lasted} of load",
            "too-short": f"nothing went wrong in {lasted} of load, which is too short to tell whether its memory grows",
            "undecided": f"nothing went wrong in {lasted} of load, but growth of memory is not shown either way",
        }[self.answer]

    def document(self) -> dict[str, Any]:
        """As plain data, for result files and JSON."""
        return {
            "verdict": self.answer,
            "sentence": self.sentence,
            "seconds": self.seconds,
            "reasons": [each.text for each in self.demands],
            "demands": [
                {
                    "name": each.name,
                    "kept": each.kept,
                    "text": each.text,
                    **(
                        {}
                        if each.estimate is None
                        else {"value": each.estimate.value, "low": each.estimate.low, "high": each.estimate.high}
                    ),
                }
                for each in self.demands
            ],
        }


def verdict_of(experiment: Experiment, design: Design) -> Verdict:
    """The verdict on what was measured so far."""
    seconds = seconds_done(experiment.blocks)
    samples = [each for each in experiment.samples if "cut_short" not in each]
    demands = [
        _time(seconds, design.seconds),
        _errors(experiment, design.limits.error_percent),
        _restarts(samples),
        _growth("memory", "its processes' own memory", samples, "private_bytes", design.limits.growth_percent),
    ]
    if any(each.get("gpu_memory_bytes") for each in samples):
        demands.append(
            _growth("GPU memory", "its GPUs' memory", samples, "gpu_memory_bytes", design.limits.growth_percent)
        )
    demands += [each for each in (_latency(experiment), _cache(samples)) if each is not None]
    return Verdict(_answer(demands), seconds, tuple(demands))


def _answer(demands: Sequence[Demand]) -> Answer:
    by_name = {each.name: each.kept for each in demands}
    if any(kept is False for name, kept in by_name.items() if name != "time"):
        return "failed"
    if not by_name["time"]:
        return "unfinished"
    unjudged = [each for each in demands if each.is_growth and each.kept is None]
    if not unjudged:
        return "passed"
    return "undecided" if any(_UNDECIDED in each.text for each in unjudged) else "too-short"


def _time(seconds: float, wanted: float) -> Demand:
    return Demand("time", seconds >= wanted, f"time: {duration(seconds)} of {duration(wanted)} under load")


def _errors(experiment: Experiment, limit: float) -> Demand:
    requests = [each for block in experiment.blocks if not block.warm_up for each in block.requests]
    if not requests:
        return Demand("errors", None, "errors: nothing was sent yet")
    failed = [each.error is not None for each in requests]
    share = share_interval(failed).scaled(100)
    kinds = ", ".join(f"{kind} {count}" for kind, count in errors_by_kind(each.error for each in requests).items())
    text = f"errors: {sum(failed)} of {len(requests)} requests ({share.value:.2g} %, at most {limit:g} % allowed)"
    return Demand("errors", (share.value or 0.0) <= limit, f"{text}: {kinds}" if kinds else text, share)


def _restarts(samples: Sequence[dict[str, Any]]) -> Demand:
    states = [each for each in samples if "state" in each]
    if not states:
        starts = {each["process_started"] for each in samples if "process_started" in each}
        if not starts:
            return Demand("restarts", None, "restarts: not known, for it is no deployment of onecat's")
        return Demand("restarts", len(starts) == 1, f"restarts: {len(starts) - 1}")
    counted = states[-1]["restarts"] - states[0]["restarts"]
    pids = {each["pid"] for each in states if each.get("pid") is not None}
    down = [each for each in states if each["state"] != "running"]
    restarts = max(counted, len(pids) - 1)
    text = f"restarts: {restarts}"
    if restarts and states[-1].get("last_exit"):
        text += f", the last: {states[-1]['last_exit']}"
    if down:
        text += f"; at {len(down)} of {len(states)} looks it did not run ({down[-1]['state']})"
    return Demand("restarts", restarts == 0 and not down, text)


def _growth(name: str, whose: str, samples: Sequence[dict[str, Any]], key: str, limit: float) -> Demand:
    """The growth since its last start, without the first part of the time."""
    known = [(moment(each["time"]), _total(each[key]), each.get("pid")) for each in samples if each.get(key)]
    if not known:
        return Demand(name, None, f"{name}: not known")
    of_last = [(at, value) for at, value, pid in known if pid == known[-1][2]]
    span = of_last[-1][0] - of_last[0][0]
    settled = [each for each in of_last if each[0] >= of_last[0][0] + span * SETTLING]
    grown = slope_interval([at for at, _ in settled], [value for _, value in settled])
    now = settled[-1][1]
    if grown.value is None or grown.low is None or grown.high is None:
        why = grown.note or "too few readings to tell its growth"
        return Demand(name, None, f"{name}: {now / MIB:.0f} MiB; {why}", is_growth=True)
    by_hour = grown.scaled(3600 / MIB)
    text = (
        f"{name}: {whose}: {now / MIB:.0f} MiB, growing by {by_hour.value:+.2f} MiB an hour "
        f"(95 % interval {by_hour.low:+.2f} to {by_hour.high:+.2f})"
    )
    if span < LEAST_SECONDS:
        return Demand(name, None, f"{text}; judged from {duration(LEAST_SECONDS)} on", by_hour, True)
    # Neither a leak nor its absence is told by chance: all of the interval lies above the limit, or all below it.
    allowed = sum(value for _, value in settled) / len(settled) * limit / 100 / DAY
    text += f"; at most {limit:g} % a day allowed"
    if grown.low > allowed or grown.high <= allowed:
        return Demand(name, grown.high <= allowed, text, by_hour, True)
    more = minutes_more(span, grown, allowed)
    needs = "much more time" if more is None else f"{more} minutes more"
    return Demand(name, None, f"{text}: {_UNDECIDED}, needs {needs}", by_hour, True)


def minutes_more(seconds: float, grown: Estimate, allowed: float) -> int | None:
    """About how many minutes more show on which side of a limit growth lies; None where that is more than 30 days.

    The standard error of a slope falls with the time to the power of 3/2, where readings come as often as before: with
    the root of their number, and with how far they lie apart
    (https://en.wikipedia.org/wiki/Simple_linear_regression#Normality_assumption).

    Parameters:
        seconds: that were measured. grown: with an interval that holds `allowed`, in the same unit by the second.
    """
    assert grown.value is not None and grown.low is not None and grown.high is not None
    half, gap = (grown.high - grown.low) / 2, abs(grown.value - allowed)
    if gap * _MOST_FACTOR < half:
        return None
    more = seconds * ((half / gap) ** (2 / 3) - 1)
    return None if more > _MOST_MORE_SECONDS else max(1, math.ceil(more / 60))


def _latency(experiment: Experiment) -> Demand | None:
    """How the time per token of whole answers changed; told, not judged."""
    found = [
        (moment(block.started_at), each.end_to_end / each.output_tokens)
        for block in experiment.blocks
        if not block.warm_up
        for each in block.requests
        if each.error is None and each.output_tokens
    ]
    if len(found) < _LEAST_ANSWERS:
        return None
    quarter = len(found) // 4
    first, last = (sorted(value for _, value in part)[len(part) // 2] for part in (found[:quarter], found[-quarter:]))
    return Demand(
        "latency",
        None,
        f"latency: the median time for each output token was {first * 1000:.3g} ms in the first quarter of the "
        f"requests and {last * 1000:.3g} ms in the last",
    )


def _cache(samples: Sequence[dict[str, Any]]) -> Demand | None:
    used = [each["kv_cache_usage"] for each in samples if each.get("kv_cache_usage") is not None]
    if not used:
        return None
    waiting = max((each.get("waiting") or 0 for each in samples), default=0)
    text = f"KV cache: {sum(used) / len(used):.0%} used on average, {max(used):.0%} at most; "
    return Demand("KV cache", None, f"{text}{waiting:.0f} requests waited at most")


def _total(value: Any) -> float:
    return float(sum(value)) if isinstance(value, list) else float(value)


def duration(seconds: float) -> str:
    """`45 s`, `5 min`, `2 h 30 min`, `72 h`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")
