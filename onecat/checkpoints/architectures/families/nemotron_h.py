"""Nemotron-H and Nemotron 3: layers of Mamba 2, of attention and of experts, each with a single purpose."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.description import MOST_LAYERS, common
from onecat.checkpoints.architectures.mamba import Mamba2
from onecat.checkpoints.architectures.mixtures import of_part, router, score_correction
from onecat.checkpoints.architectures.records import Architecture, Experts, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family

MAMBA, ATTENTION, EXPERTS, PLAIN = "M", "*", "E", "-"
"""Kinds of layers in `hybrid_override_pattern`. Source: vllm 0.27.1, vllm/model_executor/models/nemotron_h.py."""

WORDS = {
    "mamba": MAMBA, "linear_attention": MAMBA, "attention": ATTENTION, "full_attention": ATTENTION, "moe": EXPERTS,
    "mlp": PLAIN,
}  # fmt: skip
"""The same kinds in `layers_block_type`. Source: transformers' configuration_nemotron_h.py."""


@family("NemotronHForCausalLM")
def nemotron_h(configuration: Configuration) -> Architecture:
    """Source: vllm 0.27.1, vllm/model_executor/models/nemotron_h.py and nemotron_h_mtp.py."""
    base = common(configuration)
    pattern = _pattern(configuration)
    layers, hidden = len(pattern), configuration.positive("hidden_size")
    heads, key_value_heads = (
        configuration.positive("num_attention_heads"),
        configuration.positive("num_key_value_heads"),
    )
    head = configuration.positive("head_dim", "attention_head_dim", default=hidden // heads)
    mamba = _mamba(configuration, hidden)
    draft_pattern = _kinds(configuration, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    drafts = draft_pattern * configuration.count("num_nextn_predict_layers")
    mixed = tuple(index for index, kind in enumerate(pattern) if kind == EXPERTS)

    def layer_weights(name: str, layer: int, kind: str) -> Iterator[Weight]:
        yield weights.norm(f"{name}.norm", hidden, layer)
        mixer = f"{name}.mixer"
        if kind == MAMBA:
            yield from mamba.weights(mixer, layer)
        elif kind == ATTENTION:
            yield from weights.attention(mixer, layer, hidden, heads, key_value_heads, head)
        elif kind == EXPERTS:
            yield from _mixture(configuration, mixer, layer, hidden)
        else:
            yield from _plain(mixer, layer, hidden, configuration.positive("intermediate_size"))

    def draft_weights() -> Iterator[Weight]:
        for index, kind in enumerate(drafts):
            name, layer = f"mtp.layers.{index}", layers + index
            if index % len(draft_pattern) == 0:
                yield from weights.norms(f"{name}.", ("enorm", "hnorm"), hidden, layer)
                yield from weights.linear(f"{name}.eh_proj", hidden, 2 * hidden, layer)
            yield from layer_weights(name, layer, kind)
            if (index + 1) % len(draft_pattern) == 0:
                yield weights.norm(f"{name}.final_layernorm", hidden, layer)

    def parameters() -> Iterator[Weight]:
        vocabulary = configuration.positive("vocab_size")
        yield Weight("backbone.embeddings.weight", (vocabulary, hidden), "embedding")
        if not base.tied_embeddings:
            yield Weight("lm_head.weight", (vocabulary, hidden), "head")
        for layer, kind in enumerate(pattern):
            yield from layer_weights(f"backbone.layers.{layer}", layer, kind)
        yield weights.norm("backbone.norm_f", hidden)
        yield from of_part("draft", draft_weights())

    def attending(kinds: str, first: int) -> KeyValueLayers:
        indices = tuple(first + index for index, kind in enumerate(kinds) if kind == ATTENTION)
        window = configuration.optional("sliding_window")
        return KeyValueLayers(indices, heads, key_value_heads, head, head, window)

    caches = attending(pattern, 0), mamba.cache(tuple(index for index, kind in enumerate(pattern) if kind == MAMBA))
    return base.replaced(
        layers=layers,
        head_size=head,
        intermediate_size=base.intermediate_size if PLAIN in pattern else _shared(configuration),
        caches=tuple(each for each in caches if each.layers),
        draft_caches=tuple(each for each in (attending(drafts, layers),) if each.layers),
        weights=tuple(parameters()),
        experts=_experts(configuration, mixed) if mixed else None,
    )


def _pattern(configuration: Configuration) -> str:
    """One letter for each layer."""
    pattern = _kinds(configuration, "hybrid_override_pattern", "layers_block_type")
    layers = configuration.integer("num_hidden_layers", default=len(pattern))
    if len(pattern) != layers or layers > MOST_LAYERS or set(pattern) - set(WORDS.values()):
        raise IncompleteConfiguration(f"`hybrid_override_pattern` in config.json does not tell {layers} layers")
    return pattern


def _kinds(configuration: Configuration, letters: str, words: str) -> str:
    return configuration.word(letters) or "".join(WORDS.get(word, "?") for word in configuration.words(words))


def _mamba(configuration: Configuration, hidden: int) -> Mamba2:
    """vLLM keeps the recurrent state in float32 unless the configuration says otherwise.

    Source: vllm 0.27.1, vllm/model_executor/models/config.py (NemotronHForCausalLMConfig).
    """
    return Mamba2(
        hidden,
        configuration.positive("mamba_num_heads"),
        configuration.positive("mamba_head_dim"),
        configuration.positive("n_groups"),
        configuration.positive("ssm_state_size"),
        configuration.positive("conv_kernel", default=4),
        configuration.flag("use_bias"),
        configuration.flag("use_conv_bias", True),
        configuration.state_dtype("mamba_ssm_cache_dtype") or "float32",
        chunk=configuration.optional("mamba_chunk_size", "chunk_size") or None,
    )


def _shared(configuration: Configuration) -> int:
    size = configuration.count("moe_shared_expert_intermediate_size")
    return size * configuration.count("n_shared_experts")


def _experts(configuration: Configuration, layers: tuple[int, ...]) -> Experts:
    return Experts(
        layers,
        configuration.positive("n_routed_experts"),
        configuration.positive("num_experts_per_tok"),
        configuration.positive("moe_intermediate_size"),
        _shared(configuration),
    )


def _mixture(configuration: Configuration, prefix: str, layer: int, hidden: int) -> Iterator[Weight]:
    """Experts without a gate; they may work in a smaller space (`moe_latent_size`) that two projections lead to."""
    count, inner = configuration.positive("n_routed_experts"), configuration.positive("moe_intermediate_size")
    latent, shared = configuration.count("moe_latent_size"), _shared(configuration)
    yield from router(f"{prefix}.gate", count, hidden, layer)
    yield score_correction(f"{prefix}.gate", count, layer)
    yield from _plain(f"{prefix}.experts.*", layer, latent or hidden, inner, count)
    if shared:
        yield from _plain(f"{prefix}.shared_experts", layer, hidden, shared)
    if latent:
        yield from weights.linear(f"{prefix}.fc1_latent_proj", latent, hidden, layer)
        yield from weights.linear(f"{prefix}.fc2_latent_proj", hidden, latent, layer)


def _plain(prefix: str, layer: int, hidden: int, inner: int, count: int = 1) -> Iterator[Weight]:
    yield from weights.linear(f"{prefix}.up_proj", inner, hidden, layer, count=count)
    yield from weights.linear(f"{prefix}.down_proj", hidden, inner, layer, count=count)
