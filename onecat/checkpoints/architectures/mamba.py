"""Mamba 1 and 2: layers with a state of fixed size for each sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.records import State, StateLayers, Weight


@dataclass(frozen=True)
class Mamba2:
    """Sizes in elements. kernel: tokens that the convolution sees. state_dtype: None for the model's own.

    gate_norm: there is a norm before the output. speculates: its engine keeps the convolution's inputs of speculative
    tokens too. chunk: tokens that the scan works on at once.
    """

    hidden: int
    heads: int
    head_size: int
    groups: int
    state_size: int
    kernel: int
    bias: bool = False
    convolution_bias: bool = True
    state_dtype: str | None = None
    gate_norm: bool = True
    speculates: bool = True
    chunk: int | None = None

    @property
    def inner(self) -> int:
        """Elements of all heads."""
        return self.heads * self.head_size

    @property
    def convolved(self) -> int:
        """Channels of the convolution: the input, and B and C of each group."""
        return self.inner + 2 * self.groups * self.state_size

    def weights(self, prefix: str, layer: int) -> Iterator[Weight]:
        """The parameters of one layer.

        Source: transformers' modeling_nemotron_h.py and modeling_bamba.py.
        """
        rows = self.inner + self.convolved + self.heads
        yield from weights.linear(f"{prefix}.in_proj", rows, self.hidden, layer, bias=self.bias)
        yield Weight(f"{prefix}.conv1d.weight", (self.convolved, 1, self.kernel), "convolution", layer)
        if self.convolution_bias:
            yield Weight(f"{prefix}.conv1d.bias", (self.convolved,), "bias", layer)
        for name in ("dt_bias", "A_log", "D"):
            yield Weight(f"{prefix}.{name}", (self.heads,), "state", layer)
        if self.gate_norm:
            yield weights.norm(f"{prefix}.norm", self.inner, layer)
        yield from weights.linear(f"{prefix}.out_proj", self.hidden, self.inner, layer, bias=self.bias)

    def cache(self, layers: tuple[int, ...]) -> StateLayers:
        """What these layers keep. B and C of a group are on each rank that has one of its heads.

        Source: vllm 0.27.1, vllm/model_executor/layers/mamba/mamba_utils.py (mamba2_state_shape).
        """
        convolution = State(
            "convolution", (self.kernel - 1, self.convolved), 1,
            grows=0 if self.speculates else None, groups=self.groups, group_size=2 * self.state_size,
        )  # fmt: skip
        recurrent = State("recurrent", (self.heads, self.head_size, self.state_size), 0, self.state_dtype)
        return StateLayers(layers, "mamba2", (convolution, recurrent), self.chunk)


@dataclass(frozen=True)
class Mamba1:
    """Sizes in elements. inner: channels; kernel: tokens that the convolution sees; rank: of the step's projection."""

    hidden: int
    inner: int
    state_size: int
    kernel: int
    rank: int
    bias: bool = False
    convolution_bias: bool = True

    def weights(self, prefix: str, layer: int) -> Iterator[Weight]:
        """The parameters of one layer, with the norms of Jamba.

        Source: transformers' modeling_jamba.py (JambaMambaMixer).
        """
        yield from weights.linear(f"{prefix}.in_proj", 2 * self.inner, self.hidden, layer, bias=self.bias)
        yield Weight(f"{prefix}.conv1d.weight", (self.inner, 1, self.kernel), "convolution", layer)
        if self.convolution_bias:
            yield Weight(f"{prefix}.conv1d.bias", (self.inner,), "bias", layer)
        yield from weights.linear(f"{prefix}.x_proj", self.rank + 2 * self.state_size, self.inner, layer)
        yield from weights.linear(f"{prefix}.dt_proj", self.inner, self.rank, layer, bias=True)
        yield Weight(f"{prefix}.A_log", (self.inner, self.state_size), "state", layer)
        yield Weight(f"{prefix}.D", (self.inner,), "state", layer)
        yield from weights.linear(f"{prefix}.out_proj", self.hidden, self.inner, layer, bias=self.bias)
        yield weights.norm(f"{prefix}.dt_layernorm", self.rank, layer)
        yield from weights.norms(f"{prefix}.", ("b_layernorm", "c_layernorm"), self.state_size, layer)

    def cache(self, layers: tuple[int, ...]) -> StateLayers:
        """What these layers keep.

        Source: vllm 0.27.1, vllm/model_executor/layers/mamba/mamba_utils.py (mamba1_state_shape).
        """
        convolution = State("convolution", (self.kernel - 1, self.inner), 1)
        return StateLayers(layers, "mamba1", (convolution, State("recurrent", (self.inner, self.state_size), 0)))
