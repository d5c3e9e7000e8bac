"""What a plan has to work with: a host's cards and what joins them, or the memory of a host without cards. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from onecat.config import Profile
from onecat.facts import Ascend, Facts, GpuPair, Nvidia
from onecat.knowledge.hardware import GpuModel, gpu_model
from onecat.planner.capabilities import tenfold
from onecat.planner.speeds import Speeds, usual_speeds

GIB = 2**30
MIB = 2**20
Platform = Literal["cuda", "cpu", "ascend"]

BUSY_BYTES = GIB
"""Memory in use from which a card counts as taken: a driver's own share with ECC and a display stays below it."""


@dataclass(frozen=True)
class Card:
    """One accelerator. index: as its driver counts. memory: bytes in all; used: by other processes now.

    capability: compute capability, ten times. model: what is known of the product. pcie: generation and lanes.
    numa_node: of the host, None when not known.
    """

    index: int
    name: str
    memory: int
    used: int = 0
    capability: int | None = None
    model: GpuModel | None = None
    pcie: tuple[int, int] | None = None
    numa_node: int | None = None


@dataclass(frozen=True)
class Hardware:
    """cards: those that may be used, free ones first. pairs: how two of them are joined, where facts tell.

    interconnect: between all cards, where no facts tell more (`none`, `pcie`, `nvlink`). host_memory: bytes that
    processes of the host may use, None when not known. speeds: by which layouts are compared.
    """

    platform: Platform
    cards: tuple[Card, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    interconnect: Literal["none", "pcie", "nvlink"] = "none"
    host_memory: int | None = None
    speeds: Speeds = field(default_factory=usual_speeds)

    def taking(self, count: int) -> tuple[Card, ...]:
        """The cards that a layout of `count` gets; fewer when there are not so many."""
        return self.cards[:count]


def hardware_of(profile: Profile, facts: Facts | None, chosen: Sequence[int | str] | None = None) -> Hardware:
    """The hardware of a plan: as observed, else as the profile says.

    Parameters:
        chosen: cards by index or the begin of their UUID, as `gpus` of onecat.yaml; None for all.
    """
    wanted = profile.hardware
    if wanted.accelerator == "none":
        return Hardware("cpu", host_memory=_host_memory(facts))
    if wanted.accelerator == "nvidia":
        nvidia = facts.nvidia if facts is not None else None
        seen = _nvidia_cards(nvidia, profile, chosen) if nvidia is not None else ()
        if seen:
            assert nvidia is not None
            return Hardware("cuda", seen, nvidia.pairs, wanted.interconnect)
        return Hardware("cuda", _sold_cards(profile), (), wanted.interconnect)
    ascend = facts.ascend if facts is not None else None
    npus = _npus(ascend, profile) if ascend is not None else ()
    return Hardware("ascend", npus or _sold_cards(profile), (), wanted.interconnect)


def _nvidia_cards(nvidia: Nvidia, profile: Profile, chosen: Sequence[int | str] | None) -> tuple[Card, ...]:
    cards = []
    for gpu in sorted(nvidia.gpus, key=lambda each: each.index):
        if gpu.error is not None or (chosen is not None and not _is_among(gpu.index, gpu.uuid, chosen)):
            continue
        model = gpu_model(gpu.name)
        memory = gpu.memory_total or _known_memory(model, profile)
        if memory is None:
            return ()
        generation = gpu.pcie_generation_max or (model.pcie_generation if model else None)
        cards.append(
            Card(
                gpu.index,
                gpu.name,
                memory,
                gpu.memory_used or 0,
                tenfold(gpu.compute_capability) or (model.capability if model else None),
                model,
                (generation, gpu.pcie_width_current or 16) if generation else None,
                gpu.numa_node,
            )
        )
    # Stable: those that other processes use come last, as a deployment takes the first free ones.
    return tuple(sorted(cards, key=lambda each: each.used > BUSY_BYTES))


def _is_among(index: int, uuid: str | None, chosen: Sequence[int | str]) -> bool:
    texts = [str(each) for each in chosen]
    return str(index) in texts or any(
        uuid is not None and not each.isdigit() and uuid.lower().startswith(each.lower()) for each in texts
    )


def _sold_cards(profile: Profile) -> tuple[Card, ...]:
    """The cards that a profile is for; of several products the one with the least memory."""
    hardware = profile.hardware
    known = [each for each in map(gpu_model, hardware.gpu_names) if each is not None and each.memory_mib is not None]
    model = min(known, key=lambda each: each.memory_mib or 0, default=None)
    name = model.name if model is not None else next(iter(hardware.gpu_names), "")
    memory = _known_memory(model, profile)
    if memory is None:
        return ()
    capability = tenfold(hardware.compute_capability) or (model.capability if model else None)
    pcie = (model.pcie_generation, 16) if model and model.pcie_generation else None
    return tuple(
        Card(index, name, memory, capability=capability, model=model, pcie=pcie) for index in range(hardware.count)
    )


def _known_memory(model: GpuModel | None, profile: Profile) -> int | None:
    """Bytes of a card: as its driver shows them, else as the profile says that it is sold."""
    sold = profile.hardware.memory_gib
    if model is not None and model.memory_mib is not None:
        return model.memory_mib * MIB
    return None if sold is None else int(sold * GIB)


def _npus(ascend: Ascend, profile: Profile) -> tuple[Card, ...]:
    sold = profile.hardware.memory_gib
    cards = []
    for npu in ascend.npus:
        memory = npu.hbm_total or (None if sold is None else int(sold * GIB))
        if memory is None:
            return ()
        cards.append(Card(npu.index, npu.name or "Ascend", memory, npu.hbm_used or 0))
    return tuple(sorted(cards, key=lambda each: each.used > 4 * GIB))


def _host_memory(facts: Facts | None) -> int | None:
    memory = facts.memory if facts is not None else None
    if memory is None or memory.total is None:
        return None
    return memory.total if memory.cgroup_limit is None else min(memory.total, memory.cgroup_limit)
