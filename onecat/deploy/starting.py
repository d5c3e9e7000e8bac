"""Start a release and see that it answers well, before anybody is sent to it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from onecat.deploy import prerequisites
from onecat.deploy.engine import note_choices
from onecat.deploy.readiness import wait_until_ready
from onecat.deploy.smoke import run_smoke_test

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run
    from onecat.deploy.server import Server


def start_release(run: Run, release: Release, server: Server) -> Release:
    """Start the release, wait until it is ready and see that it answers well; returns it with the time it took."""
    how = "natively" if release.container is None else f"in container {release.container}"
    run.report(f"starting release {release.number}: {run.plan.engine} {run.plan.engine_version}, {how}")
    began = time.monotonic()
    server.start()
    run.store.audit.record("started", release.number)
    start = run.deployment.start
    url = run.machine.reach(release.server_url)
    seconds = wait_until_ready(server, url, start.silence_seconds, run.report)
    run.store.audit.record("ready", release.number, seconds=round(seconds, 1))
    run.report(f"ready after {seconds:.0f} s; asking it a question")
    answer = run_smoke_test(
        url,
        run.plan.served_name,
        run.deployment.smoke,
        start.allow_repeated_token,
        prerequisites.read_secret(run.secret),
        start.silence_seconds,
    )
    run.report(f"it answered {len(answer.tokens)} tokens in {answer.seconds:.1f} s")
    run.store.audit.record("answered", release.number)
    started = run.store.save(replace(release, start_seconds=round(time.monotonic() - began, 1)))
    note_choices(run, started, server)
    return started
