"""`nvidia-smi topo -m` and `topo -p2p`: what lies between two GPUs."""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, importer
from onecat.probe.importers.text import short_lines

_WORD = re.compile(r"GPU[0-9]{1,3}")
_ROW = re.compile(
    r"^\s*GPU[0-9]{1,3}\s{1,20}(?:X|NV[0-9]{1,2}|PIX|PXB|PHB|NODE|SYS|OK|CNS|GNS|TNS|NS|DR|U)\b", re.MULTILINE
)
_CONNECTIONS = re.compile(r"NV[0-9]{1,2}|PIX|PXB|PHB|NODE|SYS|SOC")
_PEER = {
    "OK": "ok",
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by regkey",
    "U": "unknown",
}


@importer("nvidia-smi topo", recognises=lambda text: _ROW.search(text) is not None, hints=("topo", "nvlink", "p2p"))
def nvidia_topology(capture: Capture) -> Part:
    """Connections of pairs, and their peer access where the command tells whether reading or writing was asked.

    The rows are also a list of the GPUs that the driver shows, with the NUMA node of each.
    """
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    gpus: dict[int, dict[str, Any]] = {}
    columns: list[int | None] = []
    ability = _ability(capture.command or "")
    for line in short_lines(capture.text):
        ability = _ability(line) or ability
        words = line.split()
        if not words or not _WORD.fullmatch(words[0]):
            continue
        if len(words) == 1 or not _ROW.match(line):
            columns = _columns(words)
            continue
        row = int(words[0][3:])
        for each in (row, *(column for column in columns if column is not None)):
            gpus.setdefault(each, {"index": each})
        # CPU affinity, NUMA affinity and more stand behind the columns of devices.
        affinities = words[1 + len(columns) :]
        if len(affinities) >= 2 and affinities[1].isdecimal() and len(affinities[1]) <= 4:
            gpus[row]["numa_node"] = int(affinities[1])
        for column, word in zip(columns, words[1:], strict=False):
            if column is None or column == row:
                continue
            pair = pairs.setdefault((min(row, column), max(row, column)), {})
            if _CONNECTIONS.fullmatch(word):
                pair.setdefault("connection", "SYS" if word == "SOC" else word)
            elif word in _PEER:
                for name, letter in (("peer_read", "r"), ("peer_write", "w")):
                    if letter in ability:
                        pair.setdefault(name, _PEER[word])
    found = [{"first": first, "second": second, **pair} for (first, second), pair in sorted(pairs.items()) if pair]
    nvidia = {"gpus": [gpus[index] for index in sorted(gpus)], **({"pairs": found} if found else {})}
    return {"nvidia": nvidia} if gpus else {}


def _columns(words: list[str]) -> list[int | None]:
    """The GPU of each column before the affinities; None for network adapters."""
    columns: list[int | None] = []
    for word in words:
        if word in ("CPU", "NUMA"):
            break
        columns.append(int(word[3:]) if _WORD.fullmatch(word) else None)
    return columns


def _ability(text: str) -> str:
    """What `topo -p2p` was asked for: r and w count, others (n, a, p) tell nothing about access."""
    match = re.search(r"topo -p2p ([rw]{1,2})\b", text)
    return match.group(1) if match else ""
