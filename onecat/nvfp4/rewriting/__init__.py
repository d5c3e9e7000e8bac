"""Writing a checkpoint that is made from another, tensor by tensor.

In: a `Rewrite`, the pure plan of all files and of how each tensor comes about. Out: a directory that is whole or says
that it is not; a run that was killed goes on with the next one, and ends with the same bytes.

TARGET/.onecat-rewrite holds, until the end: `state.json` (schema onecat.rewrite-state/1: what is made, from which
files, and the names of all that is written; as long as it is there, the target is not finished), `lock` (held by the
run that is at it, with its process id), and of weight file N `N.unfinished` (its bytes so far; renamed into its place
when it is whole) and `N.jsonl` (a line for each step: what it measured, and the CRC-32 of all bytes up to its end).
"""

from onecat.nvfp4.rewriting.execution import Rewritten, check_target, rewrite
from onecat.nvfp4.rewriting.layout import size_of
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
    "check_target",
    "open_source",
    "rewrite",
    "size_of",
]
