"""Checkpoints that are converted for real, and those that are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from onecat.checkpoints import TinyShape, inspect, write_tiny_checkpoint
from onecat.checkpoints.integrity import Request as Verify
from onecat.checkpoints.integrity import verify
from onecat.errors import OnecatError
from onecat.nvfp4.conversion import Request, convert
from tests.unit.nvfp4.conversion.families import small, write

SMALL = TinyShape(hidden_size=64, intermediate_size=96, layers=2, attention_heads=2, key_value_heads=1)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return write_tiny_checkpoint(tmp_path / "plain", SMALL)


def sound(directory: Path) -> None:
    """Neither what `model inspect` nor what `model verify` looks at finds anything wrong."""
    assert inspect(directory).problems == ()
    verified = verify(
        Verify(directory=directory, manifests=(), hash=False, hash_all=False, weights=True, jobs=1, cache=directory)
    )
    assert verified.faults == ()


def floats(directory: Path) -> dict[str, float]:
    """All tensors of one float32 number."""
    found = {}
    for path in directory.glob("*.safetensors"):
        with safe_open(path, "numpy") as file:
            names = [name for name in file.keys() if name.endswith("weight_global_scale")]  # noqa: SIM118
            found.update({name: float(file.get_tensor(name)[0]) for name in names})
    return found


@pytest.mark.parametrize(
    ("scheme", "naming"),
    [
        ("nvfp4", "compressed-tensors"),
        ("nvfp4", "modelopt"),
        ("fp8-block", "compressed-tensors"),
        ("fp8-block", "deepseek"),
    ],
)
def test_the_result_is_sound_and_says_what_it_is(plain: Path, tmp_path: Path, scheme: Any, naming: Any) -> None:
    outcome = convert(Request(plain, tmp_path / "made", scheme=scheme, naming=naming, jobs=1))
    sound(tmp_path / "made")
    seen = inspect(tmp_path / "made")
    assert seen.quantization is not None
    assert seen.quantization.scheme == scheme
    assert seen.weight_bytes == outcome.sizes.after < outcome.sizes.before == inspect(plain).weight_bytes
    assert seen.parameters == inspect(plain).parameters
    least, most = (0.07, 0.12) if scheme == "nvfp4" else (0.01, 0.04)
    assert all(least < each.relative_error < most for each in outcome.modules)


def test_joined_modules_have_one_scale_also_when_they_lie_in_several_files(plain: Path, tmp_path: Path) -> None:
    whole = load_file(plain / "model.safetensors")
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    second = {name: value for name, value in whole.items() if "k_proj" in name or "up_proj" in name}
    first = {name: value for name, value in whole.items() if name not in second}
    (plain / "model.safetensors").unlink()
    placed = {}
    for file, tensors in zip(names, (first, second), strict=True):
        save_file(tensors, plain / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(tensors, file)
    (plain / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    convert(Request(plain, tmp_path / "made", jobs=1))
    sound(tmp_path / "made")
    scales = floats(tmp_path / "made")
    for layer in ("model.layers.0.", "model.layers.1."):
        for joined in (["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["mlp.gate_proj", "mlp.up_proj"]):
            largest = max(float(numpy.abs(whole[f"{layer}{each}.weight"]).max()) for each in joined)
            seen = {scales[f"{layer}{each}.weight_global_scale"] for each in joined}
            assert len(seen) == 1 and seen.pop() == pytest.approx(448 * 6 / largest, rel=1e-6)
    # All tensors of the second file are with the groups that began in the first.
    assert sorted(path.name for path in (tmp_path / "made").glob("*.safetensors*")) == ["model.safetensors"]


def test_what_is_left_alone_is_copied_byte_for_byte(plain: Path, tmp_path: Path) -> None:
    convert(Request(plain, tmp_path / "made", jobs=1))
    before, after = load_file(plain / "model.safetensors"), {}
    with safe_open(tmp_path / "made" / "model.safetensors", "numpy") as file:
        after = {name: file.get_tensor(name) for name in file.keys() if name in before}  # noqa: SIM118
    assert after.keys() == {name for name in before if "_proj" not in name}
    assert all(after[name].tobytes() == before[name].tobytes() for name in after)


def test_files_beside_the_weights_go_along_and_others_do_not(plain: Path, tmp_path: Path) -> None:
    goes = {"README.md", "LICENSE", "chat_template.jinja", "modeling_own.py", "preprocessor_config.json", "vocab.txt"}
    stays = {
        "SHA256SUMS", "optimizer.pt", "training_args.bin", "trainer_state.json", "tf_model.h5", ".gitattributes",
        "pytorch_model.bin.index.json", "model.gguf", "consolidated.00.pth",
    }  # fmt: skip
    for name in goes | stays:
        (plain / name).write_text("x")
    (plain / "additional_chat_templates").mkdir()
    (plain / "additional_chat_templates" / "tool.jinja").write_text("y")
    (plain / ".git").mkdir()
    outcome = convert(Request(plain, tmp_path / "made", jobs=1))
    there = {
        path.relative_to(tmp_path / "made").as_posix() for path in (tmp_path / "made").rglob("*") if path.is_file()
    }
    made = {"config.json", "model.safetensors", "onecat_conversion.json"}
    tokenizer = {"generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert there == goes | made | tokenizer | {"additional_chat_templates/tool.jinja"}
    assert set(outcome.copied) == there - made


SIZES: Mapping[str, Mapping[str, Any]] = {
    "deepseek-ai/DeepSeek-V3": {
        "hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 32, "num_attention_heads": 2,
        "num_key_value_heads": 2, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16, "v_head_dim": 16, "vocab_size": 258, "n_group": 2, "topk_group": 1,
    },
    "Qwen/Qwen3.6-35B-A3B": {
        "hidden_size": 64, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "head_dim": 32,
        "num_attention_heads": 2, "num_key_value_heads": 1, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "vocab_size": 258, "depth": 1, "out_hidden_size": 64,
        "intermediate_size": 64, "num_heads": 2,
    },
    "meta-llama/Llama-4-Scout-17B-16E": {
        "hidden_size": 64, "intermediate_size": 32, "intermediate_size_mlp": 64, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 258, "vision_output_dim": 64,
        "projector_input_dim": 64, "projector_output_dim": 64, "image_size": 28, "patch_size": 14,
    },
    "openai/gpt-oss-20b": {
        "hidden_size": 64, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32, "vocab_size": 258,
    },
}  # fmt: skip
"""Of real families, made so small that a checkpoint of random weights is a few MB."""


@pytest.mark.parametrize("model", SIZES)
def test_checkpoints_of_mixtures_are_sound(model: str, tmp_path: Path) -> None:
    config = small(model, **SIZES[model])
    outcome = convert(Request(write(tmp_path / "plain", config), tmp_path / "made", jobs=1))
    sound(tmp_path / "made")
    scales = floats(tmp_path / "made")
    gates = [name for name in scales if ".experts." in name and "gate_proj" in name]
    assert bool(gates) == (model != "openai/gpt-oss-20b")
    assert all(scales[name] == scales[name.replace("gate_proj", "up_proj")] for name in gates)
    assert all(0.05 < each.relative_error < 0.15 for each in outcome.modules)


@pytest.mark.parametrize("model", ["meta-llama/Llama-4-Scout-17B-16E", "Qwen/Qwen3.6-35B-A3B"])
def test_an_expert_in_a_tensor_of_all_becomes_its_own_modules(model: str, tmp_path: Path) -> None:
    config = small(model, **SIZES[model])
    convert(Request(write(tmp_path / "plain", config), tmp_path / "made", scheme="nvfp4", search="minmax", jobs=1))
    with safe_open(tmp_path / "plain" / "model.safetensors", "numpy") as file:
        name = next(each for each in file.keys() if ".layers.1." in each and each.endswith("gate_up_proj"))  # noqa: SIM118
        joint = file.get_tensor(name).astype(numpy.float32)
    expert = joint[3].T if model.startswith("meta") else joint[3]  # [out, in]
    stem = name.removesuffix("gate_up_proj")
    with safe_open(tmp_path / "made" / "model.safetensors", "numpy") as file:
        for part, rows in (("gate_proj", expert[:32]), ("up_proj", expert[32:])):
            packed = file.get_tensor(f"{stem}3.{part}.weight_packed")
            # Of the largest in each block of 16 the code is 6 or 4, with its sign in the bit above.
            codes = numpy.stack((packed & 15, packed >> 4), -1).reshape(rows.shape)
            blocks = numpy.abs(rows).reshape(len(rows), -1, 16)
            at = blocks.argmax(-1)
            seen = numpy.take_along_axis(codes.reshape(blocks.shape), at[..., None], -1)[..., 0]
            signs = numpy.take_along_axis(rows.reshape(blocks.shape), at[..., None], -1)[..., 0] < 0
            assert set(numpy.unique(seen & 7)) <= {6, 7}
            assert ((seen >> 3 == 1) == signs).all()


def test_a_weight_that_is_no_number_is_named_with_how_many(plain: Path, tmp_path: Path) -> None:
    tensors = load_file(plain / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, :2] = numpy.nan, numpy.inf
    save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(OnecatError) as refused:
        convert(Request(plain, tmp_path / "made", jobs=1))
    assert "model.layers.1.mlp.up_proj.weight: 2 of 6144 weights are NaN or infinite" in refused.value.found
    assert not (tmp_path / "made" / "config.json").exists()
    assert "add --restart" in refused.value.next_steps[1]
    left = convert(Request(plain, tmp_path / "made", jobs=1, ignore=("*.1.mlp.up_proj",), restart=True))
    assert len(left.modules) == 12, "what the step names can be done; gate_proj stays with up_proj"


def test_weights_of_all_plain_types_are_converted(plain: Path, tmp_path: Path) -> None:
    values = {name: value.astype(numpy.float16) for name, value in load_file(plain / "model.safetensors").items()}
    errors = []
    for dtype in (numpy.float32, numpy.float16, ml_dtypes.bfloat16):
        same = {name: value.astype(dtype) for name, value in values.items()}
        save_file(same, plain / "model.safetensors", metadata={"format": "pt"})
        outcome = convert(Request(plain, tmp_path / numpy.dtype(dtype).name, jobs=1))
        assert outcome.total is not None
        errors.append(outcome.total.relative_error)
    assert errors[0] == errors[1] == pytest.approx(errors[2], rel=0.01)


def refused(source: Path, target: Path, **options: Any) -> OnecatError:
    with pytest.raises(OnecatError) as error:
        convert(Request(source, target, jobs=1, **options))
    assert not target.exists() or target.samefile(source)
    return error.value


def test_what_is_no_plain_checkpoint_is_refused_with_what_to_do(plain: Path, tmp_path: Path) -> None:
    target = tmp_path / "made"
    assert "does not exist" in refused(tmp_path / "nowhere", target).found
    assert "is one file" in refused(plain / "config.json", target).found
    assert "over the one that it is made of" in refused(plain, plain).found
    convert(Request(plain, tmp_path / "quantised", jobs=1))
    twice = refused(tmp_path / "quantised", target)
    assert "quantised already (nvfp4" in twice.found and "onecat model dequantize" in twice.next_steps[0]
    shutil.copytree(plain, tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").rename(tmp_path / "pickled" / "pytorch_model.bin")
    assert "pickles" in refused(tmp_path / "pickled", target).found
    content = (plain / "model.safetensors").read_bytes()
    (plain / "model.safetensors").write_bytes(content[:-8])
    assert "is cut off" in refused(plain, target).found
    (plain / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "Git LFS pointer" in refused(plain, target).found


def test_options_that_do_not_go_together_are_refused(plain: Path, tmp_path: Path) -> None:
    target = tmp_path / "made"
    assert "names of deepseek" in refused(plain, target, naming="deepseek").found
    assert "names of modelopt" in refused(plain, target, scheme="fp8-block", naming="modelopt").found
    assert "--search mse" in refused(plain, target, scheme="fp8-block", search="mse").found
    assert "no matrix" in refused(plain, target, ignore=("model.layers",)).found


def test_patterns_choose_modules(plain: Path, tmp_path: Path) -> None:
    def modules(**options: Any) -> set[str]:
        outcome = convert(Request(plain, tmp_path / "made", jobs=1, dry_run=True, **options))
        return {name.removeprefix("model.layers.") for name in outcome.selection.modules}

    everything = modules()
    assert len(everything) == 14
    assert modules(include=("model.layers.1",)) == {name for name in everything if name.startswith("1.")}
    assert modules(ignore=("*.o_proj", r"re:.*layers\.0\.mlp")) == {
        name for name in everything if "o_proj" not in name and not name.startswith("0.mlp")
    }
    # q_proj is joined with k_proj and v_proj
    assert modules(ignore=("model.layers.0.self_attn.q_proj",)) == everything - {
        f"0.self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj")
    }
    nothing = refused(plain, tmp_path / "made", ignore=("q_proj",))
    assert nothing.found == "--ignore q_proj covers no matrix of this checkpoint"
    assert nothing.next_steps[0] == "--ignore '*.q_proj'"
    assert "no regular expression" in refused(plain, tmp_path / "made", include=("re:(",)).found
    none = refused(plain, tmp_path / "made", ignore=("model",), dry_run=True)
    assert "model.layers.0.self_attn.q_proj: named by --ignore" in none.details
    assert none.next_steps == ("take --include or --ignore away",)


def test_an_unknown_architecture_is_converted_by_names_and_says_so(plain: Path, tmp_path: Path) -> None:
    config = json.loads((plain / "config.json").read_text())
    (plain / "config.json").write_text(json.dumps(config | {"architectures": ["NobodyKnowsForCausalLM"]}))
    outcome = convert(Request(plain, tmp_path / "made", jobs=1))
    assert len(outcome.modules) == 14
    assert "NobodyKnowsForCausalLM" in outcome.notes[0] and "names of tensors" in outcome.notes[0]
    assert inspect(tmp_path / "made").quantization is not None


def test_weights_whose_configuration_is_missing_are_not_told_to_contradict_it(plain: Path, tmp_path: Path) -> None:
    convert(Request(plain, tmp_path / "made", jobs=1))
    (tmp_path / "made" / "config.json").unlink()
    told = {each.code for each in inspect(tmp_path / "made").problems}
    assert "missing-file" in told and "stored-not-claimed" not in told
