"""FP8 linear layers whose weights stay 8-bit in memory and whose activations are not quantised."""

from __future__ import annotations

import torch
from vllm.logger import init_logger
from vllm.model_executor.kernels.linear import FP8ScaledMMLinearKernel, FP8ScaledMMLinearLayerConfig
from vllm.model_executor.layers.quantization.utils.w8a8_utils import convert_to_channelwise
from vllm.model_executor.utils import replace_parameter

from vllm_volta import compile_cache, layout, panels
from vllm_volta.layout import Layout

logger = init_logger(f"vllm.{__name__}")


class VoltaFp8LinearKernel(FP8ScaledMMLinearKernel):
    """Serves E4M3 weights with a scale for each block, each row or the whole matrix; scales of activations stay aside.

    The weight is never whole in 16 bits: memory holds 8-bit codes and their scales, as panels or as they were loaded
    (layout.py says when which), and at a call with many tokens one tile of it in floating point.
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
        """Give each row of a fused layer its own scale, check what was loaded, make panels where there are kernels.

        Raises ValueError when the scales do not fit the weight or are not numbers, or when panels cannot hold a value.
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
        scale = scale.contiguous()

        weight = self._weight(layer).data
        choice = self._layout(layer, weight)
        layer.volta_fragments = choice.fragments
        compile_cache.add_constants(layer, choice.fragments)
        if choice.fragments is None:
            replace_parameter(layer, "weight", layer.weight.data)
            replace_parameter(layer, name, scale)
            logger.info_once(
                "FP8 weights stay 8-bit in memory and become floating point at each call, tile by tile: %s",
                choice.reason,
            )
            return

        try:
            codes = panels.fp8_panels(weight, choice.fragments)
        except ValueError as error:
            raise ValueError(f"FP8 weight of {where}: {error}; the checkpoint is damaged") from None
        # vLLM makes the model's type the default one while it loads.
        ones = torch.ones(rows, dtype=torch.float32, device=scale.device)
        row_scale = (ones if block_n else ones * scale.reshape(-1)) * panels.FP8_UNIT
        if not row_scale.isfinite().all():
            raise ValueError(f"FP8 weight of {where}: some scales are too large; the checkpoint is damaged")
        replace_parameter(layer, "weight", codes)
        replace_parameter(layer, name, scale)
        replace_parameter(layer, "weight_row_scale", row_scale)
        layer.register_buffer("volta_arrivals", layout.new_arrivals(codes), persistent=False)
        layer.volta_shape = rows, columns
        layer.volta_block = block_n, block_k
        layer.volta_block_scale = name if block_n else None
        logger.info_once("FP8 weights stay 8-bit in memory, in %s", choice.reason)

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if getattr(layer, "volta_fragments", None) is None:
            return torch.ops.vllm_volta.fp8_linear(x, self._weight(layer), _scale_of(layer)[1], bias, *self.block)
        return torch.ops.vllm_volta.fp8_panel_linear(
            x,
            layer.weight,
            None if layer.volta_block_scale is None else getattr(layer, layer.volta_block_scale),
            layer.weight_row_scale,
            bias,
            layer.volta_arrivals,
            *layer.volta_shape,
            *layer.volta_block,
            layer.volta_fragments,
        )

    def apply_scaled_mm(self, **arguments: object) -> torch.Tensor:
        raise NotImplementedError("activations are not quantised: apply_weights does it all")

    def _layout(self, layer: torch.nn.Module, weight: torch.Tensor) -> Layout:
        """As panels where the weight and its blocks of scales can be cut into them."""
        (block_n, block_k), columns = self.block, weight.shape[1]
        if columns % 16:
            return Layout(None, f"panels need a multiple of 16 columns, some weights have {columns}")
        if block_n % panels.PANEL_ROWS or block_k % panels.PANEL_COLUMNS:
            blocks = f"{panels.PANEL_ROWS} x {panels.PANEL_COLUMNS}"
            return Layout(
                None, f"panels need scales of blocks of multiples of {blocks}, these are {block_n} x {block_k}"
            )
        return layout.layout_for(weight, getattr(layer, "params_dtype", torch.float16), "fp8_panels")

    def _weight(self, layer: torch.nn.Module) -> torch.Tensor:
        """The weight as [n, k]: vLLM keeps it so with blocks, and transposed without."""
        return layer.weight if self.block[0] else layer.weight.t()


def _scale_of(layer: torch.nn.Module) -> tuple[str, torch.Tensor]:
    """Name and tensor of the scale: with blocks some methods of vLLM call it weight_scale_inv."""
    name = "weight_scale_inv" if getattr(layer, "weight_scale_inv", None) is not None else "weight_scale"
    return name, getattr(layer, name)
