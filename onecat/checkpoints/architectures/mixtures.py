"""Mixtures of experts by the names that checkpoints of the Hugging Face layout use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.records import Part, Weight

ExpertWeights = Callable[[str, int, int, int, int], Iterator[Weight]]
"""Experts of a layer, from the prefix, the layer, hidden size, intermediate size of one expert and their number."""


def router(name: str, experts: int, hidden: int, layer: int, *, bias: bool = False) -> Iterator[Weight]:
    """The gate [experts, hidden] that chooses experts for a token, and its bias [experts]."""
    yield Weight(f"{name}.weight", (experts, hidden), "router", layer)
    if bias:
        yield Weight(f"{name}.bias", (experts,), "bias", layer)


def score_correction(name: str, experts: int, layer: int) -> Weight:
    """What is added to the experts' scores when they are chosen [experts], in float32 whatever the model's dtype.

    Source: headers of zai-org/GLM-4.5-Air (45 in F32, and 213,704,514,048 bytes with the rest in BF16) and of
    nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4, as https://github.com/mudler/vllm.cpp keeps them
    (tests/vllm/models/fixtures/nemotron_h_35_lightning/index.json).
    """
    return Weight(f"{name}.e_score_correction_bias", (experts,), "bias", layer, dtype="F32")


def fused_experts(prefix: str, layer: int, hidden: int, inner: int, count: int) -> Iterator[Weight]:
    """`gate_up_proj` and `down_proj` that each hold all experts of a layer in one tensor."""
    yield Weight(f"{prefix}.gate_up_proj", (2 * inner, hidden), "linear", layer, count)
    yield Weight(f"{prefix}.down_proj", (hidden, inner), "linear", layer, count)


def separate_experts(prefix: str, layer: int, hidden: int, inner: int, count: int) -> Iterator[Weight]:
    """gate_proj, up_proj and down_proj of each expert."""
    yield from weights.gated_mlp(f"{prefix}.*", layer, hidden, inner, count)


def numbered_experts(prefix: str, layer: int, hidden: int, inner: int, count: int) -> Iterator[Weight]:
    """w1 (gate), w2 (down) and w3 (up) of each expert, the names of Mixtral."""
    for name, shape in (("w1", (inner, hidden)), ("w2", (hidden, inner)), ("w3", (inner, hidden))):
        yield Weight(f"{prefix}.*.{name}.weight", shape, "linear", layer, count)


def experts_as_published(configuration: Configuration) -> ExpertWeights:
    """How families whose experts are one tensor store them: quantised checkpoints have a module for each expert.

    Source: https://github.com/ml-explore/mlx-lm/pull/1224 (Qwen3.6-35B-A3B: one tensor in bfloat16, 30,720 experts'
    matrices in FP8).
    """
    return fused_experts if configuration.part("quantization_config") is None else separate_experts


def grouped_router_mixture(
    prefix: str, layer: int, hidden: int, inner: int, count: int, shared: int, *,
    correction_bias: bool = True, experts_of_layer: ExpertWeights = separate_experts,
) -> Iterator[Weight]:  # fmt: skip
    """The mixture of DeepSeek-V2 and V3, which GLM, Kimi and others took over.

    Parameters:
        inner, shared: intermediate sizes of one routed expert and of all shared experts together (0 for none).

    Source: transformers' modeling_deepseek_v3.py (DeepseekV3MoE, DeepseekV3TopkRouter).
    """
    yield from router(f"{prefix}.gate", count, hidden, layer)
    if correction_bias:
        yield score_correction(f"{prefix}.gate", count, layer)
    yield from experts_of_layer(f"{prefix}.experts", layer, hidden, inner, count)
    if shared:
        yield from weights.gated_mlp(f"{prefix}.shared_experts", layer, hidden, shared)


def shared_gate_mixture(
    prefix: str, layer: int, hidden: int, inner: int, count: int, shared: int,
    experts_of_layer: ExpertWeights = separate_experts,
) -> Iterator[Weight]:  # fmt: skip
    """The mixture of Qwen2-MoE, which Qwen3.5 has too: a gate of its own weighs the shared expert.

    Parameters:
        inner, shared: intermediate sizes of one routed expert and of the shared one (0 for none).

    Source: transformers' modeling_qwen2_moe.py (Qwen2MoeSparseMoeBlock).
    """
    yield from router(f"{prefix}.gate", count, hidden, layer)
    yield from experts_of_layer(f"{prefix}.experts", layer, hidden, inner, count)
    if shared:
        yield from weights.gated_mlp(f"{prefix}.shared_expert", layer, hidden, shared)
        yield Weight(f"{prefix}.shared_expert_gate.weight", (1, hidden), "router", layer)


def granite_mixture(prefix: str, layer: int, hidden: int, inner: int, count: int) -> Iterator[Weight]:
    """The mixture of Granite 3 and 4, whose experts of a layer are one tensor.

    Source: transformers' modeling_granitemoe.py; vllm 0.27.1, vllm/model_executor/models/granitemoe.py
    (`load_weights`: the names of checkpoints).
    """
    yield from router(f"{prefix}.router.layer", count, hidden, layer)
    yield Weight(f"{prefix}.input_linear.weight", (2 * inner, hidden), "linear", layer, count)
    yield Weight(f"{prefix}.output_linear.weight", (hidden, inner), "linear", layer, count)


def of_part(part: Part, members: Iterable[Weight]) -> Iterator[Weight]:
    """The same weights, told to be of a part."""
    return (replace(each, part=part) for each in members)


def layers_after_dense(configuration: Configuration, layers: int) -> tuple[int, ...]:
    """Layers with experts by `first_k_dense_replace` and `moe_layer_freq`, which may be a list of 0 and 1.

    `mlp_layer_types` decides where it is stated: transformers from 5 writes it in place of both.
    """
    kinds = configuration.words("mlp_layer_types")
    if kinds:
        return tuple(index for index, kind in enumerate(kinds[:layers]) if kind == "sparse")
    frequency = configuration.text.get("moe_layer_freq", 1)
    if isinstance(frequency, list):
        return tuple(index for index, each in enumerate(frequency[:layers]) if each)
    first = configuration.count("first_k_dense_replace")
    step = frequency if type(frequency) is int and frequency > 0 else 1
    return tuple(index for index in range(layers) if index >= first and index % step == 0)


def layers_by_step(configuration: Configuration, layers: int) -> tuple[int, ...]:
    """Layers with experts by `decoder_sparse_step` and `mlp_only_layers`."""
    step = configuration.integer("decoder_sparse_step", default=1)
    stated = configuration.text.get("mlp_only_layers")
    excluded = {each for each in stated if type(each) is int} if isinstance(stated, list) else set()
    return tuple(index for index in range(layers) if index not in excluded and step > 0 and (index + 1) % step == 0)
