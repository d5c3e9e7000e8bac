"""Times of work on a GPU, as a replayed CUDA graph: nothing of the host's is in them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

REPEATS = 9
BATCH_SECONDS = 0.003
MOST_CALLS = 256
COPY_BYTES = 1 << 30


def seconds_of(calls: Sequence[Callable[[], object]], repeats: int = REPEATS) -> float:
    """Median seconds of one of the calls, which follow each other in a graph for BATCH_SECONDS or once each.

    Each call should use memory of its own, so that what it reads is no longer in the cache when it comes again.
    """

    def run(rounds: int) -> None:
        for _ in range(rounds):
            for call in calls:
                call()

    def timed(work: Callable[[], None]) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000

    run(1)  # what is loaded, chosen or compiled at a first call
    rounds = min(int(BATCH_SECONDS / timed(lambda: run(1))), MOST_CALLS // len(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(max(1, rounds))
    graph.replay()
    times = [timed(graph.replay) for _ in range(repeats)]
    return statistics.median(times) / (max(1, rounds) * len(calls))


def copies_past_cache(stored_bytes: int, times: int = 4) -> int:
    """How many copies of so many bytes are `times` as large as the GPU's L2 cache together, two at least."""
    cache: int = torch.cuda.get_device_properties(0).L2_cache_size
    return max(2, times * cache // stored_bytes + 1)


def copy_rate() -> float:
    """Bytes per second that copying moves, read and written counted each."""
    source = torch.randint(0, 256, (COPY_BYTES,), dtype=torch.uint8, device="cuda")
    targets = [torch.empty_like(source) for _ in range(2)]
    seconds = seconds_of([lambda target=target: target.copy_(source) for target in targets])
    return 2 * COPY_BYTES / seconds
