"""What `up` is asked to make run on one host, and what its steps work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from onecat.config.schema import Deployment, Profile
from onecat.deploy.releases import Purpose
from onecat.deploy.server import Secret
from onecat.planner.records import Plan

if TYPE_CHECKING:
    from onecat.deploy.claims import Accelerator
    from onecat.deploy.front import Front
    from onecat.deploy.site import Site
    from onecat.deploy.store import DeploymentStore
    from onecat.deploy.traffic import Traffic
    from onecat.facts import Facts
    from onecat.hosts import Machine
    from onecat.planner.ray import RayCluster

Report = Callable[[str], None]
"""Receives one line for each step, for a person."""


class Launcher(Protocol):
    """Knows how the engine of a native runtime is called (`onecat.images.NativeRuntime`)."""

    def serve_argv(self, server_args: Sequence[str]) -> list[str]:
        """The whole command line for the words after `vllm serve`."""


@dataclass(frozen=True)
class UpRequest:
    """What shall run on one host.

    launcher: the native runtime; None for a container. facts: of the host, for its GPUs and memory; None: not looked.
    docker_host: address of the Docker daemon as the host names it; None for its environment's.
    strict: whether a finding about what the engine chose is a failed start.
    allow_daemon_reload: whether systemd may be reloaded though containers may lose their GPUs by it.
    purpose: the command it is for. origin: the number of the release that is repeated, and image: the id of the
    container image that this one ran.
    model_is_checked: whether the files of the model were just looked at.
    anew: start it even where the same plan already serves.
    cluster: the nodes of a deployment with `ray`; None: they are found from the hosts' interfaces. node_facts: of its
    hosts, by name, where they were looked at.
    """

    deployment: Deployment
    profile: Profile
    plan: Plan
    launcher: Launcher | None = None
    facts: Facts | None = None
    docker_host: str | None = None
    strict: bool = False
    allow_daemon_reload: bool = False
    purpose: Purpose = "up"
    origin: int | None = None
    image: str | None = None
    model_is_checked: bool = False
    anew: bool = False
    cluster: RayCluster | None = None
    node_facts: Mapping[str, Facts] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """What the steps of one command on one deployment work with.

    plan, argv: with the port that this release gets. traffic, site: the nginx before it and what it shall do; None
    where there is none. image: the id of the container image that its name means on the host. accelerators: those
    that its release gets. beside: other engines on the processors of the host, in words. front: the nginx of several
    hosts; None where it runs on this one. address: by which the front reaches the server; None: the server's own.
    """

    request: UpRequest
    machine: Machine
    store: DeploymentStore
    plan: Plan
    argv: tuple[str, ...]
    traffic: Traffic | None
    site: Site | None
    secret: Secret | None
    fingerprint: str
    report: Report
    image: str | None = None
    accelerators: tuple[Accelerator, ...] = ()
    beside: tuple[str, ...] = ()
    front: Front | None = None
    address: str | None = None

    @property
    def gpus(self) -> tuple[str, ...]:
        """The accelerators as `Release.gpus` has them."""
        return tuple(each.id for each in self.accelerators)

    @property
    def deployment(self) -> Deployment:
        return self.request.deployment

    @property
    def machines(self) -> tuple[Machine, ...]:
        """The hosts that this works on: of the server, and of the nginx before it."""
        return tuple(dict.fromkeys((self.machine, self.proxy_machine)))

    @property
    def proxy_store(self) -> DeploymentStore:
        """The deployment on the host whose nginx passes requests on."""
        return self.store if self.front is None else self.front.store

    @property
    def proxy_machine(self) -> Machine:
        """The host whose nginx passes requests on."""
        return self.proxy_store.machine

    @property
    def host(self) -> str:
        """The host's name among those of the deployment."""
        return self.machine.name

    @property
    def model(self) -> Path:
        return Path(self.plan.model_directory)
