"""Which cores of a machine the sender of load stays on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

ENOUGH = 8
"""From so many cores on, SENDERS of them are taken for the sender although the server may use all of them: an engine
on GPUs keeps one core busy for each GPU and a few more (vllm/v1: API server, engine, one worker for each GPU)."""
SENDERS = 2


@dataclass(frozen=True)
class Pinning:
    """cores: which the sender stays on; None: anywhere. why: in a sentence, for people and for the result file."""

    cores: tuple[int, ...] | None
    why: str


def choose_cores(all_cores: Collection[int], server_cores: Collection[int]) -> Pinning:
    """Cores for the sender.

    Parameters:
        all_cores: of the machine. server_cores: where the server's processes may run; none: not known.
    """
    free = sorted(set(all_cores) - set(server_cores))
    if server_cores and free:
        return Pinning(tuple(free), f"the load is sent from cores {as_ranges(free)}, which the server does not use")
    if len(all_cores) >= ENOUGH:
        last = sorted(all_cores)[-SENDERS:]
        return Pinning(
            tuple(last),
            f"the load is sent from cores {as_ranges(last)} of {len(all_cores)}; the server may run there too",
        )
    return Pinning(
        None,
        f"the load is sent from the {len(all_cores)} cores that the server runs on: what sending takes is in the times",
    )


def as_ranges(numbers: Iterable[int]) -> str:
    """Numbers as the kernel writes lists of cores: 0-3,8."""
    parts: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def from_ranges(text: str) -> tuple[int, ...]:
    """The numbers of such a list. Raises ValueError."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return tuple(sorted(found))
