"""When a starting server counts as hung."""

from __future__ import annotations

from onecat.deploy.health_gate import Activity, SilenceWatch


def test_nothing_at_all_for_the_limit_is_silence() -> None:
    watch = SilenceWatch(limit=10)
    idle = Activity(1.0, 100)
    assert [watch.silent(now, idle, 1) for now in (0, 5, 9.9, 10)] == [False, False, False, True]


def test_a_log_line_a_disk_read_or_cpu_use_begins_the_wait_anew() -> None:
    for activity, mark in ((Activity(1.0, 100), 2), (Activity(1.0, 101), 1), (Activity(2.0, 100), 1)):
        watch = SilenceWatch(limit=10)
        assert not watch.silent(0, Activity(1.0, 100), 1)
        assert not watch.silent(9, activity, mark)
        assert not watch.silent(18, activity, mark)
        assert watch.silent(19, activity, mark)


def test_waking_up_now_and_then_is_no_work() -> None:
    """A process that polls uses some CPU without getting anywhere."""
    watch = SilenceWatch(limit=100)
    answers = [watch.silent(now, Activity(0.002 * now, 0), 0) for now in range(0, 101)]
    assert answers[-1]
    assert not any(answers[:-1])


def test_work_that_never_ends_is_never_silent() -> None:
    watch = SilenceWatch(limit=10)
    assert not any(watch.silent(now, Activity(0.5 * now, 0), 0) for now in range(0, 10_000))


def test_the_end_of_a_process_counts_as_work() -> None:
    watch = SilenceWatch(limit=10)
    watch.silent(0, Activity(100.0, 0), 0)
    assert not watch.silent(11, Activity(1.0, 0), 0)


def test_who_waits_for_a_processor_does_not_hang() -> None:
    """A guest that its host does not run uses no CPU time; who only polls is caught at the next look."""
    starved, asleep = Activity(1.0, 100, runnable=True), Activity(1.0, 100)
    watch = SilenceWatch(limit=10)
    assert not any(watch.silent(now, starved, 1) for now in range(100))
    assert watch.silent(100, asleep, 1)
