"""How the weights of a checkpoint are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from onecat.checkpoints.architectures.records import Part, Weight, WeightKind
from onecat.checkpoints.quantization.matching import Matching, ModuleIndex


@dataclass(frozen=True)
class WeightScheme:
    """The storage of one linear weight.

    name: stable: `nvfp4`, `mxfp4`, `mxfp8`, `fp8-tensor`, `fp8-channel`, `fp8-block`, `int4`, `int8`, `nf4`, `fp4`, ...
    bits: of one element. group_size: elements along in_features that share a scale; block: [out, in] that share one.
    scale_dtype: as safetensors names it (`F8_E4M3`, `BF16`), None where it is the model's. activations: what they are
    turned into, None for none (A16). zero_points: asymmetric. packed: elements in one stored number.
    input_scale: a scale for activations is stored too. ordered: groups follow an order of columns that is stored.
    format: variant of the container's layout that these tensors have.
    """

    name: str
    bits: int
    group_size: int | None = None
    block: tuple[int, int] | None = None
    scale_dtype: str | None = None
    activations: str | None = None
    zero_points: bool = False
    packed: int = 1
    input_scale: bool = False
    ordered: bool = False
    format: str | None = None


MATRICES: tuple[WeightKind, ...] = ("linear", "head")
"""What a rule for all linear modules touches. Engines never quantise routers: their gates have no quantisation of
their own (quant_config=None of the gates in vllm/model_executor/models)."""

LINEAR: tuple[WeightKind, ...] = ("linear",)
"""What methods touch that never quantise the output head."""

PARTS: tuple[Part, ...] = ("language", "vision", "audio", "draft")


@dataclass(frozen=True)
class Rule:
    """A scheme for the modules that a pattern covers, None for those left as they were.

    stated: the pattern as the configuration writes it. matching: how it is compared with a module's name.
    kinds, parts: of the weights it touches; a rule that names one module in full touches whatever it names.
    """

    stated: str
    scheme: WeightScheme | None
    matching: Matching = "name"
    kinds: tuple[WeightKind, ...] = MATRICES
    parts: tuple[Part, ...] = PARTS

    def matches(self, module: str) -> bool:
        """Whether the pattern covers a module (`model.layers.0.mlp.down_proj`)."""
        return ModuleIndex(((self.stated, self.matching),)).find(module) is not None


@dataclass(frozen=True)
class Quantization:
    """What the configuration claims of the storage of the weights.

    scheme: that of most weights, `mixed` when there are several, `unknown` for a method that onecat does not know.
    container: `compressed-tensors`, `modelopt`, `fp8`, `awq`, `gptq`, `bitsandbytes`, ...; method: the engines' name
    for it, what `--quantization` would be; format: the `format` of compressed-tensors. group_size: of the scheme.
    ignored: modules left as they were, as stated. kv_cache: `fp8` (or `nvfp4`) where the checkpoint asks for such
    a KV cache, so that the engine's `auto` becomes it.
    rules: the first that matches a module says how it is stored; a module that none matches is not quantised.
    stated_in: the file that claims all this.
    """

    scheme: str
    container: str
    method: str
    format: str | None = None
    group_size: int | None = None
    ignored: tuple[str, ...] = ()
    kv_cache: str | None = None
    rules: tuple[Rule, ...] = ()
    stated_in: str = field(default="config.json", compare=False)

    def scheme_of(self, module: str, kind: WeightKind = "linear", part: Part = "language") -> WeightScheme | None:
        """How the weight of a module (`model.layers.0.mlp.down_proj`) is stored; None for as it was.

        Parameters:
            module: with `*` for the expert's number.
        """
        if kind not in ("linear", "head", "router", "embedding"):
            return None
        asked = (module, kind, part)
        if asked not in self._answers:
            self._answers[asked] = self._look_up(module, kind, part)
        return self._answers[asked]

    def scheme_for(self, weight: Weight) -> WeightScheme | None:
        """How a weight of the architecture is stored; None for as it was."""
        return self.scheme_of(weight.name.removesuffix(".weight"), weight.kind, weight.part)

    @property
    def schemes(self) -> tuple[WeightScheme, ...]:
        """All schemes of the rules, in their order, each once."""
        return tuple(dict.fromkeys(rule.scheme for rule in self.rules if rule.scheme is not None))

    def _look_up(self, module: str, kind: WeightKind, part: Part) -> WeightScheme | None:
        position = -1
        while (found := self._index.find(module, position + 1)) is not None:
            position = found
            rule = self.rules[position]
            if rule.scheme is None or rule.matching == "name" or (kind in rule.kinds and part in rule.parts):
                return rule.scheme
        return None

    @cached_property
    def _index(self) -> ModuleIndex:
        return ModuleIndex(tuple((rule.stated, rule.matching) for rule in self.rules))

    @cached_property
    def _answers(self) -> dict[tuple[str, WeightKind, Part], WeightScheme | None]:
        return {}
