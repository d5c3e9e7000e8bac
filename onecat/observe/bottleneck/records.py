"""What is said about a bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Bottleneck = Literal[
    "compute",
    "memory-bandwidth",
    "pcie",
    "queue",
    "kv-cache",
    "throttling",
    "server-cpu",
    "idle",
    "not-clear",
]
BOTTLENECKS: tuple[Bottleneck, ...] = get_args(Bottleneck)

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Reading:
    """What holds a server back.

    sentence: for a person, one line. evidence: the numbers that led to it. advice: what to do or to look at, each in
    one sentence. source: URLs of what the rule and its limits rest on. also: what else was seen that would count if the
    bottleneck were not there, each as its kind and sentence. seconds: the stretch of time that was read.
    """

    bottleneck: Bottleneck
    confidence: Confidence
    sentence: str
    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    also: tuple[tuple[Bottleneck, str], ...] = ()
    seconds: float = 0.0
