"""Reads the table of NVIDIA's error numbers as typed records."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from onecat.knowledge.tables import frozen, table


@dataclass(frozen=True)
class Xid:
    """What an error number means. text, architectures: see xids.yaml; empty where a row fits any."""

    xid: int
    title: str
    severity: Literal["fail", "warn", "info"]
    why: str
    fix: tuple[str, ...]
    source: tuple[str, ...]
    text: str = ""
    architectures: tuple[str, ...] = ()


@functools.cache
def xids() -> tuple[Xid, ...]:
    """Every row of xids.yaml."""
    return tuple(Xid(**frozen(row)) for row in table("xids.yaml"))


def xid_meaning(number: int, text: str, architecture: str | None) -> Xid | None:
    """The meaning of an error number, or None when the table knows none for this GPU.

    Parameters:
        number: the Xid. text: the line of the kernel log.
        architecture: of the GPU, as in gpus.yaml; None when not known: then a row of any architecture will do.
    """
    # Xid 154 tells what was asked for before as well: "changed from 0x1 (GPU Reset Required) to 0x0 (None)".
    text = text.rpartition(" to ")[2]
    for row in xids():
        fits = architecture is None or not row.architectures or architecture in row.architectures
        if row.xid == number and row.text in text and fits:
            return row
    return None
