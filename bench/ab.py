"""Whether `onecat bench ab` tells a slow-down from noise: a planted one of 5 % must be found, and of 20 comparisons of
a server with itself at least 19 must show no difference.

Run it as root by `make bench-ab`. One real vLLM serves the small model on the CPU; before it stand two proxies that
delay answers by known times, A and B. The load is the engine's own benchmark, in one process for all blocks. For the
planted slow-down B's delays are 5 % longer than A's; else they are the same. Ends with 1 when the line is not held.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from onecat.config import load_profile  # noqa: E402
from onecat.experiments.ab import Design, Outcome, run_ab  # noqa: E402
from onecat.experiments.loads import LoadDriver  # noqa: E402
from onecat.experiments.records import Arrivals, Endpoint, Environment, Workload  # noqa: E402
from onecat.experiments.results import ResultFile  # noqa: E402
from onecat.experiments.speed import DEFAULT_METRIC  # noqa: E402
from onecat.experiments.targets import NativeSender, open_driver, url_target  # noqa: E402
from onecat.hosts import LocalMachine  # noqa: E402
from onecat.images import ensure_runtime  # noqa: E402
from onecat.paths import Home  # noqa: E402
from onecat.resources import small_model  # noqa: E402
from tests.testbed.cache import open_cache  # noqa: E402
from tests.testbed.command import Onecat  # noqa: E402
from tests.testbed.delaying_proxy import DelayingProxy, Delays, running  # noqa: E402
from tests.testbed.served import Served, serving  # noqa: E402

SLOWER = 0.05
DELAYS = Delays(first_byte=0.15, chunk=0.05)
"""Several times what the small model takes for itself on two cores at rest, so that five percent of them are five
percent of the whole, nearly."""
WORKLOAD = Workload(requests=4, input_tokens=32, output_tokens=24)
ARRIVALS = Arrivals(concurrency=4)
SEED = 20_000
ALLOWED_WRONG = 0.05


@dataclass(frozen=True)
class Row:
    """One comparison: what was planted, what was found, and how long it took in seconds."""

    planted_percent: float
    outcome: Outcome
    seconds: float

    @property
    def is_right(self) -> bool:
        wanted = ("slower",) if self.planted_percent else ("same", "no-difference")
        return self.outcome.verdict in wanted

    def line(self) -> str:
        p = self.outcome.comparison.p
        told = "" if p is None else f"p {p:.4f}"
        return f"{self.planted_percent:5.1f} %  {self.seconds:6.1f} s  {told:>8}  {self.outcome.sentence}"


@dataclass
class Bed:
    """A server, two proxies before it, and what sends the load."""

    driver: LoadDriver
    a: DelayingProxy
    b: DelayingProxy
    endpoints: dict[str, Endpoint]
    folder: Path
    delays: Delays = DELAYS
    workload: Workload = WORKLOAD
    number: int = 0

    def compare(self, slower: float, pairs: int, metric: str = DEFAULT_METRIC, early: bool = True) -> Row:
        """One comparison; B's delays are longer than A's by the share `slower`."""
        self.number += 1
        self.a.delays, self.b.delays = self.delays, self.delays.slower(slower)
        workload = replace(self.workload, seed=SEED + 1000 * self.number)
        design = Design(workload, ARRIVALS, metric, pairs, early, warm_up=workload.requests)
        environment = Environment("bench", "local", self.driver.describe(), {"A": {}, "B": {}})
        began = time.monotonic()
        with ResultFile.create(self.folder / f"{self.number}.jsonl", "ab", environment, {}) as file:
            outcome = run_ab(self.driver, design, lambda arm: (self.endpoints[arm], False), file)
        return Row(100 * slower, outcome, time.monotonic() - began)


@contextlib.contextmanager
def bed(served: Served, python: str, folder: Path) -> Iterator[Bed]:
    """The proxies before a server, and the load driver. python: of the engine's runtime."""
    target = ("127.0.0.1", served.port)
    a, b = DelayingProxy(target, DELAYS), DelayingProxy(target, DELAYS)
    machine = LocalMachine(folder)
    with running(a, b):
        targets = {
            arm: url_target(
                proxy.url,
                served.model,
                machine=machine,
                sender=NativeSender(python),
                tokenizer=str(served.directory),
                label=arm,
            )
            for arm, proxy in (("A", a), ("B", b))
        }
        with open_driver(targets["A"], targets["B"]) as driver:
            yield Bed(driver, a, b, {arm: each.endpoint for arm, each in targets.items()}, folder)


def measure(
    made: Bed, pairs: int, same: int, planted: int, tell: Callable[[str], None] = lambda line: None
) -> list[Row]:
    """The comparisons: `planted` with a slow-down, `same` without, the planted ones spread among the others."""
    total, rows = same + planted, []
    for number in range(total):
        is_planted = (number + 1) * planted // total > number * planted // total
        rows.append(made.compare(SLOWER if is_planted else 0.0, pairs))
        tell(rows[-1].line())
    return rows


def holds(rows: Sequence[Row]) -> bool:
    """Whether every planted slow-down was found, and at least 19 of 20 of the others show no difference."""
    same = [each for each in rows if not each.planted_percent]
    wrong = sum(not each.is_right for each in same)
    found = all(each.is_right for each in rows if each.planted_percent)
    return found and wrong <= ALLOWED_WRONG * len(same)


def told(rows: Sequence[Row]) -> list[str]:
    """What all comparisons come to."""
    same, planted = ([each for each in rows if bool(each.planted_percent) is which] for which in (False, True))
    return [
        f"no difference shown where there is none: {sum(each.is_right for each in same)} of {len(same)}",
        f"a slow-down of {100 * SLOWER:g} % found: {sum(each.is_right for each in planted)} of {len(planted)}",
        f"the line is {'held' if holds(rows) else 'NOT held'}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10, help="most pairs of blocks in a comparison (default: 10)")
    parser.add_argument("--same", type=int, default=20, help="comparisons without a difference (default: 20)")
    parser.add_argument("--planted", type=int, default=1, help="comparisons with a slow-down of 5 %% (default: 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(open_cache())
        engine = Home(data=cache.folder("engine"), cache=cache.folder("onecat"))
        runtime = ensure_runtime(load_profile("cpu"), engine, lambda line: print(line, file=sys.stderr))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onecat-bench-ab-")))
        home = folder / "home"
        home.mkdir()
        (home / "runtimes").symlink_to(engine.runtimes)
        runner = Onecat(home=home, cache=engine.cache, docker_host="unix:///nonexistent/docker.sock")
        print("starting vLLM and the load driver", flush=True)
        served = stack.enter_context(serving(runner, small_model(), folder))
        made = stack.enter_context(bed(served, runtime.serve_argv([])[0], folder))
        print(f"load average at the begin: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print("planted    took         p  found", flush=True)
        rows = measure(made, options.pairs, options.same, options.planted, lambda line: print(line, flush=True))
        print(f"load average at the end: {os.getloadavg()[0]:.1f}")
    print("\n".join(told(rows)))
    if options.json is not None:
        figures = [
            {"planted_percent": each.planted_percent, "seconds": each.seconds, **each.outcome.document()}
            for each in rows
        ]
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if holds(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
