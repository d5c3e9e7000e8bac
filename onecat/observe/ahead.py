"""Does a costly step for items that are still to come, in threads of its own, while the ones before are worked on.

In: items, and a step that lets go of Python's lock while it works. Out: the items in order, each with its result.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 3
NAME = "onecat-ahead"
"""How the names of the threads begin."""


def threads_to_use() -> int:
    """One thread for each processor that this process may use, three at most; none where it is one processor."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if count < 2 else min(count, _MOST_THREADS)


def done_ahead(
    items: Iterable[Item], step: Callable[[Item], Result], size: Callable[[Item], int], most: int, threads: int
) -> Generator[tuple[Item, Result], None, None]:
    """Each item with the result of its step, in order, as without threads.

    The items are taken in the caller's thread: what taking one raises comes through after the items before it, and an
    interrupt at once. No thread is left when the iterator is exhausted, has raised or is closed.

    Parameters:
        size: of an item, in the unit of `most`.
        most: the size of all items that wait, without the present one. One may wait whatever its size.
        threads: how many; 0 does the steps in the caller's thread.
    """
    failures: list[Exception] = []

    def taken() -> Iterator[Item]:
        try:
            yield from items
        except Exception as error:  # noqa: BLE001 - raised again, in its turn
            failures.append(error)

    iterator = taken()
    some = list(itertools.islice(iterator, 2 if threads else 0))
    if len(some) == 2:
        yield from _in_threads(itertools.chain(some, iterator), step, size, most, threads)
    else:
        for item in itertools.chain(some, iterator):
            yield item, step(item)
    if failures:
        raise failures[0]


def _in_threads(
    items: Iterator[Item], step: Callable[[Item], Result], size: Callable[[Item], int], most: int, threads: int
) -> Generator[tuple[Item, Result], None, None]:
    from concurrent.futures import Future, ThreadPoolExecutor

    pool = ThreadPoolExecutor(threads, thread_name_prefix=NAME)
    try:
        waiting: deque[tuple[Item, Future[Result]]] = deque()
        waits = 0
        for item in items:
            waiting.append((item, pool.submit(step, item)))
            waits += size(item)
            while len(waiting) > 1 and waits > most:
                first, result = waiting.popleft()
                waits -= size(first)
                yield first, result.result()
        for first, result in waiting:
            yield first, result.result()
    finally:
        pool.shutdown(cancel_futures=True)
