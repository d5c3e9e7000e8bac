"""Which modules of each known family are converted, and that the written list says so to engines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from onecat.checkpoints import describe, read_quantization
from onecat.nvfp4.codec import choose
from onecat.nvfp4.conversion.formats import Format
from onecat.nvfp4.conversion.fp8_formats import CompressedTensorsFp8Block, DeepseekFp8Block
from onecat.nvfp4.conversion.ignoring import expressions, unlisted
from onecat.nvfp4.conversion.matrices import matrices
from onecat.nvfp4.conversion.nvfp4_formats import CompressedTensorsNvfp4, ModeloptNvfp4
from onecat.nvfp4.conversion.planning import quantised_documents
from onecat.nvfp4.conversion.records import LeftAlone, Matrix, Selection
from onecat.nvfp4.conversion.selection import select
from tests.unit.nvfp4.conversion.families import published, small, source

CODEC = choose(1)
FORMS: dict[str, Format] = {
    "nvfp4": CompressedTensorsNvfp4(CODEC, "minmax"),
    "nvfp4-modelopt": ModeloptNvfp4(CODEC, "minmax"),
    "fp8-block": CompressedTensorsFp8Block(CODEC),
    "fp8-block-deepseek": DeepseekFp8Block(CODEC),
}
ANY = r"(?:.*\.)?"
LAYER = rf"re:{ANY}layers\.[0-9]+\."

TABLE: dict[str, tuple[int, dict[str, int], tuple[str, ...]]] = {
    # of 4 layers each: q, k, v, o, gate, up, down
    "meta-llama/Llama-3.1-8B": (4 * 7, {"the output head": 1}, ()),
    # attention, and 4 experts of three matrices, in each of 4 layers
    "Qwen/Qwen3-VL-30B-A3B-Instruct": (
        4 * (4 + 4 * 3),
        {"the output head": 1, "the router of a mixture of experts": 4, "of the vision tower": 117},
        (rf"re:{ANY}visual(?:\.|$)", rf"{LAYER}mlp\.gate$"),
    ),
    # five attention matrices a layer, three dense layers, one of 4 experts and a shared one; one more of drafts
    "deepseek-ai/DeepSeek-V3": (
        4 * 5 + 3 * 3 + 4 * 3 + 3,
        {"the output head": 1, "the router of a mixture of experts": 1, "of the draft layers": 7 + 4 * 3 + 3 + 1},
        (rf"re:{ANY}layers\.4(?:\.|$)", "model.layers.3.mlp.gate"),
    ),
    "google/gemma-3-4b-it": (
        4 * 7,
        {"of the vision tower": 4 * 6 + 3},
        (rf"re:{ANY}vision_tower(?:\.|$)",),
    ),
    # three layers of linear attention, whose gates and convolution stay, and one of full attention
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (
        3 * 2 + 4 + 4 * (4 * 3 + 3),
        {
            "the output head": 1,
            "the router of a mixture of experts": 4 * 2,
            "the small gates of linear attention": 3,
            "a convolution": 3,
        },
        (rf"{LAYER}linear_attn\.in_proj_ba$", rf"{LAYER}mlp\.gate$", rf"{LAYER}mlp\.shared_expert_gate$"),
    ),
    "openai/gpt-oss-20b": (
        4 * 4,
        {
            "the output head": 1,
            "the router of a mixture of experts": 4,
            "experts of a layer in one tensor, which no engine reads quantised in this family": 4 * 2,
        },
        (rf"{LAYER}mlp\.router$", rf"{LAYER}mlp\.experts(?:\.|$)"),
    ),
    # two tensors hold all experts of a layer; engines read each expert's three matrices
    "meta-llama/Llama-4-Scout-17B-16E": (
        4 * (4 + 4 * 3 + 3),
        {"the output head": 1, "the router of a mixture of experts": 4, "of the vision tower": 4 * 6 + 5},
        (
            rf"re:{ANY}lm_head$", rf"re:{ANY}vision_model(?:\.|$)", rf"re:{ANY}multi_modal_projector(?:\.|$)",
            rf"{LAYER}feed_forward\.router$",
        ),
    ),
}  # fmt: skip


def chosen(config: dict[str, Any], form: Format) -> Selection:
    return select(matrices(describe(config), config, source(config)), form)


@pytest.mark.parametrize("model", TABLE)
def test_linear_layers_of_the_decoder_are_converted_and_others_are_not(model: str) -> None:
    converted, left, ignored = TABLE[model]
    selection = chosen(small(model), FORMS["nvfp4"])
    assert len(selection.modules) == converted
    assert Counter(each.why for each in selection.left) == left
    assert sorted(expressions(selection.left, selection.modules)) == sorted(("lm_head", *ignored))


@pytest.mark.parametrize("model", published())
def test_the_written_list_says_of_each_module_how_it_is_stored(model: str) -> None:
    config = small(model)
    described = describe(config)
    for form in FORMS.values():
        selection = chosen(config, form)
        if not selection.groups:
            assert described.model_type == "gpt2" or model.startswith("transformers' default")
            continue
        claimed = read_quantization(quantised_documents(form, config, selection))
        assert claimed is not None and claimed.scheme in ("nvfp4", "fp8-block")
        beside = unlisted(selection.left)
        for group in selection.groups:
            for each in group.members:
                assert claimed.scheme_of(each.module, each.kind, each.part) is not None, each.module
        for left, _ in selection.left:
            if left.module not in beside:
                assert claimed.scheme_of(left.module, left.kind, left.part) is None, left.module


def test_a_group_is_converted_whole_or_not_at_all() -> None:
    config = small("meta-llama/Llama-3.1-8B", hidden_size=4088)
    selection = chosen(config, FORMS["nvfp4"])
    names = {module.rpartition(".")[2] for module in selection.modules}
    assert names == {"o_proj", "down_proj"}  # 4088 in_features are no multiple of 16
    assert all("4088 in_features" in each.why for each in selection.left if each.matrix.kind == "linear")


def test_what_engines_join_in_linear_attention_is_one_group() -> None:
    selection = chosen(small("moonshotai/Kimi-Linear-48B-A3B-Instruct"), FORMS["nvfp4"])
    groups = {tuple(each.module.rpartition(".")[2] for each in group.members) for group in selection.groups}
    assert ("q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj") in groups  # linear attention
    assert ("q_proj",) in groups  # latent attention
    config = small("moonshotai/Kimi-Linear-48B-A3B-Instruct")
    left = {each.matrix.module: each.why for each in chosen(config, FORMS["fp8-block"]).left}
    assert left["model.layers.0.self_attn.q_proj"].startswith("joined with others behind b_proj, whose 32 rows")

    def linear(module: str) -> Matrix:
        return Matrix(module, f"{module}.weight", "BF16", (64, 64), 8192, "linear", "language", 0)

    olmo = [linear(f"model.layers.0.linear_attn.{name}_proj") for name in "gqkvabo"]
    exaone = [linear(f"transformer.h.0.mlp.{name}") for name in ("c_fc_1", "c_fc_0", "c_proj")]
    selection = select([*olmo, *exaone], FORMS["nvfp4"])
    assert [[each.module.rpartition(".")[2] for each in group.members] for group in selection.groups] == [
        ["q_proj", "k_proj", "v_proj", "g_proj"], ["o_proj"], ["c_fc_0", "c_fc_1"], ["c_proj"],
    ]  # fmt: skip
    assert {each.why for each in selection.left} == {"the small gates of linear attention"}


def test_rows_behind_others_must_fill_blocks_of_fp8() -> None:
    config = small("meta-llama/Llama-3.1-8B", num_attention_heads=64, num_key_value_heads=1)
    left = {each.matrix.module: each.why for each in chosen(config, FORMS["fp8-block"]).left}
    assert {name.rpartition(".")[2] for name in left} == {"lm_head", "q_proj", "k_proj", "v_proj"}
    assert left["model.layers.0.self_attn.q_proj"] == (
        "joined with others behind k_proj, whose 64 rows blocks of 128 do not divide"
    )


def test_one_expert_that_cannot_be_converted_keeps_all_of_its_layer() -> None:
    config = small("Qwen/Qwen3-VL-30B-A3B-Instruct")
    found = list(matrices(describe(config), config, source(config)))
    one = next(each for each in found if each.module.endswith("layers.1.mlp.experts.3.up_proj"))
    selection = select(found, FORMS["nvfp4"], ignore=[one.module])
    left = {each.matrix.module for each in selection.left if ".experts." in each.matrix.module}
    assert len(left) == 4 * 3 and all(".layers.1." in name for name in left)


def test_an_expression_that_would_cover_what_is_converted_gives_way_to_names() -> None:
    def left(module: str, kind: Any, part: Any) -> LeftAlone:
        return LeftAlone(Matrix(module, f"{module}.weight", "BF16", (16, 16), 512, kind, part, None), "for the test")

    alone = [
        left("model.output", "head", "language"),
        left("visual.blocks.0.fc1", "linear", "vision"),
        left("model.layers.0.mlp.gate", "router", "language"),
        left("model.layers.1.mlp.gate", "router", "language"),
    ]
    assert expressions(alone, ["model.layers.0.mlp.up_proj"]) == (
        "lm_head", rf"re:{ANY}output$", rf"re:{ANY}visual(?:\.|$)", rf"{LAYER}mlp\.gate$",
    )  # fmt: skip
    converted = ["model.layers.0.attention.output", "model.layers.0.visual.up", "model.layers.2.mlp.gate"]
    assert expressions(alone, converted) == ("lm_head", *(each.matrix.module for each in alone))


@pytest.mark.parametrize("model", ["google/gemma-3-4b-it", "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3.6-35B-A3B"])
def test_a_language_model_that_a_library_moved_is_converted_alike(model: str) -> None:
    config = small(model)
    usual = source(config)
    prefix = "model.language_model." if any("model.language_model." in name for name in usual) else "model."
    old = prefix if not any(name.startswith("language_model.model.") for name in usual) else "language_model.model."
    new = "language_model.model." if old != "language_model.model." else "model.language_model."
    moved = replace(usual, tensors={name.replace(old, new, 1): each for name, each in usual.tensors.items()})
    form = FORMS["nvfp4"]
    before, after = (select(matrices(describe(config), config, each), form) for each in (usual, moved))
    assert len(before.modules) == len(after.modules) > 20
    assert [each.why for each in before.left] == [each.why for each in after.left]
    assert set(expressions(before.left, before.modules)) == set(expressions(after.left, after.modules))
