"""Many hosts at once: order, limits, failures, questions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.hosts import Desk, FanOut, Outcome, Task

SetLimit = Callable[[float], None]


def outcomes(
    *works: Callable[[SetLimit], object], parallel: int = 8, desk: Desk | None = None
) -> list[Outcome[object]]:
    """What came of all works, in their order."""
    tasks = [Task(f"gpu{number}", work) for number, work in enumerate(works)]
    fan_out = FanOut(tasks, parallel=parallel, desk=desk or Desk())
    return [outcome for _, outcome in sorted(fan_out.ended(), key=lambda each: each[0])]


def test_outcomes_come_in_the_order_of_the_tasks_whichever_ends_first() -> None:
    def slow(_: SetLimit) -> str:
        time.sleep(0.1)
        return "slow"

    found = outcomes(slow, lambda _: "fast")
    assert [(each.name, each.result) for each in found] == [("gpu0", "slow"), ("gpu1", "fast")]
    assert found[0].seconds >= 0.1 > found[1].seconds


def test_no_more_run_at_once_than_were_allowed() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work(_: SetLimit) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    assert len(outcomes(*[work] * 9, parallel=3)) == 9
    assert most == 3


def test_a_failure_is_the_outcome_of_its_own_task_alone() -> None:
    def broken(_: SetLimit) -> None:
        raise OnecatError("no route", code=ExitCode.UNREACHABLE)

    first, second = outcomes(broken, lambda _: 1)
    assert str(first.error) == "no route"
    assert (second.result, second.error) == (1, None)


def test_a_host_that_hangs_costs_its_own_limit_and_its_place_goes_to_the_next() -> None:
    hanging = threading.Event()

    def hang(set_limit: SetLimit) -> None:
        set_limit(0.1)
        hanging.wait()

    started = time.monotonic()
    first, second, third = outcomes(hang, hang, lambda _: "done", parallel=1)
    assert 0.2 <= time.monotonic() - started < 1
    for each in (first, second):
        assert isinstance(each.error, OnecatError)
        assert (each.error.found, each.error.code) == ("no answer within 0.1 s", ExitCode.UNREACHABLE)
    assert third.result == "done"
    hanging.set()


def test_the_time_in_which_a_person_is_asked_does_not_count() -> None:
    desk = Desk()

    def ask(set_limit: SetLimit) -> str:
        set_limit(0.1)
        with desk.waiting():
            time.sleep(0.3)
        return "answered"

    (found,) = outcomes(ask, desk=desk)
    assert found.result == "answered"


def test_questions_are_answered_one_after_another_in_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def answer(text: str, _: object) -> str:
        asked.append((text, threading.current_thread() is threading.main_thread()))
        return text.upper()

    monkeypatch.setattr("getpass.getpass", answer)
    desk = Desk()
    found = outcomes(*[lambda _, n=n: desk.ask(f"q{n}") for n in range(4)], desk=desk)
    assert [each.result for each in found] == ["Q0", "Q1", "Q2", "Q3"]
    assert sorted(asked) == [(f"q{number}", True) for number in range(4)]


def test_who_waits_sees_each_task_as_it_ends() -> None:
    first_is_seen = threading.Event()
    works: list[Callable[[SetLimit], object]] = [lambda _: first_is_seen.wait(10), lambda _: "first"]
    seen = []
    tasks = [Task(f"gpu{number}", work) for number, work in enumerate(works)]
    for index, outcome in FanOut(tasks, parallel=2, desk=Desk()).ended():
        seen.append((index, outcome.result))
        first_is_seen.set()
    assert seen == [(1, "first"), (0, True)]


def test_a_wait_for_its_turn_is_not_part_of_the_time_that_a_task_took() -> None:
    desk = Desk()

    def work(set_limit: SetLimit) -> None:
        set_limit(5)
        with desk.waiting():
            time.sleep(0.2)

    first, second = outcomes(work, work, parallel=1, desk=desk)
    assert first.seconds < 0.1 and second.seconds < 0.1
