"""Write everything a release consists of into its directory; nothing runs yet."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from onecat.deploy import preflight, units
from onecat.deploy.container import ContainerServer
from onecat.deploy.container_rendering import container_spec
from onecat.deploy.container_spec import ContainerSpec
from onecat.deploy.native import STOP_SECONDS, NativeServer, launch_document
from onecat.deploy.releases import Release
from onecat.deploy.site import Site, from_document, to_document
from onecat.deploy.store import read_json, write_json
from onecat.deploy.supervisor import timestamp
from onecat.deploy.traffic import Member, with_members
from onecat.errors import OnecatError
from onecat.planner.records import to_json

if TYPE_CHECKING:
    from onecat.deploy.request import Run
    from onecat.deploy.server import Server
    from onecat.deploy.strategy import Strategy

SITE_FILE = "site.json"


def render(run: Run, strategy: Strategy, image_id: str | None) -> tuple[Release, Server]:
    """The next release and its server, not started. A failure leaves no directory behind."""
    number, directory = run.store.new_directory()
    try:
        return _rendered(run, strategy, image_id, number, directory)
    except BaseException:
        with contextlib.suppress(OSError, OnecatError):  # what has failed is told, not what was left by it
            run.machine.remove(directory)
        raise


def _rendered(
    run: Run, strategy: Strategy, image_id: str | None, number: int, directory: str
) -> tuple[Release, Server]:
    plan, deployment = run.plan, run.deployment
    container = f"onecat-{deployment.name}-{number:04d}" if plan.runtime == "container" else None
    release = Release(
        deployment=deployment.name,
        number=number,
        directory=directory,
        runtime=plan.runtime,
        profile=run.request.profile.name,
        model=plan.served_name,
        host=plan.host,
        port=plan.port,
        endpoint="",
        protected=run.secret is not None,
        fingerprint=run.fingerprint,
        created_at=timestamp(time.time()),
        host_name=run.machine.name,
        service="supervisor" if container is None else "docker",
        proxy_kind=None if run.traffic is None else run.traffic.proxy.kind,
        server_name="_" if run.site is None else run.site.server_name,
        container=container,
        docker_host=run.request.docker_host if container else None,
        image_id=image_id,
        strategy=strategy.name,
    )
    release = replace(release, endpoint=release.server_url if run.site is None else run.site.endpoint)
    write_json(run.machine, f"{directory}/plan.json", to_json(plan))
    server: Server
    spec: ContainerSpec | None = None
    if container is not None:
        spec = container_spec(run, release, container)
        server = ContainerServer.prepare(run.machine, directory, spec, release.docker_host)
    else:
        launch = launch_document(run.argv, dict(plan.env), deployment.restart, run.secret)
        server = NativeServer.prepare(directory, launch)
    _render_unit(run, release, spec)
    if run.traffic is not None and run.site is not None:
        write_json(run.machine, f"{directory}/{SITE_FILE}", to_document(run.site))
        run.traffic.proxy.check(with_members(run.site, [member_of(run, release)]), f"{directory}/nginx")
    run.store.save(release)
    return release, server


def site_of_release(run: Run, release: Release) -> Site | None:
    """What nginx does before this release, without servers; None for one without nginx."""
    document = read_json(run.machine, f"{release.directory}/{SITE_FILE}")
    return None if document is None else from_document(document)


def member_of(run: Run, release: Release) -> Member:
    """The release as a server behind nginx."""
    return Member(run.host, release.number, release.address)


def _render_unit(run: Run, release: Release, spec: ContainerSpec | None) -> None:
    restart = run.deployment.restart
    directory = f"{release.directory}/systemd"
    if run.secret is not None and run.secret.file is None:
        run.report("no systemd unit is written: an API key from the environment has no place in one; use a file")
        return
    if spec is not None:
        # The unit outlives the release, and `down` removes the release's copy of the key: it makes its own.
        lasting = replace(
            spec,
            secret_file=run.secret.file if run.secret else None,
            guard_directory=None,
            state_directory=None,
        )
        text = units.container_unit(
            release.number, release.deployment, lasting, release.server_url, restart, release.docker_host
        )
    else:
        unit_home = f"{run.store.directory}/unit-home"
        run.machine.make_directory(unit_home)
        text = units.native_unit(
            release.deployment,
            release.number,
            run.argv,
            dict(run.plan.env),
            run.secret.file if run.secret else None,
            release.server_url,
            restart,
            STOP_SECONDS,
            unit_home,
        )
    run.machine.make_directory(directory)
    path = f"{directory}/onecat-{release.deployment}.service"
    run.machine.write(path, text.encode(), 0o644)
    objections = units.verify(run.machine, path)
    if objections:
        run.report(f"systemd-analyze objects to {path}: {'; '.join(objections)}")
