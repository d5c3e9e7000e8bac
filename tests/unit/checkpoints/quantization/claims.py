"""Quantisation configurations as tools write them, for tests."""

from __future__ import annotations

from typing import Any

NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
DYNAMIC_FP8 = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def compressed(
    form: str, weights: dict[str, Any], inputs: dict[str, Any] | None = None, *, ignore: tuple[str, ...] = ("lm_head",)
) -> dict[str, Any]:
    """A claim of compressed-tensors with one group for all linear modules."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": list(ignore),
    }


CLAIMS: dict[str, dict[str, Any]] = {
    "ct-nvfp4": compressed("nvfp4-pack-quantized", NVFP4, {**NVFP4, "dynamic": "local"}),
    "ct-nvfp4-a16": compressed("nvfp4-pack-quantized", NVFP4),
    "ct-mxfp4": compressed(
        "mxfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"},
    ),
    "ct-fp8-tensor": compressed("float-quantized", {**FP8, "strategy": "tensor"}, {**FP8, "strategy": "tensor"}),
    "ct-fp8-channel": compressed("float-quantized", {**FP8, "strategy": "channel"}, DYNAMIC_FP8),
    "ct-fp8-block": compressed(
        "float-quantized",
        {**FP8, "strategy": "block", "block_structure": [128, 128]},
        {**DYNAMIC_FP8, "strategy": "group", "group_size": 128},
    ),
    "ct-int4": compressed("pack-quantized", INT4),
    "ct-int4-asymmetric": compressed("pack-quantized", {**INT4, "symmetric": False}),
    "ct-int4-ordered": compressed("pack-quantized", {**INT4, "actorder": "group"}),
    "ct-int8-channel": compressed("pack-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}),
    "ct-w8a8": compressed(
        "int-quantized",
        {"num_bits": 8, "type": "int", "strategy": "channel"},
        {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True},
    ),
    "modelopt-nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]},
    "modelopt-awq": {"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ", "ignore": ["lm_head"]},
    "modelopt-w4a8": {"quant_method": "modelopt", "quant_algo": "W4A8_NVFP4_FP8", "ignore": ["lm_head"]},
    "modelopt-fp8": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
    "modelopt-channel": {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "ignore": ["lm_head"]},
    "modelopt-block": {"quant_method": "modelopt", "quant_algo": "fp8_pb_wo", "ignore": ["lm_head"]},
    "modelopt-mxfp8": {"quant_method": "modelopt", "quant_algo": "MXFP8", "ignore": ["lm_head"]},
    "fp8-block": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "fp8-static": {"quant_method": "fp8", "activation_scheme": "static"},
    "fp8-dynamic": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fbgemm": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True},
    "gptq-one-group": {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": False, "sym": True},
    "bnb-nf4": {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
    },
    "bnb-int8": {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["lm_head"]},
    "auto-round": {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "data_type": "int",
                   "packing_format": "auto_round:auto_gptq"},
    "auto-round-awq": {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": False, "data_type": "int",
                       "packing_format": "auto_round:auto_awq"},
    "quark-fp8": {
        "quant_method": "quark", "exclude": ["lm_head"], "export": {"kv_cache_group": [], "pack_method": "reorder"},
        "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False},
                                "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}},
    },
    "quark-mxfp4": {
        "quant_method": "quark", "exclude": ["lm_head"], "export": {"kv_cache_group": []},
        "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32,
                                           "scale_format": "e8m0"},
                                "input_tensors": {"dtype": "fp4", "is_dynamic": True}},
    },
    "torchao": {"quant_method": "torchao", "quant_type": {"default": {
        "_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}}, "modules_to_not_convert": ["lm_head"]},
    "quasar": {"quant_method": "quasar_nvfp4", "block_size": 16, "scale_bits": 8},
}  # fmt: skip
