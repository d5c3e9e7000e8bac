"""Adapters merged into checkpoints: LoRA as PEFT writes it, into NVFP4, FP8 and plain weights.

In: a base's directory, an adapter's directory, and where the merged checkpoint goes. Out: a checkpoint of the same
scheme, and for each module how much the rounding has cost; what is not understood of an adapter is refused.
"""

from onecat.nvfp4.adapters.repacking import ModuleResult, Repacked, Request, repack

__all__ = ["ModuleResult", "Repacked", "Request", "repack"]
