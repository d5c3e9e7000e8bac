"""The plan: the pure decision made from deployment, profile, checkpoint and facts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

SCHEMA = "onecat.plan/1"


@dataclass(frozen=True)
class Reason:
    """Why one argument or variable is what it is; `origin` names the layer it came from."""

    arg: str
    value: str
    why: str
    origin: Literal["engine", "profile", "onecat.yaml", "command line", "planner"]
    source: str | None = None


@dataclass(frozen=True)
class Refusal:
    """Something the engine is known to refuse, found before it is started.

    certain: False for what may turn out otherwise, as a shortage of memory within the error of an estimate: `plan` says
    no to it, `up` tries.
    """

    code: str
    why: str
    fix: tuple[str, ...] = ()
    certain: bool = True


@dataclass(frozen=True)
class Layout:
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    replicas: int = 1

    @property
    def ranks(self) -> int:
        """Cards of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def cards(self) -> int:
        """Cards of all replicas."""
        return self.ranks * self.replicas


@dataclass(frozen=True)
class LayoutOption:
    """One way of the profile to use the cards. serve: the flags that select it. selected: whether this plan has it."""

    name: str
    when: str
    why: str
    serve: tuple[tuple[str, int], ...]
    selected: bool


Holds = Literal["whole", "shorter", "none"]
"""How much of the context that is wanted a layout holds."""


@dataclass(frozen=True)
class LayoutCandidate:
    """A layout that was compared. cost: of a token relative to the first, when the machine is busy; latency: between
    two tokens of a single request, relative to the first's. gpus: cards by rank. why: in a sentence or two.

    fits: whether it holds the context that is wanted, of which `wanted` says the tokens; holds: the same with shorter
    ones told apart from none at all. expert_parallel: whether it needs enable-expert-parallel.
    """

    layout: Layout
    fits: bool
    kv_tokens: int | None
    max_concurrency: float | None
    largest_max_model_len: int
    cost: float
    latency: float
    gpus: tuple[int, ...]
    why: str
    holds: Holds = "whole"
    wanted: int | None = None
    expert_parallel: bool = False


@dataclass(frozen=True)
class HostMount:
    """A file or directory of the host that the container sees, read-only."""

    source: str
    target: str


@dataclass(frozen=True)
class ContainerPlan:
    """What only the container runtime needs.

    model_mount: where the model directory is mounted, read-only; gpus: number of NVIDIA GPUs given to the container;
    devices: device nodes of the host beyond those. mounts: what it sees of the host's driver.
    """

    image: str
    model_mount: str
    shm_bytes: int
    gpus: int
    devices: tuple[str, ...] = ()
    mounts: tuple[HostMount, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything `deploy` needs to start the server.

    server_args: the words after `vllm serve`, model path first, as the runtime sees it (in a container: the mount).
    host, port: where the server is reached on the host; in a container the published address.
    env: variables of the server, without secrets.
    layouts: the ways that the profile knows to use the cards. candidates: those that were compared, the best first.
    fits: None when it cannot be known; `unknown` says why. per_gpu: of one replica, by rank, sizes in GiB.
    kv_tokens, max_concurrency: of one replica, as the engine logs them. max_model_len: the context that this is for;
    largest_max_model_len: the longest that fits. assumed: flags as the engine resolves them, by their names.
    estimated: what of the sizes is no more than an estimate, and why. rough_seconds_per_token: of the whole machine
    when busy; for comparisons, not a prediction.
    """

    deployment: str
    profile: str | None
    engine: str
    engine_version: str
    runtime: Literal["native", "container"]
    model_directory: str
    served_name: str
    host: str
    port: int
    server_args: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    layout: Layout = Layout()
    layouts: tuple[LayoutOption, ...] = ()
    container: ContainerPlan | None = None
    fits: bool | None = None
    reasons: tuple[Reason, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    per_gpu: tuple[dict[str, Any], ...] = field(default=())
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    largest_max_model_len: int | None = None
    short_of_gib: float = 0.0
    unknown: str | None = None
    estimated: tuple[str, ...] = ()
    assumed: dict[str, Any] = field(default_factory=dict)
    candidates: tuple[LayoutCandidate, ...] = ()
    rough_seconds_per_token: float | None = None


def with_port(plan: Plan, port: int) -> Plan:
    """The same plan with the server reached at another port of the host."""
    arguments = list(plan.server_args)
    if plan.runtime == "native":
        arguments[arguments.index("--port") + 1] = str(port)
    return replace(plan, port=port, server_args=tuple(arguments))


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as the `onecat.plan/1` document."""
    from dataclasses import asdict

    document = asdict(plan)
    return {
        "schema": SCHEMA,
        **document,
        "server_args": list(plan.server_args),
        "env": dict(plan.env),
        "layouts": [{**asdict(each), "serve": dict(each.serve)} for each in plan.layouts],
    }


def plan_of(document: dict[str, Any]) -> Plan:
    """The plan that `to_json` made this from. Raises KeyError or TypeError for another document."""
    container = document["container"]
    return Plan(
        **{name: value for name, value in document.items() if name not in _NESTED},
        server_args=tuple(document["server_args"]),
        env=tuple(document["env"].items()),
        layout=Layout(**document["layout"]),
        layouts=tuple(LayoutOption(**{**each, "serve": tuple(each["serve"].items())}) for each in document["layouts"]),
        container=None
        if container is None
        else ContainerPlan(
            **{
                **container,
                "devices": tuple(container["devices"]),
                "mounts": tuple(HostMount(**each) for each in container["mounts"]),
            }
        ),
        reasons=tuple(Reason(**each) for each in document["reasons"]),
        refusals=tuple(Refusal(**{**each, "fix": tuple(each["fix"])}) for each in document["refusals"]),
        warnings=tuple(document["warnings"]),
        per_gpu=tuple(document["per_gpu"]),
        estimated=tuple(document.get("estimated", ())),
        candidates=tuple(
            LayoutCandidate(**{**each, "layout": Layout(**each["layout"]), "gpus": tuple(each["gpus"])})
            for each in document.get("candidates", ())
        ),
    )


_NESTED = (
    *("schema", "server_args", "env", "layout", "layouts", "container"),
    *("reasons", "refusals", "warnings", "per_gpu", "estimated", "candidates"),
)
