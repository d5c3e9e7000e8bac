"""The rough speeds by which layouts are compared: speeds.yaml as a record."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecat.resources import read_table


@dataclass(frozen=True)
class Speeds:
    """link_share: what is left of a link's nominal speed, by its kind. exchange_us: microseconds of a sum of few bytes.

    through_host_share, through_host_us: the same without peer access. read_share: of memory bandwidth; compute_share:
    of the FP16 peak. unknown_gb_s, unknown_tflops: of a card that is not in the table. bubble: more time per token for
    each further stage. prompt_tokens, answer_tokens: of a request. close: share by which costs must differ to tell.
    """

    link_share: Mapping[str, float]
    exchange_us: Mapping[str, float]
    through_host_share: float
    through_host_us: float
    read_share: float
    compute_share: float
    unknown_gb_s: float
    unknown_tflops: float
    bubble: float
    prompt_tokens: float
    answer_tokens: float
    close: float


@functools.cache
def usual_speeds() -> Speeds:
    """The shipped table."""
    table: Any = read_table(Path(__file__).with_name("speeds.yaml"))
    found: dict[str, Any] = {
        name: row["value"] if "value" in row else {kind: each["value"] for kind, each in row.items()}
        for name, row in table.items()
    }
    return Speeds(**found)
