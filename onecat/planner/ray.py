"""One model across several hosts through Ray: which node has which address, and how each is started. Pure.

What vLLM 0.27.1 does with Ray, read in its source archive:
- `--distributed-executor-backend ray` selects RayExecutorV2 (VLLM_USE_RAY_V2_EXECUTOR_BACKEND is 1 by default,
  vllm/envs.py:908; vllm/v1/executor/abstract.py:66). Its control messages travel by ZeroMQ and its tensors by NCCL, so
  ray[default] suffices; ray[cgraph], which is CuPy, is for the older executor alone (vllm/v1/executor/ray_executor.py).
  Ray is no dependency of vllm; its tests pin ray 2.48.0 and ask for at least that (requirements/test/cuda.txt,
  nightly-torch.txt).
- It asks for one bundle of one GPU per worker with the strategy PACK (vllm/v1/executor/ray_utils.py, after
  `placement_group_specs`), ranks workers node by node, the driver's node first (get_bundles_sorted_by_node), and counts
  the ranks of a tensor-parallel group first: with tensor-parallel-size GPUs per node each pipeline stage stays on one.
  A group that spans nodes is only warned about (_verify_bundles).
- `ray list actors` shows each worker as class RayWorkerProc, named vllm_Worker_<instance>[_TP<rank>][_PP<rank>]
  (build_actor_name).
- VLLM_HOST_IP and CUDA_VISIBLE_DEVICES of a worker stay those of its node; every other variable of the server reaches
  the workers where their node has not set it (WORKER_SPECIFIC_ENV_VARS; initialize_worker uses setdefault). So what
  differs between nodes, as the name of an interface, is set on each.
- Without VLLM_HOST_IP the address is that of the default route (vllm/utils/network_utils.py, get_ip).
- A CPU has no ray_device_key (vllm/platforms/interface.py:147): its executor refuses Ray.

What Ray 2.60 does, seen with two nodes: the head's port and those of the raylets listen on all addresses whatever
--node-ip-address says; so does a node without an authentication token accept code from whoever reaches it. With
RAY_AUTH_MODE=token (https://docs.ray.io/en/latest/ray-security/token-auth.html) every call must carry the token.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from onecat.config import Deployment
from onecat.facts import Facts, Interface
from onecat.planner.records import Layout, Plan, Reason, Refusal

TOKEN_MOUNT = "/run/secrets/ray_token"  # noqa: S105 - a path
TOKEN_SOURCE = "https://docs.ray.io/en/latest/ray-security/token-auth.html"
NCCL_SOURCE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname"
VLLM_SOURCE = "https://docs.vllm.ai/en/stable/serving/parallelism_scaling/"
OBJECT_STORE_BYTES = 512 * 2**20
"""Ray's own shared memory on each node. vLLM passes next to nothing through it; Ray would take 30 % of the memory."""

SHARED_MEMORY_BYTES = OBJECT_STORE_BYTES + 1536 * 2**20
"""What a node needs in /dev/shm beside NCCL: the object store, and vLLM's message queues of ten chunks of 16 MiB each
(vllm/distributed/device_communicators/shm_broadcast.py, VLLM_MQ_MAX_CHUNK_BYTES_MB)."""

WORKER_PORTS = 500
PORTS_NEEDED = 100 + WORKER_PORTS
"""Ports from `ray.port` on that a node may use."""


@dataclass(frozen=True)
class RayPorts:
    """The TCP ports of one node, all counted from `ray.port`, so that a firewall can name them.

    Ray takes random ones where none are given (https://docs.ray.io/en/latest/ray-core/configure.html#ports-configurations).
    """

    first: int

    @property
    def cluster(self) -> int:
        """Of the head alone: where nodes and drivers join."""
        return self.first

    @property
    def of_every_node(self) -> dict[str, int]:
        """By the option of `ray start` that sets it."""
        names = (
            "--node-manager-port",
            "--object-manager-port",
            "--runtime-env-agent-port",
            "--dashboard-agent-grpc-port",
            "--dashboard-agent-listen-port",
            "--metrics-export-port",
        )
        return {name: self.first + 1 + index for index, name in enumerate(names)}

    @property
    def client(self) -> int:
        """Of the head alone, as is `dashboard`, which only the head itself reaches."""
        return self.first + 7

    @property
    def dashboard(self) -> int:
        return self.first + 8

    def fixed(self, is_head: bool) -> tuple[int, ...]:
        """Those that are taken as long as the node lives."""
        own = tuple(self.of_every_node.values())
        return (self.cluster, *own, self.client, self.dashboard) if is_head else own

    @property
    def workers(self) -> tuple[int, int]:
        """The lowest and the highest port of the processes that Ray starts on a node."""
        return self.first + 100, self.first + 100 + WORKER_PORTS - 1


@dataclass(frozen=True)
class RayNode:
    """One host of the cluster. address: by which the others reach it, carried by `interface`. gpus: that it gives."""

    host: str
    address: str
    interface: str
    gpus: int
    ports: RayPorts


@dataclass(frozen=True)
class RayCluster:
    """All nodes, the head first. warnings: what the operator should know before it starts."""

    nodes: tuple[RayNode, ...]
    warnings: tuple[str, ...] = ()

    @property
    def head(self) -> RayNode:
        return self.nodes[0]

    @property
    def address(self) -> str:
        """ADDRESS:PORT that nodes and drivers join."""
        return joined(self.head.address, self.head.ports.cluster)

    @property
    def gpus(self) -> int:
        return sum(each.gpus for each in self.nodes)


def joined(address: str, port: int) -> str:
    """ADDRESS:PORT; IPv6 in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# --- who is a node, and where ----------------------------------------------------------------------------------------


def plan_cluster(
    deployment: Deployment, layout: Layout, facts: Mapping[str, Facts]
) -> tuple[RayCluster | None, tuple[Refusal, ...]]:
    """The cluster of a deployment with `ray`, or why there can be none.

    Parameters:
        layout: of the plan; its cards are spread evenly over `deployment.hosts`. facts: by host.
    """
    assert deployment.ray is not None
    hosts = deployment.hosts
    refused = [*_hosts(hosts), *_cards(hosts, layout, facts)]
    chosen, why = choose_addresses(hosts, facts, deployment.ray.interface)
    if chosen is None or refused:
        return None, (*refused, *((why,) if why is not None else ()))
    cards = layout.ranks // len(hosts)
    ports = RayPorts(deployment.ray.port)
    nodes = tuple(RayNode(host, *chosen[host], cards, ports) for host in hosts)
    return RayCluster(nodes, _warnings(nodes, layout)), ()


def _hosts(hosts: Sequence[str]) -> list[Refusal]:
    if len(hosts) < 2:
        return [
            Refusal("ray-hosts", "one model across hosts needs several, and there is one", ("hosts: [HEAD, OTHER]",))
        ]
    doubled = sorted({each for each in hosts if hosts.count(each) > 1})
    if doubled:
        return [Refusal("ray-hosts", f"{', '.join(doubled)} stands twice under hosts", ("name each host once",))]
    return []


def _cards(hosts: Sequence[str], layout: Layout, facts: Mapping[str, Facts]) -> list[Refusal]:
    cards = layout.ranks
    given = {host: _gpus(facts.get(host)) for host in hosts}
    known = [count for count in given.values() if count is not None]
    per_host = min(known) if len(known) == len(hosts) else None
    fix = (
        (f"tensor-parallel-size: {per_host}", f"pipeline-parallel-size: {len(hosts)}")
        if per_host
        else (f"pipeline-parallel-size: {len(hosts)}", "tensor-parallel-size: the GPUs of one host")
    )
    if layout.replicas > 1:
        return [Refusal("ray-replicas", "data-parallel-size and ray cannot go together", ("data-parallel-size: 1",))]
    if cards % len(hosts):
        told = f"tensor-parallel-size {layout.tensor_parallel} x pipeline-parallel-size {layout.pipeline_parallel}"
        return [Refusal("ray-layout", f"{told} is {cards} GPUs, which {len(hosts)} hosts cannot share evenly", fix)]
    needed = cards // len(hosts)
    short = [f"{host} has {count}" for host, count in given.items() if count is not None and count < needed]
    if short:
        told = "1 GPU" if needed == 1 else f"{needed} GPUs"
        without = tuple(f"onecat doctor --host {host}" for host, count in given.items() if count == 0)
        return [Refusal("ray-gpus", f"each host must give {told}: {', '.join(short)}", without or fix)]
    if layout.tensor_parallel <= needed and needed % layout.tensor_parallel:
        why = f"{needed} GPUs of a host do not hold whole groups of tensor-parallel-size {layout.tensor_parallel}"
        return [Refusal("ray-layout", why, fix)]
    return []


def _gpus(facts: Facts | None) -> int | None:
    return None if facts is None or facts.nvidia is None else len(facts.nvidia.gpus)


def choose_addresses(
    hosts: Sequence[str], facts: Mapping[str, Facts], wanted: str | None
) -> tuple[dict[str, tuple[str, str]] | None, Refusal | None]:
    """The address of each host and the interface that carries it, or why none can be chosen.

    They are those of the one network that all hosts are in with addresses of their own: loopback is on every host, and
    the bridges of Docker have the same address everywhere. Of several the fastest is taken, where all speeds are known.

    Parameters:
        wanted: the interface that `ray.interface` names; None: any.
    """
    unknown = [host for host in hosts if host not in facts or facts[host].interfaces is None]
    if unknown:
        why = f"the network interfaces of {', '.join(unknown)} are not known"
        return None, Refusal("ray-interfaces", why, tuple(f"onecat facts --host {host}" for host in unknown))
    found = {host: _addresses(facts[host].interfaces or (), wanted) for host in hosts}
    told = "; ".join(f"{host}: {_shown(rows)}" for host, rows in found.items())
    if wanted is not None and not all(found.values()):
        missing = ", ".join(host for host, rows in found.items() if not rows)
        why = f"{missing} has no interface {wanted} that is up and has an address"
        return None, Refusal("ray-interface", why, ("leave ray.interface out", "ip -brief address"))
    common = []
    for network in dict.fromkeys(row.network for row in found[hosts[0]]):
        rows = {host: next((row for row in found[host] if row.network == network), None) for host in hosts}
        usable = {host: row for host, row in rows.items() if row is not None}
        if len(usable) == len(hosts) and len({row.address for row in usable.values()}) == len(hosts):
            common.append(usable)
    if not common and wanted is not None:
        # Named by the operator: hosts in different networks reach each other through a router.
        common = [{host: rows[0] for host, rows in found.items()}]
        if len({row.address for row in common[0].values()}) < len(hosts):
            common = []
    if not common:
        why = f"the hosts have no network in common ({told})"
        return None, Refusal("ray-network", why, ("ray.interface: NAME of the one between the hosts",))
    best = common
    if len(common) > 1:
        speeds = [min(row.speed or 0 for row in each.values()) for each in common]
        best = [each for each, speed in zip(common, speeds, strict=True) if speed == max(speeds) and speed > 0]
    if len(best) != 1:
        names = sorted({each[hosts[0]].interface for each in common})
        why = f"the hosts have several networks in common, and which is meant is not known ({told})"
        return None, Refusal("ray-network", why, tuple(f"ray.interface: {name}" for name in names))
    return {host: (row.address, row.interface) for host, row in best[0].items()}, None


@dataclass(frozen=True)
class _Address:
    interface: str
    address: str
    network: str
    speed: int | None


def _addresses(interfaces: Sequence[Interface], wanted: str | None) -> list[_Address]:
    rows = []
    for each in interfaces:
        if each.loopback or not each.up or (wanted is not None and each.name != wanted):
            continue
        for text in each.addresses:
            address = ipaddress.ip_interface(text)
            if not address.ip.is_link_local and not address.ip.is_loopback:
                rows.append(_Address(each.name, str(address.ip), str(address.network), each.speed_mbps))
    return sorted(rows, key=lambda row: ":" in row.address)  # IPv4 first


def _shown(rows: Sequence[_Address]) -> str:
    return ", ".join(f"{row.interface} {row.address}" for row in rows) or "none"


def _warnings(nodes: Sequence[RayNode], layout: Layout) -> tuple[str, ...]:
    warnings = [
        "Ray listens on all addresses of each host, and who may talk to it may run programs there. onecat gives the "
        f"cluster a token, and nothing is encrypted: let only the hosts reach {firewall(nodes[0].ports)} and each "
        "other's ephemeral ports (vLLM and NCCL take those).",
    ]
    if layout.tensor_parallel > nodes[0].gpus:
        warnings.append(
            f"tensor-parallel-size {layout.tensor_parallel} spans hosts of {nodes[0].gpus} GPUs: every layer waits for "
            f"the network. Better: tensor-parallel-size {nodes[0].gpus}, pipeline-parallel-size {len(nodes)}."
        )
    public = [each.host for each in nodes if ipaddress.ip_address(each.address).is_global]
    if public:
        warnings.append(f"The address between the hosts is a public one on {', '.join(public)}.")
    names = {each.interface for each in nodes}
    if len(names) > 1:
        warnings.append(f"The interface has different names ({', '.join(sorted(names))}): each host gets its own.")
    return tuple(warnings)


def firewall(ports: RayPorts) -> str:
    """The TCP ports that the hosts must open to each other, as text."""
    return f"TCP {ports.first}-{ports.client} and {ports.workers[0]}-{ports.workers[1]}"


def layout_why(cluster: RayCluster, layout: Layout) -> str:
    """What the layout comes to on these nodes, and why, in words."""
    tensor, pipeline, cards = layout.tensor_parallel, layout.pipeline_parallel, cluster.head.gpus
    stages = "1 stage" if pipeline == 1 else f"{pipeline} pipeline stages"
    if tensor > cards:
        return f"tensor-parallel-size {tensor} across {len(cluster.nodes)} hosts, {stages}: see the warning"
    return (
        f"tensor-parallel-size {tensor} within each host and {stages} across them: layers of a tensor-parallel group "
        "wait for each other at every step, and stages hand over once each"
    )


def to_document(cluster: RayCluster, layout: Layout) -> dict[str, Any]:
    """The cluster as `cluster` of the `onecat.plan/1` and `onecat.up/1` documents."""
    return {
        "address": cluster.address,
        "gpus": cluster.gpus,
        "layout": {
            "tensor_parallel": layout.tensor_parallel,
            "pipeline_parallel": layout.pipeline_parallel,
            "why": layout_why(cluster, layout),
        },
        "nodes": [
            {
                "host": node.host,
                "role": "head" if node == cluster.head else "worker",
                "address": node.address,
                "interface": node.interface,
                "gpus": node.gpus,
                "firewall": firewall(node.ports),
                "environment": [asdict(each) for each in environment(cluster, node)],
            }
            for node in cluster.nodes
        ],
        "warnings": list(cluster.warnings),
    }


# --- how each is started ---------------------------------------------------------------------------------------------


def head_argv(cluster: RayCluster) -> list[str]:
    """The command that starts the head's part of Ray and lasts as long as it runs."""
    head = cluster.head
    return [
        *("ray", "start", "--head", f"--node-ip-address={head.address}", f"--port={head.ports.cluster}"),
        *(f"--ray-client-server-port={head.ports.client}", "--include-dashboard=true", "--dashboard-host=127.0.0.1"),
        *(f"--dashboard-port={head.ports.dashboard}", *_common(head)),
    ]


def worker_argv(cluster: RayCluster, node: RayNode) -> list[str]:
    """The command that joins a node to the cluster and lasts as long as it is in it."""
    return ["ray", "start", f"--address={cluster.address}", f"--node-ip-address={node.address}", *_common(node)]


def _common(node: RayNode) -> list[str]:
    lowest, highest = node.ports.workers
    return [
        *(f"{name}={port}" for name, port in node.ports.of_every_node.items()),
        *(f"--min-worker-port={lowest}", f"--max-worker-port={highest}"),
        f"--num-gpus={node.gpus}",
        # vLLM's workers take no CPU of Ray's; Ray starts one idle process per CPU.
        f"--num-cpus={node.gpus}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        *("--disable-usage-stats", "--log-style=record", "--log-color=false", "--block"),
    ]


def environment(cluster: RayCluster, node: RayNode) -> tuple[Reason, ...]:
    """The variables of one node, each with its reason. The deployment's own go over them."""
    carries = f"the interface that carries {node.address} on {node.host}"
    return (
        Reason("VLLM_HOST_IP", node.address, "by which the other hosts reach it; Ray's too", "planner", VLLM_SOURCE),
        Reason("NCCL_SOCKET_IFNAME", f"={node.interface}", f"{carries}, by its whole name", "planner", NCCL_SOURCE),
        Reason("GLOO_SOCKET_IFNAME", node.interface, carries, "planner", VLLM_SOURCE),
        Reason("RAY_AUTH_MODE", "token", "without one, whoever reaches a port runs programs", "planner", TOKEN_SOURCE),
        Reason("RAY_AUTH_TOKEN_PATH", TOKEN_MOUNT, "the same token on every node", "planner", TOKEN_SOURCE),
        Reason("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0", "the server has ended when its nodes do", "planner"),
        Reason("RAY_USAGE_STATS_ENABLED", "0", "nothing is sent to Ray's makers", "planner"),
    )


def server_args(plan: Plan) -> tuple[str, ...]:
    """The words after `vllm serve` on the head, which uses the host's network: its address and port are the plan's."""
    words = list(plan.server_args)
    words[words.index("--host") + 1] = plan.host
    words[words.index("--port") + 1] = str(plan.port)
    if "--distributed-executor-backend" not in words:
        words += ["--distributed-executor-backend", "ray"]
    return tuple(words)


def on_host_network(plan: Plan) -> Plan:
    """The plan as its server is started on the head, with the reasons for where it listens."""
    listens = {"--host": plan.host, "--port": str(plan.port)}
    why = "that of onecat.yaml: the container has the host's network, as Ray's nodes do"
    reasons = (
        replace(each, value=listens[each.arg], why=why) if each.arg in listens else each for each in plan.reasons
    )
    return replace(plan, server_args=server_args(plan), reasons=tuple(reasons))


NODE_PROGRAM = "/run/onecat/ray_node.py"
"""Where `onecat/deploy/ray_node.py` is mounted in a node's container."""


def node_argv(
    cluster: RayCluster,
    node: RayNode,
    server: Sequence[str],
    silence_seconds: float,
    program: Sequence[str] = ("python3", NODE_PROGRAM),
) -> list[str]:
    """The main program of a node's container.

    Parameters:
        server: the server's command, for the head. silence_seconds: how long nothing may come of waiting for others.
    """
    waits = ["--address", cluster.address, "--silence", f"{silence_seconds:g}"]
    if node != cluster.head:
        return [*program, "worker", *waits, "--", *worker_argv(cluster, node)]
    expected = ["--nodes", ",".join(each.address for each in cluster.nodes), "--gpus", str(cluster.gpus)]
    return [*program, "head", *waits, *expected, "--", *head_argv(cluster), "--", *server]
