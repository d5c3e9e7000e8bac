"""The nearest changes that make a model fit: tried one by one, together, and with a shorter context."""

from __future__ import annotations

import re

from onecat.planner import Plan
from tests.unit.planner.examples import checkpoint_of
from tests.unit.planner.test_layouts import for_cards

SEVENTY = checkpoint_of(num_hidden_layers=80, hidden_size=8192, intermediate_size=28672, num_attention_heads=64)
"""As Llama 3 70B."""


def fixes(plan: Plan, code: str = "memory-weights") -> tuple[str, ...]:
    [found] = [each for each in plan.refusals if each.code == code]
    return found.fix


def test_seventy_billion_on_two_v100_need_four_bits_and_a_shorter_context() -> None:
    first, *others = fixes(for_cards("v100-32g", 2, SEVENTY))
    assert first.startswith("a checkpoint of the model with 4-bit weights")
    length = re.search(r"with max-model-len: (\d+)$", first)
    assert length is not None and 32768 < int(length[1]) < 131072
    assert any("such cards" in each for each in others)
    [whole, *_] = fixes(for_cards("v100-32g", 2, SEVENTY, max_model_len=16384))
    assert "4-bit" in whole and "max-model-len" not in whole


def test_four_bits_are_what_the_memory_model_says_of_such_a_checkpoint() -> None:
    told = re.search(r"about ([\d.]+) GiB less", fixes(for_cards("v100-32g", 2, SEVENTY))[0])
    weights = for_cards("v100-32g", 2, SEVENTY).per_gpu[0]["weights_gib"]
    # Of 16 bits, 4 and a scale and a zero point for each 128 are left, but for embeddings and the output head.
    assert told is not None and 0.70 < float(told[1]) / weights < 0.74


def test_flags_that_fit_only_together_are_advised_together() -> None:
    flags = {"gpu_memory_utilization": 0.95, "enforce_eager": True, "max_num_seqs": 8, "max_num_batched_tokens": 2048}
    most = for_cards("v100-32g", 1, **flags).largest_max_model_len
    assert most is not None
    told = fixes(for_cards("v100-32g", 1, max_model_len=most), "memory-context")
    words = ("max-num-seqs: 8", "gpu-memory-utilization: 0.95", "enforce-eager: true")
    assert [each for each in told if all(word in each for word in words)]
    assert not [each for each in told if sum(word in each for word in words) == 1]


def test_a_context_that_can_be_served_is_not_advised_to_be_shortened_twice() -> None:
    plan = for_cards("v100-32g", 1, max_model_len=131072)
    told = fixes(plan, "memory-context")
    assert told[0].startswith("max-model-len: ")
    assert not any("with max-model-len" in each for each in told)
