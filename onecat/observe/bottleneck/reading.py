"""Reads a window by all rules and chooses among what they find."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import replace

from onecat.observe.bottleneck.records import Reading
from onecat.observe.bottleneck.window import Window, window_of
from onecat.observe.bottleneck.wording import load_evidence
from onecat.observe.metrics import Sample

Rule = Callable[[Window], Reading | None]

FEWEST_SAMPLES = 2
_CONFIDENCES = ("high", "medium", "low")


def read_bottleneck(samples: Sequence[Sample]) -> Reading:
    """What holds a server back, from samples of its host in order of time; ten to thirty seconds of them read best.

    Of several rules that find something, the surer one counts; of equally sure ones the one whose bottleneck explains
    the others (throttling explains slow computing, preemptions explain a queue). The others are told as `also`.
    """
    window = window_of(samples)
    if not window.samples:
        errors = {each.error for each in samples if each.error}
        return Reading("not-clear", "low", "not clear: the host does not answer", evidence=tuple(sorted(errors)))
    if len(window.samples) < FEWEST_SAMPLES:
        return Reading("not-clear", "low", "not clear yet: a second sample is needed")
    found = [reading for rule in rules() if (reading := rule(window)) is not None]
    found.sort(key=lambda each: _CONFIDENCES.index(each.confidence))  # stable: rules are in the order of explaining
    if not found:
        return replace(_not_clear(window), seconds=window.seconds)
    chosen = found[0]
    also = tuple((each.bottleneck, each.sentence) for each in found[1:] if each.bottleneck != chosen.bottleneck)
    return replace(chosen, also=also, seconds=window.seconds)


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Every rule of rules/: each module has a function `rule` and its place, RANK, lower is nearer to the root."""
    import onecat.observe.bottleneck.rules as package

    modules = [
        importlib.import_module(f"{package.__name__}.{each.name}") for each in pkgutil.iter_modules(package.__path__)
    ]
    return tuple(module.rule for module in sorted(modules, key=lambda each: each.RANK))


def _not_clear(window: Window) -> Reading:
    evidence = load_evidence(window)
    if window.serves_nobody and window.utilization:
        return Reading(
            "not-clear",
            "low",
            f"not clear: GPUs {window.utilization:.0f} % busy though the server has no requests: another program?",
            evidence,
            ("nvidia-smi shows the programs on each GPU",),
        )
    if not window.gpus and not window.has_engine:
        return Reading("not-clear", "low", "not clear: neither GPUs nor a server's metrics are known", evidence)
    return Reading("not-clear", "low", "not clear: no limit is reached in what can be seen", evidence)
