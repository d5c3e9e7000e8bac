"""What of an adapter_config.json is merged, and that all else is refused by its name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from onecat.errors import OnecatError
from onecat.nvfp4.adapters.names import read_name
from onecat.nvfp4.adapters.settings import read_settings


def read(**fields: Any) -> Any:
    return read_settings({"peft_type": "LORA", **fields}, "adapter_config.json")


def test_scales_by_alpha_over_rank_or_its_root() -> None:
    assert read(r=16, lora_alpha=8).scaling("q_proj") == (16, 0.5)
    assert read(r=16, lora_alpha=8, use_rslora=True).scaling("q_proj") == (16, 2.0)
    patterns = {"rank_pattern": {"^a.q_proj": 2, "q_proj": 4}, "alpha_pattern": {r"b\..*": 3}}
    assert read(r=16, lora_alpha=8, **patterns).scaling("a.q_proj") == (2, 4.0)
    assert read(r=16, lora_alpha=8, **patterns).scaling("b.a.q_proj") == (4, 0.75)
    assert read(r=16, lora_alpha=8, **patterns).scaling("c.xq_proj") == (16, 0.5)
    assert read(use_rslora=True).scaling("x") == (8, 8 / math.sqrt(8))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"peft_type": "LOHA"}, "LOHA"),
        ({"peft_type": None}, "peft_type is missing"),
        ({"target_parameters": ["experts.gate_up_proj"]}, "target_parameters"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"layer_replication": [[0, 4]]}, "layer_replication"),
        ({"use_qalora": True}, "use_qalora"),
        ({"use_bdlora": {"nblocks": 2}}, "use_bdlora"),
        ({"arrow_config": {"top_k": 3}}, "arrow_config"),
        ({"kasa_config": {"beta": 1}}, "kasa_config"),
        ({"monteclora_config": {"num_samples": 8}}, "monteclora_config"),
        ({"velora_config": {"scale": 1}}, "velora_config"),
        ({"megatron_config": {"a": 1}}, "megatron_config"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights pissa_niter_4"),
        ({"init_lora_weights": "olora"}, "init_lora_weights olora"),
        ({"init_lora_weights": "corda"}, "init_lora_weights corda"),
        ({"init_lora_weights": "lora_ga"}, "init_lora_weights lora_ga"),
        ({"init_lora_weights": "loftq"}, "init_lora_weights loftq"),
        ({"bias": "some"}, "bias some"),
        ({"use_what_comes_next": True}, "use_what_comes_next"),
    ],
)
def test_refuses_by_name_what_it_cannot_merge(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(OnecatError) as caught:
        read(**fields)
    assert any(named in line for line in caught.value.details)
    assert caught.value.next_steps


def test_takes_what_leaves_the_base_as_it_is() -> None:
    for start in (True, False, None, "gaussian", "eva", "orthogonal", "mica"):
        read(
            init_lora_weights=start, eva_config={"rho": 2.0} if start == "eva" else None, megatron_core="megatron.core"
        )
    assert read(use_what_comes_next=False, qalora_group_size=16, loftq_config={}).rank == 8


@pytest.mark.parametrize(
    "fields",
    [
        {"r": 0}, {"r": "8"}, {"r": True}, {"lora_alpha": "x"}, {"lora_alpha": float("nan")}, {"rank_pattern": [1]},
        {"rank_pattern": {"(": 2}}, {"rank_pattern": {"q": -1}}, {"target_modules": {"q": 1}}, {"target_modules": "("},
        {"modules_to_save": ["("]}, {"layers_to_transform": [-1]}, {"trainable_token_indices": [1.5]},
    ],
)  # fmt: skip
def test_says_what_is_wrong_with_a_field(fields: dict[str, Any]) -> None:
    with pytest.raises(OnecatError, match="not what PEFT writes"):
        read(**fields)


@pytest.mark.parametrize(
    ("name", "role", "module", "adapter"),
    [
        ("base_model.model.m.q.lora_A.weight", "first", "m.q", None),
        ("base_model.model.m.q.lora_A.default.weight", "first", "m.q", "default"),
        ("m.q.lora_B.weight", "second", "m.q", None),
        ("base_model.model.m.q.lora_B.mine.bias", "second-bias", "m.q", "mine"),
        ("base_model.model.m.e.lora_embedding_A", "embedding-first", "m.e", None),
        ("base_model.model.m.e.lora_embedding_B.default", "embedding-second", "m.e", "default"),
        ("base_model.model.m.q.lora_magnitude_vector", "magnitude", "m.q", None),
        ("base_model.model.m.q.lora_magnitude_vector.weight", "magnitude", "m.q", None),
        ("base_model.model.m.q.lora_magnitude_vector.default.weight", "magnitude", "m.q", "default"),
        ("base_model.model.m.q.lora_magnitude_vector.default", "magnitude", "m.q", "default"),
        ("base_model.model.m.e.token_adapter.trainable_tokens_delta", "rows", "m.e", None),
        ("base_model.model.lm_head.modules_to_save.default.weight", "whole", "lm_head.weight", "default"),
        ("base_model.model.lm_head.modules_to_save.weight", "whole", "lm_head.weight", None),
        ("base_model.model.m.q.base_layer.bias", "whole", "m.q.bias", None),
        ("base_model.model.lm_head.weight", "whole", "lm_head.weight", None),
    ],
)
def test_tells_tensors_by_their_names(name: str, role: str, module: str, adapter: str | None) -> None:
    assert read_name(name) == (name, role, module, adapter)
