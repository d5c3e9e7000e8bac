"""Many requests at the same time, and what the host does meanwhile."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat.live.preflight.look import Unknown
from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject
from onecat.observe.metrics import Sample

if TYPE_CHECKING:
    from onecat.config.schema import Preflight
    from onecat.experiments.records import Block
    from onecat.planner.records import Plan

WARM_UP = 16
"""Requests before the load that are not counted: the first ones of a server compile and fill caches."""
WATCHED_SECONDS = 10.0
"""Cards are watched under load for so long, as in field report A; a quick server gets the load again for that."""
LEAST_SECONDS, TIMES_THE_LIMIT = 30.0, 10.0
"""No request is sent any more after so many times what a server takes that just keeps the limit."""
SPARE_TOKENS = 16
"""Random tokens become text and tokens again, which are not always as many."""


@dataclass(frozen=True)
class LoadSeen:
    """url: where it went to. block: its requests, but for those that were sent to watch the cards for longer.
    samples: of the host meanwhile, oldest first; no_samples: why there are none. driver: what sent it, in words."""

    url: str
    block: Block
    input_tokens: int
    driver: str
    samples: tuple[Sample, ...] = ()
    no_samples: str = ""


def told(limits: Preflight) -> str:
    """The load that is to be sent to each host, in words."""
    return (
        f"{limits.requests} requests, {limits.concurrent} at once, of {limits.input_tokens} tokens with answers of "
        f"{limits.output_tokens}"
    )


def input_tokens(limits: Preflight, plan: Plan) -> int:
    """The tokens of each request: fewer than the limits say where the server takes no such long ones."""
    words = plan.server_args
    at = words.index("--max-model-len") if "--max-model-len" in words else None
    text = words[at + 1] if at is not None and at + 1 < len(words) else ""
    most = int(text) - limits.output_tokens - SPARE_TOKENS if text.isdigit() else limits.input_tokens
    return max(1, min(limits.input_tokens, most))


def most_seconds(limits: Preflight) -> float:
    """After so many seconds nothing is sent any more."""
    rounds = math.ceil(limits.requests / limits.concurrent)
    return max(LEAST_SECONDS, TIMES_THE_LIMIT * limits.p99_seconds * rounds)


def _told_seconds(limits: Preflight) -> str:
    seconds = most_seconds(limits)
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} minutes"


@observer(LoadSeen, place=95)
def observe_load(subject: Subject) -> LoadSeen | Unknown:
    """Random prompts in a closed loop, by the engine's own benchmark on the host itself; as clients ask, through nginx,
    unless that would choose another host or refuse many requests of one client."""
    if subject.quick:
        return Unknown("left out by --quick")
    from onecat.experiments.records import Arrivals, Workload
    from onecat.experiments.targets import deployment_target, open_driver
    from onecat.live.preflight.observing.watching import watching

    limits = subject.look.limits
    site = subject.site
    limited = site is not None and (site.limits.requests_per_second or site.limits.connections)
    target = deployment_target(subject.store, direct=not subject.is_alone or bool(limited) or site is None)
    tokens = input_tokens(limits, subject.look.plan)
    arrivals = Arrivals(concurrency=limits.concurrent)

    def workload(requests: int, seed: int) -> Workload:
        return Workload(requests=requests, input_tokens=tokens, output_tokens=limits.output_tokens, seed=seed)

    subject.tell(f"sending {told(limits)}, to {target.endpoint.base_url}, for {_told_seconds(limits)} at most")
    with open_driver(target) as driver:
        driver.run(
            target.endpoint, workload(WARM_UP, 1), arrivals, number=0, warm_up=True, stop_after=most_seconds(limits)
        )
        with watching(subject) as watched:
            begin = time.monotonic()
            block = driver.run(
                target.endpoint, workload(limits.requests, 0), arrivals, number=1, stop_after=most_seconds(limits)
            )
            number, uses_cards = 2, subject.look.profile.hardware.accelerator != "none"
            while uses_cards and (left := WATCHED_SECONDS - (time.monotonic() - begin)) > 0:
                more = workload(limits.requests, number)
                driver.run(target.endpoint, more, arrivals, number=number, stop_after=left)
                number += 1
        about: dict[str, Any] = driver.describe()
    told_driver = f"{about['name']} {about['version']} on {about['where']}; {about['pinning']}"
    return LoadSeen(target.endpoint.base_url, block, tokens, told_driver, tuple(watched.samples), watched.why_not)
