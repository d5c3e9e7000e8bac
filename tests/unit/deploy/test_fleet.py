"""Several hosts: who is worked on when, what is told of failures, and where nginx finds each server."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.config import Deployment
from onecat.deploy.fleet import HostResult, HostWork, batches, failure_of_fleet, run_fleet
from onecat.deploy.front import address_of, for_host, front_host
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import ConnectionLostError, Desk


class Place:
    """A host as far as addresses go."""

    def __init__(self, name: str, address: str | None) -> None:
        self.name = name
        self.address = address


def deployment(**changes: Any) -> Deployment:
    values = {"name": "demo", "profile": "cpu", "model": {"path": "/m"}, "hosts": ["gpu1", "gpu2"]}
    return Deployment.model_validate({**values, **changes})


def work(host: str, serves: bool, do: Any = None) -> HostWork:
    done: Any = ("a release", True)
    return HostWork(host, serves, do or (lambda report: done))


@given(serves=st.lists(st.booleans(), max_size=9), at_once=st.integers(min_value=1, max_value=4))
def test_hosts_that_serve_are_touched_a_few_at_a_time_and_after_all_that_do_not(
    serves: list[bool], at_once: int
) -> None:
    works = [work(f"gpu{number}", each) for number, each in enumerate(serves)]
    done = batches(works, at_once)
    assert sorted(each.host for batch in done for each in batch) == sorted(each.host for each in works)
    for number, batch in enumerate(done):
        serving = [each for each in batch if each.serves]
        assert len(serving) <= at_once
        assert len(serving) in (0, len(batch)) and (number == 0 or serving == batch)


def test_hosts_of_one_batch_are_worked_on_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=10)
    results = run_fleet(
        [work(host, False, lambda report: (together.wait(), False)) for host in ("gpu1", "gpu2", "gpu3")],
        at_once=1,
        max_failures=0,
        desk=Desk(),
        tell=lambda host, text: None,
    )
    assert [each.result for each in results] == ["unchanged"] * 3


def failing(error: OnecatError) -> Any:
    def do(report: Any) -> Any:
        report("trying")
        raise error

    return do


@pytest.mark.parametrize(("max_failures", "expected"), [(0, ["failed", "left", "left"]), (1, ["failed", "up", "up"])])
def test_after_too_many_failures_the_rest_stay_as_they_are(max_failures: int, expected: list[str]) -> None:
    told: list[tuple[str, str]] = []
    works = [
        work("gpu1", True, failing(OnecatError("the engine crashed", code=ExitCode.ROLLED_BACK))),
        work("gpu2", True),
        work("gpu3", True),
    ]
    results = run_fleet(
        works, at_once=1, max_failures=max_failures, desk=Desk(), tell=lambda host, text: told.append((host, text))
    )
    assert [each.result for each in results] == expected
    assert told == [("gpu1", "trying"), ("gpu1", "failed: the engine crashed")]
    error = failure_of_fleet(results, max_failures, "demo")
    assert (error is None) is (max_failures == 1)
    if error is not None:
        assert error.code == ExitCode.ROLLED_BACK
        assert error.details == ("gpu1: the engine crashed", "gpu2, gpu3: not begun, and as before")


def test_the_gravest_failure_gives_the_exit_code() -> None:
    def result(host: str, code: ExitCode) -> HostResult:
        return HostResult(host, "failed", error=OnecatError("it failed", code=code))

    some = [result("gpu1", ExitCode.ROLLED_BACK), result("gpu2", ExitCode.UNREACHABLE)]
    found = failure_of_fleet(some, 0, "demo")
    assert found is not None and found.code == ExitCode.UNREACHABLE
    found = failure_of_fleet([*some, result("gpu3", ExitCode.NEEDS_PERSON)], 0, "demo")
    assert found is not None and found.code == ExitCode.NEEDS_PERSON
    assert failure_of_fleet(some, 2, "demo") is None


def test_a_host_that_was_lost_is_told_as_one() -> None:
    lost = failing(ConnectionLostError("the connection was lost", where="gpu1", code=ExitCode.UNREACHABLE))
    (result,) = run_fleet(
        [work("gpu1", True, lost)], at_once=1, max_failures=0, desk=Desk(), tell=lambda host, text: None
    )
    assert result.result == "unreachable"


def test_a_fault_of_ours_is_no_hosts_failure() -> None:
    def fault(report: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_fleet([work("gpu1", True, fault)], at_once=1, max_failures=0, desk=Desk(), tell=lambda host, text: None)


def test_nginx_runs_on_the_first_host_or_the_one_that_is_named() -> None:
    assert front_host(deployment()) == "gpu1"
    assert front_host(deployment(proxy={"on": "gpu2"})) == "gpu2"
    assert front_host(deployment(proxy={"kind": "none"})) is None
    assert front_host(deployment(hosts=["gpu1"])) is None
    with pytest.raises(OnecatError, match="none of the hosts"):
        front_host(deployment(proxy={"on": "gpu3"}))


@pytest.mark.parametrize(
    ("changes", "host", "address", "expected"),
    [
        ({"host": "0.0.0.0"}, "gpu1", "10.0.0.1", None),  # nginx runs there
        ({"host": "0.0.0.0"}, "gpu2", "10.0.0.2", "10.0.0.2"),  # as ssh reaches it
        ({"host": "::"}, "gpu2", "gpu2.lan", "gpu2.lan"),
        ({"addresses": {"gpu2": "192.168.7.2"}}, "gpu2", "gpu2.lan", "192.168.7.2"),
        ({"hosts": ["gpu1", "local"], "addresses": {"local": "192.168.7.1"}}, "local", None, "192.168.7.1"),
        ({"hosts": ["gpu2"]}, "gpu2", "10.0.0.2", None),
    ],
)
def test_nginx_finds_each_server_at_an_address_that_its_host_reaches(
    changes: dict[str, Any], host: str, address: str | None, expected: str | None
) -> None:
    assert address_of(deployment(**changes), Place(host, address)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "host", "address", "found"),
    [
        ({}, "gpu2", "10.0.0.2", "nginx on gpu1 cannot reach the server on gpu2 at 127.0.0.1"),
        ({"host": "localhost"}, "gpu2", "10.0.0.2", "nginx on gpu1 cannot reach the server on gpu2 at localhost"),
        ({"hosts": ["gpu1", "local"], "host": "0.0.0.0"}, "local", None, "the address of local is not known"),
    ],
)
def test_a_server_that_nginx_could_not_reach_is_refused_with_the_setting(
    changes: dict[str, Any], host: str, address: str | None, found: str
) -> None:
    with pytest.raises(OnecatError, match=found) as raised:
        address_of(deployment(**changes), Place(host, address))  # type: ignore[arg-type]
    assert f"addresses: {{{host}: ADDRESS}}" in raised.value.next_steps[0]


def test_each_host_listens_at_the_address_that_is_given_for_it() -> None:
    given = deployment(addresses={"gpu2": "192.168.7.2"})
    assert (for_host(given, "gpu1").host, for_host(given, "gpu2").host) == ("127.0.0.1", "192.168.7.2")
