"""A sweep over flags of the server: which values make it faster, and whether they really do.

Every point costs a start, so hopeless ones end early, by successive halving (Jamieson and Talwalkar, 2016,
https://arxiv.org/abs/1502.07943): in each round every point that is left is started once and sent the round's requests,
the same for all; then points that miss the objectives go, and of the others the slower half. What serves now is in
every round, as the reference. Who wins among many wins partly by luck, so the winner is then compared with what serves
as by `onecat bench ab`, on other requests; only that comparison decides.

What to do next follows from the blocks that are there, so a sweep that was cut off goes on where it was.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from onecat.errors import ExitCode, OnecatError
from onecat.experiments.ab import ARMS, Outcome, compare, pairs_of, shows_difference
from onecat.experiments.ab import Design as Comparison
from onecat.experiments.records import Arrivals, Block, Endpoint, Objectives, Workload
from onecat.experiments.results import now
from onecat.experiments.running import WARM_UP_SEED, Report, check_answered, keeping_what_was_cut
from onecat.experiments.speed import METRICS
from onecat.experiments.summary import Summary, share_of_good, summarise
from onecat.experiments.variants import Settings
from onecat.observe.statistics import log_ratio

if TYPE_CHECKING:
    from onecat.experiments.loads import LoadDriver
    from onecat.experiments.results import ResultFile

REFERENCE = "as it serves"
"""The point that changes nothing."""
_CONFIRMING_SEED = 500_000
_FAILED = "failed_point"
Word = Literal["faster", "no-difference", "not-confirmed", "nothing-better"]


@dataclass(frozen=True)
class Knob:
    """A flag of the server and the values that are tried."""

    flag: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Design:
    """What a sweep does.

    grid: all combinations of the knobs' values; else one knob after the other, each with the best values of those
    before. metric: by which points are ranked, and the winner confirmed. objectives, good_share: a point goes when
    surely less than this share of its requests keep the objectives. confirming: pairs of blocks that decide about the
    winner; 0: none.
    """

    knobs: tuple[Knob, ...]
    workload: Workload
    arrivals: Arrivals
    metric: str
    grid: bool = True
    objectives: Objectives = Objectives()
    good_share: float = 0.95
    confirming: int = 8
    warm_up: int = 0

    @property
    def stages(self) -> int:
        return 1 if self.grid else len(self.knobs)

    def points(self, stage: int, before: Settings = ()) -> tuple[Settings, ...]:
        """The points of a stage. before: the best of the stage before."""
        if self.grid:
            flags = [each.flag for each in self.knobs]
            return tuple(
                tuple(zip(flags, values, strict=True))
                for values in itertools.product(*(each.values for each in self.knobs))
            )
        knob = self.knobs[stage]
        return tuple((*before, (knob.flag, value)) for value in knob.values)

    def first_points(self) -> tuple[Settings, ...]:
        """Points that have each value once: all of a grid, and of knobs one after the other those that change one."""
        if self.grid:
            return self.points(0)
        return tuple(((each.flag, value),) for each in self.knobs for value in each.values)

    @property
    def most_points(self) -> int:
        return (
            math.prod(len(each.values) for each in self.knobs)
            if self.grid
            else sum(len(each.values) for each in self.knobs)
        )

    @property
    def comparison(self) -> Comparison:
        """How the winner is compared with what serves."""
        requests = replace(self.workload, seed=self.workload.seed + _CONFIRMING_SEED)
        return Comparison(requests, self.arrivals, self.metric, self.confirming, True, self.warm_up)


def design_from(document: Mapping[str, Any]) -> Design:
    """What `dataclasses.asdict` made of a design."""
    return Design(
        **{
            **document,
            "knobs": tuple(Knob(each["flag"], tuple(each["values"])) for each in document["knobs"]),
            "workload": Workload(**document["workload"]),
            "arrivals": Arrivals(**document["arrivals"]),
            "objectives": Objectives(**document["objectives"]),
        }
    )


def label_of(settings: Settings) -> str:
    """A point's name: the arm of its blocks."""
    return ", ".join(f"{flag}={value}" for flag, value in settings) or REFERENCE


@dataclass(frozen=True)
class Standing:
    """How a point does. rounds: in how many it was measured. percent: how much faster than what serves, by the mean
    over rounds; None without a round. dropped: why it went; empty while it is in the race."""

    settings: Settings
    rounds: int
    percent: float | None
    summary: Summary | None
    dropped: str = ""

    @property
    def label(self) -> str:
        return label_of(self.settings)


@dataclass(frozen=True)
class Step:
    """What is to be measured next: a point, in a round's requests, or an arm of the confirming comparison."""

    settings: Settings
    arm: str
    seed: int


@dataclass(frozen=True)
class State:
    """Where a sweep stands. step: what is next; None at the end.

    standings: at the end, all points and the reference. best: the winner; empty: nothing is better than what serves.
    outcome: of the confirming comparison, once it has ended.
    """

    step: Step | None
    standings: tuple[Standing, ...] = ()
    best: Settings = ()
    outcome: Outcome | None = None


def state_of(design: Design, blocks: Sequence[Block], failed: Mapping[str, str]) -> State:
    """Where the sweep stands, from what was measured. Pure.

    Parameters:
        failed: why points could not be started, by their label.
    """
    stages: list[tuple[Sequence[Settings], Mapping[str, str]]] = []
    best: Settings = ()
    first_round = 0

    def standings() -> tuple[Standing, ...]:
        found = [each for points, gone in stages for each in _standings(design, points, blocks, gone)]
        return tuple({each.label: each for each in found}.values())

    for stage in range(design.stages):
        points = design.points(stage, best)
        reached = _stage(design, points, best, first_round, blocks, failed)
        if reached.step is not None:
            return State(reached.step)
        stages.append((points, reached.gone))
        best, first_round = reached.best, first_round + _rounds(len(points))
    if not best or not design.confirming:
        return State(None, standings(), best)
    step, outcome = _confirming(design, best, blocks)
    return State(step, () if outcome is None else standings(), best, outcome)


@dataclass(frozen=True)
class _Stage:
    # gone: why points went, by label.
    step: Step | None
    gone: Mapping[str, str]
    best: Settings = ()


def _rounds(points: int) -> int:
    """Rounds until one is left, when half of them go in each; one at least."""
    return max(1, math.ceil(math.log2(points)))


def _stage(
    design: Design,
    points: Sequence[Settings],
    before: Settings,
    first_round: int,
    blocks: Sequence[Block],
    failed: Mapping[str, str],
) -> _Stage:
    left = list(dict.fromkeys(points))
    gone: dict[str, str] = {}
    for place in range(_rounds(len(left))):
        if not left:  # what serves would be measured alone
            break
        seed = design.workload.seed + first_round + place
        # Up and down again in turn, so that no point is always measured first.
        order: list[Settings] = [(), *left]
        for settings in order if place % 2 == 0 else order[::-1]:
            label = label_of(settings)
            own = [each for each in blocks if _is_of(each, label, seed)]
            # Without answers of what serves, nothing can be said of any point: that block ended the sweep, and counts
            # not when it goes on.
            if label not in failed and not (own if settings else any(map(_answers, own))):
                return _Stage(Step(settings, label, seed), gone)
        # Later rounds must not change what was decided in this one.
        known = [each for each in blocks if each.workload.seed <= seed]
        gone |= {label_of(each): why for each in left if (why := _missed(design, each, known))}
        left = [each for each in left if label_of(each) not in failed and label_of(each) not in gone]
        ranked = sorted(left, key=partial(_rank, design, known), reverse=True)
        kept = ranked[: max(1, math.ceil(len(ranked) / 2))]
        gone |= {label_of(each): f"slower than others after round {place + 1}" for each in ranked if each not in kept}
        left = [each for each in left if each in kept]
    # What won the stage before stays the best where nothing of this one is faster.
    best = max([before, *left], key=partial(_rank, design, blocks))
    return _Stage(None, {**failed, **gone}, best)


def _confirming(design: Design, best: Settings, blocks: Sequence[Block]) -> tuple[Step | None, Outcome | None]:
    """What the comparison of the winner with what serves measures next, or what it has found."""
    comparison = design.comparison
    compared = [each for each in blocks if each.arm in ARMS and _answers(each)]
    pairs = pairs_of(compared)
    for look in comparison.looks:
        counted = pairs[: look.pairs]
        if len(counted) < look.pairs:
            break
        if look.pairs == comparison.pairs or shows_difference(counted, design.metric, look.decide_at):
            of_pairs = [block for each in counted for block in (each.a, each.b)]
            outcome = compare(of_pairs, design.metric, look.decide_at, comparison.smallest)
            return None, outcome
    seed = comparison.workload_of(len(pairs)).seed
    arms = ARMS if len(pairs) % 2 == 0 else ARMS[::-1]
    measured = [each.arm for each in compared if each.workload.seed == seed and not each.warm_up]
    arm = arms[1] if arms[0] in measured else arms[0]
    return Step(() if arm == "A" else best, arm, seed), None


def _is_of(block: Block, arm: str, seed: int) -> bool:
    return block.arm == arm and block.workload.seed == seed and not block.warm_up


def _answers(block: Block) -> bool:
    return any(each.error is None for each in block.requests)


def _of(blocks: Sequence[Block], settings: Settings) -> dict[int, Block]:
    """A point's blocks by the seed of their round."""
    return {each.workload.seed: each for each in blocks if each.arm == label_of(settings) and not each.warm_up}


def _gain(design: Design, settings: Settings, blocks: Sequence[Block]) -> float | None:
    """How much faster a point is than what serves: the mean logarithm over the rounds that both have."""
    metric = METRICS[design.metric]
    reference, own = _of(blocks, ()), _of(blocks, settings)
    ratios = [
        log_ratio(metric.values(reference[seed]), metric.values(block))
        for seed, block in own.items()
        if seed in reference
    ]
    known = [each for each in ratios if each is not None]
    if not known:
        return None
    return math.fsum(known) / len(known) * (1 if metric.higher_is_better else -1)


def _rank(design: Design, blocks: Sequence[Block], settings: Settings) -> float:
    """What points are ordered by: 0 for what serves, less than anything for what was not measured."""
    gain = _gain(design, settings, blocks) if settings else 0.0
    return -math.inf if gain is None else gain


def _missed(design: Design, settings: Settings, blocks: Sequence[Block]) -> str:
    """Why a point cannot be wanted, whatever its speed; empty when it can."""
    own = list(_of(blocks, settings).values())
    if not any(each.requests for each in own):
        return ""
    if not any(map(_answers, own)):
        return "no request was answered"
    share = share_of_good(own, design.objectives)
    if share is not None and share.high is not None and share.high < design.good_share:
        kept = f"{100 * (share.value or 0):.0f} % of the requests keep the objectives"
        return f"{kept}, and {100 * design.good_share:g} % shall"
    return ""


def _standings(
    design: Design, points: Sequence[Settings], blocks: Sequence[Block], dropped: Mapping[str, str]
) -> tuple[Standing, ...]:
    found = []
    for settings in ((), *dict.fromkeys(points)):
        own = list(_of(blocks, settings).values())
        gain = _gain(design, settings, blocks)
        found.append(
            Standing(
                settings,
                len(own),
                None if gain is None else math.expm1(gain) * 100,
                summarise(own, design.objectives) if own else None,
                dropped.get(label_of(settings), ""),
            )
        )
    return tuple(found)


def run_sweep(
    driver: LoadDriver,
    design: Design,
    switch: Callable[[Settings], Endpoint],
    file: ResultFile,
    report: Report = lambda text: None,
    suggest: Callable[[Settings, str], dict[str, Any]] = lambda settings, evidence: {},
) -> State:
    """Measure what is still to be measured; the verdict is the end of the result file.

    Parameters:
        switch: starts a point anew in the place of what serves, and tells where it answers.
        file: where blocks go, and what could not be started; what it holds already counts.
        suggest: what is told of a winner, with a sentence of evidence.

    A point that does not start, or answers nothing, is left out. Raises OnecatError when what served before does not
    serve again then, or when it is the reference itself; what `driver` raises, too.
    """
    blocks = list(file.experiment.blocks)
    failed = failed_points(file.experiment.samples)

    def keep(block: Block) -> None:
        blocks.append(block)
        file.add_block(block)

    while (state := state_of(design, blocks, failed)).step is not None:
        step, label = state.step, label_of(state.step.settings)
        try:
            endpoint = switch(step.settings)
            if step.arm in ARMS:
                endpoint = replace(endpoint, label=label)
        except OnecatError as error:
            if (
                error.code not in (ExitCode.ROLLED_BACK, ExitCode.USAGE, ExitCode.NO)
                or label == REFERENCE
                or step.arm in ARMS
            ):
                raise
            report(f"{label} does not start: {error.found}")
            failed[label] = error.found
            file.add_sample({"time": now(), _FAILED: label, "why": error.found, "details": list(error.details)})
            continue
        requests = replace(design.workload, seed=step.seed)
        if design.warm_up:
            few = replace(requests, requests=design.warm_up, seed=step.seed + WARM_UP_SEED)
            with keeping_what_was_cut(file):
                keep(driver.run(endpoint, few, design.arrivals, number=len(blocks), arm=step.arm, warm_up=True))
        with keeping_what_was_cut(file):
            keep(driver.run(endpoint, requests, design.arrivals, number=len(blocks), arm=step.arm))
        if step.arm in ARMS or not step.settings:
            check_answered(blocks[-1])
        report(_told(design, step, blocks))
    verdict = verdict_document(design, state)
    if verdict["verdict"] in ("faster", "not-confirmed"):
        verdict["suggestion"] = suggest(state.best, verdict["sentence"])
    file.finish(verdict)
    return state


def failed_points(samples: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Why points could not be started, by label, from the samples of a result file."""
    return {str(each[_FAILED]): str(each["why"]) for each in samples if _FAILED in each}


def word_of(design: Design, state: State) -> Word:
    """The verdict of a sweep that is done."""
    if not state.best:
        return "nothing-better"
    if state.outcome is None:
        return "not-confirmed"
    return "faster" if state.outcome.verdict == "faster" else "no-difference"


def verdict_document(design: Design, state: State) -> dict[str, Any]:
    """The end of the result file."""
    word, label = word_of(design, state), label_of(state.best)
    title = METRICS[design.metric].title
    sentence = {
        "nothing-better": "no point was faster than what serves: leave it",
        "not-confirmed": f"{label} was the fastest ({title}), not confirmed",
        "no-difference": f"{label} won, and compared with what serves: "
        + ("" if state.outcome is None else f"{state.outcome.sentence}; leave it"),
        "faster": "" if state.outcome is None else state.outcome.sentence.replace("B is", f"{label} is"),
    }[word]
    return {
        "verdict": word,
        "sentence": sentence,
        "metric": design.metric,
        "best": dict(state.best),
        "sentences": [standing_text(each) for each in state.standings if each.settings],
        "points": [
            {
                "settings": dict(each.settings),
                "rounds": each.rounds,
                "faster_percent": each.percent,
                "dropped": each.dropped,
                "summary": None if each.summary is None else each.summary.document(),
            }
            for each in state.standings
        ],
        "confirmation": None if state.outcome is None else state.outcome.document(),
    }


def standing_text(standing: Standing) -> str:
    """A point in a line."""
    words = [standing.label + ":"]
    if standing.percent is not None:
        than = "faster" if standing.percent >= 0 else "slower"
        words.append(f"{abs(standing.percent):.1f} % {than} in {standing.rounds} round{'s' * (standing.rounds != 1)}")
    if standing.dropped:
        words.append(f"({standing.dropped})" if standing.percent is not None else standing.dropped)
    return " ".join(words)


def _told(design: Design, step: Step, blocks: Sequence[Block]) -> str:
    if step.arm in ARMS:
        return f"confirming: {len(pairs_of(blocks))} of at most {design.confirming} pairs"
    gain = _gain(design, step.settings, blocks)
    told = "" if gain is None or not step.settings else f": {math.expm1(gain) * 100:+.1f} % against what serves"
    return f"measured {step.arm}{told}"
