"""Each kernel against float64: random and adversarial inputs, edges of shapes, and what it may not touch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from bench.kernels.comparison import compare
from bench.kernels.findings import ERROR, NORM_LIMIT, SUMMATION, SUMMATION_LIMIT, ProductClaim
from bench.kernels.weights import FORMATS, Weight, fp8, nvfp4, random_weight

QUAD_PAIRS, OCTETS = 0, 1
FRAGMENTS = {QUAD_PAIRS: "quad pairs", OCTETS: "octets"}
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 130)
FEW_TOKENS = (1, 8, 17, 64, 65)
RAGGED = (*itertools.product((1, 31, 33, 4120), (16, 48, 64, 80, 8192)), (1, 8), (33, 72), (160, 1096))
FEW_RAGGED = ((1, 16), (31, 80), (33, 48), (4120, 64), (33, 8192), (33, 72))


@dataclass(frozen=True)
class Bench:
    """Where the claims are tried: the device, the source of random numbers, and whether only some of the cases."""

    device: torch.device
    generator: torch.Generator
    quick: bool

    @property
    def tokens(self) -> Sequence[int]:
        return FEW_TOKENS if self.quick else TOKENS

    @property
    def ragged(self) -> Sequence[tuple[int, int]]:
        return FEW_RAGGED if self.quick else RAGGED

    def weight(self, format_: str, n: int, k: int, fragments: int) -> Weight:
        return random_weight(format_, n, k, fragments, self.generator)

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device=self.device, generator=self.generator).half()

    def kernels(self) -> Iterator[tuple[str, int, str]]:
        for fragments, format_ in itertools.product(FRAGMENTS, FORMATS):
            yield format_, fragments, f"{format_}, {FRAGMENTS[fragments]}"


def expected(x: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The float64 result and the sums of magnitudes."""
    assert weight.exact is not None
    wide = x.double()
    exact, magnitudes = wide @ weight.exact.T, wide.abs() @ weight.exact.abs().T
    if bias is not None:
        exact, magnitudes = exact + bias.double(), magnitudes + bias.double().abs()
    return exact, magnitudes


def check(
    claim: ProductClaim,
    weight: Weight,
    x: torch.Tensor,
    what: str,
    bias: torch.Tensor | None = None,
    linear: bool = False,
) -> None:
    """One multiplication: its result, and that the counts of arrivals are zero again."""
    from vllm_volta import ops

    found = weight.linear(x, bias) if linear else weight.panels(x, bias)
    exact, magnitudes = expected(x, weight, bias)
    rounded = linear and weight.format != "nvfp4"
    besides: torch.Tensor | float = 0.0
    if rounded:
        # Beyond a number of tokens an FP8 weight becomes fp16 first: half a unit of each, also of subnormal ones.
        sums = x.double().abs().sum(1, keepdim=True)
        besides = (magnitudes * 2.0**-11 + sums * 2.0**-25).nan_to_num(posinf=0.0)
    elif linear and bias is not None and x.shape[0] > ops.MAX_PANEL_TOKENS:
        # cuBLAS rounds the product before it adds the bias (seen on an H200 with torch 2.11).
        besides = ((exact - bias.double()).abs() * 2.0**-11 + 2.0**-25).nan_to_num(posinf=0.0)
        rounded = True
    assert found.shape == exact.shape, f"{what}: shape {tuple(found.shape)}"
    claim.see_result(compare(found, exact, magnitudes, weight.k, besides), what, rounded)
    if weight.arrivals.any():
        claim.see(False, f"{what}: counts of arrivals are left at {weight.arrivals.max().item()}")


def every_number_of_tokens(bench: Bench, claim: ProductClaim) -> None:
    n, k = 1000, 1040
    for format_, fragments, kernel in bench.kernels():
        weight = bench.weight(format_, n, k, fragments)
        for m in bench.tokens:
            bias = bench.normal(n) if m % 2 else None
            check(claim, weight, bench.normal(m, k), f"{kernel}, m={m}", bias)


def ragged_shapes(bench: Bench, claim: ProductClaim) -> None:
    for (n, k), (format_, fragments, kernel) in itertools.product(bench.ragged, bench.kernels()):
        if format_ == "nvfp4" and k % 16:
            continue
        weight = bench.weight(format_, n, k, fragments)
        for m in (1, 13) if bench.quick else (1, 5, 17, 64):
            check(claim, weight, bench.normal(m, k), f"{kernel}, {n} x {k}, m={m}")


def long_sums(bench: Bench, claim: ProductClaim) -> None:
    """K = 8192, where the error by norm has a limit, unless it is that of rounding the result to fp16."""
    n = 4096
    for format_, fragments, kernel in bench.kernels():
        weight = bench.weight(format_, n, 8192, fragments)
        for m in (1, 8) if bench.quick else (1, 8, 16, 64):
            x = bench.normal(m, 8192)
            exact, magnitudes = expected(x, weight, None)
            found = compare(weight.panels(x), exact, magnitudes, 8192)
            claim.note(ERROR, found.error)
            claim.note(SUMMATION, found.summation)
            held = found.error <= NORM_LIMIT or found.summation <= SUMMATION_LIMIT
            claim.see(
                found.wrong == 0 and held,
                f"{kernel}, m={m}: error {found.error:.3e}, of it rounding {found.rounding:.3e}, {found.wrong} wrong",
            )


def large_weight(bench: Bench, claim: ProductClaim) -> None:
    """As many weights as the largest vocabulary's matrix has."""
    n, k = (8200, 512) if bench.quick else (152_064, 5120)
    for format_ in ("nvfp4", "fp8 block"):
        weight = bench.weight(format_, n, k, OCTETS)
        for m in (1, 33, 65):
            check(claim, weight, bench.normal(m, k), f"{format_}, {n} x {k}, m={m}", linear=True)


def every_code_and_scale(bench: Bench, claim: ProductClaim) -> None:
    """Unit vectors as activations: each weight comes out alone, so a single wrong code or scale shows exactly."""
    finite = [code for code in range(256) if code & 0x7F != 0x7F]
    k = 64
    for fragments, kind in FRAGMENTS.items():
        scales = torch.tensor(finite, dtype=torch.uint8, device=bench.device)[:, None].repeat(1, k // 16)
        nibbles = torch.arange(16, dtype=torch.uint8, device=bench.device).repeat(len(finite), k // 16)
        weights = [nvfp4(nibbles, scales, (len(finite),), (1.0,), fragments)]
        codes = torch.tensor(finite * 2, dtype=torch.uint8, device=bench.device)
        values = codes.unfold(0, k, 1)[: len(finite)].contiguous()
        ones = torch.ones(len(finite), device=bench.device)
        weights.append(fp8(values, ones, None, fragments))
        blocks = torch.tensor([[0.5], [3.0]], device=bench.device)
        weights.append(fp8(values, ones, blocks, fragments))
        units = torch.eye(k, device=bench.device).half()
        for weight in weights:
            assert weight.exact is not None
            for m in (1, 8, 16, 64):
                parts = [weight.panels(units[first : first + m]) for first in range(0, k, m)]
                same = torch.cat(parts).double() == weight.exact.T
                claim.see(bool(same.all()), f"{weight.format}, {kind}, m={m}: {int((~same).sum())} weights differ")


def extreme_scales(bench: Bench, claim: ProductClaim) -> None:
    """Block scales from the least to the largest side by side, factors that make results tiny, huge or infinite."""
    n, k = 96, 256
    for fragments, kind in FRAGMENTS.items():
        pick = torch.randint(0, 4, (n, k // 16), device=bench.device, generator=bench.generator)
        scales = torch.tensor([0x00, 0x01, 0x7E, 0xFE], dtype=torch.uint8, device=bench.device)[pick]
        nibbles = torch.randint(0, 16, (n, k), dtype=torch.uint8, device=bench.device, generator=bench.generator)
        for factor in (1e-30, 1e-7, 1.0, 100.0, 1e20):
            weight = nvfp4(nibbles, scales, (32, 64), (factor, factor / 2), fragments)
            for m in (1, 33):
                check(claim, weight, bench.normal(m, k), f"nvfp4, {kind}, factor {factor}, m={m}")
        values = torch.randint(0, 0x7F, (n, k), dtype=torch.uint8, device=bench.device, generator=bench.generator)
        for factor in (1e-30, 1e-5, 1.0, 1e20):
            rows = torch.full((n,), factor, device=bench.device)
            blocks = torch.tensor([[1e-3, 200.0]], device=bench.device)
            for weight in (fp8(values, rows, None, fragments), fp8(values, rows, blocks, fragments)):
                check(claim, weight, bench.normal(9, k), f"{weight.format}, {kind}, factor {factor}")


def special_activations(bench: Bench, claim: ProductClaim) -> None:
    """Subnormal and largest activations; infinities and NaN reach just the results of their own row, as in matmul."""
    n, k = 136, 208
    for format_, fragments, kernel in bench.kernels():
        weight = bench.weight(format_, n, k, fragments)
        for m in (3, 8, 20, 64):
            x = bench.normal(m, k)
            x[0] = torch.randint(-1023, 1024, (k,), device=bench.device, generator=bench.generator) * 2.0**-24
            x[1] = torch.where(x[1] > 0, 65504.0, -65504.0).half()
            check(claim, weight, x, f"{kernel}, subnormal and largest, m={m}")
            x = bench.normal(m, k)
            x[0, k - 1], x[m // 2, 17], x[m - 1, 0] = float("inf"), float("nan"), float("-inf")
            check(claim, weight, x, f"{kernel}, infinities and NaN, m={m}")
            x = torch.zeros(m, k, dtype=torch.float16, device=bench.device)
            check(claim, weight, x, f"{kernel}, zeros, m={m}")


def all_positive_sums(bench: Bench, claim: ProductClaim) -> None:
    """Nothing cancels: what cutting off in sums adds up to shows in full."""
    k = 8192
    for fragments, kind in FRAGMENTS.items():
        nibbles = torch.randint(1, 8, (256, k), dtype=torch.uint8, device=bench.device, generator=bench.generator)
        scales = torch.full((256, k // 16), 0x38, dtype=torch.uint8, device=bench.device)
        weight = nvfp4(nibbles, scales, (256,), (0.001,), fragments)
        for m in (1, 16, 64):
            check(claim, weight, bench.normal(m, k).abs(), f"nvfp4, {kind}, m={m}")


def strides_and_offsets(bench: Bench, claim: ProductClaim) -> None:
    """Rows of activations apart from each other, with NaN between them; storage that starts anywhere."""
    n, k = 200, 176
    for format_, fragments, kernel in bench.kernels():
        weight = bench.weight(format_, n, k, fragments)
        for m in (1, 4, 19):
            wide = torch.full((m, k + 72), float("nan"), dtype=torch.float16, device=bench.device)
            x = wide[:, 8 : 8 + k]
            x.copy_(bench.normal(m, k))
            check(claim, weight, x, f"{kernel}, rows {k + 72} apart, m={m}")
            for offset, stride in ((1, k), (8, k + 4), (3, k + 1)):
                storage = torch.full((offset + m * stride,), float("nan"), dtype=torch.float16, device=bench.device)
                x = storage.as_strided((m, k), (stride, 1), offset)
                x.copy_(bench.normal(m, k))
                check(claim, weight, x, f"{kernel}, offset {offset}, stride {stride}, m={m}", linear=True)
            x = bench.normal(k, m).T
            check(claim, weight, x, f"{kernel}, columns before rows, m={m}", linear=True)


def layers(bench: Bench, claim: ProductClaim) -> None:
    """The operators that vLLM's layers call, with few tokens and many, in more dimensions than two, none at all."""
    n, k = 1000, 1040
    for format_, fragments, kernel in bench.kernels():
        weight = bench.weight(format_, n, k, fragments)
        for m in (1, 64, 65, 130) if bench.quick else (1, 8, 64, 65, 130, 300, 1024):
            check(claim, weight, bench.normal(m, k), f"{kernel}, m={m}", bench.normal(n), linear=True)
        cube = bench.normal(2, 3, k)
        same = torch.equal(weight.linear(cube), weight.linear(cube.view(6, k)).view(2, 3, n))
        claim.see(same, f"{kernel}: [2, 3, k] differs from [6, k]")
        for empty in (weight.linear(bench.normal(0, k)), weight.panels(bench.normal(0, k))):
            claim.see(empty.shape == (0, n) and empty.dtype == torch.float16, f"{kernel}: no tokens")


def dequantised(bench: Bench, claim: ProductClaim) -> None:
    """Rows as fp16: exact for NVFP4, rounded once for FP8."""
    for (n, k), (format_, fragments, kernel) in itertools.product(((1, 16), (33, 80), (1000, 1040)), bench.kernels()):
        weight = bench.weight(format_, n, k, fragments)
        assert weight.exact is not None
        for first, last in {(0, n), (0, min(n, 32)), (n // 64 * 32, n)}:
            found = weight.dequantized(first, last).double()
            exact = weight.exact[first:last]
            if format_ == "nvfp4":
                exact = exact / weight.row_scale[first:last].double()[:, None]
                claim.see(torch.equal(found, exact), f"{kernel}, {n} x {k}, rows {first} to {last}")
            else:
                # A unit in the last place of fp32 before the rounding to fp16.
                allowed = exact.abs() * (2.0**-11 + 2.0**-22) + 2.0**-25
                held = bool(((found - exact).abs() <= allowed).all())
                claim.see(held, f"{kernel}, {n} x {k}, rows {first} to {last}")


def refusals(bench: Bench, claim: ProductClaim) -> None:
    """What the kernels cannot do is said, and nothing is started."""
    weight = bench.weight("nvfp4", 64, 128, QUAD_PAIRS)
    x = bench.normal(2, 128)
    operator = torch.ops.vllm_volta.nvfp4_panels
    good = (x, weight.codes, weight.scales, weight.row_scale, None, weight.arrivals, 64, 128, QUAD_PAIRS)
    for index, value, what in (
        (0, x.float(), "fp32 activations"),
        (0, bench.normal(2, 64), "activations of another width"),
        (0, bench.normal(2, 256)[:, ::2], "columns apart"),
        (1, weight.codes[:1], "too few groups of rows"),
        (3, weight.row_scale[:63], "too few row scales"),
        (4, bench.normal(63), "a short bias"),
        (8, 7, "unknown fragments"),
    ):
        arguments = [*good[:index], value, *good[index + 1 :]]
        try:
            operator(*arguments)
        except RuntimeError:
            claim.see(True, what)
        else:
            claim.see(False, f"{what} were accepted")


def repeated_results(bench: Bench, claim: ProductClaim) -> None:
    """Bit for bit the same each time, also while another stream keeps multiprocessors busy."""
    side = torch.cuda.Stream()
    load = torch.randn(2048, 2048, device=bench.device)
    for n, k in ((384, 8192), (5120, 3072)):
        for format_, fragments, kernel in bench.kernels():
            weight = bench.weight(format_, n, k, fragments)
            for m in (1, 16, 64):
                x = bench.normal(m, k)
                first = weight.panels(x)
                for busy in (False, True, True):
                    if busy:
                        with torch.cuda.stream(side):
                            for _ in range(4):
                                load @ load
                    claim.see(torch.equal(weight.panels(x), first), f"{kernel}, {n} x {k}, m={m}, busy={busy}")
                torch.cuda.synchronize()
                claim.see(not weight.arrivals.any(), f"{kernel}, {n} x {k}, m={m}: counts of arrivals")


def graphs(bench: Bench, claim: ProductClaim) -> None:
    """Captured once, replayed with other activations: the results of a plain call."""
    n, k = 1000, 4096
    for format_, fragments, kernel in bench.kernels():
        weight = bench.weight(format_, n, k, fragments)
        for m in (1, 8, 64, 130):
            x = bench.normal(m, k)
            weight.linear(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = weight.linear(x)
            for _ in range(3):
                x.copy_(bench.normal(m, k))
                graph.replay()
                plain = weight.linear(x)
                claim.see(torch.equal(out, plain), f"{kernel}, m={m}")
            claim.see(not weight.arrivals.any(), f"{kernel}, m={m}: counts of arrivals")


def two_streams(bench: Bench, claim: ProductClaim) -> None:
    """Two layers side by side, each with its own counts of arrivals."""
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for format_, fragments, kernel in bench.kernels():
        pair = [bench.weight(format_, 640, 4096, fragments) for _ in streams]
        xs = [bench.normal(m, 4096) for m in (1, 16)]
        expected_ = [weight.panels(x) for weight, x in zip(pair, xs, strict=True)]
        torch.cuda.synchronize()
        found: list[list[torch.Tensor]] = [[], []]
        for _ in range(20):
            for which, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    found[which].append(pair[which].panels(xs[which]))
        torch.cuda.synchronize()
        for which in range(2):
            same = all(torch.equal(each, expected_[which]) for each in found[which])
            claim.see(same and not pair[which].arrivals.any(), f"{kernel}, stream {which}")


def compilers(bench: Bench, claim: ProductClaim) -> None:
    """Schemas and shapes that torch.compile relies on, by torch's own check."""
    tests = ("test_schema", "test_faketensor")
    for format_ in FORMATS:
        weight = bench.weight(format_, 96, 128, OCTETS)
        nvfp4_ = format_ == "nvfp4"
        rest = (weight.n, weight.k) if nvfp4_ else (weight.n, weight.k, weight.block, weight.block)
        common = (bench.normal(3, 128), weight.codes, weight.scales, weight.row_scale, None, weight.arrivals)
        fused = (list(weight.widths), list(weight.factors)) if nvfp4_ else ()
        name = "nvfp4" if nvfp4_ else "fp8"
        for operator, arguments in ((f"{name}_panels", rest), (f"{name}_panel_linear", (*rest, *fused))):
            target = getattr(torch.ops.vllm_volta, operator).default
            try:
                torch.library.opcheck(target, (*common, *arguments, weight.fragments), test_utils=tests)
            except Exception as error:  # noqa: BLE001 - whatever it raises is the finding
                claim.see(False, f"{operator}: {error}")
            else:
                claim.see(True, operator)


PORTABLE = {
    "every number of tokens": every_number_of_tokens,
    "ragged shapes": ragged_shapes,
    "K = 8192: 2e-4 or fp16 itself": long_sums,
    "a large weight": large_weight,
    "every code and scale": every_code_and_scale,
    "extreme scales": extreme_scales,
    "special activations": special_activations,
    "sums of positive products": all_positive_sums,
    "strides and offsets": strides_and_offsets,
    "layers, few and many tokens": layers,
    "dequantised rows": dequantised,
}
"""Claims that a plain device can be asked for."""
ON_A_GPU = {
    "refusals": refusals,
    "the same bits each time": repeated_results,
    "CUDA graphs": graphs,
    "two streams": two_streams,
    "schemas and shapes": compilers,
}
GUARDED = (
    "every number of tokens",
    "ragged shapes",
    "strides and offsets",
    "layers, few and many tokens",
    "dequantised rows",
)
"""Claims that are tried once more between guard zones."""
