"""One server under load: blocks of requests, repeated, at one way of arriving or several (`onecat bench run`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from onecat.errors import ExitCode, OnecatError
from onecat.experiments.comparability import arrivals_text
from onecat.experiments.loads import CutShort
from onecat.experiments.records import Arrivals, Block, Endpoint, Request, Workload
from onecat.experiments.result_lines import block_document
from onecat.experiments.results import now
from onecat.observe.statistics import errors_by_kind

if TYPE_CHECKING:
    from onecat.experiments.loads import LoadDriver
    from onecat.experiments.results import ResultFile

Report = Callable[[str], None]
"""Receives one line for each step, for a person."""

WARM_UP_SEED = 1_000_003
"""Added to the seed of warm-ups, so that they send other requests than any block."""


@dataclass(frozen=True)
class Design:
    """What a run does.

    levels: ways of arriving, each with blocks of its own. repetitions: blocks of each level; one after the other of all
    levels, so that what drifts with time drifts in all of them. warm_up: requests before the first block of each level,
    which do not count.
    """

    workload: Workload
    levels: tuple[Arrivals, ...]
    repetitions: int = 3
    warm_up: int = 0


@dataclass(frozen=True)
class Planned:
    """A block that is to be measured."""

    number: int
    workload: Workload
    arrivals: Arrivals
    warm_up: bool


def planned(design: Design) -> tuple[Planned, ...]:
    """All blocks in their order. Each repetition sends requests of its own (the seed grows by one), since a server
    answers a prompt quicker that it has seen before."""
    blocks: list[tuple[Workload, Arrivals, bool]] = []
    for repetition in range(design.repetitions):
        for level in design.levels:
            if repetition == 0 and design.warm_up:
                seed = design.workload.seed + WARM_UP_SEED
                blocks.append((replace(design.workload, requests=design.warm_up, seed=seed), level, True))
            blocks.append((replace(design.workload, seed=design.workload.seed + repetition), level, False))
    return tuple(Planned(number, *each) for number, each in enumerate(blocks))


def design_document(design: Design) -> dict[str, Any]:
    """As plain data, for the result file's settings."""
    return asdict(design)


def run_design(
    driver: LoadDriver,
    endpoint: Endpoint,
    design: Design,
    results: ResultFile,
    report: Report,
    done: Collection[int] = (),
) -> tuple[Block, ...]:
    """Measure all blocks that are not done yet, and keep each as soon as it is there. Returns them.

    Parameters:
        done: numbers of blocks that the file has.

    Raises what the driver raises; CutShort carries what came of the block that was running, which is kept beside the
    whole ones.
    """
    measured = []
    todo = [each for each in planned(design) if each.number not in done]
    for place, each in enumerate(todo, 1):
        what = "warm-up" if each.warm_up else f"{each.workload.requests} requests, {arrivals_text(each.arrivals)}"
        report(f"block {place} of {len(todo)}: {what}")
        with keeping_what_was_cut(results):
            block = driver.run(endpoint, each.workload, each.arrivals, number=each.number, warm_up=each.warm_up)
        results.add_block(block)
        measured.append(block)
        report(f"  {block_sentence(block)}")
    return tuple(measured)


@contextlib.contextmanager
def keeping_what_was_cut(results: ResultFile) -> Iterator[None]:
    """While a block runs: what a Ctrl-C leaves of it is kept as a sample, where it is not taken for a whole block."""
    try:
        yield
    except CutShort as cut:
        if cut.block is not None:
            results.add_sample({"time": now(), "cut_short": block_document(cut.block)})
        raise


def check_answered(block: Block) -> None:
    """Raises OnecatError when a server answers nothing at all: to go on would be a waste of hours."""
    if block.requests and all(each.error is not None for each in block.requests):
        raise OnecatError(
            f"{block.endpoint} answered none of {len(block.requests)} requests ({', '.join(kinds(block.requests))})",
            expected="a server that answers what it is sent",
            details=sorted({each.message for each in block.requests if each.message})[:3],
            next_steps=["send it one request by hand", "or other ones: --input-tokens, --output-tokens, --chat"],
            code=ExitCode.NO,
        )


def block_sentence(block: Block) -> str:
    """What a block came to, in a line for whoever waits."""
    failed = sum(each.error is not None for each in block.requests)
    answered = [each for each in block.requests if each.error is None]
    words = [f"{len(answered)} answered in {block.seconds:.1f} s"]
    if answered and block.seconds > 0:
        words.append(f"{sum(each.output_tokens for each in answered) / block.seconds:.1f} output tokens/s")
    if failed:
        words.append(f"{failed} failed ({', '.join(kinds(block.requests))})")
    return ", ".join(words)


def kinds(requests: Iterable[Request]) -> list[str]:
    """The kinds of errors among requests, the most frequent first."""
    return list(errors_by_kind(each.error for each in requests))
