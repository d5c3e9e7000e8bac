"""Convert a plain checkpoint to NVFP4 or to FP8 in blocks.

In: a `Request`, a directory of safetensors as they were trained. Out: another directory that vLLM, compressed-tensors
and transformers load, and an `Outcome` with the error of each module and why others were left alone.
"""

from onecat.nvfp4.conversion.converting import convert
from onecat.nvfp4.conversion.records import ConvertedModule, Group, LeftAlone, Outcome, Request, Selection, Sizes

__all__ = ["ConvertedModule", "Group", "LeftAlone", "Outcome", "Request", "Selection", "Sizes", "convert"]
