"""The checkpoint that is to be served."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check


@check(
    "model.checkpoint",
    title="The checkpoint is whole and the engine can serve it",
    why="A torn shard or a format that the engine does not know ends the start after minutes of loading.",
    fix=("onecat plan --model PATH refuses what the engine of the profile would refuse",),
    source=("https://github.com/QwenLM/Qwen3-VL/issues/264",),
)
def model_checkpoint(context: Context) -> Iterator[Verdict]:
    """The checkpoint that --model names."""
    if context.settings.model is None:
        yield Verdict("skip", "Not checked: no checkpoint was named (--model PATH)")
    else:
        yield Verdict("skip", "Not checked: this version of doctor does not read checkpoints; onecat plan --model does")
