"""How the weights of a checkpoint are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class WeightScheme:
    """The storage of one linear weight.

    name: stable: `nvfp4`, `mxfp4`, `mxfp8`, `fp8-tensor`, `fp8-channel`, `fp8-block`, `int4`, `int8`, `nf4`, `fp4`, ...
    bits: of one element. group_size: elements along in_features that share a scale; block: [out, in] that share one.
    scale_dtype: as safetensors names it (`F8_E4M3`, `BF16`). activations: what they are turned into, None for none
    (A16). zero_points: asymmetric. packed: elements in one stored number.
    """

    name: str
    bits: int
    group_size: int | None = None
    block: tuple[int, int] | None = None
    scale_dtype: str | None = None
    activations: str | None = None
    zero_points: bool = False
    packed: int = 1


@dataclass(frozen=True)
class Rule:
    """A scheme for the modules that `matches` accepts. stated: the pattern as the configuration writes it."""

    stated: str
    matches: Callable[[str], bool]
    scheme: WeightScheme | None


@dataclass(frozen=True)
class Quantization:
    """What the configuration claims of the storage of the weights.

    scheme: that of most weights, `mixed` when there are several. container: `compressed-tensors`, `modelopt`, `fp8`,
    `awq`, `gptq`, `bitsandbytes`, ...; method: the engines' name for it, what `--quantization` would be; format: the
    `format` of compressed-tensors. group_size: of the scheme. ignored: modules left as they were, as stated.
    kv_cache: `fp8` where the checkpoint asks for such a KV cache, so that the engine's `auto` becomes it.
    rules: the first that matches a module says how it is stored; a module that none matches is not quantised.
    """

    scheme: str
    container: str
    method: str
    format: str | None = None
    group_size: int | None = None
    ignored: tuple[str, ...] = ()
    kv_cache: str | None = None
    rules: tuple[Rule, ...] = ()

    def scheme_of(self, module: str) -> WeightScheme | None:
        """How the weight of a module (`model.layers.0.mlp.down_proj`) is stored; None for as it was."""
        return next((rule.scheme for rule in self.rules if rule.matches(module)), None)
