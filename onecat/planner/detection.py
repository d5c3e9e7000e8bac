"""Which profile fits a host: a matching of its facts with the hardware parts of all profiles. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onecat.config import Profile
from onecat.facts import Facts, GpuPair, Nvidia
from onecat.knowledge.hardware import gpu_model, gpu_model_by_device
from onecat.planner.capabilities import tenfold

GIB = 2**30
MEMORY_SHOWN = 0.85
"""Share of the memory of a card as sold that its driver shows at least: ECC on a T4 takes a sixteenth (15360 MiB)."""
UNKNOWN_NAME = "unknown"
"""What captures without product names call a card."""


@dataclass(frozen=True)
class Candidate:
    """One profile against one host.

    cards: how many of the host's it uses. reasons: what speaks for it. remarks: what to know. against: why it does not
    fit; empty when it does.
    """

    profile: str
    cards: int
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alternative:
    """Another profile for the same hardware, and when to take it."""

    profile: str
    when: str


@dataclass(frozen=True)
class Detection:
    """What fits a host. seen: its accelerators in words.

    profile: the proposal, None when there is none. reasons: why it, or why none. against: why the nearest profile does
    not fit; nearest: None when no profile is for hardware of that kind.
    """

    seen: str
    profile: str | None
    reasons: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    runners_up: tuple[Candidate, ...] = ()
    nearest: str | None = None
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Card:
    """One accelerator. capability: compute capability, ten times. memory: bytes. divided: MIG is on."""

    index: int
    name: str
    capability: int | None = None
    memory: int | None = None
    divided: bool = False
    error: str | None = None


@dataclass(frozen=True)
class _Host:
    """kind: accelerator of a profile, None when nothing tells what there is. joined: by NVLink; None when not known."""

    kind: str | None
    cards: tuple[_Card, ...]
    facts: Facts
    remarks: tuple[str, ...] = ()

    @property
    def working(self) -> tuple[_Card, ...]:
        return tuple(card for card in self.cards if card.error is None)


def detect_profile(facts: Facts, profiles: Iterable[Profile]) -> Detection:
    """The profile for a host, with what speaks for and against it.

    Of several that fit, the one that uses most of the cards; profiles that call themselves an alternative are told
    beside the usual one of their hardware. None fits where the cards are not known, too few, divided by MIG, of another
    product, or hidden behind cards of another kind.
    """
    known = list(profiles)
    host = _host(facts)
    if host.kind is None:
        return Detection("nothing that tells", None, ("what accelerators this host has is not in the facts",))
    of_kind = [each for each in known if each.hardware.accelerator == host.kind]
    candidates = [_judge(each, host) for each in of_kind]
    fitting = sorted((each for each in candidates if not each.against), key=lambda each: _rank(each, known))
    if not fitting:
        return _none(host, known, candidates)
    best = fitting[0]
    alternatives = tuple(
        Alternative(each.name, each.alternative.when)
        for each in known
        if each.alternative is not None and each.alternative.to == best.profile
    )
    told = {best.profile, *(each.profile for each in alternatives)}
    others = [each for each in candidates if each.profile not in told and each.reasons]
    return Detection(
        _seen(host),
        best.profile,
        best.reasons,
        (*host.remarks, *best.remarks),
        alternatives,
        tuple(sorted(others, key=lambda each: (bool(each.against), *_rank(each, known)))),
    )


def _rank(candidate: Candidate, profiles: Sequence[Profile]) -> tuple[bool, int, str]:
    profile = next(each for each in profiles if each.name == candidate.profile)
    return (profile.alternative is not None, -candidate.cards, candidate.profile)


def _none(host: _Host, profiles: Sequence[Profile], candidates: Sequence[Candidate]) -> Detection:
    """Nothing fits: the nearest profile, and the processor as a way out."""
    usual = {each.name: each for each in profiles if each.alternative is None}
    same = [each for each in candidates if each.reasons and each.profile in usual]
    nearest = min(
        same, key=lambda each: abs(usual[each.profile].hardware.count - len(host.cards)), default=None
    ) or _nearest_class(host, [each for each in candidates if each.profile in usual], usual)
    seen = _seen(host)
    reasons = [f"this host has {seen}"]
    if nearest is None and host.kind != "none":
        reasons.append("no profile is for such cards, or for ones whose programs would run on them")
    on_processor = [_judge_processor(each, host.facts) for each in profiles if each.hardware.accelerator == "none"]
    way_out = [each for each in on_processor if not each.against] if host.kind != "none" else []
    return Detection(
        seen,
        None,
        tuple(reasons) if host.kind != "none" else candidates[0].against if candidates else tuple(reasons),
        host.remarks,
        runners_up=tuple(way_out),
        nearest=nearest.profile if nearest is not None else None,
        against=nearest.against if nearest is not None else (),
    )


def _nearest_class(host: _Host, candidates: Sequence[Candidate], profiles: dict[str, Profile]) -> Candidate | None:
    """The profile of the highest compute capability that is not above the host's: programs for it run there."""
    capabilities = [card.capability for card in host.working if card.capability is not None]
    if not capabilities:
        return None
    weakest = min(capabilities)
    memory = min((card.memory for card in host.working if card.memory is not None), default=None)

    def distance(candidate: Candidate) -> tuple[int, float, int, str]:
        hardware = profiles[candidate.profile].hardware
        apart = abs((hardware.memory_gib or 0) * GIB - memory) if memory is not None else 0
        return (
            weakest - (tenfold(hardware.compute_capability) or 0),
            apart,
            abs(hardware.count - len(host.cards)),
            candidate.profile,
        )

    able = [
        each
        for each in candidates
        if (tenfold(profiles[each.profile].hardware.compute_capability) or weakest + 1) <= weakest
    ]
    return min(able, key=distance, default=None)


def _judge(profile: Profile, host: _Host) -> Candidate:
    hardware = profile.hardware
    if hardware.accelerator == "none":
        return _judge_processor(profile, host.facts)
    cards = [card for card in host.working if card.name in hardware.gpu_names]
    if not cards:
        names = " or ".join(hardware.gpu_names)
        return Candidate(profile.name, 0, against=(f"it is for {names}",))
    used = cards[: hardware.count]
    reasons = [f"it is for {_counted(used)}"]
    remarks: list[str] = []
    against: list[str] = []
    if len(cards) < hardware.count:
        here = f"{len(cards)} {'is' if len(cards) == 1 else 'are'} here"
        smaller = "a smaller layout under serve, as `tensor-parallel-size: 1`, is for fewer"
        against.append(f"it is for {hardware.count} such cards and {here}; {smaller}")
    elif len(cards) > hardware.count:
        remarks.append(
            f"it uses {hardware.count} of the {len(cards)} cards; more copies: data-parallel-size under serve"
        )
    against += _divided(used)
    against += _too_small(used, hardware.memory_gib)
    others = [card for card in host.working if card.name not in hardware.gpu_names]
    if others:
        told = f"the host also has {_counted(others)}"
        is_hidden = any(card.index < used[-1].index for card in others)
        (against if is_hidden else remarks).append(
            f"{told}, before the profile's cards in number: a container gets the first {hardware.count}"
            if is_hidden
            else f"{told}, behind the profile's cards in number"
        )
    if hardware.count > 1 and host.kind == "nvidia":
        for text, is_against in _links(host.facts.nvidia or Nvidia(), used, hardware.interconnect):
            (against if is_against else remarks).append(text)
    return Candidate(profile.name, len(used), tuple(reasons), tuple(remarks), tuple(against))


def _divided(cards: Sequence[_Card]) -> list[str]:
    divided = [str(card.index) for card in cards if card.divided]
    if not divided:
        return []
    return [
        f"MIG divides GPU {', '.join(divided)}: no onecat profile is for a part of a card "
        "(sudo nvidia-smi -i N -mig 0 ends it, when nobody needs the parts)"
    ]


def _too_small(cards: Sequence[_Card], sold: float | None) -> list[str]:
    small = [card for card in cards if sold and card.memory is not None and card.memory < sold * GIB * MEMORY_SHOWN]
    if not small or any(card.divided for card in cards):
        return []
    assert small[0].memory is not None
    return [f"{small[0].name} shows {small[0].memory / GIB:.0f} GiB and the profile is for {sold:g}"]


def _links(nvidia: Nvidia, cards: Sequence[_Card], wanted: str) -> list[tuple[str, bool]]:
    """What is known of the links between the cards, each with whether it speaks against the profile."""
    joined = _joined(nvidia, {card.index for card in cards})
    if wanted == "nvlink":
        if joined is None:
            return [("whether NVLink joins the cards is not known: nvidia-smi topo -m", False)]
        return (
            [("NVLink joins the cards", False)] if joined else [("it counts on NVLink, and none joins the cards", True)]
        )
    return [("NVLink joins the cards: tensor parallelism costs less", False)] if joined else []


def _joined(nvidia: Nvidia, indices: set[int]) -> bool | None:
    """Whether NVLink leads from each of these cards to each other; None when it is not known."""
    pairs: list[GpuPair] = [each for each in nvidia.pairs if {each.first, each.second} <= indices and each.connection]
    if pairs:
        return all(each.connection is not None and each.connection.startswith("NV") for each in pairs)
    links = [gpu.nvlinks for gpu in nvidia.gpus if gpu.index in indices and gpu.nvlinks is not None]
    states = [link.active for each in links for link in each]
    if len(links) == len(indices) and states and None not in states:
        return all(any(link.active for link in each) for each in links)
    return None


def _judge_processor(profile: Profile, facts: Facts) -> Candidate:
    """A profile without accelerators: the processor's instructions and the memory."""
    wanted = profile.doctor
    flags = set(facts.cpu.flags) if facts.cpu is not None else set()
    if not flags:
        return Candidate(profile.name, 0, against=("what the processor can do is not known",))
    missing = [flag for flag in wanted.cpu_flags if flag not in flags]
    total = facts.memory.total if facts.memory is not None else None
    against = [f"the processor lacks {', '.join(missing)}"] if missing else []
    if total is None:
        against.append("how much memory there is is not known")
    elif total < wanted.memory_gib * GIB * MEMORY_SHOWN:
        against.append(f"it needs {wanted.memory_gib:g} GiB of memory and {total / GIB:.1f} GiB are here")
    reasons = (f"the processor has {', '.join(wanted.cpu_flags)}, and the memory is enough",) if not against else ()
    return Candidate(profile.name, 0, reasons, against=tuple(against))


def _host(facts: Facts) -> _Host:
    nvidia, ascend = facts.nvidia, facts.ascend
    if nvidia is not None and nvidia.gpus:
        cards = tuple(
            _Card(
                gpu.index,
                _known_name(gpu.name),
                tenfold(gpu.compute_capability) or _capability_of(gpu.name),
                gpu.memory_total,
                gpu.mig_enabled is True,
                gpu.error,
            )
            for gpu in nvidia.gpus
        )
        if all(card.name == UNKNOWN_NAME for card in cards):
            return _Host(None, cards, facts)
        broken = tuple(f"GPU {card.index} does not answer: {card.error}" for card in cards if card.error is not None)
        return _Host("nvidia", cards, facts, broken)
    if nvidia is not None and nvidia.pci_devices:
        models = [gpu_model_by_device(each.device_id) for each in nvidia.pci_devices]
        on_bus = tuple(
            _Card(
                index,
                model.name if model else f"10de:{device.device_id or '?'}",
                tenfold(model.compute_capability) if model else None,
            )
            for index, (device, model) in enumerate(zip(nvidia.pci_devices, models, strict=True))
        )
        told = "the driver shows no card; these are the devices on the PCI bus by their numbers"
        return _Host("nvidia", on_bus, facts, (told,))
    if ascend is not None and ascend.npus:
        npus = tuple(
            _Card(npu.index, (npu.name or UNKNOWN_NAME).removeprefix("Ascend").strip(), memory=npu.hbm_total)
            for npu in ascend.npus
        )
        return _Host("ascend", npus, facts)
    if ascend is not None and ascend.pci_devices:
        return _Host("ascend", tuple(_Card(n, UNKNOWN_NAME) for n, _ in enumerate(ascend.pci_devices)), facts)
    was_looked_for = nvidia is not None and nvidia.library_found is not None
    return _Host("none" if was_looked_for else None, (), facts)


def _known_name(name: str) -> str:
    model = gpu_model(name)
    return model.name if model is not None else name


def _capability_of(name: str) -> int | None:
    model = gpu_model(name)
    return tenfold(model.compute_capability) if model is not None else None


def _counted(cards: Iterable[_Card]) -> str:
    names = Counter(card.name for card in cards)
    return ", ".join(f"{count} x {name}" for name, count in names.items())


def _seen(host: _Host) -> str:
    return _counted(host.cards) or "a machine without GPU"
