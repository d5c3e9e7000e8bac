"""New keys and values in the cache: the kernel write_cache, on the host, to the last bit, and the layout it writes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.volta.attention_reference import Array, pack
from tests.unit.volta.host_attention import HostAttention, Layout
from tests.unit.volta.host_kernels import ORDERS


def bits(numbers: Array) -> Array:
    return numbers.view(np.uint16)


def any_halves(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of every kind, NaN and infinity too."""
    return random.integers(0, 2**16, shape).astype(np.uint16).view(np.float16)


def test_a_block_has_groups_of_16_keys_by_eight_dimensions_and_then_their_values() -> None:
    """Place by place, as csrc/attention.h draws it."""
    tokens, head_size = 48, 24
    keys = np.arange(tokens * head_size).reshape(tokens, head_size).astype(np.float16)
    packed = pack(keys, -keys)
    for token in range(tokens):
        group, row = token // 16 * (16 * 2 * head_size), token % 16
        for dim in range(head_size):
            assert packed[group + dim // 8 * (16 * 8) + row * 8 + dim % 8] == keys[token, dim]
            assert packed[group + 16 * head_size + row * head_size + dim] == -keys[token, dim]


@pytest.mark.parametrize(
    ("head_size", "kv_heads", "layout"),
    [
        (64, 1, Layout(16)),
        (80, 3, Layout(48, gap=8)),
        (96, 2, Layout(32, gap=24, heads_first=True)),
        (256, 1, Layout(784)),
        (512, 2, Layout(16, heads_first=True)),
        (8, 5, Layout(64, gap=8)),
    ],
)
def test_tokens_come_to_their_slots_and_nothing_else_changes(
    attention: HostAttention, head_size: int, kv_heads: int, layout: Layout
) -> None:
    random = np.random.default_rng(head_size)
    block_size = layout.block_size
    blocks = max(3, 100 // block_size)
    block_stride, head_stride = layout.strides(blocks, kv_heads, head_size)
    size = block_size * 2 * head_size
    before = any_halves(random, ((blocks - 1) * block_stride + (kv_heads - 1) * head_stride + size,))
    for number, tokens in enumerate((1, 7, 40)):
        slots = random.permutation(blocks * block_size)[:tokens]
        slots[0] = blocks * block_size - 1
        slots[1::3] = random.integers(-5, 0, slots[1::3].shape)
        # Tokens that pad the batch have no slots.
        key, value = (any_halves(random, (tokens + number, kv_heads, head_size)) for _ in range(2))
        expected = before.copy()
        for token, slot in enumerate(slots):
            for head in range(kv_heads if slot >= 0 else 0):
                start = slot // block_size * block_stride + head * head_stride
                place = slot % block_size
                one = np.zeros((2, block_size, head_size), bool)
                one[0, place] = True
                keys, values = (np.broadcast_to(each[token, head], one[0].shape) for each in (key, value))
                block = expected[start : start + size]
                for kind, new in enumerate((keys, values)):
                    is_here = np.zeros((2, block_size, head_size), np.float16)
                    is_here[kind] = one[0]
                    here = pack(*is_here) == 1
                    block[here] = pack(new, new)[here]
        for order in ORDERS:
            found = attention.write_cache(
                before, (block_stride, head_stride), key, value, slots, block_size, 1 + number, order, gap=8 * number
            )
            assert np.array_equal(bits(found), bits(expected))


def test_no_tokens_are_written(attention: HostAttention) -> None:
    before = np.zeros(16 * 2 * 64, np.float16)
    none = np.zeros((0, 1, 64), np.float16)
    found = attention.write_cache(before, (before.size, before.size), none, none, np.zeros(0, np.int64), 16, 1)
    assert np.array_equal(bits(found), bits(before))
