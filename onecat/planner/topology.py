"""What joins the cards of a host, and how fast: rough figures for comparing layouts, not for predicting speed. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from onecat.knowledge.pcie import pcie_generation
from onecat.planner.hardware import Card, Hardware

Kind = Literal["nvlink", "switch", "host bridge", "sockets"]

_KINDS: dict[str, Kind] = {
    "PIX": "switch", "PXB": "switch", "PHB": "host bridge", "NODE": "host bridge", "SYS": "sockets",
}  # fmt: skip
"""The words of `nvidia-smi topo -m`, which explains them itself."""

LINK_GB_S = {60: 20.0, 86: 14.0625, 100: 50.0, 103: 50.0, 120: 50.0}
"""10^9 bytes per second of one NVLink in one direction, by ten times the compute capability; 25 for all others: 300 of
6 links (7.0), 600 of 12 (8.0), 900 of 18 (9.0), 1800 of 18 (10.0), 112.5 of 4 (8.6), each in both directions.
https://www.nvidia.com/en-us/data-center/nvlink/"""


@dataclass(frozen=True)
class Link:
    """kind: the slowest part of the way. gb_s: 10^9 bytes per second in one direction, roughly. seconds: of a small
    exchange. told: in words, as `NVLink` or `PCIe 3.0 x16`."""

    kind: Kind
    gb_s: float
    seconds: float
    told: str


def link_between(hardware: Hardware, first: Card, second: Card) -> Link:
    """The way between two cards: as facts tell it, else as the hardware of the profile does."""
    low, high = sorted((first.index, second.index))
    pair = next((each for each in hardware.pairs if (each.first, each.second) == (low, high)), None)
    connection = pair.connection if pair is not None else None
    links = re.fullmatch(r"NV(\d+)", connection or "")
    if links:
        rate = int(links.group(1)) * LINK_GB_S.get(first.capability or 0, 25.0)
        return _link(hardware, "nvlink", rate, f"NVLink ({connection})")
    if connection is None and _joined_by_table(hardware, first, second):
        whole = first.model.nvlink_gb_s if first.model is not None and first.model.nvlink_gb_s else 300.0
        return _link(hardware, "nvlink", whole / 2, "NVLink")
    kind = _KINDS.get(connection or "PHB", "host bridge")
    generation, width = min(first.pcie or (3, 16), second.pcie or (3, 16))
    row = pcie_generation(generation)
    rate = row.gigabytes_per_second(width) if row is not None else width * 1.0
    reaches = pair is None or pair.peer_read in (None, "ok", "unknown")
    where = {"switch": " through a switch", "host bridge": "", "sockets": " across sockets", "nvlink": ""}[kind]
    told = f"PCIe {generation}.0 x{width}{where}" + ("" if reaches else ", without peer access")
    return _link(hardware, kind, rate, told, reaches)


def _link(hardware: Hardware, kind: Kind, rate: float, told: str, reaches: bool = True) -> Link:
    speeds = hardware.speeds
    microseconds = speeds.exchange_us[kind]
    if reaches:
        return Link(kind, rate * speeds.link_share[kind], microseconds / 1e6, told)
    share = speeds.link_share[kind] * speeds.through_host_share
    return Link(kind, rate * share, max(microseconds, speeds.through_host_us) / 1e6, told)


def _joined_by_table(hardware: Hardware, first: Card, second: Card) -> bool:
    """Whether NVLink joins two cards of which no facts tell: boards with NVLink have it, bridges are not assumed."""
    if hardware.interconnect == "nvlink":
        return True
    models = (first.model, second.model)
    return all(each is not None and each.nvlink_gb_s is not None and not each.nvlink_bridge for each in models)


def slowest(hardware: Hardware, cards: Sequence[Card]) -> Link | None:
    """The slowest link inside a group of cards; None for a single one."""
    links = [link_between(hardware, first, second) for first, second in combinations(cards, 2)]
    return min(links, key=lambda each: (each.gb_s, -each.seconds), default=None)


def arranged(hardware: Hardware, group: int, count: int) -> tuple[Card, ...]:
    """The order in which `count` cards make the best groups of `group` neighbours: each next card is the one that the
    group reaches fastest. The order of the driver where that is as good."""
    cards = hardware.taking(count)
    if group < 2 or len(cards) <= group or not hardware.pairs:
        return cards
    left, order = list(cards), []
    while left:
        chosen = [left.pop(0)]
        while left and len(chosen) < group:
            best = max(left, key=lambda card: min(link_between(hardware, card, each).gb_s for each in chosen))
            left.remove(best)
            chosen.append(best)
        order += chosen
    return tuple(order) if _worst(hardware, order, group) > _worst(hardware, cards, group) else cards


def _worst(hardware: Hardware, cards: Sequence[Card], group: int) -> float:
    links = [slowest(hardware, cards[start : start + group]) for start in range(0, len(cards), group)]
    return min((each.gb_s for each in links if each is not None), default=0.0)
