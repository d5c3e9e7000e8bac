"""Whether two releases of a deployment can run at once on its host, from facts and claims."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onecat.deploy import claims
from onecat.deploy.strategy import Room
from onecat.deploy.switching import takes_address

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run
    from onecat.facts import Memory
    from onecat.hosts import Machine
    from onecat.planner.records import Plan

GIB = 2**30
_ENGINE_BYTES = GIB
"""An allowance for what a server takes beside weights and KV cache: torch, activations, the API server."""
_KV_CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
_WIDE, _NARROW = ("float32", "float"), ("bfloat16", "float16")


def room_for(run: Run, current: Release | None) -> Room:
    """What decides about the strategy on this host."""
    facts, plan = run.request.facts, run.plan
    proxied = run.traffic is not None and (current is None or current.proxied)
    needed = claims.needed(plan, run.request.profile)
    free = claims.free_accelerators(run) if needed else 0
    memory_needed = memory_free = None
    if run.request.profile.hardware.accelerator == "none" and facts is not None and facts.memory is not None:
        memory_needed = memory_of(run.machine, plan)
        memory_free = free_memory(facts.memory, memory_needed, plan.container is None, current is not None)
    is_cluster = run.deployment.ray is not None or (current is not None and current.service == "ray")
    same_address = current is not None and takes_address(run, current)
    return Room(proxied, needed, free or 0, memory_needed, memory_free, is_cluster, same_address)


def memory_of(machine: Machine, plan: Plan) -> int:
    """The bytes of the host's memory that a server without a GPU takes."""
    entries = machine.entries(plan.model_directory)
    weights = sum(each.size for name, each in entries.items() if each.kind == "file")
    config = _config(machine, plan.model_directory)
    words = plan.server_args
    asked = words[words.index("--dtype") + 1] if "--dtype" in words[:-1] else None
    stored = config.get("dtype") or config.get("torch_dtype")
    if asked in _WIDE and stored in _NARROW and "quantization_config" not in config:
        weights *= 2
    cache = float(dict(plan.env).get(_KV_CACHE_VARIABLE, "0")) * GIB
    return int(weights + cache + _ENGINE_BYTES)


def free_memory(memory: Memory, needed: int, is_native: bool, runs_beside: bool) -> int | None:
    """The bytes that a new server may take; None when not known.

    Parameters:
        needed: by a server of this plan. is_native: whether it lives in the control group of onecat, whose limit then
            counts for all that live in it. runs_beside: whether another such server does.
    """
    if memory.cgroup_limit is None or not is_native:
        return memory.available
    within = memory.cgroup_limit - (needed if runs_beside else 0)
    return max(0, within if memory.available is None else min(within, memory.available))


def _config(machine: Machine, directory: str) -> dict[str, Any]:
    try:
        found = json.loads(machine.read(f"{directory}/config.json") or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
