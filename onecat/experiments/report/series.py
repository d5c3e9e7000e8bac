"""Experiments side by side: runs, and in each the series of blocks that were measured alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onecat.experiments.comparability import Difference, arrivals_text, differences, prompts_text
from onecat.experiments.records import Arrivals, Block, Experiment, Workload
from onecat.experiments.summary import Summary, summarise


@dataclass(frozen=True)
class Run:
    """name: what it is called where there are several. file: where it was read."""

    name: str
    file: str
    experiment: Experiment


@dataclass(frozen=True)
class Series:
    """Blocks of one arm of one run with the same arrivals and lengths; warm-ups are left out.

    label: tells it from the others of the report. run: its place among the report's runs.
    """

    label: str
    run: int
    arm: str
    arrivals: Arrivals
    workload: Workload
    blocks: tuple[Block, ...]
    summary: Summary

    @property
    def concurrency(self) -> int | None:
        return self.arrivals.concurrency


@dataclass(frozen=True)
class Report:
    """differences: between the runs; none of one alone."""

    runs: tuple[Run, ...]
    series: tuple[Series, ...]
    differences: tuple[Difference, ...]

    @property
    def mattering(self) -> tuple[Difference, ...]:
        """What should be equal in runs that are compared, and is not."""
        return tuple(each for each in self.differences if each.role == "matters")


def make_report(runs: Sequence[Run]) -> Report:
    """Summaries of all that was measured, and what differs between the runs."""
    series = [each for place, run in enumerate(runs) for each in _series(place, run, len(runs) > 1)]
    found = differences([run.experiment for run in runs]) if len(runs) > 1 else ()
    return Report(tuple(runs), tuple(series), found)


def drawn(report: Report, most: int) -> tuple[Series, ...]:
    """At most so many series, for charts that would show nothing with more: of each run evenly many, from its first to
    its last."""
    if len(report.series) <= most:
        return report.series
    share = max(1, most // len(report.runs))
    chosen = [place for run in range(len(report.runs)) for place in _evenly(report.series, run, share)]
    return tuple(report.series[place] for place in chosen[:most])


def _evenly(series: Sequence[Series], run: int, share: int) -> list[int]:
    places = [place for place, each in enumerate(series) if each.run == run]
    if len(places) <= share:
        return places
    if share == 1:
        return places[-1:]
    return [places[round(step * (len(places) - 1) / (share - 1))] for step in range(share)]


def alike_in_first(report: Report) -> tuple[tuple[Series, Series], ...]:
    """(series of the first run, series of a later one) that were asked the same: alike arms, arrivals and lengths.

    Where each run has but one series, these are alike.
    """
    first = [each for each in report.series if each.run == 0]
    later = [each for each in report.series if each.run > 0]
    if len(report.series) == len(report.runs) and first:
        return tuple((first[0], each) for each in later)
    found = []
    for each in later:
        same = [one for one in first if _asked(one) == _asked(each)]
        if same:
            found.append((same[0], each))
    return tuple(found)


def _asked(series: Series) -> tuple[object, ...]:
    return (series.arm, series.arrivals, _without_number(series.workload))


def load_curves(series: Sequence[Series]) -> tuple[tuple[str, tuple[Series, ...]], ...]:
    """Series that differ only in how many requests were sent at once, by rising number, with what they have in common.

    Two points at least make a curve. Of several runs, those whose arms have the same name are one curve only within
    their own run, unless each run has but one point.
    """
    limited = [each for each in series if each.arrivals.concurrency is not None]
    one_each = len({each.run for each in limited}) == len(limited)
    found: dict[tuple[object, ...], list[Series]] = {}
    for each in limited:
        others = replace(each.arrivals, concurrency=None)
        key = (None if one_each else each.run, each.arm if not one_each else "", others, _without_number(each.workload))
        found.setdefault(key, []).append(each)
    return tuple(
        (_common(points), tuple(sorted(points, key=lambda each: each.arrivals.concurrency or 0)))
        for points in found.values()
        if len({each.arrivals.concurrency for each in points}) > 1
    )


def _common(points: Sequence[Series]) -> str:
    """What the labels of a curve's points begin with: without the number of requests at once."""
    first = points[0].label.partition(",")[0]
    return first if all(each.label.partition(",")[0] == first for each in points) else "all runs"


def _without_number(workload: Workload) -> Workload:
    # More at once need more requests for the same time under load.
    return replace(workload, seed=0, requests=0, path=None)


def _series(place: int, run: Run, several_runs: bool) -> list[Series]:
    found: dict[tuple[str, Arrivals, Workload], list[Block]] = {}
    for block in run.experiment.blocks:
        if not block.warm_up:
            found.setdefault((block.arm, block.arrivals, replace(block.workload, seed=0)), []).append(block)
    arms = {arm for arm, _, _ in found}
    made = []
    for (arm, arrivals, workload), blocks in found.items():
        alike = [(each[1], each[2]) for each in found if each[0] == arm]
        words = [run.name] if several_runs else []
        if len(arms) > 1 or (arm and not several_runs):
            words.append(_arm_text(arm, blocks[0].endpoint, several_runs))
        label = " ".join(words) or blocks[0].endpoint
        apart = [label]
        if len({each[0] for each in alike}) > 1:
            apart.append(arrivals_text(arrivals))
        if len({_without_number(each[1]) for each in alike}) > 1:
            apart.append(_lengths_text(workload))
        elif len({each[1].requests for each in alike if each[0] == arrivals}) > 1:
            apart.append(f"{workload.requests} requests")
        summary = summarise(blocks, run.experiment.objectives)
        made.append(Series(", ".join(apart), place, arm, arrivals, workload, tuple(blocks), summary))
    return made


def _arm_text(arm: str, endpoint: str, is_short: bool) -> str:
    return arm if is_short or arm == endpoint else f"{arm}: {endpoint}"


def _lengths_text(workload: Workload) -> str:
    if workload.source != "random":
        return prompts_text(workload)
    return f"{workload.input_tokens} in, {workload.output_tokens} out"
