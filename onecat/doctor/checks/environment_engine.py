"""Environment variables of the engine, of PyTorch and of NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.checks.environment import remove, variables, worst
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key
from onecat.knowledge.variables import removed_variables

NCCL_VARIABLES = "https://docs.nvidia.com/deeplearning/nccl/archives/nccl_2134/user-guide/docs/env.html"


@check(
    "environment.removed-variables",
    title="Every engine variable that is set is still read",
    why="A variable that the engine no longer reads does nothing, without a word: what it was set for does not happen.",
    fix=("leave it out, and do what took its place",),
    source=("https://github.com/vllm-project/vllm/pull/28204", "https://github.com/vllm-project/vllm/pull/32812"),
    requires=(requirements.environment,),
)
def environment_removed_variables(context: Context) -> Iterator[Verdict]:
    """VLLM_* variables in the environment of the user who probes, against those that the profile's vLLM still reads."""
    found = variables(context)
    engine = context.profile.engine if context.profile else None
    gone = [
        each
        for each in removed_variables()
        if each.name in found and (engine is None or version_key(engine.version) >= version_key(each.since))
    ]
    if not gone:
        yield Verdict("pass", "No variable is set that the engine no longer reads")
    for each in gone:
        yield Verdict(
            worst(context, "warn" if engine else "info"),
            f"{each.name} does nothing since vLLM {each.since}",
            each.name,
            (f"{each.name}={found[each.name]}",),
            fix=(f"unset {each.name}", f"instead: {each.instead}"),
            source=each.source,
        )


@check(
    "environment.allocator",
    title="PyTorch's memory allocator works as it does by default",
    why="vLLM measures what the default allocator needs. Without its cache every tensor waits for the driver, and "
    "another backend changes what fits.",
    fix=("unset the variable",),
    source=("https://docs.pytorch.org/docs/2.15/cuda_environment_variables.html",),
    requires=(
        requirements.gpus_matter,
        requirements.environment,
    ),
)
def environment_allocator(context: Context) -> Iterator[Verdict]:
    """PYTORCH_NO_CUDA_MEMORY_CACHING, PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF of the user who probes."""
    found = variables(context)
    quiet = True
    name = "PYTORCH_NO_CUDA_MEMORY_CACHING"
    if found.get(name) not in (None, "", "0"):
        quiet = False
        yield Verdict(
            worst(context, "warn"),
            f"{name} makes every tensor wait for the driver",
            name,
            (f"{name}={found[name]}",),
            fix=remove(name),
        )
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if found.get(name):
            quiet = False
            yield Verdict("info", f"{name} changes how GPU memory is shared out", name, (f"{name}={found[name]}",))
    if quiet:
        yield Verdict("pass", "PyTorch shares out memory as it does by default")


@check(
    "environment.nccl",
    title="No variable keeps NCCL from its fastest way",
    why="NCCL_P2P_DISABLE sends what goes between GPUs through the host's memory even where NVLink joins them; "
    "NCCL_SHM_DISABLE sends it through the network then.",
    fix=("unset the variable",),
    source=(NCCL_VARIABLES,),
    requires=(
        requirements.gpus_matter,
        requirements.environment,
    ),
)
def environment_nccl(context: Context) -> Iterator[Verdict]:
    """NCCL_* variables of the user who probes; what costs speed only where there are GPUs that it can slow."""
    found = {
        name: value
        for name, value in variables(context).items()
        if name.startswith("NCCL_") and name != "NCCL_VERSION"  # what NVIDIA's images call their package
    }
    several, linked = len(context.gpus) > 1, _has_nvlink(context)
    spoken: list[Verdict] = []
    no_peers = found.pop("NCCL_P2P_DISABLE", None)
    if no_peers == "1":
        where = "although NVLink joins the GPUs" if linked else "between GPUs"
        spoken.append(
            Verdict(
                worst(context, "warn") if linked else "info",
                f"NCCL_P2P_DISABLE=1: everything goes through the host's memory, {where}",
                "NCCL_P2P_DISABLE",
                ("NCCL_P2P_DISABLE=1",),
                fix=remove("NCCL_P2P_DISABLE"),
            )
        )
    no_memory = found.pop("NCCL_SHM_DISABLE", None)
    if no_memory == "1":
        spoken.append(
            Verdict(
                worst(context, "warn") if several and (no_peers == "1" or not linked) else "info",
                "NCCL_SHM_DISABLE=1: GPUs that do not reach each other talk over the network",
                "NCCL_SHM_DISABLE",
                ("NCCL_SHM_DISABLE=1",),
                fix=remove("NCCL_SHM_DISABLE"),
            )
        )
    if found:
        listed = tuple(f"{name}={value}" for name, value in sorted(found.items()))
        spoken.append(Verdict("info", "NCCL is told how to work by its variables", "NCCL_*", listed))
    yield from spoken or [Verdict("pass", "No NCCL variable is set")]


def _has_nvlink(context: Context) -> bool:
    pairs = any((pair.connection or "").startswith("NV") for pair in context.nvidia.pairs)
    return pairs or any(link.active for gpu in context.gpus for link in gpu.nvlinks or ())
