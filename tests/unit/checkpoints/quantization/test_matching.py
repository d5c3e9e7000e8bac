"""Which modules the patterns of a configuration cover."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.checkpoints.quantization import Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.matching import Matching, ModuleIndex

FOUR = WeightScheme("int4", 4)


def covers(stated: str, matching: Matching, module: str) -> bool:
    return Rule(stated, None, matching).matches(module)


@pytest.mark.parametrize(
    ("stated", "matching", "yes", "no"),
    [
        ("model.layers.1.mlp.down_proj", "name", "model.layers.1.mlp.down_proj", "model.layers.11.mlp.down_proj"),
        ("model.layers.1.mlp.down_proj.weight", "name", "model.layers.1.mlp.down_proj", "model.layers.1.mlp"),
        ("lm_head", "name", "language_model.lm_head", "model.lm_head2"),
        ("re:.*lm_head", "regex", "model.lm_head", "model.head"),
        ("re:.*mlp.gate$", "regex", "model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj"),
        (r"re:.*experts\.\d+\.down_proj", "regex", "m.mlp.experts.*.down_proj", "m.mlp.shared_experts.down_proj"),
        ("re:[", "regex", "[", "model"),
        ("model.layers.0*", "wildcard", "model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"),
        ("*router*", "wildcard", "model.layers.0.mlp.router", "model.layers.0.mlp.gate"),
        ("gate", "components", "model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj"),
        ("self_attn", "components", "model.layers.0.self_attn.q_proj", "model.layers.0.cross_attn.q_proj"),
        ("model.layers.*.self_attn", "components", "model.layers.7.self_attn.o_proj", "model.layers.7.mlp.up_proj"),
        ("model.layers.1", "components", "model.layers.1.mlp.up_proj", "model.layers.10.mlp.up_proj"),
        ("model.layers", "below", "model.layers.3.mlp.up_proj", "visual.layers.3.mlp.up_proj"),
        (r"\.[13]\.", "search", "model.layers.3.mlp", "model.layers.2.mlp"),
        ("*", "all", "anything", ""),
    ],
)
def test_a_pattern_covers(stated: str, matching: Matching, yes: str, no: str) -> None:
    assert covers(stated, matching, yes)
    assert not no or not covers(stated, matching, no)


@pytest.mark.parametrize(
    ("stated", "stored"),
    [
        ("language_model.model.layers.0.mlp.up_proj", "model.language_model.layers.0.mlp.up_proj"),
        ("model.language_model.layers.0.mlp.up_proj", "language_model.model.layers.0.mlp.up_proj"),
        ("model.layers.0.mlp.up_proj", "model.language_model.layers.0.mlp.up_proj"),
        ("layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj"),
    ],
)
def test_the_language_model_has_its_place_by_other_names(stated: str, stored: str) -> None:
    assert covers(stated, "name", stored)


@pytest.mark.parametrize("shard", ["q_proj", "k_proj", "v_proj"])
def test_a_module_that_engines_fuse_is_covered_by_the_fused_name(shard: str) -> None:
    assert covers("model.layers.0.self_attn.qkv_proj", "name", f"model.layers.0.self_attn.{shard}")
    assert not covers("model.layers.0.self_attn.qkv_proj", "name", "model.layers.0.self_attn.o_proj")


def test_the_first_rule_decides_and_a_module_without_one_is_as_it_was() -> None:
    eight = WeightScheme("int8", 8)
    rules = (Rule("a.b", None, "name"), Rule("a", eight, "below"), Rule("*", FOUR, "all", ("linear",)))
    found = Quantization("mixed", "x", "x", rules=rules)
    assert [found.scheme_of(each) for each in ("a.b", "a.c", "d")] == [None, eight, FOUR]
    assert found.scheme_of("d", "router") is None and found.scheme_of("d", "norm") is None
    assert Quantization("none", "x", "x").scheme_of("d") is None


def test_a_rule_that_names_a_module_touches_it_whatever_it_is() -> None:
    found = Quantization("int4", "x", "x", rules=(Rule("lm_head", FOUR), Rule("*", FOUR, "all", ("linear",))))
    assert found.scheme_of("lm_head", "head") == FOUR
    assert found.scheme_of("output", "head") is None


def test_a_claim_is_equal_to_itself_after_it_was_asked_and_pickled() -> None:
    found = Quantization("int4", "x", "x", rules=(Rule("re:.*x", FOUR, "regex"),))
    twin = Quantization("int4", "x", "x", rules=(Rule("re:.*x", FOUR, "regex"),))
    assert found.scheme_of("ax") == FOUR
    assert found == twin == pickle.loads(pickle.dumps(found))
    assert hash(found) == hash(twin)


NAMES = st.lists(st.sampled_from(["model", "layers", "0", "1", "mlp", "gate", "up_proj", "q_proj"]), min_size=1)
PATTERNS = st.tuples(
    st.lists(st.sampled_from(["model", "layers", "0", "mlp*", "*", "gate", "q_proj"]), min_size=1).map(".".join),
    st.sampled_from(["name", "wildcard", "components", "below", "regex", "all"]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(PATTERNS, max_size=4), NAMES.map(".".join))
def test_filing_patterns_changes_no_answer(patterns: list[tuple[str, Matching]], module: str) -> None:
    one_by_one = [position for position, each in enumerate(patterns) if ModuleIndex([each]).find(module) is not None]
    assert ModuleIndex(patterns).find(module) == (one_by_one[0] if one_by_one else None)
    assert ModuleIndex(patterns).find(module, 2) == next((each for each in one_by_one if each >= 2), None)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.sampled_from(["name", "wildcard", "components", "below", "regex", "search"]))
def test_no_pattern_that_a_file_may_hold_breaks_anything(stated: str, matching: Matching) -> None:
    covers(stated, matching, "model.layers.0.mlp.up_proj")


@pytest.mark.parametrize(
    ("stated", "matching", "module", "covered"),
    [
        ("re:.*qkv_proj", "shards", "model.layers.0.self_attn.q_proj", False),
        ("re:.*qkv_proj", "regex", "model.layers.0.self_attn.q_proj", True),
        ("re:.*qkv_proj", "shards", "model.layers.0.self_attn.qkv_proj", True),
        ("re:.*self_attn", "shards", "model.layers.0.self_attn.q_proj", True),
        ("self_attn.q", "substring", "model.layers.0.self_attn.q_proj", True),
        ("q_proj", "substring", "model.layers.0.self_attn.q_proj", False),
        ("mlp.gate", "substring", "model.layers.0.mlp.gate_proj", True),
        ("model.layers.1", "substring", "model.layers.10.mlp.down_proj", True),
        ("mlp.gate", "substring", "model.layers.0.mlp.down_proj", False),
    ],
)
def test_patterns_that_see_one_kind_of_names_alone(stated: str, matching: Matching, module: str, covered: bool) -> None:
    assert Rule(stated, None, matching).matches(module) is covered
