"""Whether two releases of a deployment can run at once on its host, from facts and claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecat.deploy import claims
from onecat.deploy.strategy import Room

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run

GIB = 2**30
_ENGINE_BYTES = GIB
"""An allowance for what a server takes beside weights and KV cache: torch, activations, the API server."""
_KV_CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"


def room_for(run: Run, current: Release | None) -> Room:
    """What decides about the strategy on this host."""
    facts, plan = run.request.facts, run.plan
    proxied = run.traffic is not None and (current is None or current.proxied)
    needed = claims.needed(plan, run.request.profile.hardware.accelerator)
    free = claims.free_accelerators(run) if needed else 0
    memory_needed = memory_free = None
    if run.request.profile.hardware.accelerator == "none" and facts is not None and facts.memory is not None:
        weights = sum(each.size for each in run.machine.entries(plan.model_directory).values())
        cache = float(dict(plan.env).get(_KV_CACHE_VARIABLE, "0")) * GIB
        memory_needed, memory_free = int(weights + cache + _ENGINE_BYTES), facts.memory.available
    return Room(proxied, needed, free or 0, memory_needed, memory_free)
