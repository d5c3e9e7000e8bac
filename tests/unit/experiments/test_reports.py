"""Series of alike blocks, and curves that keep what matters of many requests."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.experiments.records import Arrivals, Request
from onecat.experiments.report import (
    READINGS,
    Run,
    alike_in_first,
    cumulative,
    drawn,
    errors_over_time,
    load_curves,
    make_report,
    over_time,
    sampled,
    since_start,
)
from tests.measured import BEGUN, a_block, a_run, an_experiment, moment

values = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=800)


@given(values)
@settings(deadline=None)
def test_a_distribution_rises_from_the_least_to_the_largest(measured):
    curve = cumulative(measured, 50)
    assert curve[0] == (min(measured), 0.0)
    assert curve[-1] == (max(measured), 1.0)
    assert all(a[0] <= b[0] and a[1] < b[1] for a, b in zip(curve, curve[1:], strict=False))
    assert len(curve) <= 105
    for value, share in curve[1:]:
        assert sum(each <= value for each in measured) / len(measured) >= share - 1e-9


def test_the_slowest_hundredth_is_kept_of_many_requests():
    chance = random.Random(1)
    measured = [chance.lognormvariate(0, 1) for _ in range(100_000)]
    curve = cumulative(measured)
    assert len(curve) <= 205
    assert sum(share > 0.99 for _, share in curve) >= 90


def many_requests(number: int = 30_000) -> list[tuple[float, Request]]:
    chance = random.Random(2)
    return [
        (each * 0.05, Request(each, each * 0.05, 1, 1, 0.1, chance.lognormvariate(0, 0.4))) for each in range(number)
    ]


def test_a_timeline_of_many_requests_is_small_and_loses_none_of_them():
    sent = many_requests()
    cells = over_time(sent, 100, 50)
    assert len(cells) <= 101 * 51
    assert sum(each.requests for each in cells) == len(sent)
    slowest = max(sent, key=lambda each: each[1].end_to_end)
    assert (slowest[0], slowest[1].end_to_end) in {(each.at, each.value) for each in cells}


def test_a_timeline_of_few_requests_has_each_of_them():
    sent = many_requests(100)
    assert [(each.at, each.value) for each in over_time(sent, 10, 10)] == [(at, one.end_to_end) for at, one in sent]


def test_errors_are_counted_by_kind_where_they_happened():
    sent = [(float(each), Request(each, 0.0, 1, 0, None, 1.0, (), "timed-out")) for each in range(100)]
    sent.append((99.0, Request(100, 0.0, 1, 0, None, 1.0, (), "http-503")))
    found = errors_over_time(sent, 10)
    assert sum(each.requests for each in found if each.kind == "timed-out") == 100
    assert [each.requests for each in found if each.kind == "http-503"] == [1]
    assert max(abs(each.at - 99.0) for each in found if each.kind == "http-503") < 10
    assert errors_over_time([], 10) == ()


def test_requests_are_placed_by_when_their_block_began():
    experiment = an_experiment([a_block(0, at=10.0, requests=3), a_block(1, at=20.0, requests=3)])
    sent = since_start(experiment, experiment.blocks)
    assert [at for at, _ in sent[:2]] == pytest.approx([10.0, 10.004])
    assert sent[3][0] == pytest.approx(20.0)


def test_repetitions_are_one_series_and_warm_ups_none():
    report = make_report([Run("", "a.jsonl", a_run(requests=10))])
    (series,) = report.series
    assert (series.label, len(series.blocks), series.summary.requests) == ("chat", 3, 30)
    assert report.differences == ()


def levels(*numbers: int, speed: float = 1.0):
    return an_experiment(
        [
            a_block(place, concurrency=number, requests=10 * number, seed=0, speed=speed)
            for place, number in enumerate(numbers)
        ]
    )


def test_levels_of_load_are_a_curve():
    report = make_report([Run("", "a.jsonl", levels(8, 1, 2))])
    assert [each.label for each in report.series] == ["chat, 8 at once", "chat, 1 at once", "chat, 2 at once"]
    ((name, points),) = load_curves(report.series)
    assert (name, [each.arrivals.concurrency for each in points]) == ("chat", [1, 2, 8])


def test_each_run_has_a_curve_of_its_own():
    report = make_report([Run("before", "a", levels(1, 2)), Run("after", "b", levels(1, 2, speed=1.1))])
    assert [name for name, _ in load_curves(report.series)] == ["before", "after"]
    assert [(one.label, other.label) for one, other in alike_in_first(report)] == [
        ("before, 1 at once", "after, 1 at once"),
        ("before, 2 at once", "after, 2 at once"),
    ]


def test_runs_of_one_level_each_are_one_curve():
    report = make_report([Run(str(number), "x", levels(number)) for number in (1, 4)])
    ((name, points),) = load_curves(report.series)
    assert (name, len(points)) == ("all runs", 2)


def test_one_level_is_no_curve():
    report = make_report([Run("", "a.jsonl", a_run(requests=10))])
    assert load_curves(report.series) == ()


def test_arms_are_told_with_their_endpoints():
    blocks = [a_block(0, arm="A", endpoint="chat r3", requests=5), a_block(1, arm="B", endpoint="chat r4", requests=5)]
    report = make_report([Run("", "a.jsonl", an_experiment(blocks, arms={"A": {}, "B": {}}, kind="ab"))])
    assert [each.label for each in report.series] == ["A: chat r3", "B: chat r4"]


def test_lengths_tell_series_apart_where_arrivals_do_not():
    blocks = [a_block(0, requests=5), a_block(1, requests=5, output_tokens=48)]
    report = make_report([Run("", "a.jsonl", an_experiment(blocks))])
    assert [each.label for each in report.series] == ["chat, 512 in, 24 out", "chat, 512 in, 48 out"]


def test_of_many_series_those_that_are_drawn_span_all_runs():
    report = make_report([Run("a", "a", levels(1, 2, 3, 4, 5)), Run("b", "b", levels(1, 2, 3, 4, 5))])
    chosen = drawn(report, 6)
    assert [(each.run, each.arrivals) for each in chosen] == [
        (run, Arrivals(number)) for run in (0, 1) for number in (1, 3, 5)
    ]
    assert drawn(report, 10) == report.series


def test_readings_come_from_samples_of_the_server():
    samples = [
        {
            "time": BEGUN.timestamp() + each,
            "engine": {"engines": [{"running": each, "waiting": 1, "kv_cache_usage": 0.5}, {"running": 1}]},
            "gpus": [{"utilization_percent": 80}, {"utilization_percent": 40}],
            "machine": {"processes": [{"pid": 1, "resident": 1 << 30}, {"pid": 2, "resident": 1 << 30}]},
        }
        for each in range(3)
    ]
    experiment = an_experiment([], samples=[*samples, {"time": moment(5), "note": "x"}, {"no": "time"}])
    found = {(each.chart, each.name): points[-1] for each in READINGS if (points := sampled(experiment, each.read))}
    assert found == {
        ("Requests in the engine", "running"): (2.0, 3.0),
        ("Requests in the engine", "waiting"): (2.0, 1.0),
        ("KV cache used, %", "fullest engine"): (2.0, 50.0),
        ("GPU utilisation, %", "mean"): (2.0, 60.0),
        ("GPU utilisation, %", "lowest"): (2.0, 40.0),
        ("Memory of the server's processes, GiB", "resident"): (2.0, 2.0),
    }


def test_readings_come_from_what_a_soak_watches():
    samples = [
        {"time": moment(each), "running": 2, "kv_cache_usage": 0.25, "processes": 3, "rss_bytes": 2 << 30,
         "private_bytes": 1 << 30, "gpu_memory_bytes": [1 << 30, 3 << 30], "restarts": 0}
        for each in range(3)
    ]  # fmt: skip
    experiment = an_experiment([], samples=samples)
    found = {each.name: points[-1][1] for each in READINGS if (points := sampled(experiment, each.read))}
    assert found == {
        "running": 2.0,
        "fullest engine": 25.0,
        "resident": 2.0,
        "its own": 1.0,
        "all GPUs": 4.0,
        "so far": 0.0,
    }


def test_of_many_samples_peaks_are_kept():
    samples = [
        {"time": BEGUN.timestamp() + each, "engine": {"engines": [{"waiting": 99 if each == 777 else 0}]}}
        for each in range(5000)
    ]
    experiment = replace(an_experiment([]), samples=tuple(samples))
    waiting = next(each for each in READINGS if each.name == "waiting")
    points = sampled(experiment, waiting.read)
    assert len(points) <= 300
    assert max(value for _, value in points) == 99
