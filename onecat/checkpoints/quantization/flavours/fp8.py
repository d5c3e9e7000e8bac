"""FP8 as DeepSeek publishes it (blocks with a scale each) and as older tools write it (one scale for a tensor).

Source: vllm 0.27.1, vllm/model_executor/layers/quantization/fp8.py and fbgemm_fp8.py; transformers,
integrations/finegrained_fp8.py (which modules are replaced, and by which names they are not).
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.kv_cache import asked_kv_cache
from onecat.checkpoints.quantization.records import LINEAR, Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout

NEVER = ("indexer.weights_proj", "eh_proj")
"""Linear modules that DeepSeek's checkpoints keep without listing them; the engine has them without quantisation
(vllm/model_executor/models/deepseek_v2.py, deepseek_mtp.py)."""


@flavour("fp8", "deepseek_fp8")
def fp8(claim: Claim) -> Quantization:
    ignored = claim.words("ignored_layers", "modules_to_not_convert")
    block = claim.block("weight_block_size")
    static = claim.word("activation_scheme") == "static"
    if block is not None:
        scales = "F8_E8M0" if claim.word("scale_fmt") == "ue8m0" and claim.word("scale_dtype") else "F32"
        scheme = schemes.fp8("block", block=block, scale_dtype=scales)
    else:
        scheme = schemes.fp8("tensor", input_scale=static)
    rules = [Rule(each, None, "components") for each in (*ignored, *NEVER)]
    rules.append(Rule("*", scheme, "all", LINEAR))
    return schemes.quantization("fp8", "fp8", rules, ignored=ignored, kv_cache=asked_kv_cache(claim))


@flavour("fbgemm_fp8")
def fbgemm(claim: Claim) -> Quantization:
    ignored = claim.words("modules_to_not_convert", "ignored_layers")
    scheme = schemes.fp8("channel", format="fbgemm", input_scale=True)
    rules = [*(Rule(each, None, "components") for each in ignored), Rule("*", scheme, "all", LINEAR)]
    return schemes.quantization("fbgemm_fp8", "fbgemm_fp8", rules, ignored=ignored)


@layout("fp8", "fbgemm_fp8")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """`weight`, with `weight_scale_inv` of blocks or `weight_scale`, and `input_scale` where it is static."""
    out, into, outer = matrix.out, matrix.into, matrix.outer
    stem = "_" if matrix.joint else "."
    scale = "_scale" if matrix.joint else ".weight_scale"
    yield Stored("" if matrix.joint else ".weight", "F8_E4M3", (*outer, out, into))
    dtype = scheme.scale_dtype or "F32"
    if scheme.block is not None:
        rows, columns = -(-out // scheme.block[0]), -(-into // scheme.block[1])
        yield Stored(f"{scale}_inv", dtype, (*outer, rows, columns))
    elif scheme.format == "fbgemm":
        yield Stored(scale, dtype, (*outer, out, 1))
        yield Stored(f"{stem}input_scale_ub", "F32", (1,))
    else:
        yield Stored(scale, dtype, outer)
        if scheme.input_scale:
            yield Stored(f"{stem}input_scale", "F32", outer)
