"""What one layer keeps in the KV cache, and how many blocks of it one request takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["full", "latent", "window", "latent-window", "chunk", "state", "cross"]
StateMode = Literal["none", "align", "all"]
EVERY_TOKEN: tuple[Kind, ...] = ("full", "latent")
"""Kinds of layers that keep every token of a request."""


@dataclass(frozen=True)
class Pages:
    """One cache of one layer, cut into blocks.

    block_size: tokens. page: bytes of a block, padding included. shape: whatever else must be alike for layers to
    share one table of blocks. reach: tokens of the window or chunk.
    """

    kind: Kind
    block_size: int
    page: int
    shape: tuple[object, ...] = ()
    reach: int | None = None


@dataclass(frozen=True)
class Layer:
    """A cache of the decoder layer `index`. A layer can have several, of different kinds."""

    index: int
    pages: Pages


@dataclass(frozen=True)
class Limits:
    """What bounds the blocks of a request beside its length.

    in_flight: tokens that can be scheduled and not yet settled; blocks that left a window are free only then.
    encoder: tokens of an encoder. state_mode: the engine's mamba_cache_mode. speculative: tokens of each step.
    """

    in_flight: int
    encoder: int = 0
    state_mode: StateMode = "none"
    speculative: int = 0


def ceil_div(number: int, by: int) -> int:
    return -(-number // by)


def blocks_of(pages: Pages, length: int, limits: Limits) -> int:
    """Blocks that a request of `length` tokens takes of each layer with these pages."""
    return BLOCKS[pages.kind](pages, length, limits)


def _every_token(pages: Pages, length: int, limits: Limits) -> int:
    return ceil_div(length, pages.block_size)


def _window(pages: Pages, length: int, limits: Limits) -> int:
    """One block more, as a window may begin within a block."""
    return ceil_div(min((pages.reach or 0) - 1 + limits.in_flight, length), pages.block_size) + 1


def _chunk(pages: Pages, length: int, limits: Limits) -> int:
    return ceil_div(min((pages.reach or 0) + limits.in_flight, length), pages.block_size)


def _state(pages: Pages, length: int, limits: Limits) -> int:
    """The running state, one more where prefixes are kept (`align`), one for each block where all are (`all`)."""
    kept = {"none": 1, "align": 2, "all": ceil_div(length, pages.block_size)}[limits.state_mode]
    return kept + limits.speculative


def _encoder(pages: Pages, length: int, limits: Limits) -> int:
    return ceil_div(limits.encoder, pages.block_size)


BLOCKS: dict[Kind, Callable[[Pages, int, Limits], int]] = {
    "full": _every_token,
    "latent": _every_token,
    "window": _window,
    "latent-window": _window,
    "chunk": _chunk,
    "state": _state,
    "cross": _encoder,
}
"""Source: max_memory_usage_bytes of each class in vllm/v1/kv_cache_interface.py at 0.27.1."""
