"""FP8 linear layers whose weights stay 8-bit in memory and whose activations are not quantised."""

from __future__ import annotations

import torch
from vllm.logger import init_logger
from vllm.model_executor.kernels.linear import FP8ScaledMMLinearKernel, FP8ScaledMMLinearLayerConfig
from vllm.model_executor.layers.quantization.utils.w8a8_utils import convert_to_channelwise
from vllm.model_executor.utils import replace_parameter

import vllm_volta.ops  # noqa: F401 - defines torch.ops.vllm_volta

logger = init_logger(f"vllm.{__name__}")


class VoltaFp8LinearKernel(FP8ScaledMMLinearKernel):
    """Serves E4M3 weights with a scale for each block, each row or the whole matrix; scales of activations stay aside.

    The weight is dequantised at each call, a tile at a time: memory holds the 8-bit codes, their scales and one tile
    (ops.TILE_ELEMENTS), never the whole weight in 16 bits.
    """

    weight_only = True

    @classmethod
    def get_min_capability(cls) -> int:
        """The lowest compute capability that it runs on, as ten times major plus minor."""
        return 70

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None

    @classmethod
    def can_implement(cls, c: FP8ScaledMMLinearLayerConfig) -> tuple[bool, str | None]:
        if c.weight_quant_key.dtype != torch.float8_e4m3fn:
            return False, f"needs weights in float8_e4m3fn, not {c.weight_quant_key.dtype}"
        return True, None

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns that share a scale; 0 and 0 for one of each row or of the whole matrix."""
        rows, columns = self.config.weight_quant_key.scale.group_shape
        return (rows, columns) if rows > 0 and columns > 1 else (0, 0)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Give each row of a fused layer its own scale, and check the scales.

        Raises ValueError when the scales do not fit the weight or are not numbers.
        """
        name, scale = _scale_of(layer)
        scale = scale.data.to(torch.float32)
        rows, columns = self._weight(layer).shape
        block_n, block_k = self.block
        if block_n:
            expected = (-(-rows // block_n), -(-columns // block_k))
            fits = tuple(scale.shape) == expected
        else:
            if 1 < scale.numel() == len(layer.logical_widths) != rows:
                scale = convert_to_channelwise(scale.reshape(-1), layer.logical_widths)
            expected = (rows, 1)
            fits = scale.numel() in (1, rows)
        where = getattr(layer, "prefix", "a layer")
        if not fits:
            raise ValueError(
                f"FP8 weight of {where}: {rows} x {columns} values need {expected[0]} x {expected[1]} scales, the "
                f"checkpoint has {tuple(scale.shape)}"
            )
        if not scale.isfinite().all():
            raise ValueError(f"FP8 weight of {where}: some scales are not finite numbers; the checkpoint is damaged")
        replace_parameter(layer, "weight", layer.weight.data)
        replace_parameter(layer, name, scale.contiguous())
        logger.info_once("FP8 weights stay 8-bit in memory and become floating point at each call, tile by tile")

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return torch.ops.vllm_volta.fp8_linear(x, self._weight(layer), _scale_of(layer)[1], bias, *self.block)

    def apply_scaled_mm(self, **arguments: object) -> torch.Tensor:
        raise NotImplementedError("activations are not quantised: apply_weights does it all")

    def _weight(self, layer: torch.nn.Module) -> torch.Tensor:
        """The weight as [n, k]: vLLM keeps it so with blocks, and transposed without."""
        return layer.weight if self.block[0] else layer.weight.t()


def _scale_of(layer: torch.nn.Module) -> tuple[str, torch.Tensor]:
    """Name and tensor of the scale: with blocks some methods of vLLM call it weight_scale_inv."""
    name = "weight_scale_inv" if getattr(layer, "weight_scale_inv", None) is not None else "weight_scale"
    return name, getattr(layer, name)
