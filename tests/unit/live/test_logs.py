"""Lines of several logs: their order, since when they are wanted, what they mean."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.live.logs import Entry, Finding, LeftOut, Notice, Source, Wanted, parse_since
from onecat.live.logs.merging import Merger, Reader, merged
from onecat.live.logs.moments import moment_of, offset_of
from onecat.live.logs.records import Told
from onecat.live.logs.selecting import kept_of, last_of
from onecat.observe.patterns import compile_pattern
from onecat.render.logs import event_line, labels, left_out_line

ONE, TWO = Source("gpu1", "server", 3), Source("gpu2", "server", 3)
ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 11, 30, 14, 30, 0, tzinfo=ZONE)


def entries(source: Source, *lines: str) -> list[Entry]:
    reader = Reader(source)
    return [reader.entry(line) for line in lines]


def lines_of(events: Iterable[Told]) -> list[Entry]:
    """Those that are lines."""
    return [event for event in events if isinstance(event, Entry)]


def at(seconds: int, text: str = "x") -> str:
    return f"2026-11-30T12:00:{seconds:02d}Z {text}"


def test_lines_of_two_hosts_come_in_the_order_of_time() -> None:
    found = merged([entries(ONE, at(1), at(4)), entries(TWO, at(2), at(3), at(5))])
    assert [(each.source.host, each.text[17:19]) for each in lines_of(found)] == [
        ("gpu1", "01"),
        ("gpu2", "02"),
        ("gpu2", "03"),
        ("gpu1", "04"),
        ("gpu2", "05"),
    ]


def test_lines_without_a_time_stay_behind_their_own_line() -> None:
    traceback = ("Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: no")
    found = merged([entries(ONE, at(1, "one"), *traceback, at(9)), entries(TWO, at(2), at(3))])
    assert [each.text for each in lines_of(found)] == [at(1, "one"), *traceback, at(2), at(3), at(9)]
    (first,) = entries(ONE, "no time yet")
    assert first.moment is None


def test_a_clock_that_is_set_back_does_not_mix_the_lines_of_one_log() -> None:
    found = merged([entries(ONE, at(5, "a"), at(2, "b"), at(6, "c"))])
    assert [each.text[-1] for each in lines_of(found)] == ["a", "b", "c"]


def test_a_line_waits_for_an_earlier_one_of_another_host_and_not_longer() -> None:
    merger = Merger(0.5)
    (late,), (early,) = entries(ONE, at(5)), entries(TWO, at(4))
    merger.add(late, 100.0)
    assert merger.ready(100.4) == []
    merger.add(early, 100.4)
    assert merger.ready(100.5) == [early, late]
    assert merger.ready(200.0) == [] == merger.rest()


def test_a_host_whose_clock_is_behind_does_not_hold_up_the_others() -> None:
    merger = Merger(0.5)
    (ahead,) = entries(ONE, at(50))
    merger.add(ahead, 0.0)
    behind = Reader(TWO)
    found: list[Entry] = []
    for tick in range(1, 8):
        merger.add(behind.entry(at(tick)), tick / 10)
        found += lines_of(merger.ready(tick / 10))
    assert ahead in found


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-30T12:00:00Z a", 0.0),
        ("2026-11-30T12:00:00.250Z a", 0.25),
        ("2026-11-30T12:00:00.123456789Z a", 0.123456789),
        ("2026-11-30T14:00:00.5+02:00 a", 0.5),
        ("2026-11-30T12:00:60Z a", 60.0),
        ('{"time": "2026-11-30T13:00:01+01:00", "status": 502}', 1.0),
        ("2026/11/30 12:00:02 [error] 7#7: a", 2.0),
        ("2026-13-30T12:00:00Z a", None),
        ("INFO 11-30 12:00:00 a", None),
        ("", None),
    ],
)
def test_the_time_before_a_line(text: str, seconds: float | None) -> None:
    noon = datetime(2026, 11, 30, 12, tzinfo=timezone.utc).timestamp()
    found = moment_of(text)
    assert found is None if seconds is None else found == pytest.approx(noon + seconds, abs=1e-6)


def test_nginx_tells_the_local_time_of_its_host() -> None:
    text = "2026/11/30 14:00:00 [error] 7#7: a"
    assert moment_of(text, offset_of("+0200\n")) == moment_of("2026-11-30T12:00:00Z")
    assert (offset_of("-0330"), offset_of("what")) == (-12600, 0)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("10m", NOW - timedelta(minutes=10)),
        ("2h", NOW - timedelta(hours=2)),
        ("3d", NOW - timedelta(days=3)),
        ("1h30m", NOW - timedelta(minutes=90)),
        ("45s", NOW - timedelta(seconds=45)),
        ("09:15", datetime(2026, 11, 30, 9, 15, tzinfo=ZONE)),
        ("14:30", NOW),
        ("23:15", datetime(2026, 11, 29, 23, 15, tzinfo=ZONE)),
        ("2026-11-30T10:00:00Z", datetime(2026, 11, 30, 10, tzinfo=timezone.utc)),
        ("2026-11-30T10:00:00.5+02:00", datetime(2026, 11, 30, 10, 0, 0, 500000, tzinfo=ZONE)),
        ("2026-11-29", datetime(2026, 11, 29, tzinfo=ZONE)),
    ],
)
def test_since(word: str, expected: datetime) -> None:
    assert parse_since(word, NOW) == expected.timestamp()


@pytest.mark.parametrize(
    "word", ["", " ", "10", "m", "ten minutes", "25:00", "10m2h", "2026-13-01", "99999999999d", "-5m"]
)
def test_since_that_is_no_time_is_refused_with_what_to_type(word: str) -> None:
    with pytest.raises(OnecatError) as refused:
        parse_since(word, NOW)
    assert refused.value.code is ExitCode.USAGE
    assert "10m" in (refused.value.expected or "")


def test_since_and_grep_choose_lines_and_the_last_of_these_are_told() -> None:
    found = entries(ONE, at(1, "GET a"), at(2, "GET b"), at(3, "POST"), "get c", at(4, "GET d"))
    pattern = compile_pattern("get", ignore_case=True)
    since = moment_of(at(2))

    def told(**changes: object) -> list[str]:
        events = kept_of(found, Wanted("demo", **changes))  # type: ignore[arg-type]
        return [event.text.rpartition(" ")[2] for event in events if isinstance(event, Entry)]

    assert told(lines=None, since=since) == ["b", "POST", "c", "d"]
    assert told(lines=None, pattern=pattern) == ["a", "b", "c", "d"]
    assert told(lines=2, pattern=pattern) == ["c", "d"]
    assert told(lines=2) == ["c", "d"]


def test_lines_that_came_while_the_past_was_read_are_not_cut_off() -> None:
    found = entries(ONE, at(1), at(2), at(3), at(4))
    assert last_of(found, 0) == []
    told = last_of(found, 1, moment_of(at(3)))
    assert [event.text for event in told if isinstance(event, Entry)] == [at(2), at(3), at(4)]


def test_all_lines_are_searched_and_it_is_said_what_was_too_much_to_tell() -> None:
    source = Source("gpu1", "server", 3)
    lines = (Entry(source, f"{'GET' if number % 2 else 'POST'} {number}", float(number)) for number in range(30_000))
    first, *rest = kept_of(lines, Wanted("demo", lines=None, pattern=compile_pattern("GET"), diagnose=False), 1000)
    assert first == LeftOut(source, 14_000, 1000)
    assert [event.text for event in rest if isinstance(event, Entry)][:: len(rest) - 1] == ["GET 28001", "GET 29999"]
    assert "gpu1, server: 14000 earlier lines are left out" in left_out_line(first)
    few = kept_of(entries(ONE, at(1), at(2)), Wanted("demo", lines=1, pattern=compile_pattern("x"), diagnose=False))
    assert [type(event) for event in few] == [Entry], "what -n leaves out was asked for"


OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def test_a_diagnosis_stands_right_behind_the_line_that_shows_it_also_where_grep_hides_that() -> None:
    found = entries(ONE, at(1, "INFO fine"), at(2, OUT_OF_MEMORY), at(3, "INFO after"))
    events = list(kept_of(found, Wanted("demo")))
    assert [type(event) for event in events] == [Entry, Entry, Finding, Entry]
    told = events[2]
    assert isinstance(told, Finding) and "memory" in told.diagnosis.cause
    hidden = list(kept_of(found, Wanted("demo", pattern=compile_pattern("INFO"))))
    assert [type(event) for event in hidden] == [Entry, Finding, Entry]
    assert not any(isinstance(event, Finding) for event in kept_of(found, Wanted("demo", diagnose=False)))
    others = entries(TWO, at(1, "two"), at(3, "two"))
    both = merged([[event for event in hidden if not isinstance(event, LeftOut)], others])
    assert [event.source.host for event in both] == ["gpu1", "gpu2", "gpu1", "gpu1", "gpu2"], "in its line's place"


def test_several_releases_of_a_host_are_told_apart() -> None:
    old, new = Source("local", "server", 3), Source("local", "canary", 4)
    assert labels([old], False) == {old: ""}
    assert labels([old, new], False) == {old: "server 3", new: "canary 4"}
    assert event_line(Notice(new, "release 4 starts"), "canary 4") == "onecat: canary 4: release 4 starts"
