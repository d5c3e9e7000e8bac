"""From a run to the containers of a Ray cluster's nodes, on several hosts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.deploy import ray_node
from onecat.deploy.container import ContainerServer, image_id
from onecat.deploy.container_rendering import container_spec
from onecat.deploy.ray_machines import node_machine
from onecat.deploy.ray_server import NodePlace, RayServer, remove_unused
from onecat.deploy.store import DeploymentStore
from onecat.errors import ExitCode, OnecatError
from onecat.planner.ray import (
    NODE_PROGRAM,
    SHARED_MEMORY_BYTES,
    TOKEN_MOUNT,
    RayCluster,
    RayNode,
    environment,
    node_argv,
    server_args,
)

if TYPE_CHECKING:
    from onecat.deploy.container_spec import ContainerSpec
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run
    from onecat.hosts import Machine

PROGRAM_FILE = "ray_node.py"


def prepare_ray(run: Run, release: Release) -> RayServer:
    """Write what each node's container is made from, on its host; nothing runs yet.

    Raises OnecatError when there can be no cluster, or a host lacks the image or the model that the head has.
    """
    cluster = run.request.cluster
    assert cluster is not None
    for warning in cluster.warnings:
        run.report(f"Ray: {warning}")
    kept = [each.number for each in run.store.releases()] + [release.number]
    places = []
    for index, node in enumerate(cluster.nodes):
        machine = node_machine(run.machine, node.host)
        if index:
            check_same(run, machine)
            folder = f"{DeploymentStore(machine, release.deployment).directory}/ray"
            remove_unused(machine, folder, kept)
            directory = f"{folder}/{release.number:04d}-{_word(node.host)}"
        else:
            directory = release.directory
        machine.make_directory(directory)
        # An address of Docker on one host says nothing about another.
        docker_host = release.docker_host if index == 0 or machine.is_local else None
        own = replace(release, directory=directory, docker_host=docker_host)
        spec = node_spec(run, own, cluster, node, machine)
        program = f"{directory}/{PROGRAM_FILE}"
        machine.write(program, Path(ray_node.__file__).read_bytes(), 0o644)
        ContainerServer.prepare(machine, directory, spec, docker_host)
        places.append(NodePlace(node.host, directory, docker_host, node.address, spec.user))
    return RayServer.prepare(run.machine, release.directory, cluster.address, places)


def node_spec(run: Run, release: Release, cluster: RayCluster, node: RayNode, machine: Machine) -> ContainerSpec:
    """The container of one node: that of a server on one host, in the host's network and with Ray around the server.

    Parameters:
        release: with the node's directory and Docker daemon.
    """
    is_head = node == cluster.head
    suffix = "" if is_head else f"-{_word(node.host)}"
    own = replace(run, machine=machine, secret=run.secret if is_head else None)
    # UUIDs are those of the head's cards; another host's are known by index.
    gpus = release.gpus if is_head else tuple(str(each) for each in run.deployment.gpus or () if isinstance(each, int))
    spec = container_spec(own, replace(release, gpus=gpus), f"{release.container}{suffix}")
    server = (*spec.image_entrypoint, *server_args(run.plan))
    argv = node_argv(cluster, node, server, run.deployment.start.silence_seconds)
    mounts = ((f"{release.directory}/{PROGRAM_FILE}", NODE_PROGRAM), (_token(release), TOKEN_MOUNT))
    return replace(
        spec,
        command=tuple(argv[2:]),
        image_entrypoint=tuple(argv[:2]),
        env={**{each.arg: each.value for each in environment(cluster, node)}, **spec.env},
        mounts=(*spec.mounts, *mounts),
        shm_bytes=spec.shm_bytes + SHARED_MEMORY_BYTES,
        gpus=min(spec.gpus, node.gpus),
        host_network=True,
        has_server=is_head,
    )


def check_same(run: Run, machine: Machine) -> None:
    """Raises OnecatError when a host's image or model is not that of the head: workers would load something else."""
    plan = run.plan
    assert plan.container is not None
    docker_host = machine.docker_host(run.request.docker_host if machine.is_local else None)
    found = image_id(docker_host, plan.container.image)
    if found != run.image:
        raise OnecatError(
            f"{machine.name} has {'no' if found is None else 'another'} image {plan.container.image}",
            expected=f"that of {run.machine.name}: {run.image}",
            where=machine.name,
            next_steps=[f"docker save {plan.container.image} | ssh {machine.name} docker load"],
            code=ExitCode.ROLLED_BACK,
        )
    here = {name: each.size for name, each in run.machine.entries(plan.model_directory).items()}
    there = {name: each.size for name, each in machine.entries(plan.model_directory).items()}
    different = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if different:
        raise OnecatError(
            f"{machine.name} has not the same model: {', '.join(different[:5])}",
            expected=f"the files of {run.machine.name} at the same place",
            where=f"{machine.name}:{plan.model_directory}",
            next_steps=[f"rsync -a {plan.model_directory}/ {machine.name}:{plan.model_directory}/"],
            code=ExitCode.ROLLED_BACK,
        )


def _token(release: Release) -> str:
    return NodePlace("", release.directory, None, "", "").token_path


def _word(host: str) -> str:
    """A host's name as part of the name of a container or directory."""
    return re.sub(r"[^a-zA-Z0-9_.-]+", "-", host).strip("-.") or "node"
