"""Thread blocks on the host: what a kernel does wrong is found, and what a right one does is not blamed."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.unit.volta.host_kernels import IN_ORDER, ORDERS, REVERSED, HostKernels, KernelFault, Order

THREADS = 64


def words_of(kernels: HostKernels, name: str, order: Order, dynamic_words: int = 0) -> list[int]:
    """What each thread of the kernel `name` of faulty_kernels.cpp leaves in its word."""
    with kernels.memory(order) as memory:
        words = memory.empty((THREADS,), np.uint32)
        words[:] = 0
        address = ctypes.c_void_p(words.ctypes.data)
        kernels.launch("run_words", name, address, 1, order, THREADS, dynamic_bytes=4 * dynamic_words)
        return [int(word) for word in words]


@pytest.mark.parametrize("order", ORDERS)
def test_threads_see_what_others_wrote_before_a_barrier(host_kernels: HostKernels, order: Order) -> None:
    assert words_of(host_kernels, "neighbours_word", order) == [100 * ((i + 1) % THREADS) for i in range(THREADS)]


@pytest.mark.parametrize("name", ["neighbours_word_too_early", "neighbours_word_of_a_warp"])
def test_a_missing_barrier_shows_in_the_order_of_threads(host_kernels: HostKernels, name: str) -> None:
    found = {tuple(words_of(host_kernels, name, order)) for order in (IN_ORDER, REVERSED)}
    assert len(found) == 2


def test_shared_memory_holds_nan_before_it_is_written(host_kernels: HostKernels) -> None:
    for _ in range(2):  # what an earlier block left is gone
        assert words_of(host_kernels, "shared_word_that_nobody_wrote", IN_ORDER)[0] == 0xFFFFFFFF


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_of_a_grid_in_three_dimensions_have_dynamic_memory_of_their_own(
    host_kernels: HostKernels, order: Order
) -> None:
    with host_kernels.memory(order) as memory:
        words = memory.empty((4, 2, 3, THREADS), np.uint32)
        address = ctypes.c_void_p(words.ctypes.data)
        name = "last_word_of_dynamic_memory"
        host_kernels.launch("run_words", name, address, (3, 2, 4), order, THREADS, dynamic_bytes=4 * THREADS)
        z, y, x, _ = np.indices(words.shape)
        assert (words == 1000 * (THREADS - 1) + 100 * x + 10 * y + z).all()


def test_dynamic_memory_holds_nan_before_it_is_written(host_kernels: HostKernels) -> None:
    for _ in range(2):
        assert set(words_of(host_kernels, "dynamic_word_that_nobody_wrote", IN_ORDER, THREADS)) == {0xFFFFFFFF}


def test_a_write_beside_dynamic_memory_is_told(host_kernels: HostKernels) -> None:
    with pytest.raises(KernelFault, match="thread 63: reads or writes outside of memory"):
        words_of(host_kernels, "writes_past_its_dynamic_memory", IN_ORDER, THREADS)
    with pytest.raises(KernelFault, match="the block wrote in front of its dynamic shared memory"):
        words_of(host_kernels, "writes_in_front_of_its_dynamic_memory", IN_ORDER, THREADS)
    # As much memory as fills a page: the forbidden page is next to it.
    with pytest.raises(KernelFault, match="thread 0: reads or writes outside of memory"):
        words_of(host_kernels, "writes_in_front_of_its_dynamic_memory", IN_ORDER, 1024)


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_of_a_warp_exchange_words(host_kernels: HostKernels, order: Order) -> None:
    threads = np.arange(THREADS)
    lanes = threads % 32
    exchanged = sum((lanes ^ 1 << bit) << 5 * bit for bit in range(5))
    assert words_of(host_kernels, "exchanges_numbers", order) == list(exchanged)
    assert words_of(host_kernels, "numbers_move_up", order) == list(np.where(lanes < 3, threads, threads - 3))
    assert words_of(host_kernels, "numbers_of_other_lanes", order) == list(threads // 32 * 32 + 5 * threads % 32)


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_of_a_warp_vote(host_kernels: HostKernels, order: Order) -> None:
    by_warp = [sum(1 << lane for lane in range(1, 32) if (32 * warp + lane) % 3 == 0) | warp for warp in (0, 1)]
    assert words_of(host_kernels, "votes", order) == [by_warp[thread // 32] for thread in range(THREADS)]


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("order", [IN_ORDER, REVERSED])
def test_quad_pairs_multiply_as_the_ptx_isa_says(host_kernels: HostKernels, order: Order, by_columns: bool) -> None:
    """PTX ISA, "Matrix fragments for mma.m8n8k4 with .f16 floating point type", place by place."""
    random = np.random.default_rng(8)
    a, b, c = random.integers(-9, 9, (4, 8, 4)), random.integers(-9, 9, (4, 4, 8)), random.integers(-9, 9, (4, 8, 8))
    sums, a_words = np.zeros((32, 8), np.float32), np.zeros((32, 4), np.float16)
    b_words, expected = np.zeros((32, 4), np.float16), np.zeros((32, 8), np.float32)
    for lane in range(32):
        pair, upper = lane // 4 % 4, 4 * (lane >= 16)
        for i in range(4):
            a_words[lane, i] = a[pair, i + upper, lane % 4] if by_columns else a[pair, lane % 4 + upper, i]
            b_words[lane, i] = b[pair, i, lane % 4 + upper]
        for i in range(8):
            place = (lane & 0b1) + (i & 0b10) + upper, (i & 0b100) + (lane & 0b10) + (i & 0b1)
            sums[lane, i], expected[lane, i] = c[pair][place], (c[pair] + a[pair] @ b[pair])[place]
    with host_kernels.memory(order) as memory:
        words = memory.empty((32 * 12,), np.uint32)
        words[: 32 * 8] = sums.reshape(-1).view(np.uint32)
        words[32 * 8 : 32 * 10] = a_words.reshape(-1).view(np.uint32)
        words[32 * 10 :] = b_words.reshape(-1).view(np.uint32)
        name = "multiplies_by_columns" if by_columns else "multiplies_by_rows"
        host_kernels.launch("run_words", name, ctypes.c_void_p(words.ctypes.data), 1, order, 32)
        assert np.array_equal(words[: 32 * 8].view(np.float32).reshape(32, 8), expected)


def test_halves_of_words_are_put_together(host_kernels: HostKernels) -> None:
    library = host_kernels.library
    assert library.lower_halves_of(0x11112222, 0x33334444) & 0xFFFFFFFF == 0x44442222
    assert library.upper_halves_of(0x11112222, 0x33334444) & 0xFFFFFFFF == 0x33331111
    one, two = ctypes.c_float(1), ctypes.c_float(-2 - 2.0**-10)
    assert library.halves_of_floats(one, two) & 0xFFFFFFFF == 0xC0003C00


@pytest.mark.parametrize(
    ("name", "order", "message"),
    [
        ("reads_past_the_end", IN_ORDER, "thread 0: reads or writes outside of memory"),
        ("writes_past_the_end", IN_ORDER, "thread 0: reads or writes outside of memory"),
        ("writes_past_the_end", REVERSED, "wrote beside a buffer"),
        ("reads_before_the_begin", REVERSED, "thread 63: reads or writes outside of memory"),
        ("writes_past_its_shared_memory", IN_ORDER, "thread 7: undefined behaviour"),
        ("reads_16_bytes_at_8", IN_ORDER, "thread 0: undefined behaviour"),
        ("overflows", IN_ORDER, "thread 1: undefined behaviour"),
        ("divides_by_zero", IN_ORDER, "undefined behaviour"),
        ("leaves_others_at_a_barrier", IN_ORDER, "waits for threads that wait elsewhere or ended"),
        ("exchanges_where_others_vote", IN_ORDER, "thread 40: other lanes of the warp are at another instruction"),
        ("diverges", IN_ORDER, "thread 1: other lanes of the warp are at another instruction"),
    ],
)
def test_a_fault_is_told(host_kernels: HostKernels, name: str, order: Order, message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        words_of(host_kernels, name, order)
    # And the next kernel is not disturbed.
    assert words_of(host_kernels, "neighbours_word", IN_ORDER)[0] == 100
