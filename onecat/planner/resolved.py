"""What the engine chooses by itself where nobody says it, with its reasons: for people, and not for a command."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.planner.hardware import GIB, MIB
from onecat.planner.prompts import Prompts
from onecat.planner.questions import Question
from onecat.planner.records import Layout, Reason
from onecat.planner.sizing import Sizing

BATCH_SOURCE = "vllm/engine/arg_utils.py (get_batch_defaults) at 0.27.1"
CHUNK_SOURCE = "https://docs.vllm.ai/en/latest/configuration/optimization/#chunked-prefill"
QUEUE_MIB = 240
"""Of one queue between an engine and its ranks: 10 chunks of 24 MiB. One leads to all of them, one back from each.
vllm/distributed/device_communicators/shm_broadcast.py (MessageQueue), vllm/v1/executor/multiproc_executor.py."""

NCCL_MIB = 256
"""For NCCL's own buffers, which are there where cards have no peer access: assumed."""


def resolved_reasons(question: Question, sizing: Sizing | None, prompts: Prompts | None = None) -> tuple[Reason, ...]:
    """Reasons for the engine's own choices that decide about memory and batches; none where they are not known."""
    if sizing is None or question.schema.unknown is not None or question.hardware.platform != "cuda":
        return ()
    return tuple(each for each in _reasons(question, sizing, prompts) if each.arg.lstrip("-") not in question.settings)


def _reasons(question: Question, sizing: Sizing, prompts: Prompts | None) -> Iterator[Reason]:
    settings = sizing.settings
    chosen = "with --prompts it is chosen for the requests to come"
    if prompts is not None:
        chosen = "nothing is left for a KV cache, so none could be chosen for the requests to come"
    yield Reason(
        "--gpu-memory-utilization",
        f"{settings.utilization:g}",
        "the default of this version: the engine takes this share of each card's memory, "
        f"{sizing.estimate.per_gpu[0].budget / GIB:.1f} GiB; the KV cache gets what weights and activations leave",
        "engine",
        "vllm/config/cache.py",
    )
    yield Reason(
        "--max-num-seqs",
        str(settings.max_num_seqs),
        f"the default for a card with this memory; {chosen}",
        "engine",
        BATCH_SOURCE,
    )
    yield Reason(
        "--max-num-batched-tokens",
        str(settings.max_num_batched_tokens),
        "the default for a card with this memory: the tokens of a step, for which the activations are counted",
        "engine",
        BATCH_SOURCE,
    )
    if question.value("enable-chunked-prefill") is not False and question.schema.flag("enable-chunked-prefill", True):
        yield Reason(
            "--enable-chunked-prefill",
            "true",
            f"prompts above {settings.max_num_batched_tokens} tokens are read in pieces, and answers under way go on",
            "engine",
            CHUNK_SOURCE,
        )
    if settings.graphs:
        graphs = max(each.graphs for each in sizing.estimate.per_gpu)
        takes = f"they take {graphs / MIB:.0f} MiB of the engine's share" if graphs else "outside of the engine's share"
        yield Reason(
            "--enforce-eager",
            "false",
            f"CUDA graphs save the time of starting kernels, which few requests at once feel most; {takes}",
            "engine",
            "vllm/config/model.py (enforce_eager)",
        )


def shared_memory_mib(layout: Layout) -> int:
    """MiB of /dev/shm that a container's ranks need at most, for queues and NCCL; Docker's own 64 for a single rank."""
    if layout.cards < 2:
        return 64
    queues = (1 + layout.ranks) * layout.replicas * QUEUE_MIB if layout.ranks > 1 else 0
    return queues + NCCL_MIB


def shared_memory_reason(layout: Layout, given_mib: int | None) -> Reason | None:
    """Why a container's /dev/shm has its size. given_mib: of a profile, None where no container is planned yet."""
    needed = shared_memory_mib(layout)
    if given_mib is None and layout.cards < 2:
        return None
    wanted = -(-needed // 1024) * 1024
    value = wanted if given_mib is None else given_mib
    if layout.cards < 2:
        why = "one rank has nothing to exchange through it: Docker's own 64 MiB would do"
    else:
        why = (
            f"{layout.cards} ranks need up to {needed} MiB: queues between the engine and its ranks, and "
            "NCCL's buffers where cards have no peer access; Docker's own 64 MiB end in a bus error or a hang"
        )
    if given_mib is None:
        why = f"--shm-size of a container: {why}"
    return Reason(
        "/dev/shm",
        f"{value} MiB",
        why,
        "planner" if given_mib is None else "profile",
        "https://docs.vllm.ai/en/stable/deployment/docker/",
    )
