"""From config.json and hf_quant_config.json to a `Quantization`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onecat.checkpoints.quantization.records import Quantization


def read_quantization(documents: Mapping[str, Mapping[str, Any]]) -> Quantization | None:
    """What a checkpoint claims of the storage of its weights.

    Parameters:
        documents: JSON documents by file name: config.json, hf_quant_config.json, quant_config.json, ...
    """
    stated = documents.get("config.json", {}).get("quantization_config")
    if stated is None:
        # Before version 0.31 ModelOpt wrote it into a file of its own, which engines read too.
        # https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/transformers_utils/config.py
        stated = documents.get("hf_quant_config.json")
    if not isinstance(stated, Mapping):
        return None
    method = _method(stated)
    if method is None:
        return None
    format = stated.get("format")
    return Quantization(
        scheme=method,
        container=method,
        method=method,
        format=format if isinstance(format, str) else None,
        kv_cache=_kv_cache(stated),
    )


def _method(stated: Mapping[str, Any]) -> str | None:
    """The method by the name that engines use; ModelOpt's algorithms have one each.

    https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/quantization/modelopt.py
    """
    method = _string(stated.get("quant_method"))
    inner = stated.get("quantization")
    algorithm = _string((inner if isinstance(inner, Mapping) else stated).get("quant_algo"))
    if algorithm is None or method not in (None, "modelopt"):
        return method
    if "MXFP8" in algorithm:
        return "modelopt_mxfp8"
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return "modelopt_mixed" if algorithm == "MIXED_PRECISION" else "modelopt"


def _kv_cache(stated: Mapping[str, Any]) -> str | None:
    """`fp8` where the checkpoint asks for an FP8 KV cache, by a scheme of 8-bit floats or ModelOpt's name for it.

    https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/utils/torch_utils.py (get_kv_cache_quant_algo_string)
    https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/attention/attention.py
    """
    inner = stated.get("quantization")
    for part in (inner if isinstance(inner, Mapping) else {}, stated):
        scheme = part.get("kv_cache_scheme")
        if isinstance(scheme, Mapping) and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8):
            return "fp8"
        if (_string(part.get("kv_cache_quant_algo")) or "").lower() == "fp8":
            return "fp8"
    return None


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
