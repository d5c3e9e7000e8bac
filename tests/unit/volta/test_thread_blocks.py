"""Thread blocks on the host: what a kernel does wrong is found, and what a right one does is not blamed."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.unit.volta.host_kernels import IN_ORDER, ORDERS, REVERSED, HostKernels, KernelFault, Order

THREADS = 64


def words_of(kernels: HostKernels, name: str, order: Order) -> list[int]:
    """What each thread of the kernel `name` of faulty_kernels.cpp leaves in its word."""
    with kernels.memory(order) as memory:
        words = memory.empty((THREADS,), np.uint32)
        words[:] = 0
        kernels.launch("run_words", name, ctypes.c_void_p(words.ctypes.data), 1, order, THREADS)
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
        ("diverges", IN_ORDER, "thread 1: other lanes of the warp are at another instruction"),
    ],
)
def test_a_fault_is_told(host_kernels: HostKernels, name: str, order: Order, message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        words_of(host_kernels, name, order)
    # And the next kernel is not disturbed.
    assert words_of(host_kernels, "neighbours_word", IN_ORDER)[0] == 100
