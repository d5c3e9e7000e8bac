"""The server of a deployment as a container, told without anything that only its host knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onecat.deploy.container_spec import STOP_SECONDS, ContainerSpec, environment
from onecat.errors import OnecatError
from onecat.resources import resource_directory

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

HEALTH_SECONDS = 10
"""Between two looks at /health, and how long an answer may take."""
HEALTH_RETRIES = 6
"""Bad answers in a row that make a server that was healthy unhealthy: a minute, because a busy API server is slow."""
LONGEST_START_SECONDS = 24 * 3600
"""How long a start may take where only a fixed time can be said: so long that no loading is ever cut off by it."""
ENDPOINT_SECONDS = 10
"""How long a load balancer may take to learn that a server is leaving."""
_HEALTH_PROGRAM = (
    "import sys, urllib.request as r; "
    "sys.exit(r.build_opener(r.ProxyHandler({{}})).open('http://127.0.0.1:{port}/health', timeout={seconds}).status != 200)"
)


@dataclass(frozen=True)
class ExportedServer:
    """A server in a container.

    arguments: the words after `vllm serve`. port: inside the container; address: ADDRESS:PORT on its host.
    accelerators: how many; gpu_ids: which ones of the host, by index or UUID; empty: any.
    devices, mounts: of the host, the mounts read-only as (source, target), the model first.
    shm_bytes: None with the host's IPC namespace. memory_bytes, cpus: limits; None: none.
    """

    image: str
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    model_directory: str
    model_mount: str
    port: int
    host: str
    published_port: int
    accelerator: Literal["none", "nvidia", "ascend"]
    accelerators: int
    gpu_ids: tuple[str, ...]
    devices: tuple[str, ...]
    mounts: tuple[tuple[str, str], ...]
    shm_bytes: int | None
    memory_bytes: int | None
    cpus: float | None
    user: tuple[int, int]
    groups: tuple[int, ...]
    selinux: bool
    has_key: bool
    labels: tuple[tuple[str, str], ...]

    @property
    def health_command(self) -> tuple[str, ...]:
        """Ends with 0 when the server is ready; every image that vLLM runs in has Python."""
        return ("python3", "-c", _HEALTH_PROGRAM.format(port=self.port, seconds=HEALTH_SECONDS - 1))


def describe(request: Request) -> ExportedServer:
    """The server of the plan. Raises OnecatError for a native plan, or an image that could be another one tomorrow."""
    plan, deployment, options = request.plan, request.deployment, request.options
    if plan.container is None:
        raise OnecatError(
            "the plan is for a server without a container",
            expected="a container",
            next_steps=["write runtime: container in onecat.yaml", "onecat export systemd"],
        )
    image = options.image or plan.container.image
    check_pinned(image)
    layout = plan.layout
    accelerator = request.profile.hardware.accelerator
    limits = deployment.container
    return ExportedServer(
        image=image,
        arguments=plan.server_args,
        environment=tuple(server_environment(dict(plan.env)).items()),
        model_directory=plan.model_directory,
        model_mount=plan.container.model_mount,
        port=_word_after(plan.server_args, "--port"),
        host=plan.host,
        published_port=plan.port,
        accelerator=accelerator,
        accelerators=0
        if accelerator == "none"
        else layout.tensor_parallel * layout.pipeline_parallel * layout.replicas,
        gpu_ids=tuple(str(each) for each in deployment.gpus or ()),
        devices=plan.container.devices,
        mounts=tuple((each.source, each.target) for each in plan.container.mounts),
        shm_bytes=None if limits.host_ipc else plan.container.shm_bytes,
        memory_bytes=None if limits.memory_gib is None else int(limits.memory_gib * 2**30),
        cpus=limits.cpus,
        user=options.user,
        groups=options.groups,
        selinux=options.selinux,
        has_key=deployment.secrets.api_key is not None,
        labels=(
            ("io.onecat.deployment", deployment.name),
            ("io.onecat.profile", request.profile.name),
            ("io.onecat.engine", f"{plan.engine} {plan.engine_version}"),
        ),
    )


def server_environment(variables: dict[str, str]) -> dict[str, str]:
    """The container's variables, as `onecat up` sets them."""
    blank = ContainerSpec(
        name="",
        image="",
        command=(),
        env=variables,
        model_directory="",
        model_mount="",
        host="",
        port=0,
        shm_bytes=0,
        gpus=0,
        user="",
        max_crashes=1,
    )
    return environment(blank)


def check_pinned(image: str) -> None:
    """Raises OnecatError for an image by no tag or by `latest`: what it is would change without a change here."""
    name = image.rpartition("/")[2]
    if "@sha256:" in name:
        return
    tag = name.partition(":")[2]
    if tag in ("", "latest"):
        raise OnecatError(
            f"the image {image} has {'the tag latest' if tag else 'no tag'}",
            expected="a version, as name:0.27.1, or a digest, as name@sha256:...",
            next_steps=["onecat export FORM --image REGISTRY/NAME:VERSION"],
        )


def drain_program() -> str:
    """A Python program that ends when the server has no request left, or after its first argument in seconds."""
    return (resource_directory("templates") / "kubernetes" / "drain.py").read_text(encoding="utf-8")


def stop_seconds(request: Request) -> int:
    """How long a server that drains first may take to end."""
    return ENDPOINT_SECONDS + request.deployment.rollout.drain_seconds + STOP_SECONDS + 15


def _word_after(words: tuple[str, ...], flag: str) -> int:
    return int(words[words.index(flag) + 1])
