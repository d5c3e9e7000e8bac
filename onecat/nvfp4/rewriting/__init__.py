"""Writing a checkpoint that is made from another, tensor by tensor.

In: a `Rewrite`, the pure plan of all files and of how each tensor comes about. Out: a directory that is whole or says
that it is not; a run that was killed goes on with the next one, and ends with the same bytes.
"""

from onecat.nvfp4.rewriting.execution import Rewritten, rewrite
from onecat.nvfp4.rewriting.progress import Progress, Show
from onecat.nvfp4.rewriting.records import Made, Rewrite, Shard, Step, StepReport
from onecat.nvfp4.rewriting.source import SourceFiles, SourceTensor, open_source

__all__ = [
    "Made",
    "Progress",
    "Rewrite",
    "Rewritten",
    "Shard",
    "Show",
    "SourceFiles",
    "SourceTensor",
    "Step",
    "StepReport",
    "open_source",
    "rewrite",
]
