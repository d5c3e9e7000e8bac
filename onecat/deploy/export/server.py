"""The server of a deployment as a container, told without anything that only its host knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onecat.deploy import container_health
from onecat.deploy.cache_volume import CACHE_DIRECTORY
from onecat.deploy.container_spec import SERVER_PORT, STOP_SECONDS, planned_spec
from onecat.errors import OnecatError
from onecat.resources import resource_directory

if TYPE_CHECKING:
    from onecat.deploy.container_spec import ContainerSpec
    from onecat.deploy.export.records import Request

HEALTH_SECONDS = 10
"""Between two looks at /health, and how long an answer may take."""
HEALTH_RETRIES = 6
"""Bad answers in a row that make a server that was healthy unhealthy: a minute, because a busy API server is slow."""
LONGEST_START_SECONDS = 24 * 3600
"""How long a start may take where only a fixed time can be said: so long that no loading is ever cut off by it."""
ENDPOINT_SECONDS = 10
"""How long a load balancer may take to learn that a server is leaving."""
_HEALTH_URL = f"http://127.0.0.1:{SERVER_PORT}/health"
_HEALTH_PROGRAM = (
    "import sys, urllib.request as r; "
    f"sys.exit(r.build_opener(r.ProxyHandler({{}})).open('{_HEALTH_URL}', timeout={HEALTH_SECONDS - 1}).status != 200)"
)


@dataclass(frozen=True)
class ExportedServer:
    """A server in a container.

    spec: as `onecat up` would start it, without what the host decides: no file of the key (has_key tells whether there
    is one), no guard, a cache volume without a name. accelerators: how many cards of that kind it gets.
    """

    spec: ContainerSpec
    accelerator: Literal["none", "nvidia", "ascend"]
    accelerators: int
    has_key: bool

    @property
    def user(self) -> tuple[int, int]:
        """(uid, gid)"""
        uid, _, gid = self.spec.user.partition(":")
        return int(uid), int(gid)


def describe(request: Request) -> ExportedServer:
    """The server of the plan. Raises OnecatError for a native plan, or an image that could be another one tomorrow."""
    plan, deployment, options = request.plan, request.deployment, request.options
    if plan.container is None:
        raise OnecatError(
            "the plan is for a server without a container",
            expected="a container",
            next_steps=["write runtime: container in onecat.yaml"],
        )
    image = options.image or plan.container.image
    check_pinned(image, "onecat export FORM --image REGISTRY/NAME:VERSION")
    layout = plan.layout
    accelerator = request.profile.hardware.accelerator
    cards = layout.cards
    planned = planned_spec(
        plan,
        deployment,
        name=request.name,
        image=image,
        user=options.user,
        labels={
            "io.onecat.deployment": deployment.name,
            "io.onecat.profile": request.profile.name,
            "io.onecat.engine": f"{plan.engine} {plan.engine_version}",
        },
    )
    spec = replace(
        planned,
        gpu_ids=tuple(str(each) for each in deployment.gpus or ()),
        selinux=options.selinux,
        groups=options.groups,
        cache_directory=CACHE_DIRECTORY,
    )
    has_key = deployment.secrets.api_key is not None
    return ExportedServer(spec, accelerator, 0 if accelerator == "none" else cards, has_key)


def check_pinned(image: str, step: str) -> None:
    """Raises OnecatError for an image by no tag or by `latest`: what it is would change without a change here.

    step: what to do about it.
    """
    name = image.rpartition("/")[2]
    if "@sha256:" in name:
        return
    tag = name.partition(":")[2]
    if tag in ("", "latest"):
        raise OnecatError(
            f"the image {image} has {'the tag latest' if tag else 'no tag'}",
            expected="a version, as name:0.27.1, or a digest, as name@sha256:...",
            next_steps=[step],
        )


def health_on_silence(spec: ContainerSpec) -> tuple[str, ...]:
    """A check that waits for a server which still loads, and fails when that has been silent for too long."""
    program = Path(container_health.__file__).read_text(encoding="utf-8")
    return ("python3", "-c", program, _HEALTH_URL, f"{spec.silence_seconds:g}", "/nonexistent")


def health_now() -> tuple[str, ...]:
    """A check that answers at once; every image that vLLM runs in has Python."""
    return ("python3", "-c", _HEALTH_PROGRAM)


def drain_program() -> str:
    """A Python program that waits until a server has no request left.

    Its arguments: URL, seconds before the first look, seconds after which it gives up.
    """
    return (resource_directory("templates") / "export" / "drain.py").read_text(encoding="utf-8")


def stop_seconds(request: Request) -> int:
    """How long a server that drains first may take to end."""
    return ENDPOINT_SECONDS + request.deployment.rollout.drain_seconds + STOP_SECONDS + 15


def first_steps(request: Request, server: ExportedServer) -> list[str]:
    """What a host must have, whatever starts the container there."""
    spec = server.spec
    steps = [
        f"user {server.user[0]} in the container must be able to read the model: chmod -R a+rX {spec.model_directory}"
    ]
    if spec.devices and not spec.groups:
        steps.append("the server gets device nodes and no group: export with --group, the group that owns them")
    if request.deployment.container.numa_node is not None:
        steps.append("container.numa_node needs the host's CPU numbers and is not in here: add it (cpuset)")
    if not spec.selinux:
        steps.append("where getenforce says Enforcing: export with --selinux, or the server cannot read the model")
    return steps
