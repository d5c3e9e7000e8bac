"""`up`: from a plan to a release that answers well, or back to where we were."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from onecat.config.schema import Deployment, Profile
from onecat.deploy import preflight, units
from onecat.deploy.cache_volume import CACHE_DIRECTORY, cache_volume, remove_unused
from onecat.deploy.container import (
    ContainerServer,
    ContainerSpec,
    confines_by_selinux,
    container_user,
    home_identity,
    image_present,
    labels,
    missing_image,
)
from onecat.deploy.native import STOP_SECONDS, NativeServer, launch_document
from onecat.deploy.proxy import OwnNginx, Site, find_nginx, site_of, write_files
from onecat.deploy.readiness import NotReady, healthy, wait_until_ready
from onecat.deploy.releases import DeploymentStore, Release, reachable
from onecat.deploy.server import RUNNING, Secret, Server
from onecat.deploy.servers import server_of
from onecat.deploy.smoke import SmokeFailure, run_smoke_test
from onecat.deploy.supervisor import timestamp
from onecat.errors import ExitCode, OnecatError
from onecat.files import write_atomically, write_json
from onecat.images.docker_engine import engine_address
from onecat.observe import diagnose
from onecat.observe.diagnosis import plain
from onecat.paths import Home
from onecat.planner.records import Plan, to_json

DIAGNOSED_LINES = 2000
# Outcomes of a release that may still run.
LIVE = ("starting", "serving")
_PROXY_SECONDS = 10.0


class Launcher(Protocol):
    """Knows how the engine of a native runtime is called (`onecat.images.NativeRuntime`)."""

    def serve_argv(self, server_args: Sequence[str]) -> list[str]:
        """The whole command line for the words after `vllm serve`."""


@dataclass(frozen=True)
class _Rollout:
    """What one `up` works with."""

    deployment: Deployment
    profile: Profile
    plan: Plan
    argv: tuple[str, ...]
    site: Site | None
    nginx: str | None
    secret: Secret | None
    docker_host: str | None
    fingerprint: str
    store: DeploymentStore
    report: Callable[[str], None]

    @property
    def proxied(self) -> bool:
        return self.site is not None and self.nginx is not None

    @property
    def endpoint(self) -> str:
        if self.proxied and self.site is not None:
            return self.site.endpoint
        return f"http://{reachable(self.plan.host)}:{self.plan.port}"


def up(
    deployment: Deployment,
    profile: Profile,
    plan: Plan,
    launcher: Launcher | None,
    home: Home,
    report: Callable[[str], None] = lambda text: None,
    docker_host: str | None = None,
) -> Release:
    """Make the planned server run, answer well, and be reachable; returns its release.

    Where the same plan already runs and is healthy nothing is changed. A running release with another plan is stopped
    for the new one and started again when the new one fails.

    Parameters:
        launcher: the native runtime; None for a container.
        report: receives one line for each step, for a person.
        docker_host: address of the Docker daemon; None for the environment's.

    Raises OnecatError: before anything is changed for what can be known beforehand; with code ROLLED_BACK and the
    cause from the log when the start failed and the state before is restored; NEEDS_PERSON when it could not be.
    KeyboardInterrupt passes through after what was started has been stopped.
    """
    rollout = _rollout(deployment, profile, plan, launcher, home, report, docker_host)
    _preflight(rollout, home, launcher)
    with rollout.store.lock("onecat up"):
        _end_left_over(rollout)
        _check_ports(rollout)
        current = rollout.store.current()
        if current is not None and _unchanged(rollout, current):
            report(f"release {current.number} already serves this plan and is healthy: nothing to do")
            return current
        return _replace(rollout, current)


def _rollout(
    deployment: Deployment,
    profile: Profile,
    plan: Plan,
    launcher: Launcher | None,
    home: Home,
    report: Callable[[str], None],
    docker_host: str | None,
) -> _Rollout:
    if deployment.hosts != ("local",):
        raise OnecatError(
            f"hosts: {', '.join(deployment.hosts)}",
            expected="hosts: [local]; this version deploys on this machine only",
            next_steps=["set hosts: [local] in onecat.yaml and run onecat on that host"],
        )
    argv = tuple(launcher.serve_argv(plan.server_args)) if launcher is not None else plan.server_args
    site = site_of(deployment, plan.host, plan.port) if deployment.proxy.kind == "nginx" else None
    nginx = find_nginx() if site is not None else None
    return _Rollout(
        deployment=deployment,
        profile=profile,
        plan=plan,
        argv=argv,
        site=site,
        nginx=nginx,
        secret=preflight.secret_of(deployment),
        docker_host=docker_host or os.environ.get("DOCKER_HOST"),
        fingerprint=fingerprint(deployment, plan, argv, nginx is not None),
        store=DeploymentStore(home.deployments / deployment.name),
        report=report,
    )


def fingerprint(deployment: Deployment, plan: Plan, argv: Sequence[str], proxied: bool) -> str:
    """A hash of all that decides how the server runs, the model's files (size and time) among it; 12 hex digits."""
    directory = Path(plan.model_directory)
    files = sorted(directory.iterdir()) if directory.is_dir() else []
    decisive = {
        "argv": list(argv),
        "plan": {
            name: value
            for name, value in to_json(plan).items()
            if name in ("engine", "engine_version", "runtime", "host", "port", "env", "container", "served_name")
        },
        "proxy": [deployment.proxy.model_dump(), proxied],
        "restart": deployment.restart.model_dump(),
        "secrets": deployment.secrets.model_dump(),
        "model": [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files if path.is_file()],
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]


# --- before anything changes ------------------------------------------------------------------------------------------


def _preflight(rollout: _Rollout, home: Home, launcher: Launcher | None) -> None:
    plan = rollout.plan
    preflight.check_plan(plan)
    if plan.container is not None:
        preflight.check_docker_host(engine_address(rollout.docker_host))
        preflight.check_accelerator_files(rollout.deployment.profile, plan.container)
    model = Path(plan.model_directory)
    preflight.check_model(model)
    preflight.read_secret(rollout.secret)
    preflight.check_disk(home.deployments)
    _check_ports(rollout)
    # Last, because what is missing here takes minutes to build: nobody should learn of a typo only afterwards.
    if plan.container is not None:
        preflight.check_readable_in_container(model, _container_user(model))
        if not image_present(rollout.docker_host, plan.container.image):
            raise missing_image(plan.container.image, rollout.deployment.profile)
    else:
        preflight.check_runtime(rollout.deployment.profile, launcher, rollout.argv)


def _container_user(model: Path) -> tuple[int, int]:
    owner = model.stat()
    return container_user((os.getuid(), os.getgid()), (owner.st_uid, owner.st_gid))


def _check_ports(rollout: _Rollout) -> None:
    """Raises OnecatError when somebody else listens where the release shall; our own ports are ours to take over."""
    ours = own_ports(rollout.store)
    if rollout.plan.port not in ours:
        preflight.check_port(rollout.plan.host, rollout.plan.port, "port")
    if rollout.site is not None and rollout.proxied:
        host, _, port = rollout.site.listen.rpartition(":")
        if int(port) not in ours:
            preflight.check_port(host.strip("[]"), int(port), "proxy.listen")


def own_ports(store: DeploymentStore) -> frozenset[int]:
    """The ports on which releases of this deployment and its nginx listen now, those of a killed `up` among them."""
    live = [release for release in store.releases() if release.outcome in LIVE]
    ports = {release.port for release in live if server_of(release).state().condition in RUNNING}
    if own_nginx(store).pid() is not None:
        ports |= {release.endpoint_port for release in live if release.proxied}
    return frozenset(ports)


def own_nginx(store: DeploymentStore) -> OwnNginx:
    """The nginx of this deployment; to stop it, or to ask for it, no program is needed."""
    return OwnNginx(store.proxy_directory, find_nginx() or "nginx")


def _end_left_over(rollout: _Rollout) -> None:
    """End what an `up` left that did not live to its end: releases that are not the current one and may run."""
    current = rollout.store.current()
    for left in rollout.store.releases():
        if left.outcome not in LIVE or (current is not None and left.number == current.number):
            continue
        server = server_of(left)
        if left.outcome == "starting" or server.state().condition in RUNNING:
            rollout.report(f"stopping release {left.number}, whose onecat up was ended before it was ready")
        server.stop()
        rollout.store.end(left, "interrupted" if left.outcome == "starting" else "stopped")


def _unchanged(rollout: _Rollout, current: Release) -> bool:
    if current.fingerprint != rollout.fingerprint or current.outcome != "serving":
        return False
    if server_of(current).state().condition != "running" or not healthy(current.server_url):
        return False
    return not current.proxied or (own_nginx(rollout.store).pid() is not None and healthy(current.endpoint))


# --- the change -------------------------------------------------------------------------------------------------------


def _replace(rollout: _Rollout, current: Release | None) -> Release:
    release, server = _render(rollout)
    report = rollout.report
    # Only what ran is started again; what has crashed or was left behind by a reboot goes all the same.
    previous = current if current is not None and server_of(current).state().condition in RUNNING else None
    try:
        if current is not None:
            _stop_current(rollout, current, previous is not None)
        report(
            f"starting release {release.number}: {rollout.plan.engine} {rollout.plan.engine_version}, natively"
            if release.runtime == "native"
            else f"starting release {release.number} in container {release.container}"
        )
        server.start()
        seconds = wait_until_ready(server, release.server_url, rollout.deployment.start.silence_seconds, report)
        report(f"ready after {seconds:.0f} s; asking it a question")
        _smoke(rollout, release)
        if rollout.proxied:
            _start_proxy(rollout, release)
        server.accept()
        accepted = rollout.store.end(release, "serving")
        rollout.store.set_current(release.number)
    except KeyboardInterrupt:
        if _is_current(rollout.store, release):
            report(f"interrupted; release {release.number} already serves and stays")
            raise
        report(f"interrupted: stopping release {release.number}")
        _go_back(rollout, release, server, previous)
        raise
    except (NotReady, SmokeFailure, OnecatError, OSError) as failure:
        error = _failure(release, server, failure)
        _go_back(rollout, release, server, previous, error)
        raise error from failure
    _tidy(rollout, current)
    return accepted


def _stop_current(rollout: _Rollout, current: Release, runs: bool) -> None:
    if runs:
        rollout.report(f"stopping release {current.number}")
    server_of(current).stop()
    # A server that shall listen where nginx did cannot wait for nginx to go afterwards.
    if current.proxied and not rollout.proxied and current.endpoint_port == rollout.plan.port:
        own_nginx(rollout.store).stop()


def _is_current(store: DeploymentStore, release: Release) -> bool:
    current = store.current()
    return current is not None and current.number == release.number


def _tidy(rollout: _Rollout, current: Release | None) -> None:
    """Put away what the accepted release has replaced. What cannot be put away is told and harms nothing."""
    store = rollout.store
    try:
        if not rollout.proxied and own_nginx(store).pid() is not None:
            rollout.report("stopping nginx")
            own_nginx(store).stop()
        if current is not None:
            store.end(current, "stopped")
        store.prune()
        if rollout.plan.container is not None:
            home = home_identity(store.directory.parent)
            for name in remove_unused(store.releases(), store.name, home, rollout.docker_host):
                rollout.report(f"removed the compiled kernels of an image that no release runs any more ({name})")
    except (OnecatError, OSError) as failure:
        rollout.report(f"the new release serves, but what it replaced could not be put away: {failure}")
    except KeyboardInterrupt:
        rollout.report("interrupted; the new release already serves and stays")
        raise


def _render(rollout: _Rollout) -> tuple[Release, Server]:
    """Write everything the release consists of; nothing runs yet. A failure leaves no directory behind."""
    number, directory = rollout.store.new_directory()
    try:
        return _rendered(rollout, number, directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _rendered(rollout: _Rollout, number: int, directory: Path) -> tuple[Release, Server]:
    plan, deployment = rollout.plan, rollout.deployment
    container = f"onecat-{deployment.name}-{number:04d}" if plan.runtime == "container" else None
    release = Release(
        deployment=deployment.name,
        number=number,
        directory=directory,
        runtime=plan.runtime,
        profile=rollout.profile.name,
        model=plan.served_name,
        host=plan.host,
        port=plan.port,
        endpoint=rollout.endpoint,
        proxied=rollout.proxied,
        protected=rollout.secret is not None,
        fingerprint=rollout.fingerprint,
        created_at=timestamp(time.time()),
        container=container,
        docker_host=rollout.docker_host if container else None,
    )
    write_json(directory / "plan.json", to_json(plan))
    server: Server
    spec: ContainerSpec | None = None
    if container is not None:
        spec = _container_spec(rollout, release, container)
        server = ContainerServer.prepare(directory, spec, rollout.docker_host)
    else:
        launch = launch_document(rollout.argv, dict(plan.env), deployment.restart, rollout.secret)
        server = NativeServer.prepare(directory, launch)
    _render_unit(rollout, release, spec)
    if rollout.site is not None:
        write_files(directory / "nginx", rollout.site, rollout.nginx)
        if rollout.nginx is None:
            rollout.report(f"nginx is not installed: serving directly at {release.endpoint}; its files are not checked")
        else:
            OwnNginx(directory / "nginx", rollout.nginx).check()
    rollout.store.save(release)
    return release, server


def _container_spec(rollout: _Rollout, release: Release, name: str) -> ContainerSpec:
    plan = rollout.plan
    assert plan.container is not None
    model = Path(plan.model_directory)
    user = _container_user(model)
    key = preflight.read_secret(rollout.secret)
    secret_file = None
    if key is not None:
        # A copy that the container's user may read; removed with the release.
        secret_file = release.directory / "secrets" / "api_key"
        secret_file.parent.mkdir(mode=0o700)
        write_atomically(secret_file, key, 0o400)
        if os.getuid() == 0:
            os.chown(secret_file, *user)
    home = home_identity(rollout.store.directory.parent)
    cache = cache_volume(rollout.docker_host, plan.container.image, release.deployment, home)
    return ContainerSpec(
        name=name,
        image=plan.container.image,
        command=plan.server_args,
        env=dict(plan.env),
        model_directory=str(model),
        model_mount=plan.container.model_mount,
        host=plan.host,
        port=plan.port,
        shm_bytes=plan.container.shm_bytes,
        gpus=plan.container.gpus,
        devices=plan.container.devices,
        groups=preflight.groups_of(plan.container.devices),
        mounts=tuple((each.source, each.target) for each in plan.container.mounts),
        user=f"{user[0]}:{user[1]}",
        max_crashes=rollout.deployment.restart.max_crashes,
        secret_file=None if secret_file is None else str(secret_file),
        labels=labels(
            release.deployment,
            release.number,
            release.profile,
            release.fingerprint,
            home,
        ),
        selinux=confines_by_selinux(rollout.docker_host),
        cache_volume=cache[0] if cache else None,
        cache_directory=CACHE_DIRECTORY if cache else "",
        cache_labels=cache[1] if cache else {},
    )


def _render_unit(rollout: _Rollout, release: Release, spec: ContainerSpec | None) -> None:
    restart = rollout.deployment.restart
    directory = release.directory / "systemd"
    if rollout.secret is not None and rollout.secret.file is None:
        rollout.report("no systemd unit is written: an API key from the environment has no place in one; use a file")
        return
    if spec is not None:
        # The unit outlives the release, and `down` removes the release's copy of the key: it makes its own.
        lasting = replace(spec, secret_file=rollout.secret.file if rollout.secret else None)
        text = units.container_unit(
            release.number, release.deployment, lasting, release.server_url, restart, rollout.docker_host
        )
    else:
        unit_home = rollout.store.directory / "unit-home"
        unit_home.mkdir(exist_ok=True, mode=0o700)
        text = units.native_unit(
            release.deployment,
            release.number,
            rollout.argv,
            dict(rollout.plan.env),
            rollout.secret.file if rollout.secret else None,
            release.server_url,
            restart,
            STOP_SECONDS,
            unit_home,
        )
    directory.mkdir(mode=0o700)
    path = directory / f"onecat-{release.deployment}.service"
    write_atomically(path, text, 0o644)
    objections = units.verify(path)
    if objections:
        rollout.report(f"systemd-analyze objects to {path}: {'; '.join(objections)}")


def _smoke(rollout: _Rollout, release: Release) -> None:
    start = rollout.deployment.start
    answer = run_smoke_test(
        release.server_url,
        rollout.plan.served_name,
        rollout.deployment.smoke,
        start.allow_repeated_token,
        preflight.read_secret(rollout.secret),
        start.silence_seconds,
    )
    rollout.report(f"it answered {len(answer.tokens)} tokens in {answer.seconds:.1f} s")


def _start_proxy(rollout: _Rollout, release: Release) -> None:
    nginx = own_nginx(rollout.store)
    nginx.install(release.directory / "nginx")
    nginx.start_or_reload()
    limit = time.monotonic() + _PROXY_SECONDS
    while not healthy(release.endpoint):
        if time.monotonic() > limit:
            raise OnecatError(
                f"nginx does not pass requests on at {release.endpoint}",
                where=str(rollout.store.proxy_directory / "logs" / "error.log"),
                next_steps=["read nginx's error log there"],
                code=ExitCode.ROLLED_BACK,
            )
        time.sleep(0.1)
    rollout.report(f"nginx answers at {release.endpoint}")


# --- the way back -----------------------------------------------------------------------------------------------------


def _failure(release: Release, server: Server, failure: Exception) -> OnecatError:
    """What to tell about a failed start: the cause read from the log, else what was seen last."""
    if isinstance(failure, OnecatError):
        # Whatever it meant where it came from: here something was changed and is changed back.
        return OnecatError(
            failure.found,
            expected=failure.expected,
            where=failure.where,
            next_steps=failure.next_steps,
            details=failure.details,
            code=ExitCode.ROLLED_BACK,
        )
    if isinstance(failure, OSError):
        place = str(failure.filename) if failure.filename else None
        return OnecatError(failure.strerror or str(failure), where=place, code=ExitCode.ROLLED_BACK)
    reason = getattr(failure, "reason", str(failure))
    try:
        lines = told_lines(server)
    except (OnecatError, OSError) as unreadable:
        lines = [f"its log cannot be read: {unreadable}"]
    diagnoses = diagnose(lines)
    fixes = tuple(step for diagnosis in diagnoses[:1] for step in diagnosis.fix)
    evidence = [evidence.text[:300] for diagnosis in diagnoses[:1] for evidence in diagnosis.evidence[:2]]
    if isinstance(failure, SmokeFailure):
        found, details = f"the server does not answer well: {reason}", [diagnosis.cause for diagnosis in diagnoses]
    elif diagnoses:
        found, details = f"the server did not start: {diagnoses[0].cause}", [reason, *evidence]
    else:
        found, details = f"the server did not start: {reason}", [line[:300] for line in lines[-5:]]
    return OnecatError(
        found,
        where=str(release.directory),
        details=details,
        next_steps=[*fixes, f"read its log: onecat logs {release.deployment} --release {release.number}"],
        code=ExitCode.ROLLED_BACK,
    )


def told_lines(server: Server) -> list[str]:
    """What a diagnosis is made from: the log of the server's last run, and how it ended."""
    lines = [plain(line) for line in server.last_lines(DIAGNOSED_LINES)]
    # The supervisor closes each run with such a line; what stands before the last but one belongs to older runs.
    ends = [number for number, line in enumerate(lines) if line.startswith("onecat: server ")]
    older = [number for number in ends if number != len(lines) - 1]
    lines = lines[older[-1] + 1 :] if older else lines
    last_exit = server.state().last_exit
    return lines if last_exit is None or ends else [*lines, f"onecat: server {last_exit}"]


def _go_back(
    rollout: _Rollout, release: Release, server: Server, previous: Release | None, error: OnecatError | None = None
) -> None:
    """End the release that was not accepted, and make everything as it was before.

    Parameters:
        previous: the release that ran before, or None. error: why the release failed; None when it was interrupted.

    Raises OnecatError: NEEDS_PERSON, with what is left, when a part of this did not succeed.
    """
    left: list[str] = []
    try:
        server.stop()
    except (OnecatError, OSError) as failure:
        # It stays "starting", so that the next `up` or `down` ends it.
        left.append(f"release {release.number} could not be stopped: {failure}")
    else:
        with contextlib.suppress(OSError):  # a full disk: the message matters more than this note
            rollout.store.end(
                release, "interrupted" if error is None else "failed", None if error is None else error.found
            )
    try:
        _restore(rollout, previous)
    except (NotReady, OnecatError, OSError) as failure:
        what = (
            "nginx could not be stopped"
            if previous is None
            else f"release {previous.number} could not be started again"
        )
        left.append(f"{what}: {failure}")
    if left:
        name = release.deployment
        raise OnecatError(
            "; and ".join(["interrupted" if error is None else error.found, *left]),
            where=str((previous or release).directory),
            details=error.details if error is not None else (),
            next_steps=[f"onecat logs {name} --lines 200", "onecat up", f"onecat down {name}"],
            code=ExitCode.NEEDS_PERSON,
        ) from error


def _restore(rollout: _Rollout, previous: Release | None) -> None:
    """Start the release that ran before, and nginx as it was with it.

    It was accepted once, so being healthy is enough. Raises NotReady, OnecatError or OSError.
    """
    if previous is None or not previous.proxied:
        own_nginx(rollout.store).stop()
    if previous is None:
        return
    rollout.report(f"starting release {previous.number} again")
    server = server_of(previous)
    server.start()
    wait_until_ready(server, previous.server_url, rollout.deployment.start.silence_seconds, rollout.report)
    server.accept()
    if previous.proxied:
        _start_proxy(rollout, previous)
    rollout.report(f"release {previous.number} serves again")


def dry_run(deployment: Deployment, plan: Plan, launcher: Launcher | None) -> dict[str, Any]:
    """What `up` would start, without touching anything: the command line and the proxy's site."""
    argv = list(launcher.serve_argv(plan.server_args)) if launcher is not None else list(plan.server_args)
    site = site_of(deployment, plan.host, plan.port) if deployment.proxy.kind == "nginx" else None
    return {"argv": argv, "plan": to_json(plan), "site": site and asdict(site)}
