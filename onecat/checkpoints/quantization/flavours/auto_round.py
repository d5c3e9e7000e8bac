"""AutoRound and Intel Neural Compressor: the layout of another tool, named in `packing_format`, bits by layer.

Source: vllm 0.27.1, vllm/model_executor/layers/quantization/inc/ (inc.py, config_parser.py);
https://github.com/intel/auto-round (export/export_to_autoround).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.flavours import awq_gptq, compressed_tensors
from onecat.checkpoints.quantization.kv_cache import asked_kv_cache
from onecat.checkpoints.quantization.records import LINEAR, Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Layout, Matrix, Stored, flavour, layout

REGEX_SIGNS = re.compile(r"[*+?^$()\[\]{}|\\]")
"""What makes a name in `extra_config` a pattern."""

UNQUANTISED_BITS = 16

LAYOUTS: tuple[tuple[str, Layout], ...] = (
    ("awq", awq_gptq.awq_tensors),
    ("llm_compressor", compressed_tensors.tensors),
    ("fp8", compressed_tensors.tensors),
    ("nv_fp", compressed_tensors.tensors),
    ("mx_fp", compressed_tensors.tensors),
    ("gptq", awq_gptq.gptq_tensors),
)


@flavour("auto-round", "auto_round", "inc", "intel/auto-round")
def auto_round(claim: Claim) -> Quantization:
    form = claim.word("packing_format") or "auto_round:auto_gptq"
    rules, ignored = [], []
    for name, changed in claim.parts("extra_config"):
        scheme = _scheme(Claim({**claim.stated, **changed.stated}), form)
        pattern = REGEX_SIGNS.search(name) is not None
        rules.append(Rule(name, scheme, "search" if pattern else "name"))
        if not pattern:
            rules.append(Rule(name, scheme, "components"))
        if scheme is None:
            ignored.append(name)
    default = _scheme(claim, form)
    blocks = claim.words("block_name_to_quantize", "to_quant_block_names")
    if blocks:
        rules += [Rule(each, default, "below", LINEAR) for each in blocks]
    else:
        rules.append(Rule("*", default, "all", LINEAR, ("language",)))
    return schemes.quantization(
        "auto-round", "inc", rules, format=form, ignored=ignored, kv_cache=asked_kv_cache(claim)
    )


def _scheme(claim: Claim, form: str) -> WeightScheme | None:
    """None for a layer that `extra_config` leaves at 16 bits."""
    bits = claim.bits("bits") or 4
    if bits >= UNQUANTISED_BITS:
        return None
    data, size = claim.word("data_type") or "int", claim.group_size("group_size")
    become = claim.word("act_data_type") if (claim.bits("act_bits") or UNQUANTISED_BITS) < UNQUANTISED_BITS else None
    if "mx_fp" in data:
        return schemes.mxfp4(become) if bits == 4 else schemes.mxfp8(become)
    if "nv_fp" in data:
        return schemes.nvfp4(become, group_size=size or schemes.NVFP4_GROUP)
    if data.startswith("fp"):
        return schemes.fp8("tensor" if size is None else "channel", become, input_scale=not claim.flag("act_dynamic"))
    packed = 32 // bits
    return schemes.integer(bits, size, activations=become, zero_points=True, packed=packed, format=form)


@layout("auto-round")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """As the tool that the format names lays them out; floats as compressed-tensors does."""
    form = scheme.format or "llm_compressor"
    lay_out = next((lay_out for name, lay_out in LAYOUTS if name in form), awq_gptq.gptq_tensors)
    yield from lay_out(matrix, scheme)
