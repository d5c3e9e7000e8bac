"""Write everything a release consists of into its directory; nothing runs yet."""

from __future__ import annotations

import contextlib
import platform
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from onecat.deploy import claims, units
from onecat.deploy.audit import user_name
from onecat.deploy.container import ContainerServer
from onecat.deploy.container_rendering import container_spec
from onecat.deploy.failures import failure_of_host
from onecat.deploy.native import STOP_SECONDS, NativeServer, launch_document
from onecat.deploy.ray_rendering import prepare_ray
from onecat.deploy.releases import Release, Service, reachable
from onecat.deploy.saved_request import REQUEST_FILE, request_document
from onecat.deploy.site import Site, from_document, to_document, with_keys
from onecat.deploy.store import read_json, understood, write_json
from onecat.deploy.supervisor import timestamp
from onecat.deploy.traffic import Member, with_members
from onecat.deploy.unit_server import UNIT_FOLDER, UnitServer
from onecat.deploy.written_files import record_rendered
from onecat.errors import OnecatError
from onecat.planner.records import to_json

if TYPE_CHECKING:
    from onecat.config.schema import Deployment
    from onecat.deploy.request import Run
    from onecat.deploy.server import Server
    from onecat.deploy.strategy import Strategy

SITE_FILE = "site.json"


def render(run: Run, strategy: Strategy) -> tuple[Release, Server]:
    """The next release and its server, not started. A failure leaves no directory behind.

    Raises OnecatError: ROLLED_BACK for what the host refuses, as a file on a full disk.
    """
    number, directory = run.store.new_directory()
    try:
        return _rendered(run, strategy, number, directory)
    except BaseException as failure:
        with contextlib.suppress(OSError, OnecatError):  # what has failed is told, not what was left by it
            run.machine.remove(directory)
        if isinstance(failure, OSError):
            raise failure_of_host(failure) from failure
        raise


def _rendered(run: Run, strategy: Strategy, number: int, directory: str) -> tuple[Release, Server]:
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
        service="supervisor" if container is None else _service(deployment),
        proxy_kind=None if run.traffic is None else run.traffic.proxy.kind,
        front=None if run.traffic is None or run.proxy_machine is run.machine else run.proxy_machine.name,
        server_name="_" if run.site is None else run.site.server_name,
        container=container,
        docker_host=run.request.docker_host if container else None,
        image_id=run.image,
        gpus=run.gpus,
        strategy=strategy.name,
        purpose=run.request.purpose,
        created_by=f"{user_name()}@{platform.node()}",
        origin=run.request.origin,
    )
    release = replace(release, endpoint=release.server_url if run.site is None else run.site.endpoint)
    write_json(run.machine, f"{directory}/plan.json", to_json(plan))
    write_json(run.machine, f"{directory}/{REQUEST_FILE}", request_document(run))
    server = _server(run, release)
    if run.traffic is not None and run.site is not None:
        write_json(run.machine, f"{directory}/{SITE_FILE}", to_document(run.site))
        run.traffic.proxy.check(with_members(run.site, [member_of(run, release)]), _nginx_directory(run, directory))
    record_rendered(run.machine, directory)
    run.store.save(release)
    return release, server


def _nginx_directory(run: Run, directory: str) -> str:
    """Where nginx's files for a release are tested: beside it, or on the host whose nginx it is."""
    if run.proxy_machine is run.machine:
        return f"{directory}/nginx"
    return f"{run.proxy_store.directory}/nginx-of-{re.sub(r'[^A-Za-z0-9.-]+', '-', run.host)}"


def _service(deployment: Deployment) -> Service:
    """Who looks after a container of the deployment."""
    return "ray" if deployment.ray is not None else deployment.service


def site_of_release(run: Run, release: Release) -> Site | None:
    """What nginx does before this release, without servers; None for one without nginx.

    It lets in whom the clients' keys of today name: no release keeps a copy of them.
    """
    path = f"{release.directory}/{SITE_FILE}"
    document = read_json(run.machine, path)
    if document is None:
        return _site_of_first_form(run, release)
    with understood(run.machine, path):
        site = from_document(document)
    keys = None if run.site is None else run.site.keys
    return with_keys(site, keys) if site.checks_keys and keys is not None else site


def _site_of_first_form(run: Run, release: Release) -> Site | None:
    """The site of a release that says no more of it than where clients ask: else as that of today."""
    if run.site is None or release.proxy_kind is None or run.site.endpoint == release.endpoint:
        return None if release.proxy_kind is None else run.site
    return replace(run.site, listen=release.endpoint.partition("//")[2])


def member_of(run: Run, release: Release) -> Member:
    """The release as a server behind nginx."""
    address = release.address if run.address is None else f"{reachable(run.address)}:{release.port}"
    return Member(run.host, release.number, address)


def _server(run: Run, release: Release) -> Server:
    """The release's server with all that it needs in the release's directory."""
    deployment, directory = run.deployment, release.directory
    # plan.json says what was planned; which accelerators that comes to is decided each time anew.
    run = replace(run, plan=claims.placed(run))
    if release.container is None:
        _render_native_unit(run, release)
        launch = launch_document(run.argv, dict(run.plan.env), deployment.restart, run.secret)
        return NativeServer.prepare(directory, launch)
    if release.service == "ray":
        return prepare_ray(run, release)
    spec = container_spec(run, release, release.container)
    if release.service == "docker":
        return ContainerServer.prepare(run.machine, directory, spec, release.docker_host)
    server = UnitServer.prepare(
        run.machine,
        directory,
        replace(spec, image=release.image_id or spec.image, guard_directory=None, state_directory=None),
        release.docker_host,
        deployment=release.deployment,
        number=release.number,
        restart=deployment.restart,
        allow_daemon_reload=run.request.allow_daemon_reload,
    )
    _tell_objections(run, f"{directory}/{UNIT_FOLDER}/{release.container}.service")
    return server


def _render_native_unit(run: Run, release: Release) -> None:
    """A unit of a native server, for people who want systemd to look after it: they install it themselves."""
    if run.secret is not None and run.secret.file is None:
        run.report("no systemd unit is written: an API key from the environment has no place in one; use a file")
        return
    unit_home = f"{run.store.directory}/unit-home"
    run.machine.make_directory(unit_home)
    text = units.native_unit(
        release.deployment,
        release.number,
        run.argv,
        dict(run.plan.env),
        run.secret.file if run.secret else None,
        release.server_url,
        run.deployment.start.silence_seconds,
        run.deployment.restart,
        STOP_SECONDS,
        unit_home,
    )
    run.machine.make_directory(f"{release.directory}/{UNIT_FOLDER}")
    path = f"{release.directory}/{UNIT_FOLDER}/onecat-{release.deployment}.service"
    run.machine.write(path, text.encode(), 0o644)
    _tell_objections(run, path)


def _tell_objections(run: Run, unit: str) -> None:
    objections = units.verify(run.machine, unit)
    if objections:
        run.report(f"systemd-analyze objects to {unit}: {'; '.join(objections)}")
