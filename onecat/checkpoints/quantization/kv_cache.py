"""What a quantisation configuration asks of the KV cache."""

from __future__ import annotations

from onecat.checkpoints.quantization.claim import Claim


def asked_kv_cache(claim: Claim) -> str | None:
    """`fp8` where the checkpoint asks for an FP8 KV cache, by a scheme of 8-bit floats or ModelOpt's name for it;
    `nvfp4` likewise.

    https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/utils/torch_utils.py (get_kv_cache_quant_algo_string)
    https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/attention/attention.py
    """
    for part in (claim.part("quantization"), claim):
        if part is None:
            continue
        scheme = part.part("kv_cache_scheme")
        if scheme is not None and (scheme.word("type"), scheme.integer("num_bits")) == ("float", 8):
            return "fp8"
        for name in ("kv_cache_quant_algo", "kv_cache_scheme"):
            stated = (part.word(name) or "").lower()
            if stated in ("fp8", "nvfp4"):
                return stated
    return None
