"""Layers whose values are their keys: the checkpoint holds one projection, the engine two."""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.checkpoints.architectures import describe
from onecat.planner.memory.parameters import parameters

TEXT = {
    "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 4, "head_dim": 16,
    "global_head_dim": 32, "num_key_value_heads": 2, "num_global_key_value_heads": 1, "vocab_size": 512,
    "hidden_size_per_layer_input": 0, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip


def held(keys_as_values: bool) -> list[str]:
    config = {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "text_config": {**TEXT, "attention_k_eq_v": keys_as_values},
    }
    checkpoint = Checkpoint("there", describe(config))
    names = (each.row.name.rpartition("layers.")[2] for each in parameters(checkpoint))
    return sorted(name for name in names if "k_proj" in name or "v_proj" in name)


def test_the_keys_of_global_layers_of_gemma_4_are_held_in_the_place_of_values_too() -> None:
    assert held(True) == [
        "0.self_attn.k_proj.weight", "0.self_attn.v_proj.weight", "1.self_attn.k_proj.weight",
        "1.self_attn.k_proj.weight",
    ]  # fmt: skip


def test_layers_with_values_of_their_own_hold_each_once() -> None:
    assert held(False) == [f"{layer}.self_attn.{name}_proj.weight" for layer in (0, 1) for name in "kv"]
