"""How the GPUs are connected to each other and to the processors, and what layout that suggests."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.facts import Gpu, GpuPair

NVIDIA_TOPOLOGY = "https://docs.nvidia.com/deeplearning/nccl/archives/nccl_2134/user-guide/docs/env.html"
PARALLELISM = "https://docs.vllm.ai/en/latest/serving/parallelism_scaling/"
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
ACROSS_SOCKETS = "https://github.com/NVIDIA/go-gpuallocator/issues/17"

_WORDS = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "one root complex",
    "NODE": "root complexes of one socket",
    "SYS": "different sockets",
}


@check(
    "topology.numa",
    title="The GPUs are near one processor",
    why="Memory of another socket is reached over the link between the processors. A server whose GPUs are on both "
    "sockets sends data between them on that way.",
    fix=("nvidia-smi topo -m", "serve a copy for each socket: CUDA_VISIBLE_DEVICES and numactl --cpunodebind"),
    source=(NVIDIA_TOPOLOGY, ACROSS_SOCKETS),
    requires=(requirements.nvidia_hardware,),
)
def topology_numa(context: Context) -> Iterator[Verdict]:
    """The NUMA node that the kernel gives for each GPU; -1 means that the firmware does not tell."""
    nodes = {}
    for gpu in context.gpus:
        node = _numa_node(context, gpu)
        if node is not None:
            nodes[gpu.index] = node
    evidence = tuple(f"GPU {index}: NUMA node {node}" for index, node in nodes.items())
    cpu = context.facts.cpu
    if context.gpus and cpu is not None and cpu.numa_nodes == 1:
        yield Verdict("pass", "The machine has one NUMA node", evidence=evidence)
    elif not nodes or len(nodes) < len(context.gpus):
        yield Verdict("skip", "Not checked: the NUMA node of the GPUs is not known (normal in virtual machines)")
    elif len(set(nodes.values())) == 1:
        yield Verdict("pass", f"All on NUMA node {next(iter(nodes.values()))}", evidence=evidence)
    elif _all_linked(context):
        yield Verdict("pass", "The GPUs are near different processors, and NVLink joins them all", evidence=evidence)
    else:
        groups = {
            node: [index for index, each in nodes.items() if each == node] for node in sorted(set(nodes.values()))
        }
        yield Verdict(
            "info",
            "The GPUs are near different processors: "
            + ", ".join(f"{_listed(indices)} near {node}" for node, indices in groups.items()),
            evidence=evidence,
            fix=tuple(
                f"a copy for node {node}: CUDA_VISIBLE_DEVICES={','.join(map(str, indices))} "
                f"numactl --cpunodebind={node} --membind={node} ..."
                for node, indices in groups.items()
            ),
        )


@check(
    "topology.peer-access",
    title="The GPUs reach each other's memory",
    why="Without peer access data goes through the memory of the host (NCCL's SHM transport, /dev/shm): tensor "
    "parallelism works and is slower.",
    fix=("nvidia-smi topo -p2p r", "without it: enough /dev/shm, or one copy of the model for each GPU"),
    source=(NCCL,),
    requires=(requirements.gpus,),
)
def topology_peer_access(context: Context) -> Iterator[Verdict]:
    """What the driver says of reading and writing between every two GPUs."""
    pairs = [pair for pair in context.nvidia.pairs if _status(pair.peer_read) and _status(pair.peer_write)]
    if len(context.gpus) < 2:
        yield Verdict("skip", "Not checked: there is one GPU only")
        return
    if not pairs:
        yield Verdict("skip", "Not checked: what the driver says of peer access is not known")
        return
    closed = [pair for pair in pairs if _status(pair.peer_read) != "ok" or _status(pair.peer_write) != "ok"]
    if not closed:
        yield Verdict("pass", f"Every two of the {len(context.gpus)} GPUs reach each other's memory")
    reasons: dict[tuple[bool, str], list[GpuPair]] = {}
    for pair in closed:
        reason = _status(pair.peer_read) if _status(pair.peer_read) != "ok" else _status(pair.peer_write)
        reasons.setdefault((_linked(pair), reason or ""), []).append(pair)
    for (linked, reason), alike in reasons.items():
        yield Verdict(
            "warn" if linked else "info",
            f"No peer access{' in spite of NVLink' if linked else ''}: {reason}",
            f"GPU {alike[0].first} and GPU {alike[0].second}" if len(alike) == 1 else f"{len(alike)} pairs of GPUs",
            tuple(
                f"GPU {pair.first} and GPU {pair.second}: read: {pair.peer_read}, write: {pair.peer_write}, "
                f"connection: {pair.connection or 'unknown'}"
                for pair in alike
            ),
            fix=("nvidia-smi topo -p2p r", "sudo dmesg | grep -i -e xid -e nvlink")
            if linked
            else ("plan without it: give containers enough /dev/shm (--ipc=host or --shm-size)",),
        )


@check(
    "topology.layout",
    title="The GPUs of a model are connected by NVLink",
    why="Tensor parallelism exchanges data twice in every layer, pipeline parallelism once between two parts of the "
    "model, copies of the model not at all. The slowest connection between two GPUs sets the pace.",
    fix=("nvidia-smi topo -m", "choose tensor-parallel-size, pipeline-parallel-size, data-parallel-size under serve"),
    source=(PARALLELISM, ACROSS_SOCKETS),
    requires=(requirements.gpus,),
)
def topology_layout(context: Context) -> Iterator[Verdict]:
    """The connection of every two GPUs (NVLink, switch, root complex, socket) and the layout that it suggests."""
    pairs = [pair for pair in context.nvidia.pairs if pair.connection]
    count = len(context.gpus)
    if count < 2:
        yield Verdict("skip", "Not checked: there is one GPU only")
        return
    if len(pairs) < count * (count - 1) // 2:
        yield Verdict("skip", "Not checked: the connections between the GPUs are not known")
        return
    evidence = tuple(f"GPU {pair.first} - GPU {pair.second}: {_describe(pair)}" for pair in pairs)
    groups = _groups(context, pairs)
    if len(groups) == 1 and all(_linked(pair) for pair in pairs):
        yield Verdict(
            "pass", f"NVLink between all {count} GPUs: tensor parallelism over all of them", evidence=evidence
        )
        return
    yield Verdict("info", _suggestion(context, pairs, groups), evidence=evidence, fix=_layouts(groups, count))


def _numa_node(context: Context, gpu: Gpu) -> int | None:
    """The NUMA node by the bus, else by the topology's table; None where neither tells (-1: the firmware does not)."""
    device = context.pci_device(gpu)
    node = device.numa_node if device is not None and device.numa_node is not None else gpu.numa_node
    return node if node is not None and node >= 0 else None


def _all_linked(context: Context) -> bool:
    """Whether NVLink joins every two GPUs, so that nothing between them goes by way of the processors."""
    count = len(context.gpus)
    linked = {frozenset((pair.first, pair.second)) for pair in context.nvidia.pairs if _linked(pair)}
    return count > 1 and len(linked) >= count * (count - 1) // 2


def _groups(context: Context, pairs: list[GpuPair]) -> list[list[int]]:
    """The GPUs that belong together: by NVLink where there is any, else by socket."""
    indices = sorted({index for pair in pairs for index in (pair.first, pair.second)})
    linked = any(_linked(pair) for pair in pairs)
    nodes = {gpu.index: _numa_node(context, gpu) for gpu in context.gpus}

    def together(pair: GpuPair) -> bool:
        if linked:
            return _linked(pair)
        if pair.connection == "SYS":
            # Some boards say SYS for every two GPUs; the NUMA node tells them apart.
            first, second = nodes.get(pair.first), nodes.get(pair.second)
            return first is not None and first == second
        return True

    groups: list[list[int]] = []
    joined = {frozenset((pair.first, pair.second)) for pair in pairs if together(pair)}
    for index in indices:
        group = next((each for each in groups if any(frozenset((index, other)) in joined for other in each)), None)
        if group is None:
            groups.append([index])
        else:
            group.append(index)
    return groups


def _suggestion(context: Context, pairs: list[GpuPair], groups: list[list[int]]) -> str:
    by = "NVLink" if any(_linked(pair) for pair in pairs) else "socket"
    if len(groups) == 1:
        return "PCIe only between the GPUs: a model that fits one GPU is better served by one copy for each"
    listed = "; ".join(_listed(group) for group in groups)
    if all(len(group) == 1 for group in groups):
        return f"The GPUs are on different sockets ({listed}): one copy of the model for each, or pipeline parallelism"
    return f"Groups by {by}: {listed}. Tensor parallelism within a group, copies or pipeline parallelism across"


def _layouts(groups: list[list[int]], count: int) -> tuple[str, ...]:
    size = min(len(group) for group in groups)
    if len(groups) == 1 or size == 1:
        return (
            f"fits one GPU: tensor-parallel-size: 1, data-parallel-size: {count}",
            f"fits all only: pipeline-parallel-size: {count} or tensor-parallel-size: {count}; measure both",
        )
    return (
        f"fits one group: tensor-parallel-size: {size}, data-parallel-size: {len(groups)}",
        f"fits all only: tensor-parallel-size: {size}, pipeline-parallel-size: {len(groups)}",
    )


def _linked(pair: GpuPair) -> bool:
    return (pair.connection or "").startswith("NV")


def _describe(pair: GpuPair) -> str:
    connection = pair.connection or ""
    meaning = "NVLink" if _linked(pair) else _WORDS.get(connection)
    return f"{connection} ({meaning})" if meaning else connection


def _status(text: str | None) -> str | None:
    return None if text is None or text == "unknown" else text


def _listed(indices: list[int]) -> str:
    return "GPU " + ", ".join(map(str, indices))
