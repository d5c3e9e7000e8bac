"""`up`: from a plan to a release that answers well, or back to where we were."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, replace
from typing import Any

from onecat.deploy import preflight
from onecat.deploy.cache_volume import remove_unused
from onecat.deploy.container import home_identity, image_id, missing_image
from onecat.deploy.container_rendering import container_owner
from onecat.deploy.engine import note_choices
from onecat.deploy.failures import failure_of
from onecat.deploy.fingerprint import fingerprint
from onecat.deploy.ports import free_port, ports_of
from onecat.deploy.proxies import proxy_of
from onecat.deploy.proxies.choosing import choose_proxy
from onecat.deploy.readiness import NotReady, healthy, wait_until_ready
from onecat.deploy.releases import Release
from onecat.deploy.rendering import member_of, render, site_of_release
from onecat.deploy.request import Report, Run, UpRequest
from onecat.deploy.requests_in_flight import requests_in_flight
from onecat.deploy.room import room_for
from onecat.deploy.server import RUNNING, Server
from onecat.deploy.servers import server_of
from onecat.deploy.site import site_of
from onecat.deploy.smoke import SmokeFailure, run_smoke_test
from onecat.deploy.store import DeploymentStore
from onecat.deploy.strategy import Strategy, choose
from onecat.deploy.traffic import Traffic, drain
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import Machine
from onecat.images.docker_engine import engine_address
from onecat.planner.records import to_json, with_port


def up(request: UpRequest, machine: Machine, report: Report = lambda text: None) -> Release:
    """Make the planned server run on a host, answer well, and be reachable; returns its release.

    Where the same plan already runs and is healthy nothing is changed. A running release with another plan serves
    until the new one has answered (blue-green), or is stopped for it and started again when the new one fails
    (recreate); see `onecat.deploy.strategy`.

    Parameters:
        report: receives one line for each step, for a person.

    Raises OnecatError: before anything is changed for what can be known beforehand; with code ROLLED_BACK and the
    cause from the log when the start failed and the state before is restored; NEEDS_PERSON when it could not be.
    KeyboardInterrupt passes through after what was started has been stopped.
    """
    run = prepare_run(request, machine, report)
    image = _preflight(run)
    run = replace(run, fingerprint=_fingerprint(run, image))
    with run.store.lock("onecat up"):
        clean_up(run)
        current = run.store.current()
        if current is not None and _unchanged(run, current):
            report(f"release {current.number} already serves this plan and is healthy: nothing to do")
            return current
        strategy = _strategy(run, current)
        return _replace(_with_port_of(run, strategy), current, strategy, image)


def prepare_run(request: UpRequest, machine: Machine, report: Report) -> Run:
    """What the steps work with. Raises OnecatError for what is wrong with the request; nothing is changed."""
    deployment, plan = request.deployment, request.plan
    store = DeploymentStore(machine, deployment.name)
    if plan.container is not None and request.docker_host is None and machine.is_local:
        request = replace(request, docker_host=os.environ.get("DOCKER_HOST"))
    argv = tuple(request.launcher.serve_argv(plan.server_args)) if request.launcher is not None else plan.server_args
    traffic = site = None
    if deployment.proxy.kind == "nginx":
        site = site_of(deployment)
        kind = choose_proxy(machine, deployment)
        if kind is None:
            report(f"nginx is not installed: serving directly at http://{plan.host}:{plan.port}")
        else:
            traffic = Traffic(proxy_of(store, kind), machine, store.directory)
    secret = preflight.secret_of(deployment)
    return Run(
        request=request,
        machine=machine,
        store=store,
        plan=plan,
        argv=argv,
        traffic=traffic,
        site=None if traffic is None else site,
        secret=secret,
        fingerprint="",
        report=report,
    )


def _fingerprint(run: Run, image: str | None) -> str:
    return fingerprint(
        run.deployment,
        run.plan,
        run.argv,
        run.machine.entries(run.plan.model_directory),
        run.traffic is not None,
        image,
        preflight.read_secret(run.secret),
    )


# --- before anything changes ------------------------------------------------------------------------------------------


def _preflight(run: Run) -> str | None:
    """Raises OnecatError for what can be known to fail. Returns what the image's name means on the host now."""
    plan, machine, profile = run.plan, run.machine, run.deployment.profile
    preflight.check_plan(plan)
    if plan.container is not None:
        if machine.is_local:
            preflight.check_docker_host(engine_address(run.request.docker_host))
        preflight.check_accelerator_files(machine, profile, plan.container)
    preflight.check_model(machine, plan.model_directory)
    preflight.read_secret(run.secret)
    preflight.check_disk(machine)
    _check_ports(run)
    # Last, because what is missing here takes minutes to build: nobody should learn of a typo only afterwards.
    if plan.container is None:
        preflight.check_runtime(profile, run.request.launcher, run.argv)
        return None
    preflight.check_readable_in_container(machine, plan.model_directory, container_owner(run))
    found = image_id(machine.docker_host(run.request.docker_host), plan.container.image)
    if found is None:
        raise missing_image(plan.container.image, profile)
    return found


def _check_ports(run: Run) -> None:
    """Raises OnecatError when somebody else listens where the release shall; our own ports are ours to take over."""
    ours = ports_of(run.store)
    if run.traffic is None and run.plan.port not in ours:
        preflight.check_port(run.machine, run.plan.host, run.plan.port, "port")
    if run.traffic is not None and run.site is not None:
        host, _, port = run.site.listen.rpartition(":")
        if int(port) not in ours and run.traffic.proxy.kind != "host":
            preflight.check_port(run.machine, host.strip("[]"), int(port), "proxy.listen")


def _unchanged(run: Run, current: Release) -> bool:
    if current.fingerprint != run.fingerprint or current.outcome != "serving":
        return False
    if server_of(run.machine, current).state().condition != "running":
        return False
    if not healthy(run.machine.reach(current.server_url)):
        return False
    return run.traffic is None or (run.traffic.proxy.running() and healthy(run.machine.reach(current.endpoint)))


# --- what an interrupted command left ---------------------------------------------------------------------------------


def clean_up(run: Run) -> None:
    """Finish what a command left that did not live to its end.

    Releases that may run and are neither the current one nor its canary are ended; nginx sends requests to the current
    one if that runs.
    """
    store = run.store
    current, canary = store.current(), store.canary()
    kept = {each.number for each in (current, canary) if each is not None}
    left = [each for each in store.releases() if each.live and each.number not in kept]
    if not left:
        return
    if current is not None and _runs(run, current):
        _route(run, current)
    for release in left:
        server = server_of(run.machine, release)
        if release.outcome == "starting" or server.state().condition in RUNNING:
            run.report(f"stopping release {release.number}, whose onecat up was ended before it was done")
        if release.outcome == "serving":
            _drain(run, release, _traffic_of(run, release))
        server.stop()
        store.end(release, "interrupted" if release.outcome == "starting" else "stopped")


# --- the change -------------------------------------------------------------------------------------------------------


def _strategy(run: Run, current: Release | None) -> Strategy:
    runs = current is not None and _runs(run, current)
    strategy = choose(run.deployment.rollout.strategy, runs, room_for(run, current), None)
    if runs:
        run.report(f"{strategy.name}: {strategy.why}")
    return strategy


def _with_port_of(run: Run, strategy: Strategy) -> Run:
    """The run with the port that its release gets."""
    if run.traffic is None or strategy.name != "blue-green":
        return run
    ours = ports_of(run.store)
    port = free_port(run.plan.port, lambda each: each in ours or not _is_free(run, each))
    plan = with_port(run.plan, port)
    launcher = run.request.launcher
    argv = tuple(launcher.serve_argv(plan.server_args)) if launcher is not None else plan.server_args
    return replace(run, plan=plan, argv=argv)


def _is_free(run: Run, port: int) -> bool:
    try:
        preflight.check_port(run.machine, run.plan.host, port, "port")
    except OnecatError:
        return False
    return True


def _replace(run: Run, current: Release | None, strategy: Strategy, image: str | None) -> Release:
    release, server = render(run, strategy, image)
    report = run.report
    run.store.audit.record("up", release.number, strategy=strategy.name)
    # Only what ran is started again; what has crashed or was left behind by a reboot goes all the same.
    previous = current if current is not None and _runs(run, current) else None
    try:
        if current is not None and strategy.name != "blue-green":
            _make_way(run, current, previous is not None)
        _start(run, release, server)
        server.accept()
        if run.traffic is not None:
            _route(run, release)
        accepted = run.store.end(release, "serving")
        run.store.set_current(release.number)
    except KeyboardInterrupt:
        if _is_current(run.store, release):
            report(f"interrupted; release {release.number} already serves and stays")
            raise
        report(f"interrupted: stopping release {release.number}")
        _go_back(run, release, server, previous)
        raise
    except (NotReady, SmokeFailure, OnecatError, OSError) as failure:
        error = failure_of(release, server, failure)
        _go_back(run, release, server, previous, error)
        raise error from failure
    _put_away(run, current, strategy)
    return accepted


def _make_way(run: Run, current: Release, runs: bool) -> None:
    """Stop the current release for the new one; nginx answers 503 meanwhile."""
    traffic = _traffic_of(run, current)
    if runs and traffic is not None:
        run.report(f"nginx answers 503 (Retry-After) from now on; release {current.number} finishes its answers")
        traffic.pause(run.host)
        _drain(run, current, traffic)
    if runs:
        run.report(f"stopping release {current.number}")
    server_of(run.machine, current).stop()
    # A server that shall listen where nginx did cannot wait for nginx to go afterwards.
    if traffic is not None and run.traffic is None:
        traffic.stop()


def _start(run: Run, release: Release, server: Server) -> None:
    """Start the release, wait until it is ready and see that it answers well."""
    how = "natively" if release.container is None else f"in container {release.container}"
    run.report(f"starting release {release.number}: {run.plan.engine} {run.plan.engine_version}, {how}")
    server.start()
    start = run.deployment.start
    url = run.machine.reach(release.server_url)
    seconds = wait_until_ready(server, url, start.silence_seconds, run.report)
    run.report(f"ready after {seconds:.0f} s; asking it a question")
    answer = run_smoke_test(
        url,
        run.plan.served_name,
        run.deployment.smoke,
        start.allow_repeated_token,
        preflight.read_secret(run.secret),
        start.silence_seconds,
    )
    run.report(f"it answered {len(answer.tokens)} tokens in {answer.seconds:.1f} s")
    note_choices(run, release, server)


def _route(run: Run, release: Release) -> None:
    """Send requests to this release, if nginx does not yet."""
    traffic, site = _traffic_of(run, release), site_of_release(run, release)
    if traffic is None or site is None:
        return
    wanted = member_of(run, release)
    ours = tuple(each for each in traffic.members() if each.host == run.host)
    if ours == (wanted,) and traffic.site() == site and traffic.proxy.running():
        return
    traffic.route(run.host, [wanted], site)
    run.store.audit.record("switched", release.number)
    run.report(f"nginx sends requests to release {release.number}")


def _traffic_of(run: Run, release: Release) -> Traffic | None:
    """The requests that a release gets through nginx; None for one without."""
    if release.proxy_kind is None:
        return None
    if run.traffic is not None and run.traffic.proxy.kind == release.proxy_kind:
        return run.traffic
    return Traffic(proxy_of(run.store, release.proxy_kind), run.machine, run.store.directory)


def _drain(run: Run, release: Release, traffic: Traffic | None) -> None:
    """Wait until a release that gets no new requests has finished those it has."""
    url = run.machine.reach(release.server_url)
    limit = run.deployment.rollout.drain_seconds
    took = drain(lambda: requests_in_flight(url), traffic, limit)
    if took is None:
        run.report(f"release {release.number} still answers after {limit} s (rollout.drain_seconds): it is stopped now")


def _put_away(run: Run, current: Release | None, strategy: Strategy) -> None:
    """Put away what the accepted release has replaced. What cannot be put away is told and harms nothing."""
    store = run.store
    try:
        if current is not None:
            if strategy.name == "blue-green":
                _drain(run, current, run.traffic)
                run.report(f"stopping release {current.number}")
                server_of(run.machine, current).stop()
            replaced = _traffic_of(run, current)
            if replaced is not None and replaced is not run.traffic:
                run.report("stopping the nginx that stood before it")
                replaced.stop()
            store.end(current, "stopped")
        store.prune(run.deployment.rollout.keep_releases)
        if run.plan.container is not None:
            docker_host = run.machine.docker_host(run.request.docker_host)
            home = home_identity(run.machine)
            for name in remove_unused(run.machine, store.releases(), store.name, home, docker_host):
                run.report(f"removed the compiled kernels of an image that no release runs any more ({name})")
    except (OnecatError, OSError) as failure:
        run.report(f"the new release serves, but what it replaced could not be put away: {failure}")
    except KeyboardInterrupt:
        run.report("interrupted; the new release already serves and stays")
        raise


# --- the way back -----------------------------------------------------------------------------------------------------


def _go_back(
    run: Run, release: Release, server: Server, previous: Release | None, error: OnecatError | None = None
) -> None:
    """End the release that was not accepted, and make everything as it was before.

    Parameters:
        previous: the release that ran before, or None. error: why the release failed; None when it was interrupted.

    Raises OnecatError: NEEDS_PERSON, with what is left, when a part of this did not succeed.
    """
    left: list[str] = []
    try:
        restore(run, previous)
    except (NotReady, OnecatError, OSError) as failure:
        what = (
            "nginx could not be stopped"
            if previous is None
            else f"release {previous.number} could not be made to serve again"
        )
        left.append(f"{what}: {failure}")
    try:
        server.stop()
    except (OnecatError, OSError) as failure:
        # It stays "starting", so that the next `up` or `down` ends it.
        left.append(f"release {release.number} could not be stopped: {failure}")
    else:
        with contextlib.suppress(OSError):  # a full disk: the message matters more than this note
            run.store.end(release, "interrupted" if error is None else "failed", None if error is None else error.found)
    if left:
        name = release.deployment
        raise OnecatError(
            "; and ".join(["interrupted" if error is None else error.found, *left]),
            where=str((previous or release).directory),
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
    if run.traffic is not None and _traffic_of(run, previous) is not run.traffic:
        run.traffic.stop()
    if not _runs(run, previous):
        run.report(f"starting release {previous.number} again")
        server = server_of(run.machine, previous)
        server.start()
        url = run.machine.reach(previous.server_url)
        wait_until_ready(server, url, run.deployment.start.silence_seconds, run.report)
        server.accept()
    _route(run, previous)
    run.report(f"release {previous.number} serves again")


def _runs(run: Run, release: Release) -> bool:
    return server_of(run.machine, release).state().condition in RUNNING


def _is_current(store: DeploymentStore, release: Release) -> bool:
    current = store.current()
    return current is not None and current.number == release.number


def dry_run(request: UpRequest) -> dict[str, Any]:
    """What `up` would start, without touching anything: the command line and the proxy's site."""
    plan, launcher = request.plan, request.launcher
    argv = list(launcher.serve_argv(plan.server_args)) if launcher is not None else list(plan.server_args)
    site = site_of(request.deployment) if request.deployment.proxy.kind == "nginx" else None
    return {"argv": argv, "plan": to_json(plan), "site": site and asdict(site)}
