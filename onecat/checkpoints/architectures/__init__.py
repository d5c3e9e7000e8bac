"""Architectures: what a config.json says a model is made of.

In: config.json. Out: an `Architecture` with all parameters by name and shape, and what each layer keeps per token.
A new family is a new file in families/.
"""

from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.description import describe
from onecat.checkpoints.architectures.records import (
    Architecture,
    Cache,
    Encoder,
    Experts,
    KeyValueLayers,
    LatentLayers,
    State,
    StateLayers,
    Weight,
)

__all__ = [
    "Architecture",
    "Cache",
    "Configuration",
    "Encoder",
    "Experts",
    "IncompleteConfiguration",
    "KeyValueLayers",
    "LatentLayers",
    "State",
    "StateLayers",
    "Weight",
    "describe",
]
