"""The nodes of one model across hosts: who they are, and what can be known to fail on them before anything changes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from onecat.deploy import claims, prerequisites
from onecat.deploy.container import image_id
from onecat.deploy.container_rendering import container_owner
from onecat.deploy.host_facts import facts_of
from onecat.deploy.images_transfer import can_be_had, provide_image
from onecat.deploy.ray_machines import node_machine
from onecat.errors import ExitCode, OnecatError
from onecat.planner.ray import RayCluster, plan_cluster

_ANY = "0.0.0.0"  # noqa: S104 - Ray listens on all addresses

if TYPE_CHECKING:
    from onecat.config import Deployment
    from onecat.deploy.request import Run
    from onecat.facts import Facts
    from onecat.hosts import Machine
    from onecat.planner.ray import RayNode
    from onecat.planner.records import Layout, Refusal


def with_cluster(run: Run) -> Run:
    """The run with the cluster of its hosts as they are now; of a deployment without `ray` as it is.

    Raises OnecatError with all that stands against a cluster.
    """
    if run.deployment.ray is None or run.request.cluster is not None:
        return run
    cluster, refused, facts = find_cluster(run.deployment, run.plan.layout, run.machine)
    if cluster is None:
        raise OnecatError(
            refused[0].why,
            expected="hosts that can share one model",
            details=[each.why for each in refused[1:]],
            next_steps=[step for each in refused for step in each.fix],
            code=ExitCode.NO,
        )
    return replace(run, request=replace(run.request, cluster=cluster, node_facts=facts))


def find_cluster(
    deployment: Deployment, layout: Layout, head: Machine
) -> tuple[RayCluster | None, tuple[Refusal, ...], Mapping[str, Facts]]:
    """The cluster that the hosts can form now, or why none, and the facts of each host.

    Parameters:
        head: the first host's machine, with the others behind it.

    Raises OnecatError when a host cannot be asked.
    """
    machines = {host: node_machine(head, host) for host in deployment.hosts}
    with ThreadPoolExecutor(len(machines)) as pool:
        facts = dict(zip(machines, pool.map(facts_of, machines.values()), strict=True))
    return *plan_cluster(deployment, layout, facts), facts


def other_nodes(run: Run) -> Iterator[tuple[RayNode, Machine]]:
    """The nodes of the run's cluster beside the head, none of a deployment without `ray`."""
    for node in () if run.request.cluster is None else run.request.cluster.nodes[1:]:
        yield node, node_machine(run.machine, node.host)


def check_nodes(run: Run) -> None:
    """Look at all nodes of the run's cluster. Raises OnecatError for what is known to fail on one of them."""
    cluster = run.request.cluster
    if cluster is None:
        return
    if not any(each.live and each.service == "ray" for each in run.store.releases()):
        for node in cluster.nodes:
            for port in node.ports.fixed(is_head=node == cluster.head):
                prerequisites.check_port(node_machine(run.machine, node.host), _ANY, port, "ray.port")
    for node, machine in other_nodes(run):
        prerequisites.check_disk(machine)
        _check_model(run, machine)
        prerequisites.check_readable_in_container(machine, run.plan.model_directory, container_owner(run, machine))
        gpus_of_node(run, node, machine)
        _check_image(run, machine)


def provide_images(run: Run) -> None:
    """Let each node have the head's image, sent from here where it lacks it. Raises OnecatError where it cannot."""
    for _, machine in other_nodes(run):
        assert run.plan.container is not None
        docker_host = docker_host_of(run, machine)
        if image_id(machine.docker_host(docker_host), run.plan.container.image) is None:
            provide_image(machine, docker_host, run.plan.container.image, run.report)
        _check_image(run, machine, is_last=True)


def docker_host_of(run: Run, machine: Machine) -> str | None:
    """The Docker daemon of a node as it is asked for: an address on one host says nothing about another."""
    return run.request.docker_host if machine.is_local or machine.name == run.machine.name else None


def gpus_of_node(run: Run, node: RayNode, machine: Machine) -> tuple[str, ...]:
    """The GPUs that a node beside the head gives, as `Release.gpus` has them; none where they are not known.

    Raises OnecatError when other deployments of its host have them.
    """
    # UUIDs are those of one host's cards; the same index is on each.
    wanted = tuple(each for each in run.deployment.gpus or () if isinstance(each, int)) or None
    present = claims.accelerators_of(run.request.node_facts.get(node.host), run.request.profile.hardware.accelerator)
    if present is None:
        return () if wanted is None else tuple(map(str, wanted))
    others = claims.claims_of_others(machine, run.store.name)
    held = {each: claim.words for claim in others for each in claim.accelerators}
    try:
        return tuple(each.id for each in claims.choose(wanted, node.gpus, present, held))
    except OnecatError as error:
        raise replace_where(error, machine.name) from error


def replace_where(error: OnecatError, where: str) -> OnecatError:
    """The same error with the host it is about."""
    return error.told_as(found=f"{where}: {error.found}", where=where)


def _check_image(run: Run, machine: Machine, is_last: bool = False) -> None:
    """Raises OnecatError when a node has not the head's image. is_last: also where it could still be sent."""
    assert run.plan.container is not None
    name = run.plan.container.image
    expected = run.image or image_id(run.machine.docker_host(run.request.docker_host), name)
    docker_host = docker_host_of(run, machine)
    found = image_id(machine.docker_host(docker_host), name)
    if found == expected or expected is None:
        return
    can_come = found is None and not machine.is_local and can_be_had(name)
    if can_come and not is_last:
        return
    raise OnecatError(
        f"{machine.name} has {'no' if found is None else 'another'} image {name}",
        expected=f"that of {run.machine.name}: {expected}",
        where=machine.name,
        next_steps=[f"{_on(run.machine, 'docker save ' + shlex.quote(name))} | {_on(machine, 'docker load')}"],
        code=ExitCode.ROLLED_BACK,
    )


def _check_model(run: Run, machine: Machine) -> None:
    """Raises OnecatError when a node's model is not that of the head: its worker would load something else."""
    place = run.plan.model_directory
    here = {name: each.size for name, each in run.machine.entries(place).items()}
    missing = machine.status(place) is None
    there = {} if missing else {name: each.size for name, each in machine.entries(place).items()}
    different = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if not different:
        return
    word = shlex.quote(f"{place}/")
    raise OnecatError(
        f"{machine.name} has {'no model there' if missing else 'not the same model: ' + ', '.join(different[:5])}",
        expected=f"the files of {run.machine.name} at the same place",
        where=f"{machine.name}:{place}",
        next_steps=[_on(run.machine, f"rsync -a {word} {machine.name}:{word}")],
        code=ExitCode.ROLLED_BACK,
    )


def _on(machine: Machine, command: str) -> str:
    return command if machine.is_local else f"ssh {machine.name} {command}"
