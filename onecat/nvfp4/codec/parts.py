"""Work on a large array in parts that fit a processor's cache, on several threads.

numpy and compiled loops let other threads run meanwhile, so threads are all it takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Scratch = TypeVar("Scratch")
Answer = TypeVar("Answer")


def each_part(
    parts: int, threads: int, scratch: Callable[[], Scratch], work: Callable[[int, Scratch], Answer]
) -> list[Answer]:
    """The answers of `work` to the numbers of all parts, in their order.

    scratch: makes the memory that one thread uses again for each of its parts. Raises what `work` raises, when no
    thread works any more.
    """
    lock, following = threading.Lock(), iter(range(parts))
    stopped = threading.Event()

    def take() -> int | None:
        with lock:
            return None if stopped.is_set() else next(following, None)

    def labour() -> dict[int, Answer]:
        answers, memory = {}, scratch()
        try:
            while (part := take()) is not None:
                answers[part] = work(part, memory)
        except BaseException:
            stopped.set()
            raise
        return answers

    workers = min(threads, parts)
    found: dict[int, Answer] = {}
    if workers == 1:
        found = labour()
    elif workers > 1:
        with ThreadPoolExecutor(workers, thread_name_prefix="codec") as pool:
            running = [pool.submit(labour) for _ in range(workers)]
            try:
                for each in running:
                    found |= each.result()
            except BaseException:
                stopped.set()
                raise
    return [found[part] for part in range(parts)]
