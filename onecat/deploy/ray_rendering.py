"""From a run to the containers of a Ray cluster's nodes, on several hosts."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.deploy import claims, ray_node
from onecat.deploy.container import ContainerServer
from onecat.deploy.container_rendering import container_spec
from onecat.deploy.ray_cluster import docker_host_of, gpus_of_node
from onecat.deploy.ray_machines import node_machine
from onecat.deploy.ray_server import NodePlace, RayServer, remove_unused
from onecat.deploy.store import DeploymentStore
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

    Raises OnecatError when another deployment has what a node needs.
    """
    cluster = run.request.cluster
    assert cluster is not None
    for warning in cluster.warnings:
        run.report(f"Ray: {warning}")
    kept = [each.number for each in run.store.releases()] + [release.number]
    places = []
    with contextlib.ExitStack() as undo:
        for index, node in enumerate(cluster.nodes):
            machine = node_machine(run.machine, node.host)
            if index:
                folder = f"{DeploymentStore(machine, release.deployment).directory}/ray"
                remove_unused(machine, folder, kept)
                directory = f"{folder}/{release.number:04d}-{_word(node.host)}"
            else:
                directory = release.directory
            machine.make_directory(directory)
            docker_host = docker_host_of(run, machine)
            own = replace(release, directory=directory, docker_host=docker_host)
            if index:
                with claims.claiming(machine):
                    own = replace(own, gpus=gpus_of_node(run, node, machine))
                    claims.write_node_claim(machine, own)
                undo.callback(machine.remove, f"{directory}/{claims.NODE_CLAIM_FILE}")
            spec = node_spec(run, own, cluster, node, machine)
            program = f"{directory}/{PROGRAM_FILE}"
            machine.write(program, Path(ray_node.__file__).read_bytes(), 0o644)
            ContainerServer.prepare(machine, directory, spec, docker_host)
            places.append(NodePlace(node.host, directory, docker_host, node.address, spec.user))
        server = RayServer.prepare(run.machine, release.directory, cluster.address, places)
        undo.pop_all()
    return server


def node_spec(run: Run, release: Release, cluster: RayCluster, node: RayNode, machine: Machine) -> ContainerSpec:
    """The container of one node: that of a server on one host, in the host's network and with Ray around the server.

    Parameters:
        release: with the node's directory, GPUs and Docker daemon.
    """
    is_head = node == cluster.head
    suffix = "" if is_head else f"-{_word(node.host)}"
    own = replace(run, machine=machine, secret=run.secret if is_head else None)
    spec = container_spec(own, release, f"{release.container}{suffix}")
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


def _token(release: Release) -> str:
    return NodePlace("", release.directory, None, "", "").token_path


def _word(host: str) -> str:
    """A host's name as part of the name of a container or directory."""
    return re.sub(r"[^a-zA-Z0-9_.-]+", "-", host).strip("-.") or "node"
