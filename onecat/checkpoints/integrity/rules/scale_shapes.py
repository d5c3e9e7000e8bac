"""Scales against the shapes of the weights that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onecat.checkpoints.contradictions.situation import several
from onecat.checkpoints.integrity.contents import Contents
from onecat.checkpoints.integrity.modules import Module, modules
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.integrity.registry import rule
from onecat.checkpoints.integrity.storage_claims import Claims, claims
from onecat.checkpoints.integrity.stored_sizes import OtherSize, other_size
from onecat.checkpoints.json_text import DOWNLOAD_AGAIN
from onecat.checkpoints.numbering import first_of
from onecat.checkpoints.quantization.reading import stated_claim

Shape = tuple[int, ...]
Wrong = tuple[str, str]
"""Code, and what is wrong."""

NVFP4_SOURCE = (
    "https://github.com/vllm-project/compressed-tensors/blob/main/src/compressed_tensors/compressors/nvfp4/base.py"
)
FP8_SOURCE = "https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/quantization/fp8.py"
GPTQ_SOURCE = "https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/quantization/gptq.py"
MXFP4_SOURCE = "https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/quantization/mxfp4.py"
_FLOAT8 = ("F8_E4M3", "F8_E5M2")


@rule
def scale_shapes(contents: Contents) -> Iterator[Fault]:
    """Each scale has the shape that the shape of its weight and the format ask for."""
    claimed = claims(contents.documents)
    found = list(modules(contents.tensors()))
    scaled = any(module.get("weight_scale", "weight_scale_inv") for module in found)
    wrong: dict[tuple[str, str, str], list[Module]] = {}
    for module in found:
        for (code, text), source in _wrongs(module, claimed, scaled, complete=not contents.broken):
            wrong.setdefault((code, text, source), []).append(module)
    names_of_wrong = [module.name for (code, _, _), those in wrong.items() if code == "scale-shape" for module in those]
    other = other_size(found, names_of_wrong, claimed)
    if other is not None:
        yield _of_configuration(other, contents)
    for (code, text, source), all_those in wrong.items():
        explained = other.modules if other is not None and code == "scale-shape" else ()
        those = [module for module in all_those if module.name not in explained]
        if not those:
            continue
        names = first_of([module.name for module in those])
        why = "The engine ends while it loads this weight, or multiplies it with the scales of others."
        yield Fault(code, "fail", f"{text}: {names}", those[0].file, DOWNLOAD_AGAIN, why, source)


def _of_configuration(other: OtherSize, contents: Contents) -> Fault:
    """Whole scales of another size than is claimed: what is wrong is the file that claims it."""
    claim = stated_claim({name: contents.document(name) for name in contents.documents})
    where = "config.json" if claim is None else claim.where
    fix = f"correct the quantisation in {where}, or copy it from the checkpoint's publisher"
    why = "The engine ends while it loads these weights, or multiplies them with the scales of others."
    return Fault(other.code, "fail", f"{other.text}: {several(other.modules)}", where, fix, why, GPTQ_SOURCE)


def _wrongs(module: Module, claimed: Claims, scaled: bool, *, complete: bool) -> Iterator[tuple[Wrong, str]]:
    packed = module.get("weight_packed")
    weight = module.get("weight")
    if weight is not None and weight.dtype == "U32":
        return  # MLX packs in uint32 with `scales` and `biases`: `inspect` tells what that is
    if module.get("blocks", "scales") is not None and module.get("qweight") is None:
        yield from ((each, MXFP4_SOURCE) for each in _mxfp4_blocks(module, complete))
    elif module.get("qweight") is not None:
        yield from ((each, GPTQ_SOURCE) for each in _integer_columns(module, claimed, complete))
    elif packed is not None and packed.dtype == "I32":
        yield from ((each, NVFP4_SOURCE) for each in _packed_integers(module, claimed, complete))
    elif packed is not None or (weight is not None and weight.dtype == "U8" and _is_of_blocks(module)):
        yield from ((each, NVFP4_SOURCE) for each in _packed_floats(module, complete))
    elif weight is not None and weight.dtype in _FLOAT8:
        yield from ((each, FP8_SOURCE) for each in _float8(module, claimed, scaled and complete))
    elif weight is None and complete and (scale := module.get("weight_scale", "weight_scale_inv")) is not None:
        yield ("orphan-scale", f"a scale of {_told(scale.shape)} has no weight"), FP8_SOURCE


def _is_of_blocks(module: Module) -> bool:
    """Whether bytes have scales as NVFP4 and MXFP4 do; Gemma's whole numbers have float32 scales of rows."""
    scale = module.get("weight_scale")
    return scale is not None and scale.dtype in ("F8_E4M3", "F8_E8M0", "U8")


def _packed_floats(module: Module, complete: bool) -> Iterator[Wrong]:
    weight = module.get("weight_packed", "weight")
    scale = module.get("weight_scale")
    assert weight is not None
    if scale is None:
        if complete:
            yield "missing-scale", "4-bit weights have no weight_scale"
        return
    group = 16 if scale.dtype == "F8_E4M3" else 32
    if not weight.shape or weight.shape[-1] * 2 % group:
        yield "packed-shape", f"4-bit weights of {_told(weight.shape)} bytes are no multiple of {group} values long"
        return
    yield from _held(scale.shape, (*weight.shape[:-1], weight.shape[-1] * 2 // group), weight.shape, "4-bit weights")
    if complete and group == 16 and module.get("weight_global_scale", "weight_scale_2") is None:
        yield "missing-scale", "NVFP4 weights have no scale of the whole tensor"


def _mxfp4_blocks(module: Module, complete: bool) -> Iterator[Wrong]:
    blocks, scales = module.get("blocks"), module.get("scales")
    if blocks is None or scales is None:
        if complete:
            yield "missing-scale", "there is only one of blocks and scales"
        return
    if not blocks.shape or blocks.shape[-1] != 16:
        yield "packed-shape", f"MXFP4 blocks of {_told(blocks.shape)} do not hold 16 bytes, which are 32 values"
        return
    yield from _held(scales.shape, blocks.shape[:-1], blocks.shape, "MXFP4 blocks")


def _float8(module: Module, claimed: Claims, must_have: bool) -> Iterator[Wrong]:
    weight = module["weight"]
    scale = module.get("weight_scale_inv", "weight_scale")
    if scale is None:
        if must_have:
            yield "missing-scale", "FP8 weights have no scale, and others of this checkpoint have one"
        return
    if len(weight.shape) < 2:
        return
    *outer, rows, columns = weight.shape
    blocks = [(*outer, -(-rows // high), -(-columns // wide)) for high, wide in claimed.blocks or ((128, 128),)]
    groups = [(*outer, rows, -(-columns // 32))] if scale.dtype in ("U8", "F8_E8M0") else []
    whole = [(), (1,), (*outer,), (*outer, 1), (*outer, 1, 1)]
    channels = [(*outer, rows), (*outer, rows, 1)]
    is_block = "weight_scale_inv" in module.parts and (claimed.blocks or len(scale.shape) >= 2)
    # Modules that were joined when they were stored have a scale for each.
    joined = [(count,) for count in (2, 3, 4)] + [(*outer, 2)]
    allowed = [*blocks, *groups] if is_block else [*blocks, *groups, *whole, *channels, *joined]
    if scale.shape not in allowed:
        text = f"FP8 weights of {_told(weight.shape)} have scales of {_told(scale.shape)}, expected "
        expected = [blocks[0]] if is_block else [blocks[0], channels[1], (1,)]
        yield "scale-shape", text + " or ".join(map(_told, expected))


def _packed_integers(module: Module, claimed: Claims, complete: bool) -> Iterator[Wrong]:
    packed, scale = module["weight_packed"], module.get("weight_scale")
    if scale is None:
        if complete:
            yield "missing-scale", "packed integers have no weight_scale"
        return
    *outer, words = packed.shape if packed.shape else (0,)
    for bits in claimed.bits or (4, 8):
        columns = words * 32 // bits
        groups = {-(-columns // size) for size in claimed.groups if size > 0} | {1}
        fits = scale.shape[-1:] and (scale.shape[-1] in groups if claimed.groups else columns % scale.shape[-1] == 0)
        if scale.shape == tuple(outer) or (scale.shape[:-1] == tuple(outer) and scale.shape[-1] and fits):
            return
    size = f" and groups of {', '.join(map(str, claimed.groups))}" if claimed.groups else ""
    text = f"packed integers of {_told(packed.shape)} words have scales of {_told(scale.shape)}"
    yield "scale-shape", f"{text}, which do not fit{size}"


def _integer_columns(module: Module, claimed: Claims, complete: bool) -> Iterator[Wrong]:
    weight, scales, zeros = module["qweight"], module.get("scales"), module.get("qzeros")
    if scales is None:
        if complete:
            yield "missing-scale", "qweight has no scales"
        return
    if len(weight.shape) != 2 or len(scales.shape) != 2:
        return
    bits = claimed.bits or (4, 8, 3, 2)
    groups, outputs = scales.shape
    # GPTQ packs along the inputs, AWQ along the outputs.
    inputs = [weight.shape[0] * 32 // each for each in bits if weight.shape[1] == outputs]
    inputs += [weight.shape[0] for each in bits if weight.shape[1] * 32 // each == outputs]
    text = f"qweight of {_told(weight.shape)} words has scales of {_told(scales.shape)}"
    if not inputs:
        yield "scale-shape", f"{text}, which are for another number of outputs"
        return
    if claimed.groups:
        rows = {-(-each // size) if size > 0 else 1 for each in inputs for size in claimed.groups}
        if groups not in rows:
            yield "scale-shape", f"{text}, expected {_told((min(rows), outputs))}"
    if zeros is not None and len(zeros.shape) == 2:
        columns = {-(-outputs * each // 32) for each in bits}
        if zeros.shape[0] != groups or zeros.shape[1] not in columns:
            yield "scale-shape", f"scales of {_told(scales.shape)} have zero points of {_told(zeros.shape)}"
    order = module.get("g_idx")
    if order is not None and order.shape and order.shape != (0,) and order.shape[0] not in inputs:
        yield "scale-shape", f"qweight of {_told(weight.shape)} words has a g_idx of {_told(order.shape)}"


def _held(shape: Shape, expected: Shape, weight: Shape, what: str) -> Iterator[Wrong]:
    if shape != expected:
        yield "scale-shape", f"{what} of {_told(weight)} have scales of {_told(shape)}, expected {_told(expected)}"


def _told(shape: Iterable[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"
