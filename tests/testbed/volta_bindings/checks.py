"""Claims about the operators for attention: `checks.py LIBRARY`, with LIBRARY as test_volta_bindings.py builds it.

Prints what is wrong with each claim, by its name, as JSON; null for nothing.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MULTIPROCESSORS = 80
"""Of the GPU that the recording driver has, and of whose threads 1024 run at once on each."""
STREAM = 100

Launch = tuple[str, tuple[int, ...], dict[str, float]]
"""A kernel's name, its grid with the threads of a block, and what it was given."""


class Gpu:
    """The GPU that the operators believe in."""

    def __init__(self, library: str) -> None:
        self.driver = ctypes.CDLL(library)
        self.driver.recorded.restype = ctypes.c_char_p
        self.driver.has_gpu(0, 70)
        self.seen = 0

    def launches(self) -> list[Launch]:
        """Kernels that were started since the last call."""
        lines = self.driver.recorded().decode().splitlines()
        new, self.seen = lines[self.seen :], len(lines)
        found = []
        for name, *rest in (line.split()[1:] for line in new if line.startswith("cuLaunchKernel")):
            grid = tuple(map(int, rest[:4]))
            found.append((name, grid, dict(zip(rest[7::2], map(float, rest[8::2]), strict=True))))
        return found


def batch(**options: Any) -> Any:
    from attention_operators import Batch

    return Batch(device="cpu", **options)


def pointers(**tensors: Tensor | None) -> dict[str, float]:
    return {name: float(each.data_ptr()) for name, each in tensors.items() if each is not None}


def a_batch_goes_to_two_kernels_with_the_requests_of_each(gpu: Gpu) -> None:
    import torch
    from attention_operators import DECODES, REQUESTS, Shape

    for wide in (False, True):
        shape = Shape(wide=wide)
        made = batch(shape=shape, sinks=torch.zeros(8), slopes=torch.ones(8))
        ranges = torch.zeros((len(REQUESTS), 3, 2), dtype=torch.int32)
        gpu.launches()
        made(ranges=ranges, window=77, soft_cap=2.5, clamp_ranges=True)
        (split, split_grid, few), (tiled, tiled_grid, many) = gpu.launches()
        given = made.arguments
        assert split == "attention_split_quad_pairs_128_16" and split_grid == (8 * MULTIPROCESSORS, 1, 1, 128)
        # 170 tokens of two requests, each with the 4 heads of a group, in tiles of 256: as 8 blocks, which leaves 10
        # multiprocessors for the keys of each.
        assert tiled == "attention_tiled_quad_pairs_128" and tiled_grid == (
            170 * 4 // 256 + 2,
            2,
            MULTIPROCESSORS // 8,
            256,
        )
        shared = {"window": 77.0, "soft_cap": 2.5, "clamp_ranges": 1.0, "most_ranges": 3.0, "stream": STREAM}
        shared |= {"kv_heads": 2.0, "group": 4.0, "head_size": 128.0, "block_size": 32.0}
        shared |= {"query_stride": made.query.stride(0), "out_stride": made.out.stride(0)}
        shared |= {"block_stride": made.cache.stride(0), "head_stride": made.cache.stride(1)}
        shared |= {"block_table_stride": made.table.stride(0), "scale": few["scale"]}
        shared |= pointers(query=made.query, out=made.out, cache=made.cache)
        shared |= pointers(sinks=given["sinks"], slopes=given["slopes"])
        assert abs(few["scale"] - given["scale"]) < 1e-6
        first = pointers(query_start=given["query_start"], lengths=given["lengths"], block_table=made.table)
        shared |= pointers(partial=given["partial"], arrivals=given["arrivals"])
        first |= pointers(ranges=ranges)
        assert few == shared | first | {"requests": float(DECODES)}
        rest = pointers(query_start=given["query_start"][DECODES:], lengths=given["lengths"][DECODES:])
        rest |= pointers(block_table=made.table[DECODES:], ranges=ranges[DECODES:])
        assert many == shared | rest | {"requests": float(len(REQUESTS) - DECODES)}


def only_what_has_tokens_is_started(gpu: Gpu) -> None:
    import attention_operators

    for decodes, names in ((6, ["attention_split"]), (0, ["attention_tiled"]), (4, ["attention_split"])):
        made = batch(decodes=decodes)
        floats, counters = attention_operators.workspace_of(made, 0, made.tokens)
        gpu.launches()
        changes = {"partial": made.query.new_empty(floats).float(), "arrivals": made.table.new_zeros(counters)}
        made(**changes, tokens=made.arguments["decode_tokens"] if decodes else made.tokens)
        assert [name.rpartition("_quad")[0] for name, _, _ in gpu.launches()] == names
    gpu.launches()
    made = batch(decodes=0)
    none = {"tokens": 0, "lengths": made.table[:0, 0], "block_table": made.table[:0]}
    made(**none, query_start=made.arguments["query_start"][:1])
    empty = made.keys[0][:0]
    attention_operators.operator("write_cache")(empty, empty, made.cache, made.slots(0)[:0])
    assert [name for name, _, _ in gpu.launches() if name != "write_cache"] == []


def new_keys_and_values_are_written_with_their_strides(gpu: Gpu) -> None:
    from attention_operators import Shape, operator

    for wide in (False, True):
        made = batch(shape=Shape(wide=wide, kv_heads=2))
        key, value, slots = made.numbers(45, 2), made.numbers(50, 2), made.slots(3)[:40]
        gpu.launches()
        operator("write_cache")(key, value, made.cache, slots)
        [(name, grid, given)] = gpu.launches()
        assert name == "write_cache" and grid == (40 * 2 * 16 // 256, 1, 1, 256)
        wanted = pointers(key=key, value=value, cache=made.cache, slots=slots)
        wanted |= {"key_stride": key.stride(0), "value_stride": value.stride(0), "stream": STREAM}
        wanted |= {"block_stride": made.cache.stride(0), "head_stride": made.cache.stride(1)}
        assert given == wanted | {"tokens": 40.0, "kv_heads": 2.0, "head_size": 128.0, "block_size": 32.0}


def the_workspace_that_is_asked_for_is_enough_and_no_less_is(gpu: Gpu) -> None:
    import torch
    from attention_operators import Shape, operator, refused

    for group, head_size, queries in itertools.product((1, 4, 9), (80, 512), (1, 3)):
        requests = 5
        shape = Shape(2 * group, 2, head_size)
        sizes = (2, group, head_size, requests, requests * queries, 0)
        floats, counters = operator("attention_workspace")(torch.empty(0), *sizes)
        rows = 16 if group * queries > 8 and head_size < 512 else 8
        least = 2 * 8 * MULTIPROCESSORS * rows * (-(-head_size // 64) * 64 + 2)
        made = batch(requests=[(queries, 40)] * requests, decodes=requests, shape=shape)
        exact = {"partial": torch.empty(floats), "arrivals": torch.zeros(counters, dtype=torch.int32)}
        made(**exact)
        made(**exact | {"partial": torch.empty(least)})
        less = exact | {"partial": torch.empty(least - 1)}
        refused(f"partial must be [at least {least}], it is [{least - 1}]", lambda less=less, made=made: made(**less))
        tiles = 2 * max(requests, requests * -(-queries * group // rows))
        less = exact | {"arrivals": torch.zeros(tiles - 1, dtype=torch.int32)}
        refused("arrivals must be [at least", lambda less=less, made=made: made(**less))
    # Where one block for each KV head has all rows, 16 share the keys: 40 would fit the GPU, but that is the most.
    made = batch(requests=[(40, 600)], decodes=0)
    least = 2 * 16 * 256 * (128 + 2)
    exact = {"partial": torch.empty(least), "arrivals": torch.zeros(2, dtype=torch.int32)}
    gpu.launches()
    made(**exact)
    assert [grid for _, grid, _ in gpu.launches()] == [(1, 2, 16, 256)]
    less = exact | {"partial": torch.empty(least - 1)}
    refused(f"partial must be [at least {least}], it is [{least - 1}]", lambda: made(**less))


def wrong_arguments_are_refused_with_a_text_that_names_them(gpu: Gpu) -> None:
    import attention_operators

    attention_operators.attention_refusals("cpu")
    gpu.launches()
    made = batch()
    for name in ("cache", "out", "lengths", "query_start", "block_table", "partial", "arrivals"):
        gpu.driver.move_elsewhere(ctypes.c_void_p(made.arguments[name].data_ptr()))
        attention_operators.refused(f"{name} must be on the query's GPU", made)
    gpu.driver.move_elsewhere(ctypes.c_void_p(made.keys[1].data_ptr()))
    attention_operators.refused("key must be on the cache's GPU", lambda: made.write(1))
    gpu.driver.move_elsewhere(None)
    started = [name for name, _, _ in gpu.launches()]
    assert {name for name in started if name != "write_cache"} <= {"attention_split_quad_pairs_128_16"}, started
    assert gpu.driver.current_guard() == -1


def options_that_are_not_given_are_null(gpu: Gpu) -> None:
    made = batch()
    gpu.launches()
    made()
    for _, _, given in gpu.launches():
        assert not {"sinks", "slopes", "ranges"} & set(given)
        assert (given["window"], given["soft_cap"], given["most_ranges"]) == (0, 0, 0)


CHECKS: dict[str, Callable[[Gpu], None]] = {
    check.__name__: check
    for check in (
        a_batch_goes_to_two_kernels_with_the_requests_of_each,
        only_what_has_tokens_is_started,
        new_keys_and_values_are_written_with_their_strides,
        the_workspace_that_is_asked_for_is_enough_and_no_less_is,
        wrong_arguments_are_refused_with_a_text_that_names_them,
        options_that_are_not_given_are_null,
    )
}


def main() -> None:
    """Judge every claim."""
    import torch

    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "h200_run"))
    torch.ops.load_library(sys.argv[1])
    gpu, answers = Gpu(sys.argv[1]), {}
    for name, check in CHECKS.items():
        try:
            check(gpu)
        except Exception:  # noqa: BLE001
            answers[name] = traceback.format_exc()
        else:
            answers[name] = None
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
