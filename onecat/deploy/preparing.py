"""From what is asked to what the steps of a change work with, and what can be known to fail before anything changes."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from onecat.deploy import claims, prerequisites, unit_server
from onecat.deploy.container import image_id, missing_image
from onecat.deploy.container_rendering import container_owner
from onecat.deploy.fingerprint import fingerprint
from onecat.deploy.front import address_of, front_host
from onecat.deploy.images_transfer import provide_image
from onecat.deploy.ports import free_port, ports_of
from onecat.deploy.proxies import proxy_of
from onecat.deploy.proxies.choosing import choose_proxy, site_for
from onecat.deploy.ray_cluster import check_nodes, provide_images, with_cluster
from onecat.deploy.request import Report, Run, UpRequest
from onecat.deploy.room import room_for
from onecat.deploy.store import DeploymentStore
from onecat.deploy.strategy import Strategy, choose
from onecat.deploy.switching import runs
from onecat.deploy.traffic import Traffic
from onecat.errors import ExitCode, OnecatError
from onecat.images.docker_engine import engine_address
from onecat.planner.records import with_port

if TYPE_CHECKING:
    from onecat.deploy.front import Front
    from onecat.deploy.releases import Release
    from onecat.hosts import Machine


def prepare_run(request: UpRequest, machine: Machine, report: Report, front: Front | None = None) -> Run:
    """What the steps work with. Raises OnecatError for what is wrong with the request; nothing is changed.

    Parameters:
        front: the nginx of several hosts, this one among them; None: it runs on this one.
    """
    deployment, plan = request.deployment, request.plan
    store = DeploymentStore(machine, deployment.name)
    if plan.container is not None and request.docker_host is None and machine.is_local:
        request = replace(request, docker_host=os.environ.get("DOCKER_HOST"))
    argv = tuple(request.launcher.serve_argv(plan.server_args)) if request.launcher is not None else plan.server_args
    traffic = site = None
    current = store.current()
    if front is None and current is not None and current.front is not None:
        raise OnecatError(
            f"nginx before {store.name} runs on {current.front}, beside which {machine.name} is one of several hosts",
            expected="a command on all of them, or with the host that nginx runs on",
            where=machine.name,
            next_steps=["onecat up, with all hosts in onecat.yaml", f"or first: onecat down --host {machine.name}"],
        )
    if deployment.proxy.kind == "nginx":
        proxied_by = machine if front is None else front.store.machine
        choice = choose_proxy(proxied_by, deployment, request.docker_host, current.proxy_kind if current else None)
        if choice.kind is None:
            report(f"{choice.why}: serving directly at http://{plan.host}:{plan.port}")
        else:
            report(f"nginx: {choice.kind} ({choice.why})")
            # Only beside the clients' keys does nginx send the server's: what changes no release needs it not.
            secret = None if deployment.proxy.keys_file is None else prerequisites.secret_of(deployment)
            site = site_for(choice, deployment, prerequisites.read_secret(secret))
            site = replace(site, probed=front_host(deployment) is not None)
            traffic = (
                Traffic(proxy_of(store, choice.kind), machine, store.directory)
                if front is None
                else front.traffic(machine.name, choice.kind)
            )
    return Run(
        request=request,
        machine=machine,
        store=store,
        plan=plan,
        argv=argv,
        traffic=traffic,
        site=site,
        secret=prerequisites.secret_of(deployment),
        fingerprint="",
        report=report,
        front=front,
        address=None if front is None else address_of(deployment, machine),
    )


def check_before(run: Run) -> Run:
    """See that nothing is known to fail, and what it is that shall run: the run with its fingerprint and image.

    Raises OnecatError; nothing is changed.
    """
    plan = run.plan
    run = with_cluster(run)
    check_host(run)
    image = None if plan.container is None else _image(run, plan.container.image)
    run = replace(run, image=image, fingerprint=_fingerprint(run, image))
    provide_images(run)
    pinned = run.request.image
    if plan.container is not None and pinned is not None and pinned != image:
        # The name means another image by now; what is repeated is what ran then.
        container = replace(plan.container, image=pinned)
        return replace(
            run, plan=replace(plan, container=container), image=pinned, fingerprint=_fingerprint(run, pinned)
        )
    return run


def check_host(run: Run) -> None:
    """Look at all but the image. Raises OnecatError for what is known to fail."""
    plan, machine, profile = run.plan, run.machine, run.deployment.profile
    prerequisites.check_plan(plan)
    if plan.container is not None:
        if machine.is_local:
            prerequisites.check_docker_host(engine_address(run.request.docker_host))
        prerequisites.check_accelerator_files(machine, profile, plan.container)
        if run.deployment.service == "systemd":
            unit_server.check_host(machine, run.request.docker_host, run.request.allow_daemon_reload)
    if not run.request.model_is_checked:
        prerequisites.check_model(machine, plan.model_directory)
    prerequisites.read_secret(run.secret)
    if run.site is not None:
        prerequisites.check_tls(run.proxy_machine, run.deployment)
    prerequisites.check_disk(machine)
    check_nodes(run)
    claims.check_ports(run)
    _check_ports(run)
    # Last, because what is missing here takes minutes to build: nobody should learn of a typo only afterwards.
    if plan.container is None:
        prerequisites.check_runtime(profile, run.request.launcher, run.argv)
    else:
        prerequisites.check_readable_in_container(machine, plan.model_directory, container_owner(run))


def _image(run: Run, name: str) -> str | None:
    docker_host = run.machine.docker_host(run.request.docker_host)
    pinned = run.request.image
    found = image_id(docker_host, name)
    if pinned is not None and found != pinned and image_id(docker_host, pinned) is None:
        raise OnecatError(
            f"the image that release {run.request.origin} ran is no longer on the host",
            where=pinned,
            expected="an image that was kept: docker image prune removes those without a name",
            next_steps=["onecat build, then onecat up"],
            code=ExitCode.ROLLED_BACK,
        )
    if found is None and pinned is None:
        found = provide_image(run.machine, run.request.docker_host, name, run.report)
    if found is None and pinned is None:
        raise missing_image(name, run.deployment.profile, None if run.machine.is_local else run.machine.name)
    return found


def _fingerprint(run: Run, image: str | None) -> str:
    return fingerprint(
        run.deployment,
        run.plan,
        run.argv,
        run.machine.entries(run.plan.model_directory),
        run.traffic is not None,
        image,
        prerequisites.read_secret(run.secret),
    )


def _check_ports(run: Run) -> None:
    """Raises OnecatError when somebody else listens where the release shall; our own ports are ours to take over."""
    ours = ports_of(run.store)
    current = run.store.current()
    if (run.traffic is None or current is None) and run.plan.port not in ours:
        prerequisites.check_port(run.machine, run.plan.host, run.plan.port, "port")
    if run.traffic is not None and run.site is not None:
        host, _, port = run.site.listen.rpartition(":")
        ours = ours if run.proxy_store is run.store else ports_of(run.proxy_store)
        if int(port) not in ours and run.traffic.proxy.kind != "host":
            prerequisites.check_port(run.proxy_machine, host.strip("[]"), int(port), "proxy.listen")


def decide(run: Run, current: Release | None) -> Strategy:
    """How the new release takes over from the current one."""
    replaced = current is not None and runs(run, current)
    seconds = None if current is None else current.gap_seconds or current.start_seconds
    return choose(run.deployment.rollout.strategy, replaced, room_for(run, current), seconds)


def with_free_port(run: Run, strategy: Strategy) -> Run:
    """The run with the port that its release gets: behind nginx any that is free, else the one of the configuration.

    Raises OnecatError when there is none.
    """
    if run.traffic is None:
        return run
    taken = ports_of(run.store)
    if strategy.name != "blue-green":
        # Those of servers that are stopped for this one are free by then.
        serving = {each.endpoint_port for each in run.store.releases() if each.live and each.proxied}
        taken = taken & serving
    taken = taken | claims.ports_of_others(run)
    port = free_port(run.plan.port, lambda each: each in taken or not _is_free(run, each))
    plan = with_port(run.plan, port)
    launcher = run.request.launcher
    argv = tuple(launcher.serve_argv(plan.server_args)) if launcher is not None else plan.server_args
    return replace(run, plan=plan, argv=argv)


def _is_free(run: Run, port: int) -> bool:
    if port in ports_of(run.store):
        return True
    try:
        prerequisites.check_port(run.machine, run.plan.host, port, "port")
    except OnecatError:
        return False
    return True
