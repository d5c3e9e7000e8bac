"""Quantised checkpoints turned back into plain ones, which every engine loads.

In: a checkpoint with NVFP4 or FP8 weights, of any container. Out: a `Dequantisation`, whose `rewrite` the executor
carries out. What cannot be read is refused before anything is written.
"""

from onecat.nvfp4.dequantisation.opening import Original, open_original
from onecat.nvfp4.dequantisation.planning import Dequantisation, plan_dequantisation, quantised_weights
from onecat.nvfp4.dequantisation.targets import DEFAULT_SHARD_BYTES, PLAIN_DTYPES, Target

__all__ = [
    "DEFAULT_SHARD_BYTES",
    "PLAIN_DTYPES",
    "Dequantisation",
    "Original",
    "Target",
    "open_original",
    "plan_dequantisation",
    "quantised_weights",
]
