"""A against B: the same requests to both, in blocks that alternate, and a verdict over pairs of neighbouring blocks.

Blocks go A B, B A, A B, ...: what drifts evenly cancels out over two pairs. Both blocks of a pair send the same
requests; each pair has requests of its own (the seed grows by one), so that no server answers a prompt from the cache
of an earlier pair. See `onecat.observe.statistics.pairing` for the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from onecat.errors import OnecatError
from onecat.experiments.records import Arrivals, Block, Endpoint, Objectives, Workload
from onecat.experiments.running import WARM_UP_SEED, Report, check_answered, keeping_what_was_cut
from onecat.experiments.speed import METRICS, Metric
from onecat.experiments.summary import Summary, summarise
from onecat.observe.statistics import (
    DECIDE_AT,
    LEAST_PAIRS,
    Look,
    PairedComparison,
    Word,
    compare_pairs,
    log_ratio,
    looks,
)

if TYPE_CHECKING:
    from onecat.experiments.loads import LoadDriver
    from onecat.experiments.results import ResultFile

ARMS = ("A", "B")
SMALLEST_PERCENT = 1.0
"""By default, the smallest difference that is a reason to act. Servers that are the same differ by some tenths of a
percent where a machine is at rest, and enough pairs show that too."""
_MOST_FAILURES = 0.01
"""Of the requests, as in the thresholds that k6's manual begins with (https://grafana.com/docs/k6/latest/using-k6/).
What fails takes nothing from a server that could answer others meanwhile, so a share of failures makes what is
answered faster by up to as much."""
_LEAST_FAILURES = 3

# same: what differs is less than matters. no-difference: none is shown, but one that matters may be there.
# not-comparable: requests fail, so the speed of the others says nothing. undecided: too few pairs.
Verdict = Literal["faster", "slower", "same", "no-difference", "not-comparable", "undecided"]


@dataclass(frozen=True)
class Design:
    """What a comparison does.

    pairs: at most so many, even, and at least `LEAST_PAIRS`. metric: decides. stops_early: whether the looks of
    `onecat.observe.statistics.sequential` may end it before. warm_up: requests that are sent before a block that
    follows a start, and before the first block of each arm; they are not counted. smallest: the smallest difference
    that matters, in percent.
    """

    workload: Workload
    arrivals: Arrivals
    metric: str
    pairs: int
    stops_early: bool = True
    warm_up: int = 0
    smallest: float = SMALLEST_PERCENT

    def workload_of(self, pair: int) -> Workload:
        return replace(self.workload, seed=self.workload.seed + pair)

    @property
    def looks(self) -> tuple[Look, ...]:
        every = looks(self.pairs)
        # Without early looks the whole error is left for the end.
        return every if self.stops_early else (Look(self.pairs, DECIDE_AT),)


@dataclass(frozen=True)
class Outcome:
    """What a comparison found. comparisons: by metric; the one called `metric` decides. percent: how much faster B is
    (negative: slower), by the deciding metric; low, high: its interval at 95 %. problem: why A and B cannot be
    compared, or what is to be known about the verdict; empty if nothing. smallest: the smallest difference that
    matters, in percent.
    """

    verdict: Verdict
    metric: str
    pairs: int
    percent: float | None
    low: float | None
    high: float | None
    comparisons: dict[str, PairedComparison]
    summaries: dict[str, Summary]
    problem: str = ""
    smallest: float = SMALLEST_PERCENT

    @property
    def comparison(self) -> PairedComparison:
        return self.comparisons[self.metric]

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.verdict == "not-comparable":
            return f"not comparable: {self.problem}"
        if self.verdict == "undecided":
            return f"no verdict: {self.pairs} pairs of blocks, and it needs {LEAST_PAIRS}"
        if self.verdict == "no-difference":
            return f"no difference shown (could be up to {self.comparison.most_percent:.1f} %)"
        assert self.percent is not None and self.low is not None and self.high is not None
        if self.verdict == "same":
            interval = f"95 % interval {self.low:+.1f} to {self.high:+.1f} %"
            return (
                f"no difference that matters: B is within {self.smallest:g} % of A, {self.percent:+.1f} %, {interval}"
            )
        low, high = sorted((abs(self.low), abs(self.high)))
        return f"B is {self.verdict} by {abs(self.percent):.1f} %, 95 % interval {low:.1f} to {high:.1f} %"

    @property
    def notes(self) -> list[str]:
        """What is to be known beside the verdict: the p value, and how many pairs would show small differences."""
        found = self.comparison
        if found.p is None or self.verdict == "not-comparable":
            return []
        chance = "less than 0.0001" if found.p < 1e-4 else f"{found.p:.4f}"
        notes = [f"p {chance} over {found.pairs} pairs; a difference is shown below {1 - found.decided_at:.3g}"]
        if self.verdict == "no-difference":
            told = [
                f"{percent:g} % {'more than 100 000' if number is None else number}" for percent, number in found.needed
            ]
            notes.append(f"pairs that would show a difference, four times of five: of {', of '.join(told)}")
        return notes

    def document(self) -> dict[str, Any]:
        """As plain data, for result files and JSON."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "metric": self.metric,
            "pairs": self.pairs,
            "smallest_percent": self.smallest,
            "faster_percent": self.percent,
            "faster_low_percent": self.low,
            "faster_high_percent": self.high,
            "problem": self.problem,
            "notes": self.notes,
            "comparisons": {name: asdict(each) for name, each in self.comparisons.items()},
            "arms": {arm: each.document() for arm, each in self.summaries.items()},
        }


@dataclass(frozen=True)
class Pair:
    """Two blocks of the same requests. a_first: whether A's was measured first."""

    a: Block
    b: Block

    @property
    def a_first(self) -> bool:
        return self.a.number < self.b.number


def whole_pairs(number: int) -> int:
    """How many pairs are measured for so many: an even number, so that A comes first as often as B.

    Raises OnecatError when they are too few for a verdict.
    """
    if number < LEAST_PAIRS:
        raise OnecatError(
            f"{number} pairs of blocks are too few for a verdict", expected=f"at least {LEAST_PAIRS} pairs"
        )
    return number + number % 2


def pairs_of(blocks: Sequence[Block]) -> list[Pair]:
    """The whole pairs among blocks: those of one seed. Of one that was begun twice, the later half counts."""
    found: dict[int, dict[str, Block]] = {}
    for block in sorted((each for each in blocks if not each.warm_up), key=lambda each: each.number):
        found.setdefault(block.workload.seed, {})[block.arm] = block
    return [Pair(each["A"], each["B"]) for each in found.values() if set(ARMS) <= set(each)]


def compare(
    blocks: Sequence[Block], metric: str, decide_at: float = DECIDE_AT, smallest: float = SMALLEST_PERCENT
) -> Outcome:
    """The verdict over the pairs among blocks. Pure.

    A and B are the same where all of the interval that decides lies within the smallest difference that matters, up and
    down, whether or not it leaves zero out: the test of equivalence by an interval
    (https://en.wikipedia.org/wiki/Equivalence_test), at a level at least as strict as its two one-sided tests demand.

    Parameters:
        metric: that decides, a name of `onecat.experiments.speed.METRICS`. decide_at: the level of the interval that
            decides. smallest: the smallest difference that matters, in percent.
    """
    pairs = pairs_of(blocks)
    comparisons = {each.name: _compared(pairs, each, decide_at) for each in METRICS.values()}
    summaries = {arm: summarise([each.a if arm == "A" else each.b for each in pairs], Objectives()) for arm in ARMS}
    decides, better = comparisons[metric], 1 if METRICS[metric].higher_is_better else -1
    problem = _failures(summaries)
    words: dict[Word, Verdict] = {
        "undecided": "undecided",
        "no-difference": "no-difference",
        "lower": "slower" if better > 0 else "faster",
        "higher": "faster" if better > 0 else "slower",
    }
    bounds = [None if each is None else each * better for each in (decides.low, decides.high)]
    low, high = bounds if better > 0 else bounds[::-1]
    verdict = words[decides.word]
    if decides.most_percent is not None and decides.most_percent <= smallest:
        verdict = "same"
    return Outcome(
        verdict="not-comparable" if problem else verdict,
        metric=metric,
        pairs=decides.pairs,
        percent=None if decides.percent is None else decides.percent * better,
        low=low,
        high=high,
        comparisons=comparisons,
        summaries=summaries,
        problem=problem,
        smallest=smallest,
    )


def shows_difference(pairs: Sequence[Pair], metric: str, decide_at: float) -> bool:
    """Whether a difference is shown over these pairs, by one metric alone; `compare` tells all that there is to it."""
    return _compared(pairs, METRICS[metric], decide_at).word in ("lower", "higher")


def _compared(pairs: Sequence[Pair], metric: Metric, decide_at: float) -> PairedComparison:
    found = [(log_ratio(metric.values(each.a), metric.values(each.b)), each.a_first) for each in pairs]
    known = [(ratio, first) for ratio, first in found if ratio is not None]
    return compare_pairs([ratio for ratio, _ in known], [first for _, first in known], decide_at=decide_at)


def _failures(summaries: dict[str, Summary]) -> str:
    """Why the speed of what was answered says nothing: too many requests failed, of one or of both alike."""
    a, b = (summaries[arm] for arm in ARMS)
    if all(each.failed < max(_LEAST_FAILURES, _MOST_FAILURES * each.requests) for each in (a, b)):
        return ""
    return f"A failed {a.failed} of {a.requests} requests, B {b.failed} of {b.requests}"


def run_ab(
    driver: LoadDriver,
    design: Design,
    switch: Callable[[str], tuple[Endpoint, bool]],
    file: ResultFile,
    report: Report = lambda text: None,
) -> Outcome:
    """Send the blocks that are still to be sent, and judge; the verdict is the end of the result file.

    Parameters:
        switch: makes an arm the one that answers, and tells its endpoint and whether it was started anew for it.
        file: where blocks go; what it holds already (of a comparison that was cut off) counts.
        report: receives one line for each pair, for a person.

    Raises OnecatError when an arm answers nothing, and what `driver` and `switch` raise; what was measured is in the
    file then, to be resumed.
    """
    blocks = list(file.experiment.blocks)
    warm: set[str] = set()

    # A pair that was cut off is not sent again: a server that has seen its requests answers them from its cache.
    cut = [each["cut_short"] for each in file.experiment.samples if "cut_short" in each]
    seeds = [each.workload.seed for each in blocks if not each.warm_up]
    seeds += [each["workload"]["seed"] for each in cut if not each["warm_up"]]
    fresh = max(seeds, default=design.workload.seed - 1) + 1 - design.workload.seed

    def measure(arm: str, pair: int) -> None:
        endpoint, is_new = switch(arm)
        if design.warm_up and (is_new or arm not in warm):
            seed = design.workload.seed + WARM_UP_SEED + pair
            few = replace(design.workload, requests=design.warm_up, seed=seed)
            with keeping_what_was_cut(file):
                keep(driver.run(endpoint, few, design.arrivals, number=len(blocks), arm=arm, warm_up=True))
            check_answered(blocks[-1])
            warm.add(arm)
        with keeping_what_was_cut(file):
            keep(driver.run(endpoint, design.workload_of(pair), design.arrivals, number=len(blocks), arm=arm))
        check_answered(blocks[-1])

    def keep(block: Block) -> None:
        blocks.append(block)
        file.add_block(block)

    planned = {each.pairs: each for each in design.looks}
    done = len(pairs_of(blocks))
    outcome = _at_look(blocks, design, planned.get(done))
    while outcome is None:
        for arm in ARMS if done % 2 == 0 else ARMS[::-1]:
            measure(arm, fresh)
        done, fresh = done + 1, fresh + 1
        report(_told(blocks, design, done))
        outcome = _at_look(blocks, design, planned.get(done))
    file.finish(outcome.document())
    return outcome


def _at_look(blocks: Sequence[Block], design: Design, look: Look | None) -> Outcome | None:
    """The outcome where the comparison ends at this look; None where it goes on."""
    if look is None:
        return None
    outcome = compare(blocks, design.metric, look.decide_at, design.smallest)
    return outcome if look.pairs == design.pairs or outcome.verdict in ("faster", "slower", "same") else None


def _told(blocks: Sequence[Block], design: Design, done: int) -> str:
    pair = pairs_of(blocks)[-1]
    metric = METRICS[design.metric]
    ratio = log_ratio(metric.values(pair.a), metric.values(pair.b))
    failed = sum(each.error is not None for block in (pair.a, pair.b) for each in block.requests)
    told = "nothing that both answered" if ratio is None else f"{metric.title}: B by A {math.exp(ratio):.3f}"
    return f"pair {done} of at most {design.pairs}: {told}" + (f"; {failed} requests failed" if failed else "")
