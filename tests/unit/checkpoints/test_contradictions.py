"""What is said of a checkpoint whose tensors are not what its configuration claims."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import Checkpoint, Problem, describe, inspect, read_quantization
from onecat.checkpoints.integrity import Request, verify
from onecat.checkpoints.quantization.storage import stored_tensors
from tests.testbed import quantised_checkpoints
from tests.unit.checkpoints.checkpoint_files import Made, write_checkpoint, write_weights
from tests.unit.checkpoints.quantization.claims import CLAIMS

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_size": 256,
    "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 320, "tie_word_embeddings": False, "max_position_embeddings": 4096,
}  # fmt: skip

Change = Callable[[dict[str, Made]], None]


def claimed(claim: dict[str, Any] | None, **changes: Any) -> dict[str, Any]:
    """A config.json with a claim of quantisation."""
    config = {**CONFIG, **changes}
    return config if claim is None else {**config, "quantization_config": claim}


def made(config: dict[str, Any]) -> dict[str, Made]:
    """All tensors that a checkpoint with this config.json has."""
    architecture, quantization = describe(config), read_quantization({"config.json": config})
    container = quantization.container if quantization else None
    return {
        row.name: (row.dtype, row.shape, None)
        for weight in architecture.weights
        for row in stored_tensors(
            weight, quantization.scheme_for(weight) if quantization else None, container, architecture.dtype
        )
    }


def looked_at(
    directory: Path, stored: dict[str, Any], stated: dict[str, Any] | None = None, change: Change | None = None
) -> Checkpoint:
    """A checkpoint with the tensors of one config.json, and another config.json in it."""
    tensors = made(stored)
    if change is not None:
        change(tensors)
    return inspect(write_checkpoint(directory, tensors, stated or stored))


def codes(seen: Checkpoint) -> dict[str, str]:
    return {problem.code: problem.severity for problem in seen.problems}


def only(seen: Checkpoint) -> Problem:
    (problem,) = seen.problems
    return problem


@pytest.mark.parametrize("name", [*CLAIMS, None])
def test_a_checkpoint_that_is_what_it_claims_has_no_problem(tmp_path: Path, name: str | None) -> None:
    seen = looked_at(tmp_path, claimed(CLAIMS[name] if name else None))
    assert seen.problems == ()
    assert seen.parameters == describe(CONFIG).parameters
    assert seen.measured


@pytest.mark.parametrize("form", quantised_checkpoints.FORMS)
def test_a_checkpoint_made_by_the_formats_definitions_has_no_problem(tmp_path: Path, form: str) -> None:
    seen = inspect(quantised_checkpoints.write(tmp_path, form))
    assert [problem for problem in seen.problems if problem.severity == "fail"] == []
    assert seen.parameters == inspect(tmp_path / f"{form}-twin").parameters


def test_claimed_to_be_nvfp4_and_stored_as_bfloat16(tmp_path: Path) -> None:
    problem = only(looked_at(tmp_path, claimed(None), claimed(CLAIMS["ct-nvfp4"])))
    assert (problem.code, problem.severity) == ("claimed-not-stored", "fail")
    assert problem.text == "claims nvfp4 for 14 modules, such as model.layers.0.self_attn.q_proj, stored as BF16"
    assert problem.where == str(tmp_path / "config.json")
    assert problem.fix == "remove quantization_config from config.json, or download the quantised weights"


def test_packed_and_not_claimed(tmp_path: Path) -> None:
    problem = only(looked_at(tmp_path, claimed(CLAIMS["ct-nvfp4"]), claimed(None)))
    assert (problem.code, problem.severity) == ("stored-not-claimed", "fail")
    assert problem.text == (
        "claims no quantisation; stored as nvfp4: 14 modules, such as model.layers.0.self_attn.q_proj"
    )


@pytest.mark.parametrize(
    ("stored", "stated", "code", "text"),
    [
        ("awq", {**CLAIMS["awq"], "group_size": 64}, "group-size-differs", "claims groups of 64, stored is 128"),
        (
            "ct-int4",
            json.loads(json.dumps(CLAIMS["ct-int4"]).replace("128", "32")),
            "group-size-differs",
            "claims groups of 32, stored is 128",
        ),
        (
            "fp8-block",
            {**CLAIMS["fp8-block"], "weight_block_size": [64, 64]},
            "block-differs",
            "claims blocks of 64 x 64, stored is 128 x 128",
        ),
        ("ct-fp8-channel", CLAIMS["ct-fp8-tensor"], "scheme-differs", "claims fp8-tensor, stored is fp8-channel"),
        ("ct-mxfp4", CLAIMS["ct-nvfp4"], "scheme-differs", "claims nvfp4, stored is mxfp4"),
        ("ct-w8a8", CLAIMS["ct-fp8-channel"], "scheme-differs", "claims fp8-channel, stored is int8"),
    ],
)
def test_stored_in_another_way_than_claimed(
    tmp_path: Path, stored: str, stated: dict[str, Any], code: str, text: str
) -> None:
    seen = looked_at(tmp_path, claimed(CLAIMS[stored]), claimed(stated))
    found = [problem for problem in seen.problems if problem.code == code]
    assert found and all(problem.severity == "fail" for problem in found)
    assert found[0].text.startswith(text)


def test_scales_of_another_type_than_claimed(tmp_path: Path) -> None:
    def as_bfloat16(tensors: dict[str, Made]) -> None:
        for name, (_, shape, _content) in list(tensors.items()):
            if name.endswith("weight_scale"):
                tensors[name] = ("BF16", shape, None)

    seen = looked_at(tmp_path, claimed(CLAIMS["modelopt-nvfp4"]), change=as_bfloat16)
    assert [problem.text for problem in seen.problems] == [
        "claims scales of F8_E4M3, stored is BF16: 14 modules, such as model.layers.0.self_attn.q_proj"
    ]


def test_scales_in_bfloat16_where_float32_is_usual_are_no_problem(tmp_path: Path) -> None:
    def as_bfloat16(tensors: dict[str, Made]) -> None:
        for name, (_, shape, _content) in list(tensors.items()):
            if name.endswith("weight_scale_inv"):
                tensors[name] = ("BF16", shape, None)

    assert looked_at(tmp_path, claimed(CLAIMS["fp8-block"]), change=as_bfloat16).problems == ()


def test_a_module_that_is_ignored_and_packed(tmp_path: Path) -> None:
    name = "model.layers.1.mlp.down_proj"
    stated = {**CLAIMS["ct-nvfp4"], "ignore": ["lm_head", name]}
    problem = only(looked_at(tmp_path, claimed(CLAIMS["ct-nvfp4"]), claimed(stated)))
    assert (problem.code, problem.severity) == ("ignored-but-quantized", "fail")
    assert problem.text == f"leaves {name} as it was; stored as nvfp4"


def test_a_module_that_is_not_ignored_and_as_it_was(tmp_path: Path) -> None:
    name = "model.layers.1.mlp.down_proj"
    stored = {**CLAIMS["ct-nvfp4"], "ignore": ["lm_head", name]}
    problem = only(looked_at(tmp_path, claimed(stored), claimed(CLAIMS["ct-nvfp4"])))
    assert (problem.code, problem.severity) == ("claimed-not-stored", "warn")
    assert problem.text == f"claims nvfp4 for {name}, stored as BF16"


def test_tensors_with_modelopts_names_under_a_claim_of_compressed_tensors(tmp_path: Path) -> None:
    seen = looked_at(tmp_path, claimed(CLAIMS["modelopt-nvfp4"]), claimed(CLAIMS["ct-nvfp4"]))
    problem = only(seen)
    assert (problem.code, problem.severity) == ("container-differs", "fail")
    assert problem.text.startswith("claims compressed-tensors; named as modelopt names them: the tensors of 14 modules")


@pytest.mark.parametrize(
    ("name", "lost", "told"),
    [
        ("ct-nvfp4", "weight_scale", "weight_scale"),
        ("ct-nvfp4", "weight_global_scale", "weight_global_scale"),
        ("modelopt-nvfp4", "weight_scale_2", "weight_scale_2"),
        ("fp8-block", "weight_scale_inv", "weight_scale"),
        ("awq", "scales", "scales"),
    ],
)
def test_codes_without_their_scales(tmp_path: Path, name: str, lost: str, told: str) -> None:
    module = "model.layers.1.mlp.up_proj"

    def lose(tensors: dict[str, Made]) -> None:
        del tensors[f"{module}.{lost}"]

    seen = looked_at(tmp_path, claimed(CLAIMS[name]), change=lose)
    assert codes(seen)["missing-scales"] == "fail"
    assert f"has no {told} for {module}" in {problem.text for problem in seen.problems}


def test_parts_of_a_module_that_engines_join_are_stored_alike(tmp_path: Path) -> None:
    stated = {**CLAIMS["ct-nvfp4"], "ignore": ["lm_head", "model.layers.0.self_attn.q_proj"]}
    problem = only(looked_at(tmp_path, claimed(stated)))
    assert (problem.code, problem.severity) == ("fused-modules-differ", "fail")
    assert problem.text.startswith("stores the parts of model.layers.0.self_attn.qkv_proj in different ways")


def test_a_claim_that_lists_no_modules_leaves_it_to_the_tensors(tmp_path: Path) -> None:
    stored = {**CLAIMS["quasar"], "ignore": ["down_proj"]}
    assert looked_at(tmp_path, claimed(stored), claimed(CLAIMS["quasar"])).problems == ()


@pytest.mark.parametrize(
    ("changes", "code", "severity", "text"),
    [
        (
            {"num_hidden_layers": 3},
            "layers-differ",
            "fail",
            "says num_hidden_layers 3; the weights have 2 of them",
        ),
        ({"num_hidden_layers": 1}, "layers-differ", "warn", "says num_hidden_layers 1; the weights have layer 1 too"),
        (
            {"vocab_size": 321},
            "vocabulary-differs",
            "fail",
            "says vocab_size 321; model.embed_tokens.weight has 320 rows",
        ),
        (
            {"hidden_size": 512},
            "hidden-size-differs",
            "fail",
            "says hidden_size 512; model.embed_tokens.weight has 256 columns",
        ),
        ({"dtype": "float32"}, "dtype-differs", "warn", "says float32; most unquantised weights are BF16"),
        ({"dtype": "float16"}, "dtype-differs", "info", "says float16; most unquantised weights are BF16"),
        (
            {"tie_word_embeddings": True},
            "tied-head-stored",
            "info",
            "says tie_word_embeddings; lm_head.weight is stored too, and engines leave it out",
        ),
    ],
)  # fmt: skip
def test_a_size_that_the_tensors_do_not_have(
    tmp_path: Path, changes: dict[str, Any], code: str, severity: str, text: str
) -> None:
    problem = only(looked_at(tmp_path, claimed(None), claimed(None, **changes)))
    assert (problem.code, problem.severity, problem.text) == (code, severity, text)


@pytest.mark.parametrize(("stated", "severity"), [(True, "fail"), (False, "warn")])
def test_an_untied_model_without_an_output_head(tmp_path: Path, stated: bool, severity: str) -> None:
    config = claimed(None)
    if not stated:
        del config["tie_word_embeddings"]
    seen = looked_at(tmp_path, claimed(None), config, lambda tensors: tensors.pop("lm_head.weight") and None)
    assert codes(seen) == {"missing-head": severity}


def test_draft_layers_beyond_the_last_are_no_surprise(tmp_path: Path) -> None:
    def add(tensors: dict[str, Made]) -> None:
        tensors["model.layers.2.input_layernorm.weight"] = ("BF16", (256,), None)

    stated = claimed(None, num_nextn_predict_layers=1)
    assert looked_at(tmp_path, claimed(None), stated, add).problems == ()


def test_a_method_that_nobody_knows_is_told_with_its_name(tmp_path: Path) -> None:
    problem = only(looked_at(tmp_path, claimed(None), claimed({"quant_method": "zip4u"})))
    assert (problem.code, problem.severity) == ("unknown-quantization", "fail")
    assert problem.text == "claims the quantisation zip4u, which onecat does not know"


def test_a_missing_quant_method_is_told(tmp_path: Path) -> None:
    claim = {key: value for key, value in CLAIMS["modelopt-fp8"].items() if key != "quant_method"}
    problem = only(looked_at(tmp_path, claimed(claim)))
    assert (problem.code, problem.severity) == ("missing-quant-method", "warn")
    assert problem.fix == 'add "quant_method": "modelopt" to quantization_config'


def test_mixed_precision_without_the_algorithms_of_its_modules_is_told_and_not_blamed_on_ignored_modules(
    tmp_path: Path,
) -> None:
    stored, stated = CLAIMS["modelopt-nvfp4"], {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    problem = only(looked_at(tmp_path, claimed(stored), claimed({**stated, "ignore": ["lm_head"]})))
    assert (problem.code, problem.severity) == ("missing-quantized-layers", "fail")
    assert problem.fix == "download hf_quant_config.json too: it has the algorithm of each module"


def test_a_claim_for_the_cache_alone_claims_no_quantisation_of_weights(tmp_path: Path) -> None:
    stated = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"type": "float", "num_bits": 8}}
    assert looked_at(tmp_path / "plain", claimed(None), claimed(stated)).problems == ()
    problem = only(looked_at(tmp_path / "packed", claimed(CLAIMS["ct-nvfp4"]), claimed(stated)))
    assert (problem.code, problem.severity) == ("stored-not-claimed", "fail")


def test_two_files_that_say_different_things_are_told(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    problem = only(looked_at(tmp_path, claimed(CLAIMS["modelopt-nvfp4"])))
    assert problem.code == "quantization-files-differ"
    assert problem.text == "says fp8-tensor where config.json says nvfp4 in groups of 16"


def test_names_of_directories_are_not_believed(tmp_path: Path) -> None:
    seen = looked_at(tmp_path / "Llama-70B-NVFP4-FP8-AWQ", claimed(None))
    assert (seen.quantization, seen.problems) == (None, ())


def test_gemmas_own_quantisation_is_measured_and_said_to_have_no_engine(tmp_path: Path) -> None:
    claim = {
        "quant_method": "gemma", "num_bits": 4, "quantize_embeddings": True,
        "module_quant_configs": {"down_proj": {"num_bits": 2}, "embed_tokens": {"num_bits": 8}},
        "modules_to_not_convert": ["lm_head"],
    }  # fmt: skip
    tensors = made(claimed(claim))
    assert tensors["model.layers.0.mlp.down_proj.weight"] == ("U8", (256, 96), None)
    assert tensors["model.layers.0.mlp.up_proj.weight"] == ("U8", (384, 128), None)
    assert tensors["model.layers.0.mlp.up_proj.weight_scale"] == ("F32", (384, 1), None)
    assert tensors["model.embed_tokens.embedding_quantized"] == ("I8", (320, 256), None)
    assert tensors["lm_head.weight"] == ("BF16", (320, 256), None)
    seen = looked_at(tmp_path / "m", claimed(claim))
    assert codes(seen) == {"quantization-without-engine": "fail"}
    assert seen.parameters == inspect(write_checkpoint(tmp_path / "plain", made(CONFIG), CONFIG)).parameters
    assert not [each for each in verify(Request(tmp_path / "m")).faults if "scale" in each.code]


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_scales_of_fp8_blocks_are_of_either_type(tmp_path: Path, dtype: str) -> None:
    claim = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}

    def change(tensors: dict[str, Made]) -> None:
        for name, (_, shape, content) in tensors.items():
            if name.endswith("weight_scale_inv"):
                tensors[name] = (dtype, shape, content)

    seen = looked_at(tmp_path / "m", claimed(claim), change=change)
    assert codes(seen) == {}
    assert not [each for each in verify(Request(tmp_path / "m")).faults if "scale" in each.code]


def test_a_pattern_with_a_fused_name_ignores_nothing_where_its_parts_are_stored(tmp_path: Path) -> None:
    """vLLM 0.27.1 holds patterns to ignore to the parts alone (should_ignore_layer)."""
    nvfp4 = CLAIMS["ct-nvfp4"]
    seen = looked_at(
        tmp_path / "m",
        claimed({**nvfp4, "ignore": ["lm_head"]}),
        claimed({**nvfp4, "ignore": ["lm_head", "re:.*qkv_proj", "re:.*gate_up_proj$"]}),
    )
    assert codes(seen) == {}


def test_modules_that_fp8_leaves_out_by_their_parents_name_are_told(tmp_path: Path) -> None:
    claim = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    by_parent = claimed({**claim, "modules_to_not_convert": ["lm_head", "model.layers.1.mlp"]})
    (problem,) = looked_at(tmp_path / "parent", by_parent).problems
    assert (problem.code, problem.severity) == ("ignored-by-parent", "warn")
    assert "3 modules, such as model.layers.1.mlp." in problem.text
    names = [f"model.layers.1.mlp.{each}_proj" for each in ("gate", "up", "down")]
    by_name = claimed({**claim, "modules_to_not_convert": ["lm_head", *names]})
    assert codes(looked_at(tmp_path / "name", by_name)) == {}


MISTRAL = {**CONFIG, "architectures": ["MistralForCausalLM"], "model_type": "mistral"}


def mistral_names(tensors: dict[str, Made]) -> dict[str, Made]:
    """The tensors by the names of Mistral's own format."""
    found = {}
    for name, made_of in tensors.items():
        for other, own in {
            "model.embed_tokens": "tok_embeddings", "lm_head": "output", "model.": "", "self_attn": "attention",
            "mlp": "feed_forward", "q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo", "gate_proj": "w1",
            "down_proj": "w2", "up_proj": "w3", "input_layernorm": "attention_norm",
            "post_attention_layernorm": "ffn_norm", "weight_scale": "qscale_weight", "input_scale": "qscale_act",
        }.items():  # fmt: skip
            name = name.replace(other, own)
        found[name] = made_of
    return found


@pytest.mark.parametrize("claim", [None, {"quant_method": "fp8", "activation_scheme": "static"}])
def test_of_two_copies_mistrals_own_is_measured_and_said_to_be_loaded(
    tmp_path: Path, claim: dict[str, Any] | None
) -> None:
    config = {**MISTRAL, **({} if claim is None else {"quantization_config": claim})}
    alone = inspect(write_checkpoint(tmp_path / "alone", made(config), config))
    both = write_checkpoint(tmp_path / "both", made(MISTRAL), config)
    own = mistral_names(made(config))
    assert "layers.0.attention.wq.weight" in own
    write_weights(both / "consolidated.safetensors", own)
    seen = inspect(both)
    (problem,) = seen.problems
    assert (problem.code, problem.severity) == ("two-copies", "info")
    assert "loads the consolidated copy alone, by config.json" in problem.text
    assert seen.files == ("consolidated.safetensors",)
    assert {row.name: row for row in seen.tensors} == {row.name: row for row in alone.tensors}
    (both / "params.json").write_text("{}")
    assert "by params.json" in inspect(both).problems[0].text


def test_a_class_that_has_not_the_names_of_the_copy_that_is_loaded_is_warned_of(tmp_path: Path) -> None:
    both = write_checkpoint(tmp_path / "both", made(CONFIG), CONFIG)
    write_weights(both / "consolidated.safetensors", mistral_names(made(CONFIG)))
    (problem,) = inspect(both).problems
    assert (problem.code, problem.severity) == ("two-copies", "warn")
    assert "--load-format safetensors" in problem.fix
    assert [each.code for each in verify(Request(both)).faults if each.severity != "info"] == ["two-copies"]


@pytest.mark.parametrize(
    ("kind", "severity", "text"),
    [
        ("llama", "warn", "takes the base class for model_type llama"),
        ("qwen3", "warn", "gives embeddings and no text"),
        (None, "fail", "neither architectures nor a model_type"),
    ],
)
def test_a_configuration_without_architectures_is_told_what_comes_of_it(
    tmp_path: Path, kind: str | None, severity: str, text: str
) -> None:
    config = {key: value for key, value in CONFIG.items() if key != "architectures"} | {"model_type": kind}
    problems = inspect(write_checkpoint(tmp_path / "m", made(CONFIG), config)).problems
    (problem,) = [each for each in problems if each.code == "missing-architectures"]
    assert problem.severity == severity and text in problem.text
