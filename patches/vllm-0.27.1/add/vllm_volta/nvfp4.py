"""NVFP4 linear layers whose weights stay 4-bit in memory and whose activations are not quantised."""

from __future__ import annotations

import torch
from vllm.logger import init_logger
from vllm.model_executor.kernels.linear import NvFp4LinearKernel, NvFp4LinearLayerConfig

import vllm_volta.ops  # noqa: F401 - defines torch.ops.vllm_volta
from vllm_volta.dequantize import NVFP4_BLOCK

logger = init_logger(f"vllm.{__name__}")


class VoltaNvFp4LinearKernel(NvFp4LinearKernel):
    """Serves compressed-tensors and ModelOpt NVFP4, with and without scales of activations (which it leaves aside).

    The weight is dequantised at each call, a tile at a time: memory holds the 4-bit codes, their block scales and one
    tile (ops.TILE_ELEMENTS), never the whole weight in 16 bits.
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
        """Check what was loaded and keep it as it is.

        Raises ValueError when the scales do not fit the weight or are not numbers.
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
        if not (global_scale.isfinite().all() and block_scale.to(torch.float32).isfinite().all()):
            raise ValueError(f"NVFP4 weight of {name}: some scales are not finite numbers; the checkpoint is damaged")

        layer.weight = torch.nn.Parameter(packed.contiguous(), requires_grad=False)
        layer.weight_scale = torch.nn.Parameter(block_scale.contiguous(), requires_grad=False)
        layer.weight_global_scale = torch.nn.Parameter(global_scale.contiguous(), requires_grad=False)
        layer.volta_widths = widths
        logger.info_once("NVFP4 weights stay 4-bit in memory and become floating point at each call, tile by tile")

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return torch.ops.vllm_volta.nvfp4_linear(
            x, layer.weight, layer.weight_scale, layer.weight_global_scale, bias, layer.volta_widths
        )
