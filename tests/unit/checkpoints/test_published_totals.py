"""What weight files of real models say of themselves: their bytes, tensors and names are those that we tell beforehand.

The sizes are evidence of the files themselves: `total_size` of an index, the characters of an index (which depend on
every name), the bytes of a file with its header (on every name, shape and dtype).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import describe, read_quantization
from onecat.checkpoints.architectures.records import Weight
from onecat.checkpoints.quantization.storage import stored_tensors
from onecat.checkpoints.safetensors_header import BITS
from onecat.checkpoints.tensors import StoredTensors

HERE = Path(__file__).parent
CONFIGS = Path(__file__).parents[4] / "shared" / "fixtures" / "config"
ROWS = json.loads((HERE / "published_totals.json").read_text(encoding="utf-8"))
MODELS = {
    each["model"]: each["config"]
    for name in ("dense_models", "sparse_models")
    for each in json.loads((HERE / "architectures" / f"{name}.json").read_text(encoding="utf-8"))
}

Tensors = list[tuple[Weight, StoredTensors]]


def documents(row: dict[str, Any]) -> dict[str, Any]:
    """config.json of a row, and hf_quant_config.json where there is one."""
    if "captured" not in row:
        return {"config.json": {**MODELS[row["described"]], **row.get("changes", {})}}
    paths = (CONFIGS / f"config_{row['captured']}.json", CONFIGS / f"hf_quant_config_{row['captured']}.json")
    if not paths[0].is_file():
        pytest.skip("the captured configurations are not beside the project")
    read = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]
    config = {**read[0], **row.get("changes", {})}
    return dict(zip(("config.json", "hf_quant_config.json"), (config, *read[1:]), strict=False))


def tensors(read: dict[str, Any], drafts: bool = True) -> Tensors:
    architecture, claim = describe(read["config.json"]), read_quantization(read)
    assert architecture.estimated is None
    return [
        (weight, row)
        for weight in architecture.weights
        if drafts or weight.part != "draft"
        for row in stored_tensors(
            weight, claim and claim.scheme_for(weight), claim and claim.container, architecture.dtype
        )
    ]


def each_alone(told: Tensors) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of every tensor, experts one by one."""
    for _, row in told:
        numbers = range(row.count) if "*" in row.name else ("",)
        yield from ((row.name.replace("*", str(number)), row.dtype, row.shape) for number in numbers)


def file_bytes(told: Tensors, metadata: str = '"__metadata__":{"format":"pt"},') -> int:
    """Bytes of one safetensors file with these tensors, as the library writes it: widest dtypes first, by name."""
    members, end = [], 0
    for name, dtype, shape in sorted(each_alone(told), key=lambda each: (-BITS[each[1]], each[0])):
        start, end = end, end + math.prod(shape) * BITS[dtype] // 8
        sizes = ",".join(map(str, shape))
        members.append(f'"{name}":{{"dtype":"{dtype}","shape":[{sizes}],"data_offsets":[{start},{end}]}}')
    header = "{" + metadata + ",".join(members) + "}"
    return 8 + -(-len(header) // 8) * 8 + end


@pytest.mark.parametrize("row", ROWS, ids=[each["model"] for each in ROWS])
def test_a_model_has_the_bytes_tensors_and_names_of_its_files(row: dict[str, Any]) -> None:
    told = tensors(documents(row), row.get("drafts", True))
    total = sum(stored.bytes for _, stored in told)
    names = [name for name, _, _ in each_alone(told)] if {"tensors", "index", "file"} & set(row) else []
    if "total_size" in row:
        assert total == row["total_size"]
    if "tensors" in row:
        assert len(names) == row["tensors"]
    if "index" in row:
        stated = {each: row["index"][each] for each in ("total_parameters",) if each in row["index"]}
        shard = f"model-00001-of-{row['index']['shards']:05}.safetensors"
        index = {"metadata": {**stated, "total_size": total}, "weight_map": dict.fromkeys(names, shard)}
        assert len(json.dumps(index, indent=2)) + 1 == row["index"]["characters"]
    if "file" in row:
        assert file_bytes(told) == row["file"]


def test_nemotron_3_5_lightning_in_mixed_precision_has_the_tensors_of_its_headers() -> None:
    # https://github.com/mudler/vllm.cpp, tests/vllm/models/fixtures/nemotron_h_35_lightning: config.json, and
    # index.json from the headers of nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4. Its hf_quant_config.json is
    # not there: the algorithms of the modules are those that the dtypes in the headers tell.
    read = json.loads((HERE / "nemotron_3_5_lightning.json").read_text(encoding="utf-8"))
    kinds = read["config.json"]["layers_block_type"]
    layers: dict[str, dict[str, Any]] = {"lm_head": NVFP4}
    for index, kind in enumerate(kinds):
        mixer = f"backbone.layers.{index}.mixer"
        if kind == "mamba":
            layers |= {f"{mixer}.{each}": {"quant_algo": "FP8"} for each in ("in_proj", "out_proj")}
        for expert in (*(f"experts.{number}" for number in range(128)), "shared_experts") if kind == "moe" else ():
            layers |= {f"{mixer}.{expert}.{each}": NVFP4 for each in ("up_proj", "down_proj")}
    read["hf_quant_config.json"] = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}}
    told = tensors(read)
    scales_of_the_cache = 2 * kinds.count("attention")
    assert len(list(each_alone(told))) + scales_of_the_cache == 18487
    shapes = {row.name: (row.dtype, row.shape) for _, row in told}
    assert shapes["backbone.layers.0.mixer.in_proj.weight"] == ("F8_E4M3", (10304, 2688))
    assert shapes["backbone.layers.1.mixer.experts.*.down_proj.weight"] == ("U8", (2688, 928))
    assert shapes["backbone.layers.1.mixer.experts.*.down_proj.weight_scale"] == ("F8_E4M3", (2688, 116))
    assert shapes["backbone.layers.1.mixer.gate.e_score_correction_bias"] == ("F32", (128,))
    assert shapes["backbone.layers.12.mixer.k_proj.weight"] == ("BF16", (256, 2688))
    assert shapes["lm_head.weight"] == ("U8", (131072, 1344))
    assert shapes["mtp.layers.0.eh_proj.weight"] == ("BF16", (2688, 5376))
    assert shapes["mtp.layers.1.mixer.experts.*.up_proj.weight"] == ("BF16", (1856, 2688))


NVFP4 = {"quant_algo": "W4A16_NVFP4", "group_size": 16}


def hybrid_27b() -> dict[str, Any]:
    """Qwen3.5-27B, whose shape Qwen3.6 and 3.8 have."""
    config: dict[str, Any] = documents({"captured": "Qwen--Qwen3.5-27B"})["config.json"]
    return config


LINEAR_LAYERS = tuple(layer for layer in range(64) if (layer + 1) % 4)
TOWER = (
    *(f"model.visual.blocks.{block}.{each}" for block in range(27)
      for each in ("attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2")),
    "model.visual.merger.linear_fc1", "model.visual.merger.linear_fc2",
)  # fmt: skip
IGNORED = (
    *TOWER,
    *(f"model.language_model.layers.{layer}.linear_attn{each}" for layer in LINEAR_LAYERS
      for each in ("", ".norm", ".in_proj_a", ".in_proj_b")),
)  # fmt: skip
"""Modules that llm-compressor lists for this model. Source: the config.json files of the two tests below."""


def test_a_mixture_of_fp8_and_nvfp4_by_regex_has_the_dtypes_of_its_headers() -> None:
    # unsloth/Qwen3.8-27B-NVFP4: 336 F32, 1063 BF16 (32 of them scales of the cache), 401 F8_E4M3, 168 U8, and 849400392
    # bytes of draft layers. https://github.com/mudler/vllm.cpp/issues/821
    def weights(**fields: Any) -> dict[str, Any]:
        return {"type": "float", "dynamic": False, "symmetric": True, **fields}

    config = hybrid_27b()
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": [*IGNORED, "re:^mtp.*"],
        "config_groups": {
            "group_0": {
                "format": "float-quantized",
                "targets": [
                    r"re:.*layers\.(56|57|58|59|60|61|62|63)\.mlp\.(gate|up|down)_proj$",
                    r"re:.*self_attn\.(q|k|v|o)_proj$",
                    r"re:.*linear_attn\.(in_proj_qkv|in_proj_z|out_proj)$",
                    "lm_head",
                ],
                "weights": weights(num_bits=8, strategy="channel"),
                "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
            },
            "group_1": {
                "format": "nvfp4-pack-quantized",
                "targets": [r"re:.*mlp\.(gate|up|down)_proj$"],
                "weights": weights(
                    num_bits=4, strategy="tensor_group", group_size=16, scale_dtype="torch.float8_e4m3fn"
                ),
                "input_activations": {
                    "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "dynamic": "local",
                },
            },
        },
    }  # fmt: skip
    assert len(config["quantization_config"]["ignore"]) == 303
    told = tensors({"config.json": config})
    assert Counter(dtype for _, dtype, _ in each_alone(told)) == {"F32": 336, "BF16": 1031, "F8_E4M3": 401, "U8": 168}
    schemes = Counter(row.dtype for weight, row in told if weight.kind in ("linear", "head") and ".mlp." in weight.name)
    assert (schemes["U8"], schemes["F8_E4M3"]) == (168, 168 + 24)
    assert file_bytes([each for each in told if each[0].part == "draft"], metadata="") == 849400392


def test_asymmetric_int4_packed_in_int32_has_the_bytes_of_its_file() -> None:
    # https://github.com/fantasylord/Qwen36 (config.json; LFS pointer of model.safetensors at
    # 8a77d828143c8d01c30e539fa18ca89ac527e46d); its draft layers are a file of their own
    config = hybrid_27b()
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": [*IGNORED, "lm_head", "re:^mtp.*"],
        "config_groups": {
            "group_0": {
                "format": "pack-quantized", "targets": ["Linear"], "input_activations": None,
                "weights": {
                    "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": False,
                    "dynamic": False, "zp_dtype": "torch.int8",
                },
            },
        },
    }  # fmt: skip
    assert file_bytes(tensors({"config.json": config}, drafts=False)) == 18698467264
