"""Schemes, groups, blocks and types of scales that are others than the configuration claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from onecat.checkpoints.contradictions.situation import Matrix, Situation, several
from onecat.checkpoints.quantization.schemes import MX_GROUP, NVFP4_GROUP
from onecat.checkpoints.records import Problem

NOT_COMPARED = frozenset({"packed", "torchao", "gemma"})
"""Containers whose tensors are only known by name, or whose engine is not vLLM."""

SAME_SCALES = ({"F32", "BF16", "F16"}, {"U8", "F8_E8M0"})
"""Types of scales that engines take for one another."""

FORMATS_OWN = {"nvfp4": NVFP4_GROUP, "mxfp4": MX_GROUP, "mxfp8": MX_GROUP}
"""Elements that share a scale by a format's definition: there, other groups are wrong whatever is claimed of them."""


def differs(at: Situation) -> Iterator[Problem]:
    """Scheme, group size, block, type of scales: one problem for each way in which the claim is wrong."""
    claim = at.checkpoint.quantization
    if claim is None or claim.container in NOT_COMPARED:
        return
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for each in at.matrices:
        if each.claimed is not None and each.observed.name is not None:
            for code, claimed, stored in _differences(each):
                found[code, claimed, stored].append(each.stem)
    for (code, claimed, stored), stems in found.items():
        if code == "scale-shape":
            text = f"stores {stored} in {several(stems)}; the format has {claimed}"
            yield Problem(code, text, at.place, "download the weight files again, or convert the checkpoint anew")
            continue
        yield Problem(
            code, f"claims {claimed}, stored is {stored}: {several(stems)}", at.config,
            "correct quantization_config in config.json, or copy it from the checkpoint's publisher",
        )  # fmt: skip


def _differences(each: Matrix) -> Iterator[tuple[str, str, str]]:
    claimed, seen = each.claimed, each.observed
    assert claimed is not None
    if not _same_scheme(claimed.name, str(seen.name)):
        yield "scheme-differs", claimed.name, str(seen.name)
        return
    if claimed.block is not None and seen.block is not None and seen.scale_shape:
        out, into = seen.shape[-2:]
        expected = (-(-out // claimed.block[0]), -(-into // claimed.block[1]))
        if expected != seen.scale_shape[-2:]:
            yield "block-differs", "blocks of {} x {}".format(*claimed.block), "{} x {}".format(*seen.block)
    elif seen.group_size and seen.group_size != FORMATS_OWN.get(str(seen.name), seen.group_size):
        yield "scale-shape", f"groups of {FORMATS_OWN[str(seen.name)]}", f"groups of {seen.group_size}"
    elif claimed.block is None and seen.group_size and claimed.group_size not in (None, seen.group_size):
        yield "group-size-differs", f"groups of {claimed.group_size}", f"{seen.group_size}"
    if claimed.scale_dtype and seen.scale_dtype and not _same_scales(claimed.scale_dtype, seen.scale_dtype):
        yield "scale-dtype-differs", f"scales of {claimed.scale_dtype}", seen.scale_dtype


def _same_scheme(claimed: str, stored: str) -> bool:
    """Whether two names may be one storage: 4-bit tables cannot be told apart, one row's scale is a tensor's."""
    if stored in ("packed", "4-bit", claimed):
        return True
    whole = {"fp8", "fp8-tensor", "fp8-channel", "fp8-group", "fp8-block"}
    return stored == "fp8" and claimed in whole


def _same_scales(one: str, other: str) -> bool:
    return one == other or any({one, other} <= alike for alike in SAME_SCALES)
