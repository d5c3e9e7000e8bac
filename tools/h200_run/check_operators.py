"""What only a GPU can show of the compiled operators and their launcher: `check_operators.py DIR`.

DIR holds the package vllm_volta with its extension, as build_extension.sh leaves it. One line a check, exit status 1
where one failed. Whether the products are right is the harness' question (bench/kernels); here it is about tokens in
slices, strides, empty inputs, threads, CUDA graphs, refusals; attention_operators.py has the same for attention.

Each check is a process, so that it begins with nothing loaded. The first one compiles the device code for this GPU,
where it is PTX; the others find that in the driver's cache, all at once but the last, which takes times.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import attention_operators
import torch

N, K = 4120, 1040
"""Neither is a multiple of a panel's size: 32 rows, 64 columns."""


class Layer:
    """A random NVFP4 weight in panels, and what its operator wants."""

    def __init__(self) -> None:
        from vllm_volta import panels

        generator = torch.Generator().manual_seed(8)
        packed = torch.randint(0, 256, (N, K // 2), generator=generator, dtype=torch.uint8).cuda()
        scale = torch.rand((N, K // 16), generator=generator).add(0.5).cuda().to(torch.float8_e4m3fn)
        self.fragments = torch.ops.vllm_volta.panel_fragments(packed)
        self.codes, self.scales = panels.nvfp4_panels(packed, scale, self.fragments)
        self.row_scale = torch.full((N,), 2.0**14 * 0.01, device="cuda")
        self.bias = torch.randn(N, generator=generator).half().cuda()
        self.arrivals = torch.zeros(self.codes.shape[0], dtype=torch.int32, device="cuda")

    def __call__(self, x: torch.Tensor, **changes: object) -> torch.Tensor:
        names = ("codes", "scales", "row_scale", "bias", "arrivals")
        arguments = {name: changes.get(name, getattr(self, name)) for name in names}
        sizes = (changes.get("n", N), changes.get("k", K), changes.get("fragments", self.fragments))
        return torch.ops.vllm_volta.nvfp4_panels(x, *arguments.values(), *sizes)

    def rows(self, first: int, last: int) -> torch.Tensor:
        return torch.ops.vllm_volta.dequantize_nvfp4_panels(self.codes, self.scales, first, last, K, self.fragments)


def activations(m: int) -> torch.Tensor:
    return torch.randn((m, K), generator=torch.Generator().manual_seed(m)).half().cuda()


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(found, expected), (found - expected).abs().max()


def first_use_in_a_new_thread() -> None:
    """The first call of the process is in a thread that never chose a device."""
    layer, x = Layer(), activations(3)
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(layer, x).result()
    same(found, layer(x))


def first_use_in_a_graph() -> None:
    """The code is loaded while a CUDA graph is captured; replays give what a call gives."""
    layer, x = Layer(), activations(5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer(x)
    x.copy_(activations(6)[:5])
    graph.replay()
    same(out, layer(x))
    graph.replay()
    same(out, layer(x))


def products() -> None:
    layer = Layer()
    weight = layer.rows(0, N).double() * 2.0**14 * 0.01
    for m in (1, 2, 8, 16, 33, 64):
        x = activations(m)
        exact = x.double() @ weight.T + layer.bias.double()
        error = ((layer(x).double() - exact).norm() / exact.norm()).item()
        assert error < 4e-4, (m, error)


def slices_of_tokens() -> None:
    layer = Layer()
    for m in (65, 127, 128, 130, 300):
        x = activations(m)
        same(layer(x), torch.cat([layer(x[first : first + 64]) for first in range(0, m, 64)]))


def empty_and_strided() -> None:
    layer = Layer()
    assert layer(activations(0)).shape == (0, N)
    wide = torch.randn(9, K + 24).half().cuda()
    same(layer(wide[:, 8 : K + 8]), layer(wide[:, 8 : K + 8].contiguous()))
    same(layer(wide[1::2, :K]), layer(wide[1::2, :K].contiguous()))
    same(layer(wide[:1, :K].expand(4, K)), layer(wide[:1, :K].repeat(4, 1)))


def the_same_each_time() -> None:
    layer = Layer()
    for m in (1, 8, 64):
        x = activations(m)
        expected = layer(x)
        for _ in range(50):
            same(layer(x), expected)
        assert not layer.arrivals.any()


def ranges_of_rows() -> None:
    layer = Layer()
    whole = layer.rows(0, N)
    for first, last in ((0, 1), (32, 32), (64, 999), (4096, N)):
        same(layer.rows(first, last), whole[first:last])


def refusals() -> None:
    """Each wrong argument is refused, with a text that names it."""
    layer, x = Layer(), activations(2)
    other = torch.zeros(1, device="cuda")
    cases: tuple[tuple[str, Callable[[], object]], ...] = (
        ("x must hold float16", lambda: layer(x.float())),
        ("x must be [m, 1040], it is [2, 1024]", lambda: layer(x[:, :1024])),
        ("start a multiple of 8 values apart", lambda: layer(torch.empty(2, K + 4, device="cuda").half()[:, :K])),
        ("x must be aligned to 16 bytes", lambda: layer(torch.empty(2, K + 8, device="cuda").half()[:, 4 : K + 4])),
        ("codes must be", lambda: layer(x, codes=layer.codes[1:])),
        ("scales must be", lambda: layer(x, scales=layer.scales[:, 1:].contiguous())),
        ("row_scale must hold float32", lambda: layer(x, row_scale=layer.row_scale.double())),
        ("bias must be [4120], it is [1]", lambda: layer(x, bias=other.half())),
        ("arrivals must hold at least", lambda: layer(x, arrivals=layer.arrivals[:3])),
        ("arrivals must be on the weight's GPU", lambda: layer(x, arrivals=layer.arrivals.cpu())),
        ("k must be a multiple of 16", lambda: layer(x[:, :1032], k=1032)),
        ("fragments must be 0", lambda: layer(x, fragments=2)),
        ("first a multiple of 32", lambda: layer.rows(16, 64)),
        ("must be rows of the weight", lambda: layer.rows(0, 2 * N)),
    )
    for text, call in cases:
        try:
            call()
        except RuntimeError as error:
            assert text in str(error), (text, str(error))
        else:
            raise AssertionError(f"not refused: {text}")


CHECKS: dict[str, Callable[[], None]] = attention_operators.CHECKS | {
    check.__name__: check
    for check in (
        first_use_in_a_new_thread,
        first_use_in_a_graph,
        products,
        slices_of_tokens,
        empty_and_strided,
        the_same_each_time,
        ranges_of_rows,
        refusals,
    )
}


LAST = "attention_on_the_host"
"""Takes times, so it is alone."""
TOGETHER = 6


def check(name: str) -> bool:
    """Run one check in a process of its own, and say how it went."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, sys.argv[1], name], capture_output=True, text=True)
    passed = done.returncode == 0
    lines = [f"{name:32} {'ok' if passed else 'FAILED'} {time.perf_counter() - began:6.1f} s  {done.stdout.strip()}"]
    print("\n".join(lines if passed else [*lines, done.stderr[-1500:]]), flush=True)
    return passed


def main() -> None:
    """Run all checks, or the one that is named."""
    if len(sys.argv) == 3:
        sys.path.insert(0, sys.argv[1])
        import vllm_volta._C  # noqa: F401

        CHECKS[sys.argv[2]]()
        torch.cuda.synchronize()
        return
    first, *others = (name for name in CHECKS if name != LAST)
    passed = [check(first)]
    with ThreadPoolExecutor(TOGETHER) as threads:
        passed += threads.map(check, others)
    passed.append(check(LAST))
    print(f"{sum(passed)} of {len(passed)} checks passed")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
