"""Flat weight files, `model.bin` with 4-bit codes and FP16 scales, turned into plain checkpoints.

In: the file (with `scales.bin` in one variant), and a table of its tensors from a layout file or from config.json. Out:
an `Import`, whose `rewrite` the executor carries out. The format is known from articles alone, which contradict each
other; all that is assumed stands in a `Layout`, and a file whose length does not add up is refused.
"""

from onecat.nvfp4.flat_files.layouts import Layout, read_layout
from onecat.nvfp4.flat_files.lengths import Seen, look
from onecat.nvfp4.flat_files.opening import FlatSource, is_flat, open_flat
from onecat.nvfp4.flat_files.planning import Import, plan_import

__all__ = ["FlatSource", "Import", "Layout", "Seen", "is_flat", "look", "open_flat", "plan_import", "read_layout"]
