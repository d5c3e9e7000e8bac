"""compressed-tensors, which llm-compressor writes: groups of modules with a scheme each.

Sources: https://github.com/vllm-project/compressed-tensors (0.17.0: quantization/quant_args.py, quant_config.py,
compressors/), and for what covers a module vllm 0.27.1,
vllm/model_executor/layers/quantization/compressed_tensors/utils.py (should_ignore_layer, find_matched_target).
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures.records import WeightKind
from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.kv_cache import asked_kv_cache
from onecat.checkpoints.quantization.matching import Matching
from onecat.checkpoints.quantization.records import LINEAR, MATRICES, Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout

DEFAULT_WEIGHTS = {
    "nvfp4-pack-quantized": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
    "mxfp4-pack-quantized": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
    "mxfp8-quantized": {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32},
    "float-quantized": {"num_bits": 8, "type": "float", "strategy": "tensor"},
    "int-quantized": {"num_bits": 8, "type": "int", "strategy": "channel"},
    "pack-quantized": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
    "marlin-24": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
}
"""What a format without groups stands for."""

CLASSES: tuple[tuple[str, tuple[WeightKind, ...]], ...] = (
    ("linear", MATRICES),
    ("routedexperts", LINEAR),
    ("lmhead", ("head",)),
    ("embedding", ("embedding",)),
)
"""Weights of the classes of modules that a target may name; the engine compares by parts of names, case aside."""


@flavour("compressed-tensors", "compressed_tensors", "sparseml")
def compressed_tensors(claim: Claim) -> Quantization:
    form = claim.word("format")
    ignored = claim.words("ignore")
    groups = [group for _, group in claim.parts("config_groups")]
    if not groups and claim.part("weights"):
        groups = [claim]
    if not groups and form in DEFAULT_WEIGHTS:
        groups = [Claim({"weights": DEFAULT_WEIGHTS[form]})]
    by_name: list[Rule] = []
    by_class: list[Rule] = []
    for group in groups:
        scheme = _scheme(group, group.word("format") or form)
        for target in group.words("targets") or ("Linear",):
            rule = _target(target, scheme)
            (by_class if rule.matching == "all" else by_name).append(rule)
    rules = [*(Rule(each, None, _ignoring(each)) for each in ignored), *by_name, *by_class]
    return schemes.quantization(
        "compressed-tensors", "compressed-tensors", rules, format=form, ignored=ignored, kv_cache=asked_kv_cache(claim)
    )


def _matching(stated: str) -> Matching:
    return "regex" if stated.startswith("re:") else "name"


def _ignoring(stated: str) -> Matching:
    """Patterns to ignore are held to q_proj, k_proj and v_proj, and never to the qkv_proj that they become."""
    return "shards" if stated.startswith("re:") else "name"


def _target(stated: str, scheme: WeightScheme | None) -> Rule:
    """A class has neither dots nor `re:`, and a capital; `Attention` quantises no weights of its own."""
    if stated.startswith("re:") or "." in stated or not stated[:1].isupper():
        return Rule(stated, scheme, _matching(stated))
    kinds = next((kinds for name, kinds in CLASSES if name in stated.lower()), ())
    return Rule(stated, scheme, "all", kinds)


def _scheme(group: Claim, form: str | None) -> WeightScheme | None:
    """The scheme of a group; None when it quantises activations only."""
    weights = group.part("weights")
    if weights is None:
        return None
    bits = weights.bits("num_bits") or 8
    size = weights.group_size("group_size")
    strategy = weights.word("strategy") or ("tensor" if size is None else "group")
    activations = group.part("input_activations")
    become = None if activations is None else _activations(activations)
    static = activations is not None and activations.stated.get("dynamic", False) in (False, "local")
    scales = _safetensors(weights.word("scale_dtype"))
    if weights.word("type") == "float":
        if bits == 4 and ((form or "").startswith("mxfp4") or (size == 32 and not (form or "").startswith("nvfp4"))):
            return schemes.mxfp4(become)
        if bits == 4:
            return schemes.nvfp4(become, group_size=size or schemes.NVFP4_GROUP, input_scale=static)
        if (form or "").startswith("mxfp8") or (size == 32 and scales == "U8"):
            return schemes.mxfp8(become)
        block = weights.block("block_structure")
        kind = strategy if block is None else "block"
        found = schemes.fp8(kind, become, block=block, scale_dtype=scales, input_scale=static)
        return found if kind != "group" else WeightScheme("fp8-group", 8, size, None, scales, become, False, 1, static)
    packed = 32 // bits if form in ("pack-quantized", "marlin-24") or (form is None and bits < 8) else 1
    return schemes.integer(
        bits, size if strategy in ("group", "tensor_group") else None, activations=become,
        zero_points=not weights.flag("symmetric", True) and strategy != "tensor", packed=packed, input_scale=static,
        ordered=weights.word("actorder") == "group",
        format=form if form == "marlin-24" else "tensor" if strategy == "tensor" else None,
    )  # fmt: skip


def _activations(stated: Claim) -> str:
    bits = stated.bits("num_bits") or 8
    if stated.word("type") != "float":
        return f"int{bits}"
    if bits == 4:
        return "mxfp4" if stated.integer("group_size") == schemes.MX_GROUP else "nvfp4"
    return "mxfp8" if stated.integer("group_size") == schemes.MX_GROUP else f"fp{bits}"


def _safetensors(torch: str | None) -> str | None:
    names = {
        "float8_e4m3fn": "F8_E4M3", "uint8": "U8", "bfloat16": "BF16", "float16": "F16", "float32": "F32",
        "float8_e8m0fnu": "F8_E8M0",
    }  # fmt: skip
    return names.get((torch or "").removeprefix("torch."))


@layout("compressed-tensors")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """`weight_packed` or `weight`, `weight_scale`, and what the scheme needs beside them."""
    out, into, outer = matrix.out, matrix.into, matrix.outer
    scale = scheme.scale_dtype or matrix.dtype
    if scheme.name in ("nvfp4", "mxfp4"):
        yield Stored(".weight_packed", "U8", (*outer, out, into // 2))
        yield Stored(".weight_scale", scale, (*outer, out, -(-into // (scheme.group_size or into))))
        if scheme.name == "nvfp4":
            yield Stored(".weight_global_scale", "F32", (1,))
            if scheme.input_scale:
                yield Stored(".input_global_scale", "F32", (1,))
        return
    if scheme.format == "marlin-24":
        # Half of the columns are kept, in tiles of 16, with their places in 2 bits each.
        # https://github.com/vllm-project/compressed-tensors/tree/0.10.2 (sparse_quantized_compressors/marlin_24.py)
        yield Stored(".weight_packed", "I32", (into // 32, out * 16 // (32 // scheme.bits)))
        yield Stored(".meta", "I16", (into // 32, out * 2))
        groups = -(-into // scheme.group_size) if scheme.group_size else 1
        yield Stored(".scale_packed", "F16", (groups, out))
        return
    if scheme.packed > 1:
        yield Stored(".weight_packed", "I32", (*outer, out, -(-into // scheme.packed)))
        yield Stored(".weight_shape", "I64", (2,))
    else:
        yield Stored(".weight", "F8_E4M3" if scheme.name.startswith(("fp8", "mxfp8")) else "I8", (*outer, out, into))
    shape = _scale_shape(out, into, scheme)
    yield Stored(".weight_scale", scale, (*outer, *shape))
    if scheme.zero_points:
        rows = -(-out // scheme.packed) if scheme.packed > 1 else out
        yield Stored(".weight_zero_point", "I32" if scheme.packed > 1 else "I8", (*outer, rows, *shape[1:]))
    if scheme.ordered:
        yield Stored(".weight_g_idx", "I32", (into,))
    if scheme.input_scale:
        yield Stored(".input_scale", scale, (1,))


def _scale_shape(out: int, into: int, scheme: WeightScheme) -> tuple[int, ...]:
    if scheme.block is not None:
        return (-(-out // scheme.block[0]), -(-into // scheme.block[1]))
    if scheme.group_size is not None:
        return (out, -(-into // scheme.group_size))
    return (1,) if scheme.name == "fp8-tensor" or scheme.format == "tensor" else (out, 1)
