"""The way back from a release that was not accepted: everything as it was before."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from onecat.deploy.readiness import NotReady, wait_until_ready
from onecat.deploy.servers import server_of
from onecat.deploy.switching import drain_release, gets_requests, route, runs, traffic_of
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run
    from onecat.deploy.server import Server


def go_back(
    run: Run,
    release: Release,
    server: Server,
    previous: Release | None,
    beside: bool,
    error: OnecatError | None = None,
) -> None:
    """End the release that was not accepted, and make everything as it was before.

    Parameters:
        previous: the release that ran before, or None. beside: whether it still does, so that it can take over at
            once; else its place must be free first. error: why the release failed; None when it was interrupted.

    Raises OnecatError: NEEDS_PERSON, with what is left, when a part of this did not succeed.
    """
    left: list[str] = []

    def serve_again() -> None:
        restore(run, previous)

    def end() -> None:
        if routed:
            drain_release(run, release)
        server.stop()
        with contextlib.suppress(OSError):  # a full disk: the message matters more than this note
            run.store.end(release, "interrupted" if error is None else "failed", None if error is None else error.found)
            run.store.prune(run.deployment.rollout.keep_releases)

    try:
        routed = beside and gets_requests(run, release)
    except (OnecatError, OSError):
        routed = False
    told = (
        "nginx could not be stopped"
        if previous is None
        else f"release {previous.number} could not be made to serve again"
    )
    # A release that could not be stopped stays "starting", so that the next command ends it.
    steps: list[tuple[Callable[[], None], str]] = [
        (serve_again, told),
        (end, f"release {release.number} could not be stopped"),
    ]
    for step, what in steps if beside else steps[::-1]:
        try:
            step()
        except (NotReady, OnecatError, OSError) as failure:
            left.append(f"{what}: {failure}")
    if left:
        name = release.deployment
        raise OnecatError(
            "; and ".join(["interrupted" if error is None else error.found, *left]),
            where=(previous or release).directory,
            details=error.details if error is not None else (),
            next_steps=[f"onecat logs {name} --lines 200", "onecat up", f"onecat down {name}"],
            code=ExitCode.NEEDS_PERSON,
        ) from error


def restore(run: Run, previous: Release | None) -> None:
    """Make the release that ran before serve again: start it where it was stopped, and let nginx send requests to it.

    It was accepted once, so being healthy is enough. Raises NotReady, OnecatError or OSError.
    """
    if previous is None:
        if run.traffic is not None:
            run.traffic.stop()
        return
    if run.traffic is not None and traffic_of(run, previous) is not run.traffic:
        run.traffic.stop()
    if not runs(run, previous):
        run.report(f"starting release {previous.number} again")
        server = server_of(run.machine, previous)
        server.start()
        url = run.machine.reach(previous.server_url)
        wait_until_ready(server, url, run.deployment.start.silence_seconds, run.report)
        server.accept()
        run.store.audit.record("started again", previous.number)
    route(run, previous)
    run.report(f"release {previous.number} serves again")
