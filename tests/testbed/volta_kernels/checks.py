"""The numbers of vllm_volta against compressed-tensors, float64 and vLLM's own quantisation methods.

`python checks.py '["name", ...]'` runs the named checks, those of panel_checks.py too, and writes {name: null or a
traceback} as JSON. Reads like a list of claims; a check raises when its claim is wrong.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__.replace("_", " ")] = function
    return function


# ---------------------------------------------------------------- formats


@check
def each_byte_holds_two_e2m1_values_as_compressed_tensors_unpacks_them() -> None:
    import torch
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from vllm_volta import dequantize

    packed = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    expected = unpack_fp4_from_uint8(packed, 16, 32, dtype=torch.float16)
    same_bits(dequantize.e2m1_values(packed), expected)
    assert dequantize.e2m1_values(torch.tensor([[0x2F]], dtype=torch.uint8)).tolist() == [[-6.0, 1.0]]


@check
def nvfp4_is_bit_for_bit_what_compressed_tensors_decompresses() -> None:
    """All block scales: zero, the subnormal ones, the largest and both NaN. The reciprocal of 2**k is exact."""
    import torch
    from vllm_volta import dequantize

    packed, block_scale = all_scales()
    for exponent in (-6, 0, 3, 10):
        divisor = torch.tensor([2.0**exponent])
        expected = decompressed(packed, block_scale, divisor)
        same_bits(dequantize.nvfp4(packed, block_scale, 1 / divisor, torch.float32), expected)
        for dtype in (torch.float16, torch.bfloat16):
            same_bits(dequantize.nvfp4(packed, block_scale, 1 / divisor, dtype), expected.to(dtype))
    assert expected.isnan().any() and (expected == 0).any()


@check
def nvfp4_is_near_compressed_tensors_for_any_global_scale() -> None:
    """It divides by what is stored, vLLM multiplies with the reciprocal: five roundings to float32 in all."""
    import torch
    from vllm_volta import dequantize

    packed, block_scale = all_scales()
    for divisor in (1.7, 1234.5, 26880.0, 3.1e-3):
        stored = torch.tensor([divisor])
        expected = decompressed(packed, block_scale, stored)
        found = dequantize.nvfp4(packed, block_scale, 1 / stored, torch.float32)
        assert torch.equal(found.isnan(), expected.isnan())
        assert ((found - expected).abs() <= 5 * 2.0**-24 * expected.abs())[~expected.isnan()].all()


@check
def nvfp4_is_rounded_from_the_exact_product() -> None:
    import torch
    from vllm_volta import dequantize

    packed, block_scale = all_scales()
    for multiplier in (1.0, 0.0123, 3.7e-5, 0.9):
        factor = torch.tensor([multiplier])
        values = dequantize.e2m1_values(packed).double().reshape(*block_scale.shape, 16)
        exact = (values * (block_scale.double() * factor.double()).unsqueeze(-1)).flatten(1)
        # Two roundings to float32 before the last one: at most one unit in the last place, and seldom that.
        found = dequantize.nvfp4(packed, block_scale, factor, torch.float16)
        rounded = exact.to(torch.float16)
        numbers = ~exact.isnan()
        assert (bits(found)[numbers].int() - bits(rounded)[numbers].int()).abs().max() <= 1
        assert (found != rounded)[numbers].float().mean() < 1e-3


@check
def nvfp4_beyond_the_range_of_float16_is_infinite_and_below_it_subnormal() -> None:
    import torch
    from vllm_volta import dequantize

    packed = torch.tensor([[0xF7] * 8], dtype=torch.uint8)  # 6 and -6
    largest = torch.tensor([[448.0]]).to(torch.float8_e4m3fn)
    for multiplier, expected in (
        (65504 / 2688, 65504.0),
        (1.0, 2688.0),
        (25.0, float("inf")),
        (2.0**-24, 2688 / 2**24),
    ):
        found = dequantize.nvfp4(packed, largest, torch.tensor([multiplier]), torch.float16)
        assert found[0, :2].tolist() == [expected, -expected], (multiplier, found[0, :2].tolist(), expected)


@check
def fp8_codes_are_the_values_of_the_format() -> None:
    import torch
    from vllm_volta import dequantize

    codes = torch.arange(256, dtype=torch.uint8)
    found = dequantize.fp8(codes.reshape(16, 16).view(torch.float8_e4m3fn), torch.ones(1, 1), 0, 0, torch.float32)
    for code, value in zip(codes.tolist(), found.flatten().tolist(), strict=True):
        exponent, mantissa, sign = (code >> 3) & 15, code & 7, -1 if code & 128 else 1
        if code & 127 == 127:
            assert value != value
        else:
            expected = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
            assert value == sign * expected, code


@check
def fp8_is_bit_for_bit_what_compressed_tensors_dequantises() -> None:
    """Blocks, also those that the matrix does not fill; one scale for a row; one for all. NaN stays NaN."""
    import torch
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize as oracle
    from vllm_volta import dequantize

    def arguments(strategy: str, **more: Any) -> Any:
        return QuantizationArgs(num_bits=8, type="float", strategy=strategy, symmetric=True, **more)

    generator = torch.Generator().manual_seed(1)
    for rows, columns in ((256, 384), (128, 128), (200, 272), (3, 130)):
        weight = random_bytes((rows, columns), generator).view(torch.float8_e4m3fn)
        blocks = torch.rand(-(-rows // 128), -(-columns // 128), generator=generator) + 1e-3
        padded = torch.zeros(blocks.shape[0] * 128, blocks.shape[1] * 128)
        padded[:rows, :columns] = weight.float()
        expected = oracle(padded, blocks, args=arguments("block", block_structure=[128, 128]), dtype=torch.float32)
        same_bits(dequantize.fp8(weight, blocks, 128, 128, torch.float32), expected[:rows, :columns])
        for shape, strategy in (((rows, 1), "channel"), ((1, 1), "tensor")):
            scale = torch.rand(shape, generator=generator) + 1e-3
            expected = oracle(weight.float(), scale, args=arguments(strategy), dtype=torch.float32)
            same_bits(dequantize.fp8(weight, scale, 0, 0, torch.float32), expected)
            same_bits(dequantize.fp8(weight, scale, 0, 0, torch.float16), expected.half())


# ---------------------------------------------------------------- linear layers


@check
def nvfp4_layers_multiply_with_the_dequantised_weight() -> None:
    import torch
    from vllm_volta import dequantize

    generator = torch.Generator().manual_seed(2)
    for dtype, rows, columns, tokens, bias in shapes():
        packed, block_scale, factor = random_nvfp4(rows, columns, generator)
        x, b = activations(tokens, columns, dtype, generator), bias and torch.randn(rows, generator=generator).to(dtype)
        found = torch.ops.vllm_volta.nvfp4_linear(x, packed, block_scale, factor, b, [rows])
        near(found, x, dequantize.nvfp4(packed, block_scale, factor, dtype), b)


@check
def fp8_layers_multiply_with_the_dequantised_weight() -> None:
    import torch
    from vllm_volta import dequantize

    generator = torch.Generator().manual_seed(3)
    for dtype, rows, columns, tokens, bias in shapes():
        weight = (torch.randn(rows, columns, generator=generator) * 30).to(torch.float8_e4m3fn)
        x, b = activations(tokens, columns, dtype, generator), bias and torch.randn(rows, generator=generator).to(dtype)
        for block_n, block_k, scale in (
            (128, 128, torch.rand(-(-rows // 128), -(-columns // 128), generator=generator) * 1e-2),
            (32, 48, torch.rand(-(-rows // 32), -(-columns // 48), generator=generator) * 1e-2),
            (0, 0, torch.rand(rows, 1, generator=generator) * 1e-2),
            (0, 0, torch.tensor(3e-3)),
        ):
            found = torch.ops.vllm_volta.fp8_linear(x, weight, scale, b, block_n, block_k)
            near(found, x, dequantize.fp8(weight, scale, block_n, block_k, dtype), b)


@check
def many_tiles_give_what_one_gives() -> None:
    """Tiles of 16 rows, of a block's rows where those are more, and those that end where a fused matrix does."""
    import torch
    from vllm_volta import dequantize, row_major

    generator = torch.Generator().manual_seed(4)
    packed, block_scale, _ = random_nvfp4(200, 64, generator)
    factors = torch.tensor([0.01, 0.02, 0.04])
    x, bias = activations((5,), 64, torch.float32, generator), torch.randn(200, generator=generator)
    weight = torch.cat(
        [
            dequantize.nvfp4(packed[a:b], block_scale[a:b], factors[i], torch.float32)
            for i, (a, b) in enumerate(((0, 130), (130, 165), (165, 200)))
        ]
    )
    fp8 = (torch.randn(200, 64, generator=generator) * 30).to(torch.float8_e4m3fn)
    kept = row_major.TILE_ELEMENTS
    try:
        for row_major.TILE_ELEMENTS in (1, 64 * 40, 1 << 23):
            near(row_major.nvfp4_linear(x, packed, block_scale, factors, bias, [130, 35, 35]), x, weight, bias)
            for block_n, block_k, shape in ((128, 128, (2, 1)), (24, 16, (9, 4)), (0, 0, (200, 1)), (0, 0, (1, 1))):
                scale = torch.rand(shape, generator=generator) * 1e-2
                expected = dequantize.fp8(fp8, scale, block_n, block_k, torch.float32)
                near(row_major.fp8_linear(x, fp8, scale, bias, block_n, block_k), x, expected, bias)
    finally:
        row_major.TILE_ELEMENTS = kept


@check
def compilers_see_one_operator_with_the_right_shape() -> None:
    import torch

    generator = torch.Generator().manual_seed(5)
    packed, block_scale, factor = random_nvfp4(48, 32, generator)
    fp8, scale = torch.randn(48, 32, generator=generator).to(torch.float8_e4m3fn), torch.rand(48, 1)
    ops = torch.ops.vllm_volta
    for tokens in ((3,), (2, 3), (0,)):
        x = activations(tokens, 32, torch.float32, generator)
        for operator, arguments in (
            (ops.nvfp4_linear.default, (x, packed, block_scale, factor, None, [48])),
            (ops.fp8_linear.default, (x, fp8, scale, torch.rand(48), 0, 0)),
        ):
            torch.library.opcheck(operator, arguments, test_utils=("test_faketensor",))

    def layers(x: torch.Tensor) -> torch.Tensor:
        return ops.nvfp4_linear(x, packed, block_scale, factor, None, [48]) + ops.fp8_linear(x, fp8, scale, None, 0, 0)

    compiled = torch.compile(layers, fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (1, 2, 7):
        x = activations((tokens,), 32, torch.float32, generator)
        assert torch.equal(compiled(x), layers(x))


# ---------------------------------------------------------------- vLLM's methods with our kernels


@check
def a_fused_layer_of_compressed_tensors_keeps_each_global_scale() -> None:
    import torch
    from vllm.model_executor.layers.quantization.compressed_tensors.schemes import CompressedTensorsW4A4Fp4

    for use_a16 in (True, False):
        scheme = CompressedTensorsW4A4Fp4(use_a16=use_a16)
        layer, parts = fused_nvfp4(scheme.create_weights, "weight_packed")
        with torch.no_grad():
            layer.weight_global_scale.copy_(torch.stack([1 / factor for *_, factor in parts]))
            if not use_a16:
                layer.input_global_scale.fill_(7.0)
        scheme.process_weights_after_loading(layer)
        assert_layer(parts, functools.partial(scheme.apply_weights, layer), reciprocal=True)
        sizes = {name: p.numel() * p.element_size() for name, p in layer.named_parameters() if p.numel() > 8}
        assert sizes == {"weight": 96 * 64 // 2, "weight_scale": 96 * 64 // 16}, "the weight stays 4-bit"


@check
def a_fused_layer_of_modelopt_keeps_each_global_scale() -> None:
    import torch
    from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4Config

    for algorithm in ("NVFP4", "W4A16_NVFP4"):
        config = ModelOptNvFp4Config(quant_method=algorithm, is_checkpoint_nvfp4_serialized=True, exclude_modules=[])
        method = config.LinearMethodCls(config)
        layer, parts = fused_nvfp4(method.create_weights, "weight")
        with torch.no_grad():
            layer.weight_scale_2.copy_(torch.stack([factor for *_, factor in parts]))
            layer.input_scale.fill_(0.5)
        method.process_weights_after_loading(layer)
        assert_layer(parts, functools.partial(method.apply, layer))


@check
def one_global_scale_for_all_needs_no_shards() -> None:
    import torch
    from vllm.model_executor.layers.quantization.compressed_tensors.schemes import CompressedTensorsW4A4Fp4

    scheme = CompressedTensorsW4A4Fp4(use_a16=True)
    layer, parts = fused_nvfp4(scheme.create_weights, "weight_packed")
    with torch.no_grad():
        layer.weight_global_scale.fill_(8.0)
    scheme.process_weights_after_loading(layer)
    assert layer.volta_widths == [96] and layer.weight_global_scale.tolist() == [0.125]


@check
def damaged_scales_are_refused_when_they_are_loaded() -> None:
    import torch
    from vllm_volta.nvfp4 import NvFp4LinearLayerConfig, VoltaNvFp4LinearKernel

    kernel = VoltaNvFp4LinearKernel(NvFp4LinearLayerConfig())

    def layer(block_scale: torch.Tensor, factor: float = 1.0) -> torch.nn.Module:
        module = torch.nn.Module()
        module.logical_widths = [4]
        module.weight = parameter(torch.zeros(4, 16, dtype=torch.uint8))
        module.weight_scale = parameter(block_scale.to(torch.float8_e4m3fn))
        module.weight_global_scale = parameter(torch.tensor(factor))
        return module

    kernel.process_weights_after_loading(layer(torch.ones(4, 2)))
    refused(lambda: kernel.process_weights_after_loading(layer(torch.full((4, 2), torch.nan))), "not finite")
    refused(lambda: kernel.process_weights_after_loading(layer(torch.ones(4, 2), float("inf"))), "not finite")
    refused(lambda: kernel.process_weights_after_loading(layer(torch.ones(4, 1))), "block scales")

    method, module = fp8_method({"activation_scheme": "dynamic", "weight_block_size": [128, 128]}, [128])
    with torch.no_grad():
        module.weight_scale_inv.fill_(torch.nan)
    refused(lambda: method.process_weights_after_loading(module), "not finite")


@check
def a_fused_fp8_layer_with_a_scale_for_each_matrix_is_not_quantised_again() -> None:
    import torch

    for scheme in ("dynamic", "static"):
        method, layer = fp8_method({"activation_scheme": scheme}, [64, 32, 32])
        generator = torch.Generator().manual_seed(6)
        weight = (torch.randn(128, 128, generator=generator) * 30).to(torch.float8_e4m3fn)
        scales = torch.tensor([0.001, 0.01, 0.1])
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.weight_scale.copy_(scales)
            if scheme == "static":
                layer.input_scale.fill_(0.5)
        method.process_weights_after_loading(layer)
        x = activations((3,), 128, torch.float16, generator)
        rows = scales.repeat_interleave(torch.tensor([64, 32, 32])).reshape(-1, 1)
        near(method.apply(layer, x), x, (weight.float() * rows).half(), None)


@check
def fp8_blocks_as_deepseek_and_modelopt_store_them() -> None:
    import torch
    from vllm.model_executor.layers.quantization.modelopt import ModelOptFp8Config

    generator = torch.Generator().manual_seed(7)
    weight = (torch.randn(128, 128, generator=generator) * 30).to(torch.float8_e4m3fn)
    scale = torch.full((1, 1), 0.0123)
    expected = (weight.float() * scale).half()
    x = activations((3,), 128, torch.float16, generator)

    method, layer = fp8_method({"activation_scheme": "dynamic", "weight_block_size": [128, 128]}, [128])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.weight_scale_inv.copy_(scale)
    method.process_weights_after_loading(layer)
    near(method.apply(layer, x), x, expected, None)

    config = ModelOptFp8Config("FP8_PB_WO", True, None, [])
    with half_precision():
        method, layer = created(config.LinearMethodCls(config), [128])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.weight_scale.fill_(0.0123)
    method.process_weights_after_loading(layer)
    near(method.apply(layer, x), x, expected, None)


# ---------------------------------------------------------------- choice and names


@check
def on_the_cpu_the_kernels_stand_after_those_of_vllm() -> None:
    from vllm.model_executor.kernels import linear
    from vllm.platforms import PlatformEnum

    names = {
        kernel_type: [kernel.__name__ for kernel in linear._kernels_of_type(kernel_type)[PlatformEnum.CPU]]
        for kernel_type in ("nvfp4", "fp8", "fp8_block", "wfp8a16")
    }
    assert names == {
        "nvfp4": ["VoltaNvFp4LinearKernel"],
        "fp8": [
            "PerTensorTorchFP8ScaledMMLinearKernel",
            "ChannelWiseTorchFP8ScaledMMLinearKernel",
            "VoltaFp8LinearKernel",
        ],
        "fp8_block": ["CPUFp8BlockScaledMMKernel", "VoltaFp8LinearKernel"],
        "wfp8a16": ["VoltaFp8LinearKernel"],
    }


@check
def quasar_nvfp4_is_only_what_it_says() -> None:
    from vllm.model_executor.layers.quantization import get_quantization_config
    from vllm_volta import quasar

    config = get_quantization_config("quasar_nvfp4")
    group = {"targets": ["Linear"], "weights": {**quasar.WEIGHTS, "dynamic": False}}
    real = {"quant_method": "compressed-tensors", "format": quasar.FORMAT, "config_groups": {"group_0": group}}
    choose = config.override_quantization_method
    assert choose(real, "quasar_nvfp4") == "compressed-tensors"
    assert choose({**real, "quant_method": "quasar_nvfp4"}, None) == "compressed-tensors"
    assert choose(real, None) is None and choose({"quant_method": "awq"}, None) is None
    assert choose({"quant_method": "quasar_nvfp4", "block_size": 16}, None) == "quasar_nvfp4"
    refused(lambda: choose({"quant_method": "modelopt"}, "quasar_nvfp4"), "its configuration says modelopt")
    group["weights"] = {**quasar.WEIGHTS, "group_size": 32}
    refused(lambda: choose(real, "quasar_nvfp4"), "group_0 has weights of")

    names = {"weight_packed": "U8", "weight_scale": "F8_E4M3", "weight_global_scale": "F32"}
    tensors = {f"model.a.{name}": {"dtype": dtype} for name, dtype in names.items()}
    tensors |= {"lm_head.weight": {"dtype": "F32"}, "model.norm.weight": {"dtype": "F32"}}
    described = quasar.describe(tensors)
    assert described["ignore"] == ["lm_head", "model.norm"]
    assert described["config_groups"]["group_0"]["input_activations"] is None
    tensors["model.a.input_global_scale"] = {"dtype": "F32"}
    assert quasar.describe(tensors)["config_groups"]["group_0"]["input_activations"]["dynamic"] == "local"
    refused(lambda: quasar.describe({"lm_head.weight": {"dtype": "F16"}}), "no tensor weight_packed")
    for name, dtype in (("weight_scale", "F16"), ("weight_global_scale", None)):
        broken = dict(tensors)
        broken.pop(f"model.a.{name}")
        broken |= {f"model.a.{name}": {"dtype": dtype}} if dtype else {}
        refused(lambda broken=broken: quasar.describe(broken), f"model.a.{name} is {dtype or 'absent'}")


# ---------------------------------------------------------------- what the checks share


def bits(values: torch.Tensor) -> torch.Tensor:
    import torch

    return values.contiguous().view({2: torch.int16, 4: torch.int32}[values.element_size()])


def same_bits(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal in each bit, but for the payload of NaN."""
    import torch

    assert found.dtype == expected.dtype and found.shape == expected.shape, (found.dtype, found.shape, expected.shape)
    assert torch.equal(found.isnan(), expected.isnan())
    numbers = ~expected.isnan()
    assert torch.equal(bits(found)[numbers], bits(expected)[numbers])


def random_bytes(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def all_scales() -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of 64 x 64 values whose block scales are all E4M3 codes."""
    import torch

    scales = torch.arange(256, dtype=torch.uint8).reshape(64, 4).view(torch.float8_e4m3fn)
    return random_bytes((64, 32), torch.Generator().manual_seed(0)), scales


def decompressed(packed: torch.Tensor, block_scale: torch.Tensor, divisor: torch.Tensor) -> torch.Tensor:
    """What compressed-tensors makes of an NVFP4 weight, in float32."""
    import torch
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    rows, half = packed.shape
    values = unpack_fp4_from_uint8(packed, rows, 2 * half, dtype=torch.float32)
    return dequantize(values, block_scale.float(), global_scale=divisor, dtype=torch.float32)


def random_nvfp4(
    rows: int, columns: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    block_scale = (torch.rand(rows, columns // 16, generator=generator) * 200).to(torch.float8_e4m3fn)
    return random_bytes((rows, columns // 2), generator), block_scale, torch.tensor([3.3e-4])


def activations(shape: tuple[int, ...], columns: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.randn(*shape, columns, generator=generator).to(dtype)


def shapes() -> Iterator[tuple[torch.dtype, int, int, tuple[int, ...], bool | None]]:
    """Types, rows and columns of weights, shapes of batches, with and without bias."""
    import torch

    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        yield dtype, 1, 16, (1,), None
        yield dtype, 130, 272, (3,), True
        yield dtype, 17, 1040, (2, 5), True
        yield dtype, 256, 384, (33,), None
        yield dtype, 48, 32, (0,), True


def near(found: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """The result of a linear layer within what rounding its sums and its result allows.

    Sums of k products in float32 err by k units of 2**-24 of the sum of magnitudes, the result by half a unit of its
    own type, and once more where the bias is added to a rounded sum (Higham, Accuracy and Stability, section 3.1).
    """
    import torch

    exact = x.double() @ weight.double().T
    magnitude = x.double().abs() @ weight.double().abs().T
    if bias is not None:
        exact, magnitude = exact + bias.double(), magnitude + bias.double().abs()
    unit = torch.finfo(found.dtype).eps
    bound = (
        magnitude * (x.shape[-1] + 2) * 2.0**-24 + exact.abs() * unit + magnitude * (unit if bias is not None else 0)
    )
    assert found.shape == exact.shape and found.dtype == x.dtype
    assert ((found.double() - exact).abs() <= bound + 1e-7).all(), ((found.double() - exact).abs() / bound).max()


def parameter(data: torch.Tensor) -> torch.nn.Parameter:
    import torch

    return torch.nn.Parameter(data, requires_grad=False)


def refused(action: Callable[[], Any], text: str) -> None:
    try:
        action()
    except ValueError as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"accepted, expected a refusal with: {text}")


def fused_nvfp4(
    create: Callable[..., None], codes: str
) -> tuple[torch.nn.Module, list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]]:
    """A layer of 48 + 32 + 16 rows and 64 columns whose matrices have global scales that differ by factors of 4."""
    import torch

    layer, widths = torch.nn.Module(), [48, 32, 16]
    create(
        layer=layer,
        input_size_per_partition=64,
        output_partition_sizes=widths,
        input_size=64,
        output_size=96,
        params_dtype=torch.float16,
        weight_loader=lambda *_: None,
    )
    generator = torch.Generator().manual_seed(8)
    parts = [
        (*random_nvfp4(rows, 64, generator)[:2], torch.tensor(1e-4 * 4**index)) for index, rows in enumerate(widths)
    ]
    with torch.no_grad():
        getattr(layer, codes).copy_(torch.cat([part[0] for part in parts]))
        layer.weight_scale.copy_(torch.cat([part[1] for part in parts]))
    return layer, parts


def assert_layer(
    parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
    apply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    reciprocal: bool = False,
) -> None:
    import torch
    from vllm_volta import dequantize

    generator = torch.Generator().manual_seed(9)
    x, bias = activations((3,), 64, torch.float16, generator), torch.randn(96, generator=generator).half()
    factors = [1 / (1 / factor) if reciprocal else factor for *_, factor in parts]
    weight = torch.cat(
        [
            dequantize.nvfp4(packed, scale, f, torch.float16)
            for (packed, scale, _), f in zip(parts, factors, strict=True)
        ]
    )
    near(apply(x, bias), x, weight, bias)


class half_precision:
    """vLLM's configuration and PyTorch's default type as while a float16 model loads."""

    def __enter__(self) -> None:
        import torch
        from vllm.config import VllmConfig, set_current_vllm_config

        config = VllmConfig()
        object.__setattr__(config, "model_config", types.SimpleNamespace(dtype=torch.float16))
        self.context = set_current_vllm_config(config)
        self.context.__enter__()
        torch.set_default_dtype(torch.float16)

    def __exit__(self, *error: Any) -> None:
        import torch

        torch.set_default_dtype(torch.float32)
        self.context.__exit__(*error)


def fp8_method(settings: dict[str, Any], widths: list[int]) -> tuple[Any, torch.nn.Module]:
    """A linear method of fp8.py with our kernel, and a layer of 128 columns that it has prepared."""
    from vllm.model_executor.layers.quantization.fp8 import Fp8Config, Fp8LinearMethod

    with half_precision():
        return created(Fp8LinearMethod(Fp8Config.from_config({"quant_method": "fp8", **settings})), widths)


def created(method: Any, widths: list[int]) -> tuple[Any, torch.nn.Module]:
    import torch

    layer = torch.nn.Module()
    method.create_weights(layer, 128, widths, 128, sum(widths), torch.float16, weight_loader=lambda *_: None)
    return method, layer


def main() -> None:
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    import panel_checks  # type: ignore[import-not-found]
    from vllm_volta import plugin

    plugin.register()
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    found: dict[str, str | None] = {}
    with set_current_vllm_config(VllmConfig()), tempfile.NamedTemporaryFile() as meeting_point:
        init_distributed_environment(1, 0, f"file://{meeting_point.name}", 0, "gloo")
        initialize_model_parallel(1, 1)
        for name in json.loads(sys.argv[1]):
            try:
                {**CHECKS, **panel_checks.CHECKS}[name]()
            except Exception:  # noqa: BLE001
                found[name] = traceback.format_exc()
            else:
                found[name] = None
    json.dump(found, output)


if __name__ == "__main__":
    main()
