"""How weights are stored, and whether engine and card can read that."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.engines import has_kernel, least_capability
from onecat.planner.capabilities import told
from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation

READ_UNASKED = ("config.json", "hf_quant_config.json")
"""Files in which the engine looks for the method by itself (vllm/transformers_utils/config.py: get_config; of others
only get_quant_config in model_loader/weight_utils.py knows, which is told the method)."""


def quantization(at: Situation) -> Iterator[Refusal]:
    asked, found = at.value("quantization"), at.checkpoint.quantization
    stored, form = (None, None) if found is None else (found.method, found.format)
    known = at.schema.quantization
    methods = [each for each in known if "/" not in each]
    if at.schema.unknown is not None:
        return
    if isinstance(asked, str) and asked not in known:
        yield Refusal(
            "quantization-unknown",
            f"{at.schema.family} {at.schema.version} has no quantization method {asked}",
            ("leave quantization out: the engine reads it from the checkpoint", f"one of: {', '.join(methods)}"),
        )
        return
    if stored is not None and asked is None and stored not in known:
        yield Refusal(
            "quantization-unknown",
            f"the checkpoint is quantized with {stored}, which {at.schema.family} {at.schema.version} does not read",
            (f"take a checkpoint in one of: {', '.join(methods)}",),
        )
        return
    if found is not None and asked is None and found.stated_in not in READ_UNASKED:
        yield Refusal(
            "quantization-unasked",
            f"only {found.stated_in} says that the weights are stored by {stored}, and the engine reads that file only "
            "when it is asked for the method",
            (f"quantization: {stored}",),
        )
        return
    if asked == "fp8" and stored == "compressed-tensors":
        yield Refusal(
            "quantization-mismatch",
            "quantization fp8 is asked for and the checkpoint is in compressed-tensors format",
            ("leave quantization out: the engine reads it from the checkpoint",),
        )
        return
    method = asked if isinstance(asked, str) else stored
    if method is not None and not has_kernel(at.schema, method, form):
        yield Refusal(
            "quantization-no-kernel",
            f"{at.profile.engine.name} {at.schema.version} has no kernel for {form or method} on its hardware",
            ("take a checkpoint without quantization, or a profile with a GPU",),
        )
        return
    least = least_capability(at.schema, method, form) if method is not None else None
    if at.capability is not None and least is not None and at.capability < least:
        yield Refusal(
            "quantization-capability",
            f"quantization {method} needs compute capability {told(least)}; the card has {told(at.capability)}",
            ("take a checkpoint in float16, or in a method the card can run",),
        )
