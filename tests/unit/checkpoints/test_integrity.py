"""What is said of model directories that are not whole."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import write_tiny_checkpoint
from onecat.checkpoints.integrity import Fault, Request, read_contents, static_faults, verify
from onecat.checkpoints.integrity.registry import rules
from onecat.errors import OnecatError
from tests.unit.checkpoints.checkpoint_files import Made, write_checkpoint, write_weights

PLAIN: dict[str, Made] = {"a": ("F32", [2], None), "b": ("F32", [3], None)}
NVFP4: dict[str, Made] = {
    "m.weight_packed": ("U8", [4, 16], None),
    "m.weight_scale": ("F8_E4M3", [4, 2], None),
    "m.weight_global_scale": ("F32", [1], None),
}
FP8: dict[str, Made] = {
    "m.weight": ("F8_E4M3", [200, 130], None),
    "m.weight_scale_inv": ("F32", [2, 2], None),
}


def codes(directory: Path) -> dict[str, str]:
    """The codes of all faults of a directory that reads its headers and small files, with their severities."""
    return {fault.code: fault.severity for fault in static_faults(read_contents(directory))}


CLAIMS = ("stored-not-claimed", "missing-quant-method", "missing-architectures")
"""Codes of what a configuration says of its tensors: most directories here have one that says nothing."""


def beside_claims(directory: Path, **request: Any) -> tuple[Fault, ...]:
    """The faults of a verification that are about files and tensors themselves."""
    return tuple(each for each in verify(Request(directory, **request)).faults if each.code not in CLAIMS)


def only(directory: Path, **request: Any) -> Fault:
    """The one fault of files and tensors of a verification."""
    (fault,) = beside_claims(directory, **request)
    return fault


def write_index(directory: Path, weight_map: dict[str, str], **metadata: int) -> None:
    document = {"metadata": metadata, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(document))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    directory = write_checkpoint(tmp_path / "model", {})
    (directory / "model.safetensors").unlink()
    write_weights(directory / "model-00001-of-00002.safetensors", {"a": ("F32", [2], None)})
    write_weights(directory / "model-00002-of-00002.safetensors", {"b": ("F32", [3], None)})
    write_index(
        directory,
        {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
        total_size=20,
    )
    return directory


def test_a_whole_checkpoint_has_no_fault_whatever_is_read_of_it(tmp_path: Path, sharded: Path) -> None:
    tiny = write_tiny_checkpoint(tmp_path / "tiny")
    for directory in (tiny, sharded):
        found = verify(Request(directory, hash=True, weights=True, jobs=2))
        assert (found.faults, found.is_fine) == ((), True)
    assert found.digests.keys() >= {"config.json", "model-00001-of-00002.safetensors"}
    assert (found.weight_files, found.tensors, found.weight_bytes) == (2, 2, 20)


def test_every_rule_has_a_docstring() -> None:
    assert len(rules()) >= 10
    assert all(rule.__doc__ for rule in rules())


def test_a_missing_directory_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="does not exist"):
        verify(Request(tmp_path / "nowhere"))


def test_a_shard_that_the_index_lists_must_be_there(sharded: Path) -> None:
    (sharded / "model-00002-of-00002.safetensors").unlink()
    assert codes(sharded) == {"missing-shard": "fail"}


def test_shards_are_counted_by_their_numbers_without_an_index(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    assert codes(sharded) == {"no-index": "warn"}
    (sharded / "model-00002-of-00002.safetensors").unlink()
    assert codes(sharded) == {"no-index": "warn", "missing-shard": "fail"}


def test_a_tensor_that_the_index_names_and_no_shard_has(sharded: Path) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    write_index(sharded, {"a": first, "b": second, "c": second})
    assert codes(sharded) == {"missing-tensor": "fail"}
    write_index(sharded, {"a": second, "b": second, "x": first})
    assert codes(sharded) == {"missing-tensor": "fail", "tensor-elsewhere": "warn"}


def test_a_tensor_that_the_index_does_not_name_and_a_wrong_total(sharded: Path) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    write_weights(sharded / second, {"b": ("F32", [3], None), "c": ("F32", [1], None)})
    write_index(sharded, {"a": first, "b": second}, total_size=20)
    assert codes(sharded) == {"unlisted-tensor": "warn", "index-total-size": "warn"}


def test_a_tensor_in_two_shards(sharded: Path) -> None:
    write_weights(sharded / "model-00001-of-00002.safetensors", {"a": ("F32", [2], None), "b": ("F32", [3], None)})
    fault = next(each for each in static_faults(read_contents(sharded)) if each.code == "tensor-twice")
    assert (fault.severity, fault.where) == ("fail", "model-00002-of-00002.safetensors")


def test_an_index_without_a_map_and_a_directory_without_weights(sharded: Path, tmp_path: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text('{"weight_map": {"a": 1}}')
    assert codes(sharded) == {"bad-index": "fail"}
    bare = write_checkpoint(tmp_path / "bare", {})
    (bare / "model.safetensors").rename(bare / "pytorch_model.pt")
    fault = only(bare)
    assert (fault.code, "pytorch_model.pt" in fault.text) == ("no-weights", True)


def test_files_that_only_take_space_are_told_as_such(sharded: Path) -> None:
    write_weights(sharded / "extra.safetensors", {"a": ("F32", [2], None)})
    (sharded / "pytorch_model-00001-of-00002.bin").write_bytes(b"x" * 5000)
    assert codes(sharded) == {"unlisted-shard": "info", "bin-beside": "info"}


def test_each_copy_of_the_weights_is_held_to_its_own_index(sharded: Path) -> None:
    write_weights(sharded / "consolidated-1.safetensors", {"a": ("F32", [2], None)})
    write_weights(sharded / "consolidated-2.safetensors", {"b": ("F32", [3], None)})
    assert codes(sharded) == {}
    assert read_contents(sharded).shards == ("consolidated-1.safetensors", "consolidated-2.safetensors")
    write_weights(sharded / "consolidated-2.safetensors", {"a": ("F32", [2], None)})
    (fault,) = static_faults(read_contents(sharded))
    assert (fault.code, fault.where) == ("tensor-twice", "consolidated-2.safetensors")
    assert "keeps the later" in fault.why
    index = {"metadata": {}, "weight_map": {"a": "consolidated-1.safetensors"}}
    (sharded / "consolidated.safetensors.index.json").write_text(json.dumps(index))
    assert codes(sharded) == {}
    write_weights(sharded / "model-00002-of-00002.safetensors", {"c": ("F32", [3], None)})
    assert codes(sharded) == {"missing-tensor": "fail", "unlisted-tensor": "warn"}


@pytest.mark.parametrize(("cut", "code"), [(-1, "truncated"), (1, "overlong")])
def test_weight_files_are_as_long_as_their_headers_say(tmp_path: Path, cut: int, code: str) -> None:
    directory = write_checkpoint(tmp_path / "m", PLAIN)
    path = directory / "model.safetensors"
    os.truncate(path, path.stat().st_size + cut)
    assert codes(directory) == {code: "fail"}


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "merges.txt"])
def test_any_file_may_be_a_git_lfs_pointer(tmp_path: Path, name: str) -> None:
    directory = write_checkpoint(tmp_path / "m", PLAIN)
    (directory / name).write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4a' * 32}\nsize 17\n")
    faults = [each for each in static_faults(read_contents(directory)) if each.code == "lfs-pointer"]
    assert [each.where for each in faults] == [name]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("tokenizer.json", "", "empty-file"),
        ("config.json", "<!DOCTYPE html><html>401</html>", "web-page"),
        ("tokenizer_config.json", "{", "bad-json"),
        ("tokenizer.json", "[]", "bad-json"),
        ("tokenizer.json", "{}", "bad-tokenizer"),
        ("config.json", "[" * 100_000, "bad-json"),
        ("generation_config.json", '{"eos_token_id": [1, 300]}', "bad-token-id"),
    ],
)
def test_documents_that_are_not_what_their_names_say(tmp_path: Path, name: str, content: str, code: str) -> None:
    directory = write_checkpoint(tmp_path / "m", PLAIN, {"vocab_size": 300})
    (directory / name).write_text(content)
    assert code in codes(directory)


def test_what_a_download_left_unfinished(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "m", PLAIN)
    (directory / "model.safetensors.aria2").write_bytes(b"x")
    (directory / ".cache").mkdir()
    (directory / ".cache" / "x.incomplete").write_bytes(b"x")
    (directory / "vocab.txt").symlink_to("nowhere")
    found = [(each.code, each.severity, each.where) for each in static_faults(read_contents(directory))]
    assert sorted(found) == [
        ("dead-link", "fail", "vocab.txt"),
        ("unfinished-download", "fail", "model.safetensors"),
        ("unfinished-download", "warn", ".cache/x.incomplete"),
    ]


def test_what_serving_wants_beside_the_weights(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "m", PLAIN)
    (directory / "tokenizer_config.json").write_text("{}")
    (directory / "generation_config.json").unlink()
    assert codes(directory) == {"no-chat-template": "info", "no-generation-config": "info"}
    (directory / "tokenizer.json").rename(directory / "vocab.json")
    assert codes(directory)["missing-tokenizer"] == "fail"


@pytest.mark.parametrize(
    ("tied", "head", "expected"),
    [(False, False, {"missing-head": "fail"}), (True, True, {"head-beside-tied": "info"}), (False, True, {}),
     (True, False, {}), (None, False, {}), (None, True, {})],
)  # fmt: skip
def test_the_output_head_is_there_unless_it_is_tied(
    tmp_path: Path, tied: bool | None, head: bool, expected: dict[str, str]
) -> None:
    tensors: dict[str, Made] = {"model.embed_tokens.weight": ("F32", [2], None)}
    if head:
        tensors["lm_head.weight"] = ("F32", [2], None)
    config: dict[str, Any] = {"architectures": ["LlamaForCausalLM"]}
    if tied is not None:
        config["tie_word_embeddings"] = tied
    assert codes(write_checkpoint(tmp_path / "m", tensors, config)) == expected


def int4(group: int, scale: list[int]) -> tuple[dict[str, Made], dict[str, Any]]:
    stated = {"config_groups": {"g": {"weights": {"num_bits": 4, "group_size": group}}}}
    return (
        {"m.weight_packed": ("I32", [8, 16], None), "m.weight_scale": ("BF16", scale, None)},
        {"quantization_config": stated},
    )


GOOD: dict[str, tuple[dict[str, Made], dict[str, Any]]] = {
    "nvfp4 of compressed-tensors": (NVFP4, {}),
    "nvfp4 of modelopt": (
        {
            "m.weight": ("U8", [4, 16], None),
            "m.weight_scale": ("F8_E4M3", [4, 2], None),
            "m.weight_scale_2": ("F32", [], None),
        },
        {},
    ),
    "mxfp4": ({"m.weight_packed": ("U8", [4, 16], None), "m.weight_scale": ("U8", [4, 1], None)}, {}),
    "mxfp4 of joint experts": (
        {
            "l.mlp.experts.gate_up_proj_blocks": ("U8", [2, 4, 3, 16], None),
            "l.mlp.experts.gate_up_proj_scales": ("U8", [2, 4, 3], None),
        },
        {},
    ),
    "fp8 blocks": (FP8, {}),
    "fp8 blocks of compressed-tensors": (
        {"m.weight": ("F8_E4M3", [200, 130], None), "m.weight_scale": ("BF16", [2, 2], None)},
        {},
    ),
    "fp8 blocks of another size": (
        {"m.weight": ("F8_E4M3", [200, 130], None), "m.weight_scale_inv": ("F32", [4, 3], None)},
        {"quantization_config": {"weight_block_size": [64, 64]}},
    ),
    "fp8 blocks of joint experts": (
        {
            "l.mlp.experts.down_proj": ("F8_E4M3", [3, 200, 130], None),
            "l.mlp.experts.down_proj_scale_inv": ("F32", [3, 2, 2], None),
        },
        {},
    ),
    "fp8 channels": ({"m.weight": ("F8_E4M3", [6, 8], None), "m.weight_scale": ("F32", [6, 1], None)}, {}),
    "fp8 tensor": ({"m.weight": ("F8_E4M3", [6, 8], None), "m.weight_scale": ("F32", [], None)}, {}),
    "mxfp8": ({"m.weight": ("F8_E4M3", [6, 64], None), "m.weight_scale": ("U8", [6, 2], None)}, {}),
    "int4 in groups": int4(32, [8, 4]),
    "int4 in rows": int4(-1, [8, 1]),
    "gptq": (
        {
            "m.qweight": ("I32", [16, 8], None),
            "m.scales": ("F16", [4, 8], None),
            "m.qzeros": ("I32", [4, 1], None),
            "m.g_idx": ("I32", [128], None),
        },
        {"quantization_config": {"bits": 4, "group_size": 32}},
    ),
    "awq": (
        {
            "m.qweight": ("I32", [128, 2], None),
            "m.scales": ("F16", [4, 16], None),
            "m.qzeros": ("I32", [4, 2], None),
        },
        {"quantization_config": {"bits": 4, "group_size": 32}},
    ),
    "bitsandbytes": ({"m.weight": ("U8", [64, 1], None), "m.weight.absmax": ("U8", [2], None)}, {}),
}


@pytest.mark.parametrize("case", GOOD)
def test_scales_of_each_format_fit_their_weights(case: str, tmp_path: Path) -> None:
    tensors, config = GOOD[case]
    assert beside_claims(write_checkpoint(tmp_path / "m", tensors, {"x": 1, **config})) == ()


def changed(tensors: dict[str, Made], **parts: Made | None) -> dict[str, Made]:
    return {
        name: made for name, made in {**tensors, **{f"m.{part}": made for part, made in parts.items()}}.items() if made
    }


BAD: dict[str, tuple[dict[str, Made], dict[str, Any], str, str]] = {
    "nvfp4 groups of 32": (
        changed(NVFP4, weight_scale=("F8_E4M3", [4, 1], None)), {}, "scale-shape", "expected [4, 2]",
    ),
    "nvfp4 rows": (changed(NVFP4, weight_scale=("F8_E4M3", [3, 2], None)), {}, "scale-shape", "expected [4, 2]"),
    "nvfp4 of odd length": (changed(NVFP4, weight_packed=("U8", [4, 17], None)), {}, "packed-shape", "multiple of 16"),
    "nvfp4 without its global scale": (changed(NVFP4, weight_global_scale=None), {}, "missing-scale", "whole tensor"),
    "nvfp4 without scales": (changed(NVFP4, weight_scale=None), {}, "missing-scale", "no weight_scale"),
    "fp8 blocks rounded down": (
        changed(FP8, weight_scale_inv=("F32", [1, 1], None)), {}, "scale-shape", "expected [2, 2]",
    ),
    "fp8 blocks in one row": (
        changed(FP8, weight_scale_inv=None, weight_scale=("F32", [238], None)), {}, "scale-shape", "of [238]",
    ),
    "fp8 without a scale": (
        {**FP8, "n.weight": ("F8_E4M3", [2, 2], None)}, {}, "missing-scale", "others of this checkpoint: n",
    ),
    "a scale without its weight": (changed(FP8, weight=None), {}, "orphan-scale", "has no weight"),
    "mxfp4 blocks": (
        {"e.experts.up_proj_blocks": ("U8", [2, 4, 3, 16], None), "e.experts.up_proj_scales": ("U8", [2, 4, 4], None)},
        {}, "scale-shape", "expected [2, 4, 3]",
    ),
    "int4 of no group": (*int4(64, [8, 5]), "scale-shape", "groups of 64"),
    "gptq of other zero points": (
        {"m.qweight": ("I32", [16, 8], None), "m.scales": ("F16", [2, 8], None), "m.qzeros": ("I32", [4, 1], None)},
        {"quantization_config": {"bits": 4, "group_size": 64}}, "scale-shape", "zero points of [4, 1]",
    ),
    "gptq of other outputs": (
        {"m.qweight": ("I32", [16, 8], None), "m.scales": ("F16", [4, 9], None)}, {}, "scale-shape", "of outputs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_scales_that_do_not_fit_their_weights_are_told_with_what_was_expected(case: str, tmp_path: Path) -> None:
    tensors, config, code, text = BAD[case]
    fault = only(write_checkpoint(tmp_path / "m", tensors, {"x": 1, **config}))
    assert (fault.code, fault.severity) == (code, "fail")
    assert text.replace("checkpoint: n", "checkpoint have one: n") in fault.text


def gptq(groups: int) -> dict[str, Made]:
    """A module of 128 inputs and 8 outputs in 4 bits."""
    return {
        "m.qweight": ("I32", [16, 8], None),
        "m.scales": ("F16", [groups, 8], None),
        "m.qzeros": ("I32", [groups, 1], None),
    }


def of_blocks(rows: int, columns: int) -> dict[str, Made]:
    return {"m.weight": ("F8_E4M3", [256, 512], None), "m.weight_scale_inv": ("F32", [rows, columns], None)}


OTHER_SIZES: dict[str, tuple[dict[str, Made], dict[str, Any], str]] = {
    "int4": (*int4(64, [8, 4]), "group-size-differs: claims groups of 64, stored is 32"),
    "gptq": (gptq(4), {"bits": 4, "group_size": 64}, "group-size-differs: claims groups of 64, stored is 32"),
    "gptq rows": (
        gptq(1), {"bits": 4, "group_size": 32},
        "group-size-differs: claims groups of 32, stored is one group for each row",
    ),
    "awq": (
        {"m.qweight": ("I32", [128, 2], None), "m.scales": ("F16", [2, 16], None), "m.qzeros": ("I32", [2, 2], None)},
        {"quant_method": "awq", "bits": 4, "group_size": 128}, "group-size-differs: claims groups of 128, stored is 64",
    ),
    "nvfp4": (
        {name: made for name, made in NVFP4.items()},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32},
        "group-size-differs: claims groups of 32, stored is 16",
    ),
    "fp8 blocks": (
        of_blocks(4, 8), {"quant_method": "fp8", "weight_block_size": [128, 128]},
        "block-differs: claims blocks of 128 x 128, stored is 64 x 64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER_SIZES)
def test_one_wrong_size_in_config_json_is_told_once_and_it_is_config_json_that_is_to_be_mended(
    case: str, tmp_path: Path
) -> None:
    tensors, stated, told = OTHER_SIZES[case]
    config = stated if "quantization_config" in stated else {"quantization_config": stated}
    names = {name.replace("m.", "model.layers.0.mlp.down_proj."): made for name, made in tensors.items()}
    directory = write_checkpoint(tmp_path / "m", names, {"architectures": ["LlamaForCausalLM"], **config})
    (fault,) = [each for each in beside_claims(directory) if each.code != "container-differs"]
    assert f"{fault.code}: {fault.text}".startswith(f"{told}: model.layers.0.mlp.down_proj")
    assert (fault.severity, fault.where) == ("fail", "config.json")
    assert "correct" in fault.fix and "download" not in fault.fix


def test_one_torn_file_does_not_make_the_configuration_wrong(tmp_path: Path) -> None:
    tensors = {f"{index}.{name}": made for index in range(3) for name, made in gptq(4).items()}
    tensors |= {f"3.{name}": made for name, made in gptq(2).items()}
    directory = write_checkpoint(tmp_path / "m", tensors, {"quantization_config": {"bits": 4, "group_size": 32}})
    faults = {fault.code: fault for fault in static_faults(read_contents(directory))}
    assert "group-size-differs" not in faults
    assert faults["scale-shape"].text.endswith("expected [4, 8]: 3.m")
    assert "download" in faults["scale-shape"].fix


def test_scales_of_another_group_than_nvfp4_has_are_wrong_themselves_and_told_once(tmp_path: Path) -> None:
    module = "model.layers.0.mlp.down_proj"
    tensors: dict[str, Made] = {
        f"{module}.weight": ("U8", [4, 64], None),
        f"{module}.weight_scale": ("F8_E4M3", [4, 4], None),
        f"{module}.weight_scale_2": ("F32", [], None),
    }
    stated = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    directory = write_checkpoint(
        tmp_path / "m", tensors, {"architectures": ["LlamaForCausalLM"], "quantization_config": stated}
    )
    (fault,) = beside_claims(directory)
    assert (fault.code, fault.where) == ("scale-shape", "model.safetensors")
    assert "expected [4, 8]" in fault.text and "download" in fault.fix


VALUES = {
    "nan": {
        "F32": b"\x00\x00\xc0\x7f",
        "BF16": b"\xc0\x7f",
        "F16": b"\x00\x7e",
        "F8_E4M3": b"\x7f",
        "F8_E8M0": b"\xff",
    },
    "infinite": {"F32": b"\x00\x00\x80\x7f", "BF16": b"\x80\x7f", "F16": b"\x00\x7c"},
    "zero": {"F32": b"\x00\x00\x00\x80", "BF16": b"\0\0", "F16": b"\0\0", "F8_E4M3": b"\0"},
    "negative": {"F32": b"\x00\x00\x80\xbf", "BF16": b"\x80\xbf", "F16": b"\x00\xbc", "F8_E4M3": b"\xb8"},
}


@pytest.mark.parametrize(("kind", "dtype"), [(kind, dtype) for kind in VALUES for dtype in VALUES[kind]])
def test_values_that_no_scale_has_are_found_in_every_format(kind: str, dtype: str, tmp_path: Path) -> None:
    from tests.unit.checkpoints.checkpoint_files import ONES

    content = ONES[dtype] * 3 + VALUES[kind][dtype] + ONES[dtype] * 4
    weight: Made = ("F8_E4M3", [8, 4], None)
    fault = only(write_checkpoint(tmp_path / "m", {"m.weight": weight, "m.weight_scale": (dtype, [8, 1], content)}))
    severity = {"zero": "info", "negative": "fail" if dtype == "F8_E4M3" else "warn"}.get(kind, "fail")
    assert (fault.code, fault.severity) == (f"{kind}-scale", severity)
    assert fault.text.startswith("1 value is") and fault.where == "model.safetensors"


def test_a_scale_of_a_whole_tensor_is_not_zero(tmp_path: Path) -> None:
    tensors = changed(NVFP4, weight_global_scale=("F32", [1], b"\0\0\0\0"))
    assert only(write_checkpoint(tmp_path / "m", tensors)).severity == "fail"


def test_weights_are_read_for_nan_only_when_asked(tmp_path: Path) -> None:
    broken = {**PLAIN, "w": ("BF16", [3], b"\x80\x3f\xc0\x7f\x80\xff")}
    directory = write_checkpoint(tmp_path / "m", broken)
    found = verify(Request(directory))
    assert found.faults == () and any("--weights" in each for each in found.skipped)
    assert [fault.code for fault in beside_claims(directory, weights=True)] == [
        "nan-weight",
        "infinite-weight",
    ]


def test_values_beyond_one_piece_are_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onecat.checkpoints.integrity.values.CHUNK", 16)
    content = VALUES["nan"]["F32"] + b"\x00\x00\x80\x3f" * 9 + VALUES["nan"]["F32"]
    directory = write_checkpoint(tmp_path / "m", {"w": ("F32", [11], content)})
    read: list[int] = []
    found = verify(Request(directory, weights=True), lambda progress: read.append(progress.done))
    assert [fault.text[:16] for fault in found.faults] == ["2 values are NaN"]
    assert read == [16, 32, 44]


def test_layers_that_are_joined_want_one_scale_of_the_tensor(tmp_path: Path) -> None:
    def layer(name: str, scale: float) -> dict[str, Made]:
        return {
            f"{name}.weight_packed": ("U8", [4, 16], None),
            f"{name}.weight_scale": ("F8_E4M3", [4, 2], None),
            f"{name}.weight_global_scale": ("F32", [1], struct.pack("<f", scale)),
        }

    same = {**layer("l.0.q_proj", 4), **layer("l.0.k_proj", 4), **layer("l.0.v_proj", 4), **layer("l.0.o_proj", 2)}
    assert beside_claims(write_checkpoint(tmp_path / "same", same)) == ()
    fault = only(write_checkpoint(tmp_path / "other", {**same, **layer("l.0.v_proj", 8), **layer("l.1.gate_proj", 1)}))
    assert (fault.code, fault.severity) == ("fused-scales-differ", "warn")
    assert "qkv_proj differs by up to 2 times: l.0.qkv_proj" in fault.text


def test_gigabytes_of_scales_are_read_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onecat.checkpoints.integrity.verification.MOST_SCALE_BYTES", 8)
    monkeypatch.setattr("onecat.checkpoints.integrity.verification.SMALL_SCALE_BYTES", 4)
    tensors = changed(NVFP4, weight_scale=("F8_E4M3", [4, 2], b"\x7f" * 8))
    directory = write_checkpoint(tmp_path / "m", tensors)
    found = verify(Request(directory))
    assert beside_claims(directory) == () and any("--weights reads them" in each for each in found.skipped)
    assert [fault.code for fault in beside_claims(directory, weights=True)] == ["nan-scale"]


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        ('{"architectures": []}'.encode("utf-16"), "save it as UTF-8"),
        (b"\xef\xbb\xbf{}", "save it as UTF-8"),
        (b"{} // so", "remove the comments"),
        (b'{"architectures": [', "download this file again"),
    ],
)
def test_what_mends_json_is_told_by_what_is_wrong_with_it(tmp_path: Path, content: bytes, fix: str) -> None:
    directory = write_checkpoint(tmp_path / "model", PLAIN)
    (directory / "config.json").write_bytes(content)
    (fault,) = [each for each in static_faults(read_contents(directory)) if each.code == "bad-json"]
    assert fault.where == "config.json" and fault.fix.startswith(fix)


def test_names_and_sizes_are_of_all_files_below_but_those_of_git(tmp_path: Path) -> None:
    for name, content in {"a": b"", "b/c/d.txt": b"12", ".git/config": b"1"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "b" / "link").symlink_to("nowhere")
    found = read_contents(tmp_path)
    assert found.sizes == {"a": 0, "b/c/d.txt": 2, "b/link": -1}
    assert found.starts == {"a": b"", "b/c/d.txt": b"12"}


def test_what_inspect_says_of_the_configuration_is_told_once(tmp_path: Path) -> None:
    directory = write_tiny_checkpoint(tmp_path / "tiny")
    config = json.loads((directory / "config.json").read_text())
    config |= {"vocab_size": config["vocab_size"] + 1, "tie_word_embeddings": True}
    (directory / "config.json").write_text(json.dumps(config))
    found = verify(Request(directory))
    (fault,) = [each for each in found.faults if each.code == "vocabulary-differs"]
    assert (fault.severity, fault.where, found.is_fine) == ("fail", "config.json", False)
    assert f"says vocab_size {config['vocab_size']}" in fault.text
    assert [each.code for each in found.faults if "tied" in each.code] == ["head-beside-tied"]


def test_what_no_file_holds_is_told_once_by_the_file_that_lacks_it(tmp_path: Path) -> None:
    directory = write_tiny_checkpoint(tmp_path / "tiny")
    content = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(content[:-1])
    (directory / "tokenizer.json").unlink()
    found = [fault.code for fault in verify(Request(directory)).faults]
    assert found.count("truncated") == 1 and found.count("missing-tokenizer") == 1
    assert len(found) == len(set(found))


def test_what_mlx_packed_is_explained_and_not_to_be_downloaded_again(tmp_path: Path) -> None:
    tensors: dict[str, Made] = {
        "model.layers.0.mlp.down_proj.weight": ("U32", [64, 8], None),
        "model.layers.0.mlp.down_proj.scales": ("BF16", [64, 1], None),
        "model.layers.0.mlp.down_proj.biases": ("BF16", [64, 1], None),
    }
    config = {"architectures": ["Qwen3ForCausalLM"], "quantization": {"bits": 4, "group_size": 64}}
    faults = verify(Request(write_checkpoint(tmp_path / "m", tensors, config))).faults
    assert [(each.code, each.severity) for each in faults if each.severity != "info"] == [("mlx", "fail")]
    assert not any("download" in each.fix for each in faults)


def test_one_is_counted_as_one(tmp_path: Path) -> None:
    checked = verify(Request(write_checkpoint(tmp_path / "m", {"a": ("F32", [2], None)}))).checked
    assert checked[0].startswith("1 weight file with 1 tensor:")
