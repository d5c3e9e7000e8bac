"""NVFP4 linear layers whose weights stay 4-bit in memory and whose activations are not quantised."""

from __future__ import annotations

import torch
from vllm.logger import init_logger
from vllm.model_executor.kernels.linear import NvFp4LinearKernel, NvFp4LinearLayerConfig

from vllm_volta import compile_cache, layout, panels
from vllm_volta.dequantize import NVFP4_BLOCK
from vllm_volta.plugin import PANELS

logger = init_logger(f"vllm.{__name__}")


class VoltaNvFp4LinearKernel(NvFp4LinearKernel):
    """Serves compressed-tensors and ModelOpt NVFP4, with and without scales of activations (which it leaves aside).

    The weight is never whole in 16 bits: memory holds 4-bit codes and their block scales, as panels or as they were
    loaded (layout.py says when which), and at a call with many tokens one tile of it in floating point.
    """

    supports_a16 = True
    supports_shard_global_scales = True

    @classmethod
    def get_min_capability(cls) -> int:
        """The lowest compute capability that it runs on, as ten times major plus minor."""
        return 70

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None

    @classmethod
    def can_implement(cls, config: NvFp4LinearLayerConfig) -> tuple[bool, str | None]:
        return True, None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Check what was loaded and keep it, as panels where there are kernels for them.

        Raises ValueError when the scales do not fit the weight or are not numbers, and for new weights whose global
        scales are not those that CUDA graphs and compiled code of this layer hold.
        """
        name = getattr(layer, "prefix", "a layer")
        packed, block_scale = layer.weight.data, layer.weight_scale.data
        rows, columns = packed.shape[0], packed.shape[1] * 2
        if block_scale.shape != (rows, columns // NVFP4_BLOCK) or columns % NVFP4_BLOCK:
            raise ValueError(
                f"NVFP4 weight of {name}: {rows} x {columns} values need {rows} x {columns / NVFP4_BLOCK:g} block "
                f"scales (one for {NVFP4_BLOCK} columns), the checkpoint has {tuple(block_scale.shape)}"
            )
        global_scale = layer.weight_global_scale.data.to(torch.float32).reshape(-1)
        if global_scale.unique().numel() == 1:
            global_scale = global_scale[:1]
        widths = [rows] if len(global_scale) == 1 else list(layer.logical_widths)
        if len(widths) != len(global_scale):
            raise ValueError(f"NVFP4 weight of {name}: {len(widths)} fused matrices, {len(global_scale)} global scales")
        factors = global_scale * panels.NVFP4_UNIT
        if not (factors.isfinite().all() and block_scale.to(torch.float32).isfinite().all()):
            raise ValueError(f"NVFP4 weight of {name}: some scales are not finite numbers; the checkpoint is damaged")

        dtype = getattr(layer, "params_dtype", torch.float16)
        choice = layout.layout_for(packed, dtype, "nvfp4_panels")
        layer.volta_fragments = choice.fragments
        if choice.fragments is None:
            layer.weight = _parameter(packed.contiguous())
            layer.weight_scale = _parameter(block_scale.contiguous())
            layer.weight_global_scale = _parameter(global_scale.contiguous())
            layer.volta_widths = widths
            compile_cache.add_constants(layer, None, widths)
            logger.info_once(
                "NVFP4 weights stay 4-bit in memory and become floating point at each call, tile by tile: %s",
                choice.reason,
            )
            return

        counted = torch.tensor(widths, device=factors.device)
        matrices = widths, factors.tolist()
        _check_constants(layer, matrices, name)
        compile_cache.add_constants(layer, choice.fragments, *matrices)
        codes, scales = panels.nvfp4_panels(packed, block_scale, choice.fragments)
        layer.weight, layer.weight_scale = _parameter(codes), _parameter(scales)
        del layer.weight_global_scale
        layer.weight_row_scale = _parameter(factors.repeat_interleave(counted))
        layer.register_buffer("volta_arrivals", layout.new_arrivals(codes), persistent=False)
        layer.volta_shape = rows, columns
        layer.volta_widths, layer.volta_factors = matrices
        logger.info_once("NVFP4 weights stay 4-bit in memory, in %s", choice.reason)

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if layer.volta_fragments is None:
            return torch.ops.vllm_volta.nvfp4_linear(
                x, layer.weight, layer.weight_scale, layer.weight_global_scale, bias, layer.volta_widths
            )
        return torch.ops.vllm_volta.nvfp4_panel_linear(
            x,
            layer.weight,
            layer.weight_scale,
            layer.weight_row_scale,
            bias,
            layer.volta_arrivals,
            *layer.volta_shape,
            layer.volta_widths,
            layer.volta_factors,
            layer.volta_fragments,
        )


def _check_constants(layer: torch.nn.Module, matrices: tuple[list[int], list[float]], name: str) -> None:
    """vLLM can load new weights into a running engine; what graphs and compiled code hold then stays as it was."""
    before = getattr(layer, "volta_widths", None), getattr(layer, "volta_factors", None)
    if before[1] is None or before == matrices or layout.is_eager():
        return
    raise ValueError(
        f"NVFP4 weight of {name}: the new global scales differ from those that were loaded before, which CUDA graphs "
        f"and compiled code of this engine hold. Start it again, or serve with --enforce-eager or {PANELS}=0"
    )


def _parameter(data: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(data, requires_grad=False)
