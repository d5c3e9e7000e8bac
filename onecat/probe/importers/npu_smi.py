"""`npu-smi info` of Huawei's NPUs: 910 and 310 series, one or two chips on a card, drivers 22 to 26.

Forms seen in https://github.com/vllm-project/vllm-ascend/issues/2534 (two chips), /issues/1130 (910B) and, for the
310 series without HBM, https://support.huawei.com/enterprise/en/doc/EDOC1100424689.
"""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, holds, importer
from onecat.probe.importers.text import known, pci_address, short_lines

_PAIR = re.compile(r"([0-9]{1,6}) {0,8}/ {0,8}([0-9]{1,6})")


@importer(
    "npu-smi info",
    recognises=holds("| npu-smi ", "Hugepages-Usage", "AICore(%)", "dcmi module initialize failed"),
    sections=("npu-smi info",),
    hints=("npu", "ascend", "910b"),
)
def npu_smi(capture: Capture) -> Part:
    """NPUs with their health, memory and processes. Where chips have numbers of their own (Phy-ID), those count."""
    version: str | None = None
    npus: dict[int, dict[str, Any]] = {}
    cards: dict[int, list[int]] = {}
    busy: dict[int, list[int]] = {}
    idle: set[int] = set()
    has_own_numbers = in_processes = False
    card: dict[str, Any] | None = None
    for line in short_lines(capture.text, 400):
        stripped = line.strip()
        if not stripped.startswith("|"):
            continue
        cells = [cell.strip() for cell in stripped.strip("|").split("|")]
        stated = re.match(r"npu-smi ([\w.]{1,30})", cells[0])
        if stated:
            version = version or stated.group(1)
        elif "Process id" in stripped:
            in_processes = True
        elif cells[0].startswith("NPU"):
            in_processes = False
        elif cells[0].startswith("Chip"):
            has_own_numbers = "Phy-ID" in cells[0]
        elif in_processes:
            _read_process(cells, busy, idle)
        elif len(cells) == 3:
            card = _read_row(cells, card, npus, cards, has_own_numbers)
    for npu_number, indexes in cards.items():
        if npu_number in busy or npu_number in idle:
            for index in indexes:
                npus[index]["process_ids"] = sorted(set(busy.get(npu_number, [])))
    ascend: dict[str, Any] = {"npu_smi_version": version, "npus": list(npus.values())}
    stated_facts = {key: value for key, value in ascend.items() if value}
    if stated_facts:
        return {"ascend": stated_facts}
    said = next((line.strip() for line in short_lines(capture.text, 300) if line.strip()), None)
    return {"notes": [{"source": "ascend", "kind": "error", "text": f"npu-smi info: {said}"}]} if said else {}


def _read_row(
    cells: list[str],
    card: dict[str, Any] | None,
    npus: dict[int, dict[str, Any]],
    cards: dict[int, list[int]],
    has_own_numbers: bool,
) -> dict[str, Any] | None:
    """The first of a chip's two rows gives name, health and power, the second its address, load and memory."""
    first = re.fullmatch(r"([0-9]{1,4}) {1,12}([A-Za-z0-9]*[A-Za-z][\w-]{0,30}|[0-9]{3}[\w-]{0,10})", cells[0])
    address = pci_address(cells[1])
    if address is None:
        if first is None:
            return None
        numbers = cells[2].split()
        return {
            "number": int(first.group(1)),
            "name": first.group(2),
            "health": known(cells[1]),
            "power_draw_watts": _number(numbers[0]) if numbers else None,
            "temperature_celsius": _whole(numbers[1]) if len(numbers) > 1 else None,
        }
    if card is None:
        return None
    own = cells[0].split()
    number = card["number"]
    index = int(own[1]) if has_own_numbers and len(own) > 1 and own[1].isdigit() and len(own[1]) < 5 else number
    if index in npus:
        return None
    pairs = _PAIR.findall(cells[2])
    # The last pair is the HBM; cards without have only the first.
    used, total = (int(value) * 1024**2 for value in pairs[-1]) if pairs else (None, None)
    load = re.match(r"([0-9]{1,3})(?![0-9])", cells[2])
    npu = {
        "index": index,
        **{key: value for key, value in card.items() if key != "number"},
        "pci_address": address,
        "utilization_percent": int(load.group(1)) if load else None,
        "hbm_used": used,
        "hbm_total": total,
    }
    npus[index] = {key: value for key, value in npu.items() if value is not None}
    cards.setdefault(number, []).append(index)
    return None


def _read_process(cells: list[str], busy: dict[int, list[int]], idle: set[int]) -> None:
    nothing = re.match(r"No running processes found in NPU ([0-9]{1,4})", cells[0])
    if nothing:
        idle.add(int(nothing.group(1)))
    elif len(cells) >= 3:
        place = re.match(r"([0-9]{1,4})\b", cells[0])
        if place and re.fullmatch(r"[0-9]{1,8}", cells[1]):
            busy.setdefault(int(place.group(1)), []).append(int(cells[1]))


def _number(word: str) -> float | None:
    return float(word) if re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,4})?", word) else None


def _whole(word: str) -> int | None:
    return int(word) if re.fullmatch(r"-?[0-9]{1,4}", word) else None
