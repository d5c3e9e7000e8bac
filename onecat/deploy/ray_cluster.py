"""The nodes of one model across hosts: who they are, and what can be known to fail on them before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from onecat.deploy.host_facts import facts_of
from onecat.deploy.ray_machines import node_machine
from onecat.errors import ExitCode, OnecatError
from onecat.planner.ray import RayCluster, plan_cluster

if TYPE_CHECKING:
    from onecat.config import Deployment
    from onecat.deploy.request import Run
    from onecat.facts import Facts
    from onecat.hosts import Machine
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
