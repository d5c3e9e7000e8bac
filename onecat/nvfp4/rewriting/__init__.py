"""Writing a checkpoint that is made from another, tensor by tensor.

In: a `Rewrite`, the pure plan of all files and of how each tensor comes about. Out: a directory that is whole or says
that it is not; a run that was killed goes on with the next one, and ends with the same bytes.
"""

from onecat.nvfp4.rewriting.execution import Rewritten, rewrite
from onecat.nvfp4.rewriting.progress import Progress, Say, Show
from onecat.nvfp4.rewriting.records import Contents, Made, Rewrite, Shard, Step, StepReport
from onecat.nvfp4.rewriting.source import SourceFiles, SourceTensor, open_source

__all__ = [
    "Contents",
    "Made",
    "Progress",
    "Rewrite",
    "Rewritten",
    "Say",
    "Shard",
    "Show",
    "SourceFiles",
    "SourceTensor",
    "Step",
    "StepReport",
    "open_source",
    "rewrite",
]
