"""A deployment on several hosts: each host makes its own release, a few at a time, so that the others serve meanwhile.

What fails on a host is undone there (see `onecat.deploy.rollout`). When more hosts have failed than may, the rest are
left as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from onecat.errors import ExitCode, OnecatError
from onecat.hosts import ConnectionLostError, FanOut, Task

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.hosts import Desk

FLEET_SCHEMA = "onecat.fleet/1"
DOWN = "onecat down"
Tell = Callable[[str, str], None]
"""Receives the name of a host and one line about it, for a person."""
# unchanged: it is as asked already. down: it was stopped. left: not begun, because too many others had failed.
Result = Literal["up", "down", "unchanged", "failed", "unreachable", "left"]


@dataclass(frozen=True)
class HostWork:
    """What is to be done on one host.

    serves: whether it serves something now, which then is missing to the clients for a while. work: does it, and is
    given what receives lines for a person.
    """

    host: str
    serves: bool
    work: Callable[[Callable[[str], None]], tuple[Release | None, bool]]


@dataclass(frozen=True)
class HostResult:
    """What became of one host. release: the one that it has now; error: why it has no new one."""

    host: str
    result: Result
    release: Release | None = None
    error: OnecatError | None = None


def batches(works: Sequence[HostWork], at_once: int) -> list[list[HostWork]]:
    """In which order hosts are worked on: those that serve nothing all at once, before any that serves is touched."""
    idle = [each for each in works if not each.serves]
    serving = [each for each in works if each.serves]
    return [part for part in (idle, *(serving[at : at + at_once] for at in range(0, len(serving), at_once))) if part]


def run_fleet(
    works: Sequence[HostWork], *, at_once: int, max_failures: int, desk: Desk, tell: Tell
) -> tuple[HostResult, ...]:
    """Work on all hosts; what became of each, in their order.

    Parameters:
        at_once: how many hosts that serve may be worked on at the same time.
        max_failures: how many may fail before the rest are left as they are.
        desk: where a person is asked meanwhile; this must be the main thread.
    """
    results: dict[str, HostResult] = {}
    for batch in batches(works, at_once):
        those = sum(each.result in ("failed", "unreachable") for each in results.values())
        if those > max_failures:
            results |= {each.host: HostResult(each.host, "left") for each in batch}
            continue
        tasks = [Task(each.host, functools.partial(_work, each, tell)) for each in batch]
        for _, outcome in FanOut(tasks, desk=desk).ended():
            if outcome.error is not None and not isinstance(outcome.error, OnecatError):
                raise outcome.error
            results[outcome.name] = outcome.result or failed(outcome.name, outcome.error)  # type: ignore[arg-type]
            if outcome.error is not None:
                tell(outcome.name, f"failed: {outcome.error.found}")
    return tuple(results[each.host] for each in works)


def run_in_turn(
    works: Sequence[HostWork], *, max_failures: int, tell: Tell, done: Literal["up", "down"] = "up"
) -> tuple[HostResult, ...]:
    """Work on hosts one after the other; what became of each, in their order.

    Parameters:
        max_failures: how many may fail before the rest are left as they are. done: what a host is called that was
            changed.
    """
    results: list[HostResult] = []
    for each in works:
        if sum(result.error is not None for result in results) > max_failures:
            results.append(HostResult(each.host, "left"))
            continue
        try:
            release, changed = each.work(functools.partial(tell, each.host))
        except OnecatError as error:
            tell(each.host, f"failed: {error.found}")
            results.append(failed(each.host, error))
        else:
            results.append(HostResult(each.host, done if changed else "unchanged", release))
    return tuple(results)


def _work(work: HostWork, tell: Tell, set_limit: Callable[[float], None]) -> HostResult:
    release, changed = work.work(functools.partial(tell, work.host))
    return HostResult(work.host, "up" if changed else "unchanged", release)


def failed(host: str, error: OnecatError) -> HostResult:
    """What to tell of a host on which something failed."""
    unreachable = isinstance(error, ConnectionLostError) or error.code == ExitCode.UNREACHABLE
    return HostResult(host, "unreachable" if unreachable else "failed", error=error)


def failure_of_fleet(
    results: Sequence[HostResult], max_failures: int, deployment: str, command: str = "onecat up"
) -> OnecatError | None:
    """What to tell when more hosts failed than may; None when it is well. command: what goes on with the rest.

    The code is the gravest of the hosts': one that needs a person, then one that cannot be reached.
    """
    those = [each for each in results if each.error is not None]
    if len(those) <= max_failures:
        return None
    left = [each.host for each in results if each.result == "left"]
    errors = [each.error for each in those if each.error is not None]
    codes = [each.code for each in errors]
    gravest = next((code for code in (ExitCode.NEEDS_PERSON, ExitCode.UNREACHABLE) if code in codes), codes[0])
    done = [each.host for each in results if each.result in ("up", "unchanged")]
    stopped = [each.host for each in results if each.result == "down"]
    details = [f"{each.host}: {error.found}" for each, error in zip(those, errors, strict=True)]
    details += [f"{', '.join(left)}: not begun, and as before"] if left else []
    details += [f"{', '.join(done)}: has the new release"] if done and command != DOWN else []
    details += [f"{', '.join(stopped)}: stopped"] if stopped else []
    steps = [step for error in errors for step in error.next_steps]
    return OnecatError(
        f"{len(those)} of {len(results)} hosts failed",
        expected=f"at most {max_failures} (--max-failures)",
        where=", ".join(each.host for each in those),
        details=details,
        next_steps=list(dict.fromkeys([*steps, f"{command}, which goes on with the rest"]))[:5],
        code=gravest,
    )


def fleet_document(deployment: str, results: Sequence[HostResult], document: Callable[[Release, bool], Any]) -> Any:
    """The results as the `onecat.fleet/1` document. document: of one release, see `up_document`."""
    return {
        "schema": FLEET_SCHEMA,
        "deployment": deployment,
        "hosts": [
            {
                "host": each.host,
                "result": each.result,
                "error": None if each.error is None else {"found": each.error.found, "code": int(each.error.code)},
                "up": None if each.release is None else document(each.release, each.result == "up"),
            }
            for each in results
        ],
    }
