"""Requests with keys and values in vLLM's cache: what attention is asked, whoever answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from bench.attention.shapes import TABLE_COLUMNS, Heads


@dataclass(frozen=True)
class Options:
    """What a model may ask beside causal attention; as in csrc/attention.h. scale: None for head_size ** -0.5."""

    scale: float | None = None
    soft_cap: float = 0.0
    window: int = 0
    clamp_ranges: bool = False
    sinks: torch.Tensor | None = None
    slopes: torch.Tensor | None = None
    ranges: torch.Tensor | None = None


@dataclass(frozen=True)
class Case:
    """One batch of requests.

    query: fp16 [tokens, heads, head_size]. keys, values: fp16 [slots, kv_heads, head_size], where slot = block *
    block_size + place; slots that no request has are never given to anyone. query_start: int32 [requests + 1].
    lengths: int32 [requests]. block_table: int32 [requests, columns].
    """

    heads: Heads
    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    query_start: torch.Tensor
    lengths: torch.Tensor
    block_table: torch.Tensor
    options: Options = Options()

    @property
    def scale(self) -> float:
        return self.options.scale if self.options.scale is not None else self.heads.head_size**-0.5

    @property
    def requests(self) -> int:
        return self.lengths.shape[0]

    @property
    def tokens(self) -> int:
        return self.query.shape[0]

    @property
    def queries(self) -> list[int]:
        """Query tokens of each request."""
        return self.query_start.diff().tolist()

    @property
    def blocks(self) -> int:
        return self.keys.shape[0] // self.heads.block_size

    def slots(self, request: int) -> torch.Tensor:
        """Where the tokens of a request are, in order."""
        size = self.heads.block_size
        length = int(self.lengths[request])
        places = torch.arange(length, device=self.keys.device)
        return self.block_table[request].long()[places // size] * size + places % size

    def used_slots(self) -> torch.Tensor:
        """Those of all requests, each once."""
        return torch.cat([self.slots(request) for request in range(self.requests)]).unique()

    def to(self, device: torch.device) -> Case:
        """The same on another device."""
        given = self.options
        options = replace(
            given,
            sinks=given.sinks if given.sinks is None else given.sinks.to(device),
            slopes=given.slopes if given.slopes is None else given.slopes.to(device),
            ranges=given.ranges if given.ranges is None else given.ranges.to(device),
        )
        names = ("query", "keys", "values", "query_start", "lengths", "block_table")
        return replace(self, options=options, **{name: getattr(self, name).to(device) for name in names})

    def with_options(self, **options: object) -> Case:
        return replace(self, options=replace(self.options, **options))  # type: ignore[arg-type]


def random_case(
    heads: Heads,
    lengths: Sequence[int],
    queries: Sequence[int],
    generator: torch.Generator,
    *,
    shared_blocks: int = 0,
    spare_blocks: int = 3,
    options: Options | None = None,
) -> Case:
    """Normally distributed queries, keys and values; blocks in random order, with spare ones between.

    shared_blocks: so many first blocks are the same for all requests (a shared prefix), where they are long enough.
    """
    device = generator.device
    size = heads.block_size
    counts = [-(-length // size) for length in lengths]
    shared = min(shared_blocks, *(length // size for length in lengths)) if shared_blocks else 0
    own = sum(count - shared for count in counts)
    blocks = shared + own + spare_blocks
    order = torch.randperm(blocks, generator=generator, device=device).int()
    columns = max(1, -(-max([*counts, 1]) // TABLE_COLUMNS)) * TABLE_COLUMNS
    # What lies past a request's blocks in the table may be anything that is a block.
    table = order[-1:].expand(len(lengths), columns).clone()
    taken = shared
    for request, count in enumerate(counts):
        table[request, :shared] = order[:shared]
        table[request, shared:count] = order[taken : taken + count - shared]
        taken += count - shared
    start = torch.tensor([0, *torch.tensor(list(queries)).cumsum(0).tolist()], dtype=torch.int32, device=device)

    def normal(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float16, device=device).normal_(generator=generator)

    return Case(
        heads,
        normal(sum(queries), heads.heads, heads.head_size),
        normal(blocks * size, heads.kv_heads, heads.head_size),
        normal(blocks * size, heads.kv_heads, heads.head_size),
        start,
        torch.tensor(list(lengths), dtype=torch.int32, device=device),
        table,
        options if options is not None else Options(window=heads.window),
    )
