"""Attention in float64, from its definition, and how far fp16 inputs and fp32 sums may deviate from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from bench.attention.cases import Case

MOST_LOGITS = 1 << 26
"""So many logits are held at a time."""
HALF = 2.0**-11
"""Largest relative error of rounding to fp16."""
SMALLEST_HALF = 2.0**-25
"""Largest error of rounding a number to fp16 that is below its normal ones."""
SINGLE = 2.0**-23


@dataclass(frozen=True)
class Exact:
    """The result of each query token and head [tokens, heads, head_size], all float64, and what may deviate from it.

    spread: of independent roundings of the weights to fp16, as a standard deviation. drift: what errors in fp32 of
    logits and sums amount to at most. most: the largest deviation that rounding weights to fp16 can make, with drift.
    answered: whether the token belongs to a request with keys [tokens].
    """

    result: torch.Tensor
    spread: torch.Tensor
    drift: torch.Tensor
    most: torch.Tensor
    answered: torch.Tensor


def visible(case: Case, request: int, own: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Whether tokens at the positions `own` see the keys at the positions `keys`: bool [own, keys]."""
    mine, other = own[:, None], keys[None, :]
    options = case.options
    near = mine - other < options.window if options.window else torch.ones_like(mine - other, dtype=torch.bool)
    seen = (other <= mine) & near
    if options.ranges is not None:
        for first, last in options.ranges[request].tolist():
            if first < last:
                both = (mine >= first) & (mine <= last) & (other >= first) & (other <= last)
                seen |= (both & near) if options.clamp_ranges else both
    return seen


def exact(case: Case, deviations: bool = True) -> Exact:
    """deviations: also what may deviate (otherwise zeros)."""
    shape = case.tokens, case.heads.heads, case.heads.head_size
    result, spread, drift, most = (torch.zeros(shape, dtype=torch.float64, device=case.query.device) for _ in range(4))
    answered = torch.zeros(case.tokens, dtype=torch.bool, device=case.query.device)
    group, starts = case.heads.group, case.query_start.tolist()
    for request, length in enumerate(case.lengths.tolist()):
        begin, end = starts[request], starts[request + 1]
        if length == 0 or begin == end:
            continue
        answered[begin:end] = True
        slots = case.slots(request)
        positions = torch.arange(length, device=case.query.device)
        step = max(1, MOST_LOGITS // (length * group))
        for first in range(begin, end, step):
            last = min(end, first + step)
            own = torch.arange(first, last, device=case.query.device) - end + length
            seen = visible(case, request, own, positions)
            for head in range(case.heads.kv_heads):
                rows = slice(first, last), slice(head * group, (head + 1) * group)
                parts = _attend(case, rows, slots, head, own, positions, seen, deviations)
                for target, part in zip((result, spread, drift, most), parts, strict=False):
                    target[rows] = part
    return Exact(result, spread, drift, most, answered)


def _attend(
    case: Case,
    rows: tuple[slice, slice],
    slots: torch.Tensor,
    head: int,
    own: torch.Tensor,
    positions: torch.Tensor,
    seen: torch.Tensor,
    deviations: bool,
) -> tuple[torch.Tensor, ...]:
    """Of some query tokens of one request and the heads of one KV head: result, spread, drift, most."""
    options, head_size = case.options, case.heads.head_size
    wanted = seen.any(0)  # keys that nobody sees may be NaN
    slots, positions, seen = slots[wanted], positions[wanted], seen[:, wanted]
    query = case.query[rows].double()  # [tokens, group, d]
    keys, values = case.keys[slots, head].double(), case.values[slots, head].double()
    logits = torch.einsum("tgd,kd->tgk", query, keys) * case.scale
    products = query.norm(dim=2)[:, :, None] * keys.norm(dim=1)[None, None, :] * abs(case.scale)
    if options.soft_cap:
        logits = options.soft_cap * torch.tanh(logits / options.soft_cap)
        products = products + options.soft_cap
    if options.slopes is not None:
        bias = options.slopes[rows[1]].double()[None, :, None] * (positions[None, :] - own[:, None])[:, None, :]
        logits = logits + bias
        products = products + bias.abs()
    logits = logits.masked_fill(~seen[:, None, :], -math.inf)
    top = logits.amax(2, keepdim=True)
    weights = torch.exp(logits - top)
    total = weights.sum(2, keepdim=True)
    if options.sinks is not None:
        total = total + torch.exp(options.sinks[rows[1]].double()[None, :, None] - top)
    weights = weights / total
    result = weights @ values
    if not deviations:
        return (result,)
    # A rounding error is uniform within half a unit in the last place, of which a number has 2^10 to 2^11.
    spread = ((weights * weights) @ (values * values)).sqrt() * (2 * HALF / math.sqrt(12))
    magnitudes = logits.abs().nan_to_num(posinf=0.0, neginf=0.0) + products
    errors = weights * (magnitudes * ((2 + math.sqrt(head_size) / 4) * SINGLE) + 4 * SINGLE)
    below_normal = torch.minimum(weights, SMALLEST_HALF / total) * seen[:, None, :]
    # Tensor cores cut off where others round, once for each four keys.
    sums = len(positions) / 8 * SINGLE
    drift = errors @ values.abs() + below_normal @ values.abs() + result.abs() * sums
    most = weights @ values.abs() * (HALF + sums) + drift
    return result, spread, drift, most
