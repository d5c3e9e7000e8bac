"""What Ascend chips lack."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.knowledge.ascend import ascend_chip
from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation


def fp8_on_ascend(at: Situation) -> Iterator[Refusal]:
    """No NPU of the profile's names has FP8 unless the table of chips says so."""
    chips = [ascend_chip(name) for name in at.profile.hardware.gpu_names]
    if at.profile.hardware.accelerator != "ascend" or not chips or any(chip is None or chip.fp8 for chip in chips):
        return
    names = f"Ascend {at.profile.hardware.gpu_names[0]}"
    found = at.checkpoint.quantization
    stored = None if found is None else found.format or found.method
    if at.value("quantization") == "fp8" or stored in ("fp8", "float-quantized"):
        yield Refusal(
            "quantization-fp8-ascend",
            f"the weights are FP8, and {names} has no path for them",
            ("serve a W8A8 or BF16 checkpoint of the model",),
        )
    if str(at.value("kv-cache-dtype")).startswith("fp8"):
        yield Refusal("kv-cache-dtype-fp8", f"{names} has no FP8 KV cache", ("kv-cache-dtype: auto",))
