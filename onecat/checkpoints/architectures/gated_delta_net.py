"""Gated delta net: linear attention that keeps a state for each sequence (Qwen3-Next, Qwen3.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.records import State, StateLayers, Weight


@dataclass(frozen=True)
class GatedDeltaNet:
    """Sizes in elements. kernel: tokens that the convolution sees. state_dtype: None for the model's own."""

    hidden: int
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    kernel: int
    state_dtype: str | None

    @classmethod
    def of(cls, configuration: Configuration) -> GatedDeltaNet:
        """By the names of Qwen3-Next's configuration."""
        return cls(
            configuration.positive("hidden_size"),
            configuration.positive("linear_num_key_heads"),
            configuration.positive("linear_num_value_heads"),
            configuration.positive("linear_key_head_dim"),
            configuration.positive("linear_value_head_dim"),
            configuration.positive("linear_conv_kernel_dim", default=4),
            configuration.state_dtype("mamba_ssm_dtype"),
        )

    @property
    def convolved(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_size + self.value_heads * self.value_size

    def weights(self, prefix: str, layer: int, *, fused: bool) -> Iterator[Weight]:
        """The parameters of one layer. fused: as Qwen3-Next stores its projections, not as Qwen3.5 does.

        Source: transformers' modeling_qwen3_next.py and modeling_qwen3_5.py.
        """
        values = self.value_heads * self.value_size
        if fused:
            yield from weights.linear(f"{prefix}.in_proj_qkvz", self.convolved + values, self.hidden, layer)
            yield from weights.linear(f"{prefix}.in_proj_ba", 2 * self.value_heads, self.hidden, layer)
        else:
            yield from weights.linear(f"{prefix}.in_proj_qkv", self.convolved, self.hidden, layer)
            yield from weights.linear(f"{prefix}.in_proj_z", values, self.hidden, layer)
            yield from weights.linear(f"{prefix}.in_proj_b", self.value_heads, self.hidden, layer)
            yield from weights.linear(f"{prefix}.in_proj_a", self.value_heads, self.hidden, layer)
        yield Weight(f"{prefix}.conv1d.weight", (self.convolved, 1, self.kernel), "convolution", layer)
        yield Weight(f"{prefix}.dt_bias", (self.value_heads,), "state", layer)
        yield Weight(f"{prefix}.A_log", (self.value_heads,), "state", layer)
        yield weights.norm(f"{prefix}.norm", self.value_size, layer)
        yield from weights.linear(f"{prefix}.out_proj", self.hidden, values, layer)

    def cache(self, layers: tuple[int, ...]) -> StateLayers:
        """What these layers keep.

        Source: vllm 0.27.1, vllm/model_executor/layers/mamba/mamba_utils.py (gated_delta_net_state_shape), and
        vllm/model_executor/models/config.py (Qwen3_5ForConditionalGenerationConfig: the recurrent state's dtype).
        """
        convolution = State("convolution", (self.kernel - 1, self.convolved), divided=1, grows=0)
        recurrent = (self.value_heads, self.value_size, self.key_size)
        return StateLayers(layers, "gated-delta-net", (convolution, State("recurrent", recurrent, 0, self.state_dtype)))
