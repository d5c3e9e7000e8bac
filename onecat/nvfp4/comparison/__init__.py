"""A quantised checkpoint against the one that it was made of, and against itself: are these its weights?

In: directories. Out: a `Comparison` with the error of each module and its faults, a `NibbleOrder`, a `Perplexity`
(which `onecat.deploy.perplexity` measures).
"""

from onecat.nvfp4.comparison.comparing import compare
from onecat.nvfp4.comparison.nibbles import NibbleOrder, nibble_order
from onecat.nvfp4.comparison.perplexity import Perplexity
from onecat.nvfp4.comparison.records import ComparedModule, Comparison

__all__ = ["ComparedModule", "Comparison", "NibbleOrder", "Perplexity", "compare", "nibble_order"]
