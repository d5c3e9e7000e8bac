"""Quantization: how a checkpoint says that its weights are stored, in all public flavours.

In: config.json and the files beside it that describe quantisation. Out: a `Quantization`, or None for weights as they
were trained. A new flavour is a new file in flavours/.
"""

from onecat.checkpoints.quantization.reading import read_quantization
from onecat.checkpoints.quantization.records import Quantization, Rule, WeightScheme

__all__ = ["Quantization", "Rule", "WeightScheme", "read_quantization"]
