"""A log that is searched ahead in threads: the same diagnoses as without, and no thread is left however it ends."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from onecat.observe import Diagnoser, Diagnosis, Evidence
from onecat.observe.ahead import NAME, done_ahead, threads_to_use

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
ALL_LOGS = {path.relative_to(LOGS).as_posix(): path.read_bytes() for path in sorted(LOGS.rglob("*.log"))}
CHUNK = 1 << 18


def told(log: bytes, threads: int) -> tuple[tuple[Diagnosis, ...], Evidence | None]:
    diagnoser = Diagnoser(threads=threads)
    diagnoser.read(log[begin : begin + CHUNK] for begin in range(0, len(log), CHUNK))
    return diagnoser.finish(every=True), diagnoser.first_exception()


def threads_left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(NAME)]


def interleaved(source: random.Random, size: int) -> bytes:
    """Logs of several services, over and over, a few lines of each in turn, until there is so much."""
    names = source.sample(sorted(ALL_LOGS), source.randint(1, 4))
    prefixed = source.random() < 0.5
    waiting: dict[str, list[bytes]] = {}
    lines: list[bytes] = []
    held = 0
    while held < size:
        name = source.choice(names)
        some = waiting.get(name) or ALL_LOGS[name].splitlines(keepends=True)
        count = source.choice((1, 2, 7, 1000))
        waiting[name] = some[count:]
        for line in some[:count]:
            lines.append(b"service-%d  | %b" % (names.index(name), line) if prefixed else line)
            held += len(lines[-1])
    return b"".join(lines)


def test_every_log_one_after_the_other_tells_the_same_with_and_without_threads() -> None:
    log = b"\n".join(ALL_LOGS.values()) * 2
    assert len(log) > 2 << 20
    found = told(log, 0)
    assert found[0]
    assert told(log, 1) == told(log, 2) == found
    assert threads_left() == []


@pytest.mark.parametrize("seed", range(3))
def test_logs_of_several_services_tell_the_same_with_and_without_threads(seed: int) -> None:
    log = interleaved(random.Random(seed), 3 << 20)
    assert told(log, 2) == told(log, 0)


def test_what_is_searched_for_changes_while_blocks_wait() -> None:
    """Words are given up and names left out while blocks wait, in which there are faults of other kinds."""
    often = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    failures = [log for name, log in ALL_LOGS.items() if name.startswith("failures/")]
    others = [line for log in failures for line in log.splitlines(keepends=True) if b"args: " not in line]
    log = b"".join(often * 3000 + b"".join(others[index::50]) for index in range(25))
    found = told(log, 0)
    assert len(found[0]) > 15
    assert told(log, 2) == found


@pytest.mark.parametrize("threads", [0, 2])
def test_a_log_that_breaks_off_is_read_up_to_there(threads: int) -> None:
    def chunks() -> Iterator[bytes]:
        yield from [b"Illegal instruction (core dumped)\n" + b"INFO well\n" * 200_000] * 2
        raise OSError(5, "Input/output error")

    diagnoser = Diagnoser(threads=threads)
    with pytest.raises(OSError, match="Input/output error"):
        diagnoser.read(chunks())
    assert threads_left() == []
    assert [each.signature for each in diagnoser.finish()] == ["cpu.illegal-instruction"]
    assert diagnoser.finish()[0].evidence[-1].line == 200_002


def test_an_interrupt_ends_the_threads_at_once() -> None:
    def chunks() -> Iterator[bytes]:
        yield from [b"INFO well\n" * 200_000] * 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Diagnoser(threads=2).read(chunks())
    assert threads_left() == []


def test_what_is_done_ahead_is_bounded() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for each in range(40):
            taken.append(each)
            yield each

    for item, result in done_ahead(items(), lambda each: each * each, lambda each: 10 if each < 20 else 1, 30, 2):
        assert result == item * item
        # Three of size 10, and the one that did not fit any more; later thirty of size 1.
        assert len(taken) - 1 - item <= (4 if item < 16 else 31)
    assert taken == list(range(40))


@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_step_that_fails_fails_at_its_item(threads: int, count: int) -> None:
    def step(item: int) -> int:
        if item == count - 1:
            raise ValueError(f"not {item}")
        return item

    seen: list[int] = []
    with pytest.raises(ValueError, match=f"not {count - 1}"):
        seen.extend(result for _, result in done_ahead(range(count), step, lambda _: 1, 2, threads))
    assert seen == list(range(count - 1))
    assert threads_left() == []


def test_nothing_is_left_when_the_reader_goes_away() -> None:
    results = done_ahead(range(100), lambda each: each, lambda _: 1, 10, 2)
    assert next(results) == (0, 0)
    assert threads_left()
    results.close()
    assert threads_left() == []


def test_threads_are_used_where_there_are_processors() -> None:
    assert threads_to_use() in (0, 2, 3)
